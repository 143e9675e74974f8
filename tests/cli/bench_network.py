#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weft bench and weft bench network as a person uses them: options, table, JSON, errors.

Needs WEFT (the program) and WEFT_TMP (a scratch folder). What needs several ranks is left
out where the program was built without MPI.
"""
import json
import math
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

# Every figure of the file that is one number; those of one host have no inner latency of
# their own, but ranks of this machine share it.
FIGURES = ("latency_s", "bandwidth_Bps", "one_way_bandwidth_Bps", "congested_bandwidth_Bps",
           "rotating_bandwidth_Bps", "congestion", "host_latency_s", "host_bandwidth_Bps",
           "sum_Bps", "message_s", "barrier_s", "agreement_s")
SIZES = [64, 4096, 65536]


def run(*args, ranks=0):
    words = [WEFT, "bench", *map(str, args)]
    if ranks:
        words = [MPIRUN, str(ranks), *words]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=250, check=False)


class Bench(unittest.TestCase):
    def refuse(self, code, pattern, *args, ranks=0):
        done = run(*args, ranks=ranks)
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertIn(pattern, errors[0])
        self.assertEqual(done.stdout, "")
        if not ranks:  # a launcher has a code of its own
            self.assertEqual(done.returncode, code, done.stderr)
        else:
            self.assertNotEqual(done.returncode, 0)

    def test_overview(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("network", done.stdout)
        help_text = run("network", "--help")
        self.assertEqual(help_text.returncode, 0)
        for option in ("--json", "--bytes", "--repeat", "--quiet"):
            self.assertIn(option, help_text.stdout)

    def test_names(self):
        self.refuse(2, "needs what to measure")
        self.refuse(2, "did you mean 'network'", "netwrok")
        self.refuse(2, "see 'weft bench --help'", "xyzzy")

    def test_bad_options(self):
        for words, pattern in (
                (("--repeat", "0"), "--repeat: found 0, needs 1 to 1000"),
                (("--repeat", "1001"), "--repeat: found 1001"),
                (("--bytes", ""), "--bytes: found ''"),
                (("--bytes", "64,"), "--bytes: found '64,'"),
                (("--bytes", "64,32"), "ascending"),
                (("--bytes", "64,64"), "ascending"),
                (("--bytes", "0"), "--bytes: found '0'"),
                (("--bytes", "2G"), "from 1 B to 1 GiB"),
                (("--bytes", "-1"), "--bytes: found '-1'"),
                (("--bytes", "64x"), "--bytes: found '64x'"),
                (("--bytes", "64..32"), "--bytes: found '64..32'"),
                (("--bytes", "..64"), "--bytes: found '..64'"),
                (("--bytes", ",".join(map(str, range(1, 40)))), "needs up to 32"),
                (("--bogus", "1"), "no such option"),
                (("word",), "found 'word'")):
            with self.subTest(words):
                self.refuse(2, pattern, "network", *words)

    def test_one_rank(self):
        self.refuse(2, "found one rank", "network")

    @unittest.skipIf(SERIAL, "built without MPI")
    def test_bad_output(self):
        self.refuse(1, "cannot write there", "network", "--json", TMP / "none" / "n.json",
                    ranks=2)
        self.refuse(2, "needs the name of a file", "network", "--json", TMP, ranks=2)

    @unittest.skipIf(SERIAL, "built without MPI")
    def test_figures(self):
        path = TMP / "network.json"
        for ranks in (2, 3):
            path.unlink(missing_ok=True)
            done = run("network", "--bytes", "64,4k,64k", "--repeat", 2, "--json", path,
                       ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([p.name for p in TMP.iterdir()], ["network.json"])
            figures = json.loads(path.read_text())
            self.check_figures(figures, ranks)
            self.assertIn(f"network of {ranks} ranks on 1 host", done.stdout)
            self.assertIn(figures["library"], done.stdout)
            self.assertIn("64 KiB", done.stdout)

    def check_figures(self, figures, ranks):
        self.assertEqual((figures["format"], figures["version"]), ("weft-network", 1))
        self.assertEqual((figures["ranks"], figures["hosts"]), (ranks, 1))
        self.assertEqual(figures["links"], "ranks")
        for name in FIGURES:
            self.assertTrue(math.isfinite(figures[name]) and figures[name] > 0, name)
        self.assertGreaterEqual(figures["byte_s"], 0)
        self.assertEqual(figures["root_blocks"] % ranks, 0)
        for name, (least, most) in figures["spread"].items():
            self.assertLessEqual(least, figures[name], name)
            self.assertLessEqual(figures[name], most, name)
        self.assertEqual([row["bytes"] for row in figures["sizes"]], SIZES)
        for row in figures["sizes"]:
            for name in ("latency_s", "Bps", "both_ways_Bps", "message_s"):
                self.assertGreater(row[name], 0, row)
        best = max(row["both_ways_Bps"] for row in figures["sizes"])
        self.assertEqual(figures["bandwidth_Bps"], best)

    @unittest.skipIf(SERIAL, "built without MPI")
    def test_quiet(self):
        done = run("network", "--bytes", "64", "--repeat", 1, "--quiet", ranks=2)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    shutil.rmtree(TMP, ignore_errors=True)
    TMP.mkdir(parents=True)
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
