#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The drivers in bench/ do what they say on this machine: scaling scripts with each way to
start ranks (Slurm's by a stand-in for srun), update.py on a host file, and backends.py.

Needs WEFT (the program), WEFT_TMP (a scratch folder) and an mpirun.
"""
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

WEFT = os.environ["WEFT"]
TMP = Path(os.environ["WEFT_TMP"])
ROOT = Path(__file__).resolve().parents[2]
MPIRUN = ROOT / "tests" / "support" / "mpirun"
LAUNCHER = shutil.which(os.environ.get("WEFT_MPIRUN", "mpirun.openmpi")) or \
    shutil.which("mpirun")
OPEN_MPI = LAUNCHER is not None and "libmpi.so" in subprocess.run(
    ["ldd", WEFT], capture_output=True, text=True, check=False).stdout
MODEL = ["--model", "L=1,H=2,C=64,T=32,V=200"]
SHORT = ["--", "--strategies", "2,3", "--rounds", "1", "--steps", "2", "--quiet"]
ANYWHERE = "--oversubscribe --bind-to none"  # more ranks than cores

SRUN = """#!/bin/sh
# Takes srun's options, of which only the number of ranks counts here.
while :; do
    case $1 in
    --ntasks=*) ranks=${1#--ntasks=} ;;
    --*) ;;
    *) break ;;
    esac
    echo "$1" >>"$SRUN_LOG"
    shift
