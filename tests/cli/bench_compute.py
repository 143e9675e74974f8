#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weft bench gemm, kernels and step as a person uses them: every option, the table, the
JSON and bad input; and bench/compare with Weft alone.

Needs WEFT (the program) and WEFT_TMP (a scratch folder).
"""
import json
import math
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

WEFT = os.environ["WEFT"]
TMP = Path(os.environ["WEFT_TMP"])
ROOT = Path(__file__).resolve().parents[2]
L, H, C, T, V, VP = 2, 2, 48, 40, 300, 384
MODEL = f"L={L},H={H},C={C},T={T},V={V}"
PARAMETERS = (V + T) * C + L * (12 * C * C + 13 * C) + 2 * C
COMMON = {"--model", "--seq", "--json", "--quiet", "--help"}
OPTIONS = {"gemm": {"--batch", "--threads", "--repeat"},
           "kernels": {"--isa", "--memory", "--repeat"},
           "step": {"--batch", "--accum", "--threads", "--steps", "--isa", "--dtype",
                    "--recompute"}}
PRODUCTS = ("qkv", "attproj", "fc", "fcproj", "head")
PARTS = ("forward", "input gradient", "weight gradient")


def run(*words):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=250, check=False)


class Bench(unittest.TestCase):
    def figures(self, name, *args):
        """The JSON of a quiet run, and its table."""
        path = TMP / f"{name}.json"
        path.unlink(missing_ok=True)
        done = run(WEFT, "bench", name, "--model", MODEL, *args, "--quiet", "--json", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        figures = json.loads(path.read_text())
        self.assertEqual((figures["format"], figures["version"]), (f"weft-{name}", 1))
        self.assertEqual(figures["model"], {"L": L, "H": H, "C": C, "T": T, "V": V,
                                            "parameters": PARAMETERS})
        return figures, done.stdout

    def check_spread(self, row, *names):
        for name in names:
            least, most = row["spread"][name]
            self.assertTrue(0 < least <= row[name] <= most < math.inf, (name, row))

    def check_sizes(self, figures, batch, seq, threads):
        self.assertEqual((figures["batch"], figures["seq"], figures["threads"]),
                         (batch, seq, threads))
        self.assertEqual(figures["machine"]["workers"], threads)
        for name in ("fma_flops", "read_Bps", "copy_Bps", "triad_Bps", "update_Bps",
                     "touch_Bps", "touch_huge_Bps"):
            self.assertGreater(figures["machine"][name], 0, name)

    def test_gemm(self):
        """Every product of a step, once each: 6 operations a weight and token."""
        figures, table = self.figures("gemm", "--batch", 3, "--seq", 31, "--threads", 2,
                                      "--repeat", 2)
        self.check_sizes(figures, 3, 31, 2)
        self.assertEqual(figures["repeat"], 2)
        self.assertIn(figures["library"], table)
        products = figures["products"]
        self.assertEqual(sum(2 * p["m"] * p["n"] * p["k"] * p["calls"] for p in products),
                         6 * 3 * 31 * (VP * C + L * 12 * C * C))
        self.assertEqual({(p["name"], p["part"]) for p in products},
                         {(name, part) for name in PRODUCTS for part in PARTS})
        self.assertAlmostEqual(sum(p["share"] for p in products), 1, places=6)
        for p in products:
            self.assertTrue(p["ok"] and 0 <= p["error"] <= p["limit"] < 1e-4, p)
            self.check_spread(p, "flops", "of_peak")
            self.assertIn(f"{p['m']} x {p['n']} x {p['k']}", table)
        # The whole is between its slowest and its fastest part.
        self.check_spread(figures, "flops", "of_peak")
        self.assertLessEqual(min(p["spread"]["flops"][0] for p in products),
                             figures["flops"])
        self.assertGreaterEqual(max(p["spread"]["flops"][1] for p in products),
                                figures["flops"])

    def test_kernels(self):
        """Every member of struct kernels, in the cache and in memory."""
        text = (ROOT / "src" / "kernels" / "kernels.h").read_text()
        members = re.findall(r"\(\*(\w+)\)\(", text.split("struct kernels {")[1]
                             .split("\n};")[0])
        figures, table = self.figures("kernels", "--seq", 33, "--isa", "generic",
                                      "--memory", "4M", "--repeat", 1)
        self.assertEqual((figures["seq"], figures["repeat"]), (33, 1))
        self.assertEqual(figures["machine"]["memory_bytes"], 4 << 20)
        rows = figures["kernels"]
        self.assertEqual([(r["name"], r["isa"], r["place"]) for r in rows],
                         [(m, "generic", p) for m in members for p in ("cache", "memory")])
        for row in rows:
            self.assertTrue(row["ok"] and 0 <= row["error"] <= row["limit"], row)
            self.check_spread(row, "rate", "of_ceiling")
            self.assertAlmostEqual(row["of_ceiling"] * row["ceiling"] / row["rate"], 1,
                                   places=6)
            self.assertEqual(row["unit"],
                             "flop/s" if row["name"] in ("attention_fwd", "attention_bwd")
                             else "B/s")
            self.assertIn(row["name"], table)

    def check_labels(self, figures, table, tokens, seq):
        labels = {row["label"]: row for row in figures["labels"]}
        self.assertEqual(len(labels), len(figures["labels"]))
        for name in ("qkv", "attproj", "fc", "fcproj", "logits", "head gradient",
                     "weight gradient", "attention", "attention backward", "update"):
            self.assertGreater(labels[name]["floor_s"], 0, name)
            self.assertIn(name, table)
        self.assertIsNone(labels["embedding"]["floor_s"])
        self.assertAlmostEqual(sum(row["tasks"] for row in labels.values()),
                               figures["tasks"], places=3)
        # Floors of products are their operations at the peak.
        flops = sum(row["floor_s"] for name, row in labels.items()
                    if row["floor_s"] and name != "update") \
            * figures["machine"]["fma_flops"] / figures["machine"]["workers"]
        matrices = 6 * tokens * (VP * C + L * 12 * C * C)
        attention = 7 * 2 * tokens * (seq + 1) / 2 * C * L
        self.assertAlmostEqual(flops / (matrices + attention), 1, places=5)

    def test_step(self):
        figures, table = self.figures("step", "--batch", 3, "--seq", 32, "--accum", 2,
                                      "--threads", 2, "--steps", 3, "--isa", "generic")
        tokens = 3 * 32 * 2
        self.check_sizes(figures, 3, 32, 2)
        self.assertEqual((figures["accum"], figures["steps"], figures["isa"],
                          figures["dtype"]), (2, 3, "generic", "fp32"))
        self.assertIn("kernels generic", table)
        self.assertEqual(figures["flops"],
                         6 * PARAMETERS * tokens + 12 * L * C * 32 * tokens)
        self.check_spread(figures, "step_s", "tokens_per_s", "of_peak", "cpu_s",
                          "cpu_of_peak")
        for name in ("all_step_s", "all_cpu_s", "all_peak_flops"):
            self.assertEqual(len(figures[name]), 3)
        self.assertAlmostEqual(figures["tokens_per_s"] * figures["step_s"] / tokens, 1,
                               places=6)
        # Random tokens cannot be told from one another.
        self.assertAlmostEqual(figures["first_loss"], math.log(V), delta=0.2)
        plan = figures["plan"]
        self.assertEqual(plan["total"], sum(plan.values()) - plan["total"])
        # All that is planned is touched.
        self.assertGreater(figures["peak_bytes"] - figures["start_bytes"],
                           0.8 * plan["total"])
        self.check_labels(figures, table, tokens, 32)

    def test_dtype(self):
        """bf16 learns the same with rounded products; progress is told unless --quiet."""
        figures, _ = self.figures("step", "--threads", 1, "--steps", 1, "--dtype", "bf16")
        self.assertEqual((figures["dtype"], figures["batch"], figures["seq"]),
                         ("bf16", 4, T))
        self.assertAlmostEqual(figures["first_loss"], math.log(V), delta=0.2)
        done = run(WEFT, "bench", "step", "--model", MODEL, "--threads", 1, "--steps", 1)
        self.assertEqual(done.returncode, 0)
        self.assertIn("bench step 3/3", done.stderr)
        self.assertNotIn(f"first: {figures['first_loss']:.6g}", done.stdout)

    def test_recompute(self):
        """The same loss from fewer activations and more tasks."""
        found = [self.figures("step", "--threads", 1, "--steps", 1, "--recompute", r)[0]
                 for r in ("none", "mlp", "all")]
        self.assertEqual([f["recompute"] for f in found], ["none", "mlp", "all"])
        self.assertEqual(len({f["last_loss"] for f in found}), 1)
        kept = [f["plan"]["activations"] for f in found]
        self.assertTrue(kept[0] > kept[1] > kept[2], kept)
        again = [{row["label"] for row in f["labels"] if "again" in row["label"]}
                 for f in found]
        self.assertEqual(again[0], set())
        self.assertEqual(again[1], {"ln2 again", "fc again"})
        self.assertEqual(again[2], again[1] | {"ln1 again", "qkv again", "attention again"})

    def test_help(self):
        overview = run(WEFT, "bench", "--help").stdout
        for name, options in OPTIONS.items():
            self.assertIn(f"\n  {name} ", overview)
            done = run(WEFT, "bench", name, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(set(re.findall(r"^  (--[a-z]+)", done.stdout, re.M)),
                             COMMON | options)

    def test_mistakes(self):
        none = TMP / "none" / "f.json"
        for name, code, pattern, *words in (
                ("gemm", 2, "--model gpt3", "--model", "gpt3"),
                ("gemm", 2, "--seq: found 99999", "--seq", "99999"),
                ("gemm", 2, "--batch: found 0", "--batch", "0"),
                ("gemm", 2, "--threads: found 1025", "--threads", "1025"),
                ("gemm", 2, "--repeat: found 0, needs 1 to 100", "--repeat", "0"),
                ("gemm", 1, "cannot write there", "--json", none),
                ("kernels", 2, "--repeat: found 101", "--repeat", "101"),
                ("kernels", 2, "--memory: found 1024, needs 1M", "--memory", "1k"),
                ("kernels", 2, "instruction set 'mmx'", "--isa", "mmx"),
                ("step", 2, "--accum: found 0", "--accum", "0"),
                ("step", 2, "--steps: found 1001", "--steps", "1001"),
                ("step", 2, "instruction set 'mmx'", "--isa", "mmx"),
                ("step", 2, "--dtype", "--dtype", "fp8"),
                ("step", 2, "--recompute", "--recompute", "some"),
                ("step", 2, "no such option", "--bogus", "1"),
                ("step", 2, "found 'word'", "word")):
            with self.subTest((name, *words)):
                done = run(WEFT, "bench", name, *words)
                errors = [e for e in done.stderr.splitlines() if "error:" in e]
                self.assertEqual((done.returncode, len(errors), done.stdout),
                                 (code, 1, ""), done.stderr)
                self.assertIn(pattern, errors[0])


class Compare(unittest.TestCase):
    def test_weft_alone(self):
        path = TMP / "compare.json"
        done = run(sys.executable, ROOT / "bench" / "compare", "--weft", WEFT, "--model",
                   MODEL, "--shapes", "2x16", "--threads", "1,2", "--rounds", 1, "--steps",
                   2, "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(path.read_text())
        self.assertEqual((figures["format"], figures["rounds"], figures["steps"]),
                         ("weft-compare", 1, 2))
        self.assertEqual([(r["batch"], r["seq"], r["threads"]) for r in figures["shapes"]],
                         [(2, 16, 1), (2, 16, 2)])
        for row in figures["shapes"]:
            self.assertEqual(set(row["programs"]), {"weft", "weft bf16"})
            for name in row["programs"]:
                self.assertEqual(len(row["rounds"][0][name]["step_s"]), 2)
        self.assertIn("weft: 2 threads / 1", done.stdout)

    def test_mistakes(self):
        for code, pattern, *words in (
                (2, "needs BxT", "--shapes", "4"),
                (2, "need at least 1", "--rounds", "0"),
                (2, "no program", "--weft", TMP / "none"),
                (1, "no such file", "--llmc", TMP / "none"),
                (1, "cannot import torch", "--torch", "--python", "/bin/false")):
            with self.subTest(words):
                done = run(sys.executable, ROOT / "bench" / "compare", "--weft", WEFT,
                           *words)
                self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
                self.assertIn(pattern, done.stderr)


if __name__ == "__main__":
    shutil.rmtree(TMP, ignore_errors=True)
    TMP.mkdir(parents=True)
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
