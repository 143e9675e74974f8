#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weft bench update as a person uses it: lists and what becomes of them, table, JSON, errors.

    bench_update.py [LIBPMPI_CORRUPT]

Needs WEFT (the program) and WEFT_TMP (a scratch folder). What needs several ranks is left
out where the program was built without MPI.
"""
import itertools
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

WEFT = os.environ["WEFT"]
TMP = Path(os.environ["WEFT_TMP"])
SERIAL = os.environ.get("WEFT_COMM") == "serial"
MPIRUN = Path(__file__).resolve().parents[1] / "support" / "mpirun"
CORRUPT = sys.argv.pop(1) if len(sys.argv) > 1 else None

MODEL = "L=2,H=2,C=64,T=64,V=300"
STRATEGIES = ["central", "reduce-broadcast", "reduce-scatter", "allreduce"]
SHORT = ["--model", MODEL, "--batch", 2, "--seq", 32, "--threads", 1, "--steps", 2, "--warmup",
         1, "--rounds", 2, "--quiet"]
NUMBERS = ("compute_s", "alone_s", "step_s", "step_s_min", "step_s_max", "exposed_s",
           "hidden_s", "idle_s", "bytes_per_rank", "messages", "balance", "loss")

NETWORK = {"format": "weft-network", "version": 1, "library": "none", "ranks": 4, "hosts": 4,
           "latency_s": 5e-5, "bandwidth_Bps": 1e8, "congested_bandwidth_Bps": 1e8,
           "host_latency_s": 1e-6, "host_bandwidth_Bps": 1e9, "sum_Bps": 5e9,
           "message_s": 5e-6, "byte_s": 1e-10, "agreement_s": 1e-4}


def run(*args, ranks=0, env=()):
    words = ["env", *env, WEFT, "bench", "update", *map(str, args)]
    if ranks:
        words = [MPIRUN, str(ranks), *words]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=280, check=False)


class Bench(unittest.TestCase):
    def refuse(self, code, pattern, *args, ranks=0, env=()):
        done = run(*args, ranks=ranks, env=env)
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertIn(pattern, errors[0])
        self.assertEqual(done.stdout, "")
        if not ranks:  # a launcher has a code of its own
            self.assertEqual(done.returncode, code, done.stderr)
        else:
            self.assertNotEqual(done.returncode, 0)

    def rows(self, *args, ranks=2, steps=4):
        """Rows of a run; what they say of themselves is checked."""
        path = TMP / "update.json"
        path.unlink(missing_ok=True)
        done = run(*SHORT, "--json", path, *args, ranks=ranks)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertEqual([p.name for p in TMP.glob("update.json*")], ["update.json"])
        root = json.loads(path.read_text())
        self.assertEqual((root["format"], root["version"]), ("weft-bench-update", 1))
        for row in root["rows"]:
            for name in NUMBERS:
                self.assertIsInstance(row[name], (int, float), name)
            self.assertLessEqual(row["step_s_min"], row["step_s"])
            self.assertLessEqual(row["step_s"], row["step_s_max"])
            self.assertLessEqual(row["exposed_s"], row["idle_s"] + 1e-6)
            self.assertEqual(row["ranks"], max(ranks, 1))
            self.assertEqual(row["model"], MODEL)
            self.assertEqual((row["batch"], row["seq"], row["threads"]), (2, 32, 1))
            self.assertEqual(row["steps"], steps)
            self.assertGreater(row["alone_s"], 0)
        for row in root["rows"]:  # a line of the table begins with it
            self.assertTrue(any(line.startswith(row["strategy"])
                                for line in done.stdout.splitlines()), done.stdout)
        return root["rows"]

    def test_help(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        for option in ("--strategies", "--compute", "--one-root", "--network", "wire"):
            self.assertIn(option, done.stdout)

    def test_bad_options(self):
        for words, pattern in (
                ((), "needs --model SPEC"),
                (("--model", "runs/a"), "needs a size"),
                (("--model", "L=2,H=3,C=64,T=64"), "H"),
                (("--model", MODEL, "--strategies", "5"), "--strategies: found '5'"),
                (("--model", MODEL, "--strategies", "central,central"), "--strategies"),
                (("--model", MODEL, "--strategies", ""), "--strategies: found ''"),
                (("--model", MODEL, "--engines", "tampi"), "--engines: found 'tampi'"),
                (("--model", MODEL, "--layouts", "column"), "production|storage"),
                (("--model", MODEL, "--block-bytes", "1"), "--block-bytes: found '1'"),
                (("--model", MODEL, "--block-bytes", "auto,x"), "--block-bytes: found 'x'"),
                (("--model", MODEL, "--overlap", "yes"), "--overlap: found 'yes'"),
                (("--model", MODEL, "--split-embedding", "1"), "--split-embedding"),
                (("--model", MODEL, "--wire", "fp16"), "--wire: found 'fp16'"),
                (("--model", MODEL, "--schedules", "ring"), "--schedules: found 'ring'"),
                (("--model", MODEL, "--roots", "2"), "--roots: found '2'"),
                (("--model", MODEL, "--host-memory", "no"), "--host-memory: found 'no'"),
                (("--model", MODEL, "--compute", "-1"), "--compute: found -1"),
                (("--model", MODEL, "--steps", "0"), "--steps: found 0"),
                (("--model", MODEL, "--warmup", "0"), "--warmup: found 0"),
                (("--model", MODEL, "--rounds", "0"), "--rounds: found 0"),
                (("--model", MODEL, "--seq", "65"), "--seq: found 65, needs 1 to 64"),
                (("--model", MODEL, "--batch", "0"), "--batch: found 0"),
                (("--model", MODEL, "--threads", "9999"), "--threads: found 9999"),
                (("--model", MODEL, "--engines", "collective", "--wire", "bf16"),
                 "nothing to measure"),
                (("--model", MODEL, "word"), "found 'word'")):
            with self.subTest(words):
                self.refuse(2, pattern, *words)
        self.refuse(1, "cannot open", "--model", MODEL, "--network", TMP / "none.json")
        self.refuse(1, "cannot write there", "--model", MODEL, "--json", TMP / "no" / "u.json")

    def test_one_rank(self):
        rows = self.rows("--strategies", "2,3", "--wire", "fp32,bf16", "--split-embedding",
                         "on,off", "--schedules", "auto,flat", "--one-root", ranks=0)
        # What means nothing for one rank is not measured twice.
        self.assertEqual([row["strategy"] for row in rows], STRATEGIES[1:3])
        for row in rows:
            self.assertEqual((row["bytes_per_rank"], row["messages"]), (0, 0))
            self.assertEqual(row["exposed_s"], 0)

    @unittest.skipIf(SERIAL, "built without MPI")
    def test_bytes_are_those_planned(self):
        for ranks in (2, 3):
            rows = self.rows("--split-embedding", "off", "--layouts", "production,storage",
                             "--block-bytes", "16k,one", "--wire", "fp32,bf16",
                             "--host-memory", "on,off", "--strategies", "1,2,3,4",
                             "--rounds", 1, "--steps", 1, ranks=ranks, steps=1)
            self.assertEqual(len(rows), 4 * 2 * 2 * 2 * 2)
            for row in rows:
                self.assertEqual(row["bytes_per_rank"], row["bytes_predicted"], row)
            own = [r for r in rows if not r["host_memory"] and r["blocks"] >= 8 * ranks
                   and r["wire"] == "fp32"]
            self.assertTrue(own)
            for row in own:  # rank 0 sends (P - 1) times what the others do
                central = row["strategy"] == "central"
                self.assertAlmostEqual(row["balance"], ranks / 2 if central else 1,
                                       delta=0.02, msg=row)

    @unittest.skipIf(SERIAL, "built without MPI")
    def test_rows_of_all_lists(self):
        rows = self.rows("--strategies", "2,4", "--engines", "direct,collective",
                         "--overlap", "on,off", "--split-embedding", "on,off", "--wire",
                         "fp32,bf16", "--roots", "1,2", "--host-memory", "off", "--rounds", 1,
                         steps=2)
        found = {(r["strategy"], r["engine"], r["overlap"], r["split_embedding"], r["wire"],
                  r["roots"]) for r in rows}
        self.assertEqual(len(found), len(rows))
        wanted = {(s, e, o, m, w, k) for s, e, o, m, w, k in itertools.product(
            ("reduce-broadcast", "allreduce"), ("direct", "collective"), (True, False),
            (True, False), ("fp32", "bf16"), (1, 2))
            if not (e == "collective" and w == "bf16") and not (s == "allreduce" and k == 2)}
        self.assertEqual(found, wanted)
        losses = [r["loss"] for r in rows]
        self.assertLess(max(losses) - min(losses), 1e-2)

    @unittest.skipIf(SERIAL, "built without MPI")
    def test_one_root(self):
        rows = self.rows("--strategies", "reduce-broadcast,reduce-scatter", "--one-root",
                         "--host-memory", "off", "--block-bytes", "16k", ranks=3)
        self.assertEqual([(r["strategy"], r["one_root"]) for r in rows],
                         [("reduce-broadcast", False), ("reduce-broadcast", True),
                          ("reduce-scatter", False)])
        self.assertGreater(rows[1]["balance"], 1.4)
        self.assertLess(rows[0]["balance"], 1.1)
        self.assertGreater(rows[1]["link_bytes"], 1.4 * rows[0]["link_bytes"])

    @unittest.skipIf(SERIAL, "built without MPI")
    def test_naps(self):
        rows = self.rows("--compute", 0.1, "--strategies", "2", "--longest-nap", "0,500",
                         "--host-memory", "off", ranks=2)
        self.assertEqual([r["longest_nap_us"] for r in rows], [0, 500])
        polling, napping = (r["comm_cpu_s"] for r in rows)
        self.assertGreater(napping, 0)
        self.assertGreater(polling, 2 * napping)

    @unittest.skipIf(SERIAL, "built without MPI")
    def test_simulated_compute_and_bounds(self):
        (TMP / "network.json").write_text(json.dumps(NETWORK))
        rows = self.rows("--compute", 0.05, "--network", TMP / "network.json",
                         "--strategies", "1,2,3,4", "--host-memory", "on,off", "--wire",
                         "fp32,bf16", ranks=3)
        for row in rows:
            self.assertEqual(row["compute_s"], 0.05)
            self.assertEqual(row["compute"], "simulated")
            self.assertGreater(row["step_s_min"], 0.04)
            self.assertGreater(row["alone_s"], 0.04)
            # All share one host: the links are those of its ranks.
            self.assertAlmostEqual(row["wire_bound_s"],
                                   row["link_bytes"] / NETWORK["host_bandwidth_Bps"])
            self.assertEqual(row["bound_s"], max(row["wire_bound_s"], row["compute_s"]))
            self.assertGreater(row["predicted_s"], 0.045)
            self.assertLess(row["predicted_s"], 1)
        shared = [r["link_bytes"] for r in rows if r["host_memory"]
                  and r["strategy"] == "reduce-scatter"]
        self.assertEqual(set(shared), {0})
        own = [r for r in rows if not r["host_memory"] and r["strategy"] == "reduce-scatter"
               and r["wire"] == "fp32"]
        # 2 (P - 1) / P of the gradient in each direction.
        parameters = json.loads((TMP / "update.json").read_text())["parameters"]
        for row in own:
            self.assertAlmostEqual(row["link_bytes"] / (2 * 2 / 3 * 4 * parameters), 1,
                                   delta=0.1)

    @unittest.skipIf(SERIAL or not CORRUPT, "built without MPI")
    def test_wrong_rows_are_not_shown(self):
        preload = (f"LD_PRELOAD={CORRUPT}",)
        words = [*SHORT, "--host-memory", "off", "--split-embedding", "off"]
        for strategy in STRATEGIES:
            for more in ((), ("--compute", "0.02")):
                with self.subTest(strategy + " ".join(more)):
                    self.refuse(70, strategy, *words, *more, "--strategies", strategy,
                                ranks=2, env=preload)


if __name__ == "__main__":
    shutil.rmtree(TMP, ignore_errors=True)
    TMP.mkdir(parents=True)
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
