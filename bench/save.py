#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long saving a checkpoint keeps the training from its steps, in the background and
blocking, in turn: bench/save.py --weft build/weft [--model gpt2] [--ranks 1] [--dir DIR]

Each run saves twice before its end, ten steps apart so that nothing waits for the first; the
second is taken, so that the first touch of the copy's memory is not in it. DIR (default: a folder here) tells the file
system. Prints a row a run with the peak of the largest rank's memory, as planned and as measured
(resident set), and what the copy costs: the ratio of the median stalls, the difference of the
median peaks.
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
    ids = array("H", [i * 7919 % 64 for i in range(100000)])
    with open(os.path.join(folder, "bench_train_000001.bin"), "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(ids), *([0] * 253)) + ids.tobytes())


def run(args, folder, data, mode):
    """The second save of a run, and the memory of a rank in MB: planned, and the peak."""
    out = os.path.join(folder, mode)
    command = ["sh", MPIRUN, str(args.ranks)] if args.ranks > 1 else []
    command += [args.weft, "train", "--data", data, "--model", args.model, "--out", out,
                "--batch", str(args.batch), "--seq", str(args.seq), "--steps", "30",
                "--save-every", "10", "--keep", "1", "--save", mode]
    with open(out + ".log", "w+", encoding="utf-8") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log)
        # The larger one of the process and its children, that is of a launcher's ranks.
        _, code, usage = os.wait4(job.pid, 0)
        job.returncode = os.waitstatus_to_exitcode(code)
        log.seek(0)
        text = log.read()
    if job.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{text}")
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    saves = [line for line in lines if "save_s" in line]
    memory = re.search(r"= ([0-9.]+) MB(?:, and ([0-9.]+) MB while saving)?", text)
    shutil.rmtree(out)
    total = float(memory.group(1)) + float(memory.group(2) or 0) if memory else 0
    return saves[1] | {"planned": total, "peak": usage.ru_maxrss * 1024 / 1e6}


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
    found = {"background": [], "blocking": []}
    try:
        data = os.path.join(folder, "data")
        write_data(data)
        print(f"{'mode':12} {'MB':>8} {'save s':>8} {'stall s':>8} {'planned MB':>11} {'peak MB':>8}",
              flush=True)
        for _ in range(args.rounds):
            for mode, saves in found.items():
                save = run(args, folder, data, mode)
                saves.append(save)
                print(f"{mode:12} {save['save_bytes'] / 1e6:8.0f} {save['save_s']:8.2f} "
                      f"{save['save_stall_s']:8.3f} {save['planned']:11.0f} {save['peak']:8.0f}",
                      flush=True)
    finally:
        shutil.rmtree(folder)
    stall, blocked = (statistics.median(save["save_stall_s"] for save in saves)
                      for saves in found.values())
    more, less = (statistics.median(save["peak"] for save in saves) for saves in found.values())
    print(f"the background save stops training for {stall:.3f} s, a blocking one for "
          f"{blocked:.3f} s: {100 * stall / blocked:.1f} %\nit takes {more - less:.0f} MB more in "
          f"the largest rank; the checkpoint has {saves[0]['save_bytes'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
