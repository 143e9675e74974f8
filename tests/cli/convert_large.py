#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GPT-2 124M through every format and back, bit for bit; the peak memory of each conversion is
below 1.2 times the weights, and so is training's way of reading them (weft info)."""

import filecmp
import os
import random
import resource
import shutil
import struct
import sys

WEFT, TMP = os.environ["WEFT"], os.environ["WEFT_TMP"]
L, H, C, T, V, VP = 12, 12, 768, 1024, 50257, 50304
WEIGHTS = 4 * 124_439_808
LIMIT = 1.2


def write_model(path):
    """All bits at random, padding rows 0."""
    rng = random.Random(1)
    block = rng.randbytes(1 << 22)
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240326, 3, T, V, L, H, C, VP, *[0] * 248))
        left = 4 * V * C
        rest = WEIGHTS - left
        for part, pad in ((left, 4 * (VP - V) * C), (rest, 0)):
            while part:
                n = min(part, len(block) - 4)  # not a period of any tensor
                f.write(block[:n])
                part -= n
            f.write(b"\0" * pad)


def peak_of(*args):
    """Runs weft; returns its largest resident set in bytes."""
    pid = os.posix_spawn(WEFT, [WEFT, *args], os.environ)
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"weft {' '.join(args)}: status {status}")
    return usage.ru_maxrss * 1024


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(TMP)
    if shutil.disk_usage(TMP).free < 6 << 30:
        print("skipped: needs 6 GiB of disk")
        return 77
    first = at = os.path.join(TMP, "0.bin")
    write_model(first)
    bad = 0
    for i, to in enumerate(("weft", "safetensors", "weft", "gguf", "weft", "llmc")):
        out = os.path.join(TMP, f"{i + 1}.{to}")
        peak = peak_of("convert", "--from", at, "--to", to, "--out", out)
        print(f"{os.path.basename(at)} -> {os.path.basename(out)}: peak {peak / 1e6:.0f} MB, "
              f"{peak / WEIGHTS:.2f} x the weights, limit {LIMIT}")
        bad += peak > LIMIT * WEIGHTS
        if at != first:
            shutil.rmtree(at) if os.path.isdir(at) else os.remove(at)
        at = out
    if not filecmp.cmp(first, at, shallow=False):
        print("the weights are not what they were")
        bad += 1
    peak = peak_of("info", "--json", at)
    print(f"info: peak {peak / WEIGHTS:.2f} x the weights")
    bad += peak > LIMIT * WEIGHTS
    shutil.rmtree(TMP)
    return 1 if bad else 0


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
