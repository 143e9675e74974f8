#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a run shows while it runs: the live line on a terminal, plain lines elsewhere, the
banner, and weft watch from beside."""

import json
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.environ["WEFT_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import terminal  # noqa: E402
from token_shard import write_tokens  # noqa: E402

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
TRAIN = [WEFT, "train", "--data", "tokens", "--model", "L=2,H=2,C=64,T=64,V=384", "--batch",
         "4", "--threads", "1", "--log-every", "1000000"]
failures = []


def check(condition, text):
    if not condition:
        failures.append(text)
        print(f"FAILED: {text}")


def visible(text):
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


def live_lines(part):
    """Each state of the line that is redrawn in place."""
    found = re.findall(r"\r\x1b\[K([^\r\n]*)", part.decode("utf-8", "replace"))
    return [line for line in found if "train" in line]


def live_line():
    code, parts = terminal.run(TRAIN + ["--steps", "1000", "--out", "live"], 120, cwd=TMP,
                               resize_to=50)
    check(code == 0, f"train on a terminal: exit code {code}: {parts}")
    wide, narrow = live_lines(parts[0]), live_lines(parts[1])
    check(len(wide) > 2 and len(narrow) > 2, f"{len(wide)} and {len(narrow)} live lines")
    whole = r"train \d+/1000 steps \(\d+ %\)  ETA \d+\w+  loss \d\.\d{4}  \d+ tokens/s"
    for line in wide[2:]:
        check(re.match(whole, visible(line)), f"live line: {visible(line)!r}")
        check("MFU" in line and "\x1b[1;36m" in line, f"live line: {line!r}")
    for line in narrow[2:]:
        check(len(visible(line)) < 50, f"{len(visible(line))} characters of 50: {line!r}")
        check(re.match(r"train \d+/1000 steps", visible(line)), f"narrow: {line!r}")
        check(not re.search(r"\s$|tokens$", visible(line)), f"a field is cut: {line!r}")


def no_color():
    code, parts = terminal.run(TRAIN + ["--steps", "200", "--out", "plain"], 100, cwd=TMP,
                               env={"NO_COLOR": "1"})
    check(code == 0 and live_lines(parts[0]), f"NO_COLOR: {code}, {parts[0][-200:]}")
    check(b"\x1b[1" not in parts[0] and b"\x1b[3" not in parts[0], "NO_COLOR: colours")


def plain_lines_and_banner():
    done = subprocess.run(TRAIN[:-1] + ["5", "--steps", "20", "--out", "piped"], cwd=TMP,
                          capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == 0 and "\x1b" not in done.stderr and "\r" not in done.stderr,
          f"not on a terminal: {done.stderr!r}")
    check(len(re.findall(r"^weft: step \d+/20  loss .* ETA ", done.stderr, re.M)) == 4,
          f"plain lines: {done.stderr}")
    for words in ("model: L=2", "1 worker a rank; kernels", "binding: 1 rank on this host",
                  "memory a rank: parameters"):
        check(words in done.stderr, f"banner: no '{words}' in {done.stderr}")


def crowded_cores():
    cores = len(os.sched_getaffinity(0))
    done = subprocess.run(TRAIN[:-3] + [str(cores + 1), "--steps", "2", "--out", "crowded"],
                          cwd=TMP, capture_output=True, text=True, timeout=120, check=False)
    check(f"{cores + 1} workers on {cores} core" in done.stderr and
          "--bind-to none" in done.stderr, f"too many workers: {done.stderr}")


def watch():
    done = subprocess.run([WEFT, "watch", "live"], cwd=TMP, capture_output=True, text=True,
                          timeout=60, check=False)
    check(done.returncode == 0 and "1000/1000" in done.stdout and "\x1b" not in done.stdout,
          f"watch of a finished run: {done.stdout} {done.stderr}")
    check("ended: done" in done.stdout and "ETA" not in done.stdout,
          f"what a finished run still needs: {done.stdout}")
    check(sum("⠀" <= c <= "⣿" for c in done.stdout) > 40 or
          done.stdout.count("*") > 40, f"watch draws no curve: {done.stdout}")
    done = subprocess.run([WEFT, "watch", "live"], cwd=TMP, capture_output=True, text=True,
                          timeout=60, check=False, env=dict(os.environ, LC_ALL="C"))
    check(done.stdout.isascii() and done.stdout.count("*") > 40, f"in ASCII: {done.stdout}")
    follow()
    done = subprocess.run([WEFT, "watch", "nowhere"], cwd=TMP, capture_output=True, text=True,
                          timeout=60, check=False)
    check(done.returncode == 1 and "no metrics.jsonl" in done.stderr, f"watch: {done.stderr}")


def follow():
    """A run that goes on while it is watched: the picture changes, and watching ends with
    the run."""
    grows = os.path.join(TMP, "grows")
    os.makedirs(grows, exist_ok=True)
    script = (
        "import json, time\n"
        f"m = open('{grows}/metrics.jsonl', 'w'); e = open('{grows}/events.jsonl', 'w')\n"
        "e.write(json.dumps({'event': 'start', 'step': 0, 'steps': 40}) + '\\n'); e.flush()\n"
        "for i in range(1, 41):\n"
        "    m.write(json.dumps({'step': i, 'loss': 5 - i / 10, 'step_s': 0.1}) + '\\n')\n"
        "    m.flush(); time.sleep(0.08)\n"
        "e.write(json.dumps({'event': 'end', 'step': 40, 'why': 'done'}) + '\\n')\n")
    writer = subprocess.Popen([sys.executable, "-c", script])
    while not os.path.exists(os.path.join(grows, "metrics.jsonl")):
        pass
    code, parts = terminal.run([WEFT, "watch", "grows"], 70, cwd=TMP, limit_s=60)
    writer.wait()
    text = parts[0].decode("utf-8", "replace")
    states = re.findall(r"(\d+)/40", visible(text))
    check(code == 0 and len(set(states)) >= 3 and states[-1] == "40",
          f"following a run: {code}, {states}")
    for line in visible(text).replace("\r", "").split("\n"):
        check(len(line) <= 70, f"a line of {len(line)} characters on 70: {line!r}")


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(os.path.join(TMP, "tokens"))
    write_tokens(os.path.join(TMP, "tokens/x_train_000001.bin"), 20000, 384)
    live_line()
    no_color()
    plain_lines_and_banner()
    crowded_cores()
    watch()
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