done
exec "$SRUN_MPIRUN" "$ranks" "$@"
"""


def run(words, env=None, folder=ROOT):
    full = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(env or {})}
    for name in list(full):
        if name.startswith("SLURM_") and name not in (env or {}):
            del full[name]
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=250, cwd=folder,
                          env=full, check=False)


class Scripts(unittest.TestCase):
    def scale(self, mode, ranks, *options, env=None, script=None, batch=4):
        """Runs a scaling script; returns its rows by number of ranks."""
        out = TMP / self.id().rsplit(".", 1)[1] / mode
        done = run([script or ROOT / "bench" / "scaling" / f"{mode}.sh", "--weft", WEFT,
                    "--out", out, "--batch", batch, "--seq", 32, *MODEL, *options, *SHORT],
                   env)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {}
        for p in ranks:
            root = json.loads((out / f"{mode}-{p:04d}.json").read_text())
            self.assertEqual(root["format"], "weft-bench-update")
            rows[p] = root["rows"]
            for row in rows[p]:
                self.assertEqual(row["ranks"], p)
        table = (out / f"{mode}.md").read_text()
        self.assertIn(table, done.stdout)
        for strategy in ("reduce-broadcast", "reduce-scatter"):
            lines = [line.split("|") for line in table.splitlines()
                     if line.startswith(f"| {strategy} ")]
            self.assertEqual([int(line[4]) for line in lines], ranks)
            self.assertEqual(float(lines[0][10]), 1)  # efficiency of the smallest
        self.assertTrue((out / "network.json").is_file())
        return rows

    def test_local(self):
        rows = self.scale("strong", [1, 2], "--local", "--ranks", "1 2")
        self.assertEqual([rows[p][0]["batch"] for p in (1, 2)], [4, 2])
        self.assertIsNotNone(rows[2][0]["wire_bound_s"])
        rows = self.scale("weak", [1, 2], "--local", "--ranks", "1 2")
        self.assertEqual([rows[p][0]["batch"] for p in (1, 2)], [4, 4])

    def test_slurm(self):
        """A batch job runs a copy of the script, which finds the project by itself."""
        tools = TMP / "tools"
        tools.mkdir()
        (tools / "srun").write_text(SRUN)
        (tools / "srun").chmod(0o755)
        copy = shutil.copy(ROOT / "bench" / "scaling" / "weak.sh", tools / "slurm_script")
        env = {"PATH": f"{tools}:{os.environ['PATH']}", "SRUN_MPIRUN": str(MPIRUN),
               "SRUN_LOG": str(TMP / "srun.log"), "SLURM_JOB_ID": "7",
               "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS_PER_NODE": "3",
               "SLURM_CPUS_PER_TASK": "1", "SLURM_SUBMIT_DIR": str(ROOT)}
        self.scale("weak", [1, 2, 3], env=env, script=copy)
        log = (TMP / "srun.log").read_text().split()
        self.assertIn("--ntasks=3", log)
        self.assertIn("--cpus-per-task=1", log)
        self.assertIn("--nodes=1", log)

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI's mpirun")
    def test_host_file(self):
        (TMP / "hosts").write_text("localhost slots=4\n")
        self.scale("strong", [1, 2], "--hostfile", TMP / "hosts", "--ranks", "1 2",
                   "--mpirun", LAUNCHER, "--launch", ANYWHERE)

    def test_errors(self):
        script = ROOT / "bench" / "scaling" / "strong.sh"
        for words, pattern in ((["--local"], "--ranks: needs numbers"),
                               (["--local", "--ranks", "1 x"], "found 'x'"),
                               (["--ranks", "1"], "needs a Slurm job"),
                               (["--local", "--ranks"], "needs a value"),
                               (["--hostfile", "none", "--ranks", "1"], "cannot be read"),
                               (["--bogus"], "found '--bogus'"),
                               (["--local", "--ranks", "1 3", "--batch", "4", "--weft", WEFT,
                                 "--out", TMP / "none"], "needs a multiple of 3")):
            with self.subTest(words):
                done = run([script, *words])
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(pattern, done.stderr)
        self.assertEqual(run([script, "--help"]).returncode, 0)

    def test_generate(self):
        """That it runs: figures need a model that is not in the caches."""
        (TMP / "text.txt").write_text("some words of a text\n" * 200)
        for command in (["tokenize", "--bytes", "--out", TMP / "bytes", TMP / "text.txt"],
                        ["train", "--data", TMP / "bytes", "--model", "L=2,H=2,C=64,T=512", "--seq", 32,
                         "--batch", 1, "--steps", 1, "--out", TMP / "words"],
                        ["convert", "--from", TMP / "words", "--to", "gguf", "--out", TMP / "words.gguf"]):
            self.assertEqual(run([WEFT, *command]).returncode, 0, command)
        done = run([sys.executable, ROOT / "bench" / "generate.py", "--weft", WEFT, "--gguf",
                    TMP / "words.gguf", "--recompute", "--prompt-words", 40, "--rounds", 2, "--tokens", 9])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^\| 2 \| \d+ \|")
        self.assertRegex(done.stdout, r"median: [\d.]+ times as fast as without a cache")

    def test_backends(self):
        """One build under two names: the same rows and tasks twice."""
        done = run([sys.executable, ROOT / "bench" / "backends.py", "--build", f"one={WEFT}",
                    "--build", f"other={WEFT}", "--launch", f"{MPIRUN} 2", *MODEL, "--seq", 32,
                    "--threads", 1, "--steps", 1, "--rounds", 1])
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {}
        for line in done.stdout.splitlines():
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if cells and cells[0].startswith("o"):
                rows[cells[0]] = cells[1:]
        self.assertEqual(list(rows), ["one", "other"] + [
            f"{name}, {engine}" for name in ("one", "other")
            for engine in ("direct", "collective")])
        for name, cells in rows.items():
            self.assertGreater(float(cells[0]), 0, name)
            self.assertRegex(cells[1], r"^[\d.]+ \[[\d.]+, [\d.]+\]$")
        for name in ("one", "one, direct"):
            self.assertEqual(rows[name][1], "1.000 [1.000, 1.000]")
        self.assertEqual(rows["one"][3], rows["other"][3])  # tasks
        self.assertIn("2 ranks, ", done.stdout)

    def test_backends_errors(self):
        for build, pattern in ((WEFT, "needs NAME=WEFT"),
                               (f"none={TMP}/none", f"none: found no program '{TMP}/none'"),
                               ("false=/bin/false", "/bin/false bench step")):
            with self.subTest(build):
                done = run([sys.executable, ROOT / "bench" / "backends.py", "--build", build])
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(pattern, done.stderr)
                self.assertNotIn("Traceback", done.stderr)
                self.assertEqual(done.stdout, "")

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI's mpirun")
    def test_update(self):
        (TMP / "machines").write_text("localhost slots=4\n")
        out = TMP / "update"
        done = run([sys.executable, ROOT / "bench" / "update.py", "--weft", WEFT, "--out", out,
                    "--quick", "--only", "roots", "--only", "upstream", *MODEL, "--seq", 32,
                    "--steps", 1, "--threads", 1, "--hostfile", TMP / "machines", "--ranks", 2,
                    "--mpirun", LAUNCHER, "--launch", ANYWHERE])
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (out / "tables.md").read_text()
        for words in ("## Network", "One root against roots that take turns",
                      "beside ours", "reduce-broadcast, one root", "real compute"):
            self.assertIn(words, text)
        rows = json.loads((out / "roots.json").read_text())["rows"]
        self.assertEqual({(r["engine"], r["one_root"]) for r in rows},
                         {(e, o) for e in ("direct", "collective") for o in (True, False)})
        self.assertEqual(len(json.loads((out / "upstream.json").read_text())["rows"]), 8)


if __name__ == "__main__":
    if not LAUNCHER:
        print("skipped: no mpirun found")
        sys.exit(77)
    shutil.rmtree(TMP, ignore_errors=True)
    TMP.mkdir(parents=True)
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
