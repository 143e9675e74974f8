#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What weft train --dry-run says is so: the memory that a run takes, within a tenth, with
checkpoints beside the steps and without; that it cannot write; that there is nothing to
do. And a run's own config.ini starts it again."""

import json
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.environ["WEFT_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from token_shard import write_tokens  # noqa: E402

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
TRAIN = [WEFT, "train", "--data", "tokens", "--model", "L=2,H=4,C=384,T=128,V=30000", "--batch",
         "4", "--steps", "2", "--threads", "1"]
SANITIZED = os.environ["WEFT_SANITIZE"] not in ("", "OFF")
failures = []


def train(*args):
    """Log and peak memory [MB] of one process."""
    log = os.path.join(TMP, "log")
    with open(log, "w", encoding="utf-8") as out:
        pid = os.posix_spawn(WEFT, [*TRAIN, *args], os.environ,
                             file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1),
                                           (os.POSIX_SPAWN_DUP2, out.fileno(), 2)])
        _, status, usage = os.wait4(pid, 0)
    with open(log, encoding="utf-8") as f:
        text = f.read()
    if status != 0:
        sys.exit(f"train {' '.join(args)}: exit code {os.waitstatus_to_exitcode(status)}\n{text}")
    return text, usage.ru_maxrss * 1024e-6


def compare(name, *args):
    said, _ = train("--out", f"{name}-plan", "--dry-run", *args)
    line = re.search(r"memory a rank: (.*) = ([\d.]+) MB(?:, and ([\d.]+) MB while saving)?", said)
    if not line:
        sys.exit(f"no line about memory:\n{said}")
    parts = [float(x) for x in re.findall(r"[\d.]+", line[1])]
    total = float(line[2])
    copy = float(line[3] or 0)
    _, peak = train("--out", name, *args)
    print(f"{name}: planned {total:.1f} + {copy:.1f} MB, measured {peak:.1f} MB")
    if abs(sum(parts) - total) > 0.4:
        failures.append(f"{name}: the parts {line[1]} are not {total}")
    if SANITIZED:
        print(f"{name}: the sanitizers' own memory is not planned, so the peak is not compared")
    elif abs(peak / (total + copy) - 1) > 0.1:
        failures.append(f"{name}: planned {total + copy:.1f} MB, measured {peak:.1f} MB")
    return copy


def losses(run):
    with open(f"{run}/metrics.jsonl", encoding="utf-8") as f:
        return [line["loss"] for line in map(json.loads, f) if "loss" in line]


def recomputes():
    """Less memory, as planned, and the very same losses; the run's config.ini has it."""
    write_tokens("small/x_train_000001.bin", 20000, 500)
    small = ("--data", "small", "--save-every", "0", "--batch", "8", "--model",
             "L=4,H=4,C=384,T=128,V=500")
    words = ("none", "mlp", "all")
    found = [train("--out", f"recompute-{r}", "--recompute", r, *small) for r in words]
    planned = [float(re.search(r"activations ([\d.]+)", text)[1]) for text, _ in found]
    peaks = [peak for _, peak in found]
    print(f"--recompute: planned activations of {planned} MB, peaks of {peaks} MB")
    # Floats of 1536 numbers a row and layer, of 1024 rows and three layers.
    saved = 1e-6 * 4 * 1536 * 1024 * 3
    for values, limit in (planned, 0.99), (peaks, 0 if SANITIZED else 0.8):
        if min(values[0] - values[1], values[1] - values[2]) < limit * saved:
            failures.append(f"--recompute: found {values} MB, needs {saved:.1f} MB less each")
    if not losses("recompute-none") == losses("recompute-mlp") == losses("recompute-all"):
        failures.append("--recompute: other losses")
    with open("recompute-mlp/config.ini", encoding="utf-8") as f:
        if not re.search(r"^recompute *= *mlp$", f.read(), re.M):
            failures.append("--recompute is not in config.ini")
    done = subprocess.run([*TRAIN, "--out", "other", "--recompute", "some"], capture_output=True,
                          text=True, timeout=60, check=False)
    if done.returncode != 2 or "none|mlp|all" not in done.stderr:
        failures.append(f"--recompute some: {done.returncode}, {done.stderr}")


def refuses():
    with open("plain", "w", encoding="utf-8") as f:
        f.write("a file")
    for out in ("plain", "plain/below"):
        done = subprocess.run([*TRAIN, "--out", out, "--dry-run"], capture_output=True, text=True,
                              timeout=60, check=False)
        if done.returncode != 1 or "plain" not in done.stderr:
            failures.append(f"--out {out}: exit code {done.returncode}, {done.stderr[-300:]}")


    done = subprocess.run([*map(os.fsencode, TRAIN), b"--out", b"L\xe4ufe", b"--dry-run"],
                          capture_output=True, text=True, timeout=60, check=False, errors="replace")
    if done.returncode != 2 or "valid UTF-8" not in done.stderr:
        failures.append(f"--out with a byte that is no UTF-8: {done.returncode}, {done.stderr}")


def starts_again():
    """By its own options, all of which stand in the file, also those of what is off."""
    for more, words in ([], "nothing to do"), (["--steps", "4"], "memory a rank"):
        done = subprocess.run([WEFT, "train", "--config", "last/config.ini", *more, "--dry-run"],
                              capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0 or words not in done.stderr:
            failures.append(f"--config {more}: {done.returncode}, no '{words}': {done.stderr[-300:]}")
        if "changed: --sample-prompt" in done.stderr:
            failures.append(f"a prompt that ends in a blank is said to have changed: {done.stderr}")
    done = subprocess.run([*TRAIN, "--out", "other", "--trace-steps", "3"], capture_output=True,
                          text=True, timeout=60, check=False)
    if done.returncode != 2 or "--trace" not in done.stderr:
        failures.append(f"--trace-steps without --trace: {done.returncode}, {done.stderr}")


def counts():
    """Validation tokens are those of weft info and of weft eval; one step is one step."""
    write_tokens("tokens/x_val_000001.bin", 1000, 30000)
    info = json.loads(subprocess.run([WEFT, "info", "--json", "tokens/x_val_000001.bin"],
                                     capture_output=True, check=True, timeout=60).stdout)
    for more, predicted in ((), 896), (("--eval-batches", "1"), 512):
        said, _ = train("--out", "counts", "--dry-run", "--steps", "1", *more)
        needle = f"validation: {info['tokens']} tokens in 1 file, {predicted} predicted each time"
        if needle not in said or "; 1 step = " not in said:
            failures.append(f"no '{needle}', or not '1 step', in {said}")


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    for folder in ("tokens", "small"):
        os.makedirs(os.path.join(TMP, folder))
    os.chdir(TMP)
    write_tokens("tokens/x_train_000001.bin", 20000, 30000)
    if compare("last", "--save-every", "0", "--sample-prompt", "The ") != 0:
        failures.append("a copy is planned for the last checkpoint, which needs none")
    if compare("blocking", "--save-every", "1", "--save", "blocking") != 0:
        failures.append("a copy is planned with --save blocking")
    if compare("beside", "--save-every", "1") == 0:
        failures.append("no copy is planned for checkpoints beside the steps")
    recomputes()
    counts()
    refuses()
    starts_again()
    for text in failures:
        print(f"FAILED: {text}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
