#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long saving a checkpoint keeps the training from its steps, in the background and
blocking, in turn: bench/save.py --weft build/weft [--model gpt2] [--ranks 1] [--dir DIR]

Each run does a few steps and saves twice before its end; the second of these is taken, so that
the first touch of the copy's memory is not in it. DIR (default: a folder here) tells the file
system. Prints a row a run, the ratio of the medians and the memory planned for a rank, copy included.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from array import array

HERE = os.path.dirname(os.path.abspath(__file__))
MPIRUN = os.path.join(HERE, "..", "tests", "support", "mpirun")


def write_data(folder):
    """Any tokens do."""
    os.makedirs(folder)
    ids = array("H", [i * 7919 % 50000 for i in range(100000)])
    with open(os.path.join(folder, "bench_train_000001.bin"), "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(ids), *([0] * 253)) + ids.tobytes())


def run(args, folder, data, mode):
    """The second save of a run, and the memory planned for a rank."""
    out = os.path.join(folder, mode)
    command = ["sh", MPIRUN, str(args.ranks)] if args.ranks > 1 else []
    command += [args.weft, "train", "--data", data, "--model", args.model, "--out", out,
                "--batch", str(args.batch), "--seq", str(args.seq), "--steps", "9",
                "--save-every", "3", "--keep", "1", "--save", mode]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    text = done.stdout
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{text}")
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    saves = [line for line in lines if "save_s" in line]
    memory = re.search(r"= ([0-9.]+) MB(?:, and ([0-9.]+) MB while saving)?", text)
    shutil.rmtree(out)
    total = float(memory.group(1)) + float(memory.group(2) or 0) if memory else 0
    return saves[1] | {"memory": total}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--weft", required=True)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=".")
    args = parser.parse_args()
    args.weft = os.path.abspath(args.weft)
    folder = tempfile.mkdtemp(prefix="weft-save-", dir=args.dir)
    stalls = {"background": [], "blocking": []}
    try:
        data = os.path.join(folder, "data")
        write_data(data)
        print(f"{'mode':12} {'MB':>8} {'save s':>8} {'stall s':>8} {'planned MB a rank':>18}")
        for _ in range(args.rounds):
            for mode, found in stalls.items():
                save = run(args, folder, data, mode)
                found.append(save["save_stall_s"])
                print(f"{mode:12} {save['save_bytes'] / 1e6:8.0f} {save['save_s']:8.2f} "
                      f"{save['save_stall_s']:8.3f} {save['memory']:18.0f}", flush=True)
    finally:
        shutil.rmtree(folder)
    medians = {mode: statistics.median(found) for mode, found in stalls.items()}
    print(f"the background save stops training for {medians['background']:.3f} s, a blocking "
          f"one for {medians['blocking']:.3f} s: "
          f"{100 * medians['background'] / medians['blocking']:.1f} %")


if __name__ == "__main__":
    main()
