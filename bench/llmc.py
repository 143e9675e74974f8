#!/usr/bin/env python3
"""Tokens a second of `weft train` beside llm.c's train_gpt2, in turns, in one run.

    bench/llmc.py --weft build/weft --llmc 64=/path/train_gpt2 --llmc 256=/path/other \
                  [--threads 2] [--rounds 5] [--steps 4] [--json FILE]

llm.c's program has B = 4 and its sequence length built in: give one binary for each T,
built by its own Makefile (`make train_gpt2 CC=gcc`; `int T` in main() sets the length).
Both train the same random 124M model, which this script writes, on the same tokens. A
round runs one, then the other. What is timed are the last --steps steps of each run: Weft
has 4 steps before them, in which its memory is touched for the first time, llm.c one.
Figures are medians: of the steps of a run, then of the runs. Needs numpy.
"""
import argparse
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy

L, H, C, MAX_T, V, VP, B = 12, 12, 768, 1024, 50257, 50304, 4
WEFT_WARM_UP = 4


def write_model(path):
    rng = numpy.random.default_rng(1)
    header = numpy.zeros(256, "<i4")
    header[:8] = [20240326, 3, MAX_T, V, L, H, C, VP]

    def normal(f, rows, cols, sigma=0.02):
        f.write((rng.standard_normal((rows, cols), "f4") * sigma).astype("<f4").tobytes())

    def constant(f, count, value):
        f.write(numpy.full(count, value, "<f4").tobytes())

    with open(path, "wb") as f:
        f.write(header.tobytes())
        normal(f, V, C)
        constant(f, (VP - V) * C, 0)
        normal(f, MAX_T, C)
        residual = 0.02 / (2 * L) ** 0.5
        for kind, rows, cols, law in (
                ("ln1w", 1, C, 1), ("ln1b", 1, C, 0), ("qkvw", 3 * C, C, 0.02),
                ("qkvb", 1, 3 * C, 0), ("attprojw", C, C, residual), ("attprojb", 1, C, 0),
                ("ln2w", 1, C, 1), ("ln2b", 1, C, 0), ("fcw", 4 * C, C, 0.02),
                ("fcb", 1, 4 * C, 0), ("fcprojw", C, 4 * C, residual), ("fcprojb", 1, C, 0)):
            for _ in range(L):
                if rows == 1:
                    constant(f, cols, law)
                else:
                    normal(f, rows, cols, law)
        constant(f, C, 1)
        constant(f, C, 0)


def write_tokens(path, count, seed):
    ids = numpy.random.default_rng(seed).integers(0, V, count).astype("<u2")
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        f.write(ids.tobytes())


def run_weft(args, work, T):
    run = tempfile.mkdtemp(dir=work)
    env = dict(os.environ)
    subprocess.run([args.weft, "train", "--data", f"{work}/dev/data/tinyshakespeare/"
                    "tiny_shakespeare_train.bin", "--model", f"{work}/gpt2_124M.bin",
                    "--out", run, "--batch", str(B), "--seq", str(T), "--threads",
                    str(args.threads), "--steps", str(WEFT_WARM_UP + args.steps), "--lr", "1e-4",
                    "--weight-decay", "0", "--clip", "0", "--quiet"],
                   check=True, env=env)
    steps = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    times = [s["step_s"] for s in steps if "step_s" in s][WEFT_WARM_UP:]
    return B * T / statistics.median(times), steps[0]["loss"]


def run_llmc(args, work, T, binary):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    times, first_loss = [], None
    # Into a pipe its lines would come in blocks, after the last step.
    with subprocess.Popen(["stdbuf", "-oL", os.path.abspath(binary)], cwd=work, env=env,
                          stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            m = re.match(r"step \d+: train loss (\S+) \(took (\S+) ms\)", line)
            if m:
                first_loss = first_loss or float(m.group(1))
                times.append(float(m.group(2)) / 1e3)
            if len(times) > args.steps:
                process.kill()
                break
    if len(times) <= args.steps:
        sys.exit(f"{binary}: found {len(times)} steps, needs {args.steps + 1}")
    return B * T / statistics.median(times[1:]), first_loss


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--weft", required=True)
    p.add_argument("--llmc", action="append", required=True, metavar="T=PATH")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--json")
    args = p.parse_args()
    args.weft = os.path.abspath(args.weft)
    results = []
    with tempfile.TemporaryDirectory() as work:
        os.makedirs(f"{work}/dev/data/tinyshakespeare")
        write_model(f"{work}/gpt2_124M.bin")
        for split in "train", "val":
            write_tokens(f"{work}/dev/data/tinyshakespeare/tiny_shakespeare_{split}.bin",
                         64 * B * MAX_T + 1, split == "val")
        print(f"{'T':>5} {'weft tok/s':>11} {'llm.c tok/s':>11} {'ratio':>7} "
              f"{'min..max':>13}   first loss of each")
        for pair in args.llmc:
            T, binary = pair.split("=", 1)
            rounds = []
            for _ in range(args.rounds):
                ours, our_loss = run_weft(args, work, int(T))
                theirs, their_loss = run_llmc(args, work, int(T), binary)
                rounds.append({"weft": ours, "llmc": theirs, "ratio": ours / theirs})
            ratios = [r["ratio"] for r in rounds]
            row = {"T": int(T), "B": B, "threads": args.threads, "rounds": rounds,
                   "weft": statistics.median(r["weft"] for r in rounds),
                   "llmc": statistics.median(r["llmc"] for r in rounds),
                   "ratio": statistics.median(ratios)}
            results.append(row)
            print(f"{T:>5} {row['weft']:>11.1f} {row['llmc']:>11.1f} {row['ratio']:>7.2f} "
                  f"{min(ratios):>6.2f}..{max(ratios):<6.2f}  {our_loss:.4f} "
                  f"{their_loss:.4f}", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
