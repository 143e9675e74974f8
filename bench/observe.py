#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What watching a run costs it: runs with and without --trace, or on a terminal and not, in
turn; medians of the steps' times, and of the ratios of neighbours.

usage: observe.py [--ranks P] [--rounds N] [--steps N] [--model SPEC] trace|terminal
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import terminal  # noqa: E402
from token_shard import write_tokens  # noqa: E402

WEFT = os.environ.get("WEFT", os.path.join(ROOT, "build", "weft"))


def median_step(a, folder, name, extra, on_terminal):
    command = [WEFT, "train", "--data", "tokens", "--model", a.model, "--batch", "4", "--steps",
               str(a.steps), "--threads", "1", "--out", name, *extra]
    if a.ranks > 1:
        command = ["sh", os.path.join(ROOT, "tests/support/mpirun"), str(a.ranks)] + command
    if on_terminal:
        code, _ = terminal.run(command, 120, cwd=folder, limit_s=3600)
    else:
        code = subprocess.run(command, cwd=folder, stderr=subprocess.DEVNULL, check=False).returncode
    if code != 0:
        sys.exit(f"{' '.join(command)}: exit code {code}")
    with open(os.path.join(folder, name, "metrics.jsonl"), encoding="utf-8") as f:
        steps = [json.loads(line) for line in f]
    return statistics.median(m["step_s"] for m in steps[a.steps // 5:] if "loss" in m)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("what", choices=["trace", "terminal"])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--model", default="L=4,H=4,C=192,T=128,V=384")
    a = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "tokens"))
        write_tokens(os.path.join(folder, "tokens/x_train_000001.bin"), 200000, 384)
        for i in range(a.rounds):
            pair = [0.0, 0.0]
            for on in ((0, 1), (1, 0))[i % 2]:  # who goes first changes
                pair[on] = median_step(a, folder, f"r{i}{on}",
                                       ["--trace"] if on and a.what == "trace" else [],
                                       bool(on) and a.what == "terminal")
            rows.append(pair)
            print(f"round {i}: without {pair[0] * 1e3:.2f} ms, with {pair[1] * 1e3:.2f} ms a step",
                  flush=True)
    ratios = [b / c for c, b in rows]
    print(f"{a.what}: {100 * (statistics.median(ratios) - 1):+.2f} % a step (median of "
          f"{a.rounds} pairs; {100 * (min(ratios) - 1):+.2f} to {100 * (max(ratios) - 1):+.2f})")


if __name__ == "__main__":
    main()
