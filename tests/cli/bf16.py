#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training with bf16 products beside fp32: bf16.py [STEPS] [SEEDS]

Both train the same small model on the same text, this project's documents as bytes. The
loss, as a mean over tenths of the run, must stay within 1 % of fp32's; it must not be the
very same, and a run must go on in the other precision and say so.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

WEFT = os.environ.get("WEFT", "weft")
SOURCE = Path(os.environ.get("WEFT_SOURCE", "."))
TMP = Path(os.environ.get("WEFT_TMP", "bf16-test")).absolute()
LIMIT = 0.01


def weft(*words):
    done = subprocess.run([WEFT, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"weft {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout + done.stderr


def train(out, steps, seed, dtype, *more):
    text = weft("train", "--data", TMP / "data", "--model", "L=2,H=4,C=128,T=64,V=257", "--out", out,
                "--batch", 8, "--steps", steps, "--lr", 1e-3, "--warmup", 20, "--seed", seed,
                "--eval-every", 0, "--save-every", steps, "--dtype", dtype, "--threads", 2, *more)
    with open(out / "metrics.jsonl", encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return text, [line["loss"] for line in lines if "loss" in line]


def tenths(losses):
    size = len(losses) // 10
    return [sum(losses[i * size:(i + 1) * size]) / size for i in range(10)]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    shutil.rmtree(TMP, ignore_errors=True)
    TMP.mkdir(parents=True)
    weft("tokenize", "--bytes", "--out", TMP / "data", SOURCE / "docs")
    worst = 0
    for seed in range(1, seeds + 1):
        _, whole = train(TMP / f"fp32-{seed}", steps, seed, "fp32")
        text, half = train(TMP / f"bf16-{seed}", steps, seed, "bf16")
        if not re.search(r"products .* in bf16", text):
            sys.exit(f"bf16: nothing says so:\n{text}")
        if whole == half:
            sys.exit("bf16: the losses are those of fp32")
        ratios = [abs(b / a - 1) for a, b in zip(tenths(whole), tenths(half))]
        print(f"seed {seed}: last tenth {tenths(whole)[-1]:.4f} fp32, {tenths(half)[-1]:.4f} bf16; "
              f"largest difference {100 * max(ratios):.3f} %")
        worst = max(worst, *ratios)
    text, _ = train(TMP / "bf16-1", steps + 2, 1, "fp32", "--resume", "auto")
    if not re.search(r"dtype.*bf16.*fp32", text):
        sys.exit(f"resume: found no line that names the change of dtype:\n{text}")
    print(f"found a difference of at most {100 * worst:.3f} %, needs {100 * LIMIT:g} %")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
