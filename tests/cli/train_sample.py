#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""weft train --sample-every: texts in the log, and never a run that ends or changes by them."""

import glob
import os
import re
import shutil
import signal
import subprocess
import sys

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
MPIRUN = os.path.join(os.environ["WEFT_SOURCE"], "tests/support/mpirun")
HAS_MPI = os.environ.get("WEFT_COMM") != "serial"
STEPS = 24
bad = []


def check(right, what):
    if not right:
        bad.append(what)
        print("FAILED:", what)


def tokenize(name, text, *args):
    with open(f"{TMP}/{name}.txt", "w", encoding="utf-8") as f:
        f.write(text)
    subprocess.run([WEFT, "tokenize", "--quiet", *args, "--out", f"{TMP}/{name}",
                    f"{TMP}/{name}.txt"], check=True)


def train(out, data, *args, ranks=1, fault=None, code=0):
    """The lines of the log and the numbers of the last step's checkpoint."""
    start = [MPIRUN, str(ranks)] if ranks > 1 else []
    r = subprocess.run([*start, WEFT, "train", "--data", f"{TMP}/{data}", "--model",
                        "L=2,H=2,C=32,T=32", "--batch", "4", "--lr", "1e-2", "--threads", "1",
                        "--steps", str(STEPS), "--out", f"{TMP}/{out}", *args],
                       capture_output=True, check=False,
                       env=os.environ | ({"WEFT_FAULT": fault} if fault else {}))
    log = r.stderr.decode(errors="replace")
    check(r.returncode == code, f"{out}: exit code {r.returncode}: {log}")
    numbers = []
    for path in sorted(glob.glob(f"{TMP}/{out}/checkpoints/step-{STEPS:06d}/state-*")):
        with open(path, "rb") as f:
            numbers.append(f.read())
    check(len(numbers) == ranks, f"{out}: {len(numbers)} state files")
    return log.splitlines(), numbers


def samples(lines):
    return [re.fullmatch(r"weft: step (\d+)  sample: (.*)", line) for line in lines
            if "sample:" in line]


def test_texts():
    every = ["--sample-every", "7", "--sample-prompt", "No\t1"]
    for ranks in (1, 2) if HAS_MPI else (1,):
        plain, numbers = train(f"plain{ranks}", "bytes", ranks=ranks)
        lines, same = train(f"texts{ranks}", "bytes", *every, ranks=ranks)
        found = samples(lines)
        check(not samples(plain), "no samples unless asked for")
        check([int(m[1]) for m in found if m] == [7, 14, 21], f"sample lines: {lines}")
        check(all(m[2].startswith("No\\x091") and len(m[2]) > 50 for m in found if m),
              f"texts: {[m[2] for m in found if m]}")
        check(len({m[2] for m in found if m}) == 3, "other texts at other steps")
        check(numbers == same, f"{ranks} ranks: the samples changed the weights")
    lines, _ = train("begin", "bytes", "--sample-every", "20")
    check(len(samples(lines)) == 1, f"without a prompt: {lines}")
    lines, _ = train("quiet", "bytes", "--sample-every", "7", "--quiet")
    check(not samples(lines), f"--quiet: {lines}")


def test_memory_is_planned():
    for args, texts in (([], False), (["--sample-every", "7"], True)):
        r = subprocess.run([WEFT, "train", "--dry-run", "--data", f"{TMP}/bytes", "--model",
                            "L=2,H=2,C=32,T=32", "--batch", "4", "--steps", "9", "--out",
                            f"{TMP}/dry", *args], capture_output=True, text=True, check=True)
        found = re.search(r"([\d.]+) MB on rank 0 for texts", r.stderr)
        check(bool(found) == texts, f"{args}: {r.stderr}")
        # Keys and values, and logits of 64 rows.
        check(not found or float(found[1]) >= 0.05, f"{args}: {r.stderr}")


def test_failures():
    """Warnings, and the run goes on."""
    shutil.copytree(f"{TMP}/bytes", f"{TMP}/nameless")
    os.remove(f"{TMP}/nameless/tokens.json")
    for name, data, args, needle in (
            ("no_tokenizer", "nameless", [], "tokens.json"),
            ("bad_prompt", "chars", ["--sample-prompt", "\u4e16"], "U+4E16")):
        for ranks in (1, 2) if HAS_MPI else (1,):
            lines, _ = train(f"{name}{ranks}", data, "--sample-every", "5", *args, ranks=ranks)
            warned = [line for line in lines if "warning" in line and "--sample-every" in line]
            check(len(warned) == 1 and needle in warned[0], f"{name}: {lines}")
            check(not samples(lines), f"{name}: a text all the same")


def test_failure_at_the_end():
    """The last step's checkpoint is there before its text is begun."""
    if os.environ.get("WEFT_FAULTS", "ON") != "ON":
        return
    for action, code in (("fail", 0), ("kill", -signal.SIGKILL)):
        lines, _ = train(f"end.{action}", "bytes", "--sample-every", str(STEPS),
                         fault=f"sample:0:1:{action}", code=code)
        warned = [line for line in lines if "warning" in line and "no sample" in line]
        check(len(warned) == (code == 0), f"end.{action}: {lines}")


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(TMP)
    text = "".join(f"No {i}: words, {i * i} of them\n" for i in range(400))
    tokenize("bytes", text, "--bytes")
    tokenize("chars", text, "--char")
    test_texts()
    test_memory_is_planned()
    test_failures()
    test_failure_at_the_end()
    print(f"{len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
