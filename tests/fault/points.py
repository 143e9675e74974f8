#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One rank of four fails at the named points of src/base/fault.h: the job ends by itself, its
exit code is not 0, one line names the rank, no process is left, and the last checkpoint
loads. Then numbers that go wrong on one rank: all stop before the update, the rank and the
tensor are named.

usage: points.py [--all] [part of a case's name ...]    --all: every point on every rank,
and not only some of them on one
"""
import os
import re
import shutil
import sys
import threading
import time

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403
from kill import Job, left_of  # noqa: E402

SPEC = "L=2,H=2,C=32,T=16,V=64"
RANKS = 1 if SERIAL else 4
KILLED = (137, 9)  # Open MPI's launcher, MPICH's
# Without --all.
SHORT = ("backward", "return", "save-write", "save-rename")
few_at_a_time = threading.Semaphore(2)

# Point: how often it is passed before a checkpoint is sure to be there, and whether all
# ranks pass it. Points of a step are passed once a step with one block.
POINTS = {"start": (1, True), "load": (1, True), "data": (9, True), "forward": (9, True),
          "backward": (9, True), "reduce": (9, True), "agree": (9, True), "update": (9, True),
          "return": (9, True), "weights": (5, True), "evaluate": (2, True),
          "save-begin": (2, False), "save-copy": (2, True), "save-write": (2, True),
          "save-sync": (2, True), "save-manifest": (2, False), "save-rename": (2, False),
          "save-latest": (2, False), "prune": (2, False)}
# Points that can be refused by the system, and what comes of it: exit code, what is said.
FAILS = {"load": 1, "data": 1, "save-begin": 1, "save-write": 1, "save-sync": 1,
         "save-manifest": 1, "save-rename": 1, "save-latest": 0, "prune": 0}
# Points of tokenize_dies(), of tests/cli/train_sample.py and of stall.py.
ELSEWHERE = {"tokenize", "sample", "prepare", "end"}


def points_of_source():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "base", "fault.h")) as f:
        text = f.read()
    return set(re.findall(r'"([a-z-]+)"', text[text.index("define FAULT_POINTS"):
                                               text.index("enum { FAULT_WAIT_S")]))


def train(out, *extra):
    return ["train", "--data", os.path.join(TMP, "data"), "--model", SPEC, "--out", out,
            "--batch", "2", "--steps", "16", "--save-every", "3", "--eval-every", "4",
            "--eval-batches", "1", "--threads", "1", "--block-bytes", "one", "--strategy",
            "reduce-scatter", "--check-sync", "2", "--keep", "2"] + list(extra)


def go(out, args, fault=None):
    """Exit code, log, and complaints of processes still there a moment later."""
    env = {"WEFT_MPIRUN_LOUD": "1"}
    if fault:
        env["WEFT_FAULT"] = fault
    path = out + ".log"
    with open(path, "ab+") as log:
        begin = log.tell()
        job = Job(RANKS, args, log, env=env)
        job.find_ranks(10)
        pids = list(job.pids)
        code = job.end(60)
    left = left_of(pids)
    with open(path, "rb") as f:
        f.seek(begin)
        return code, f.read().decode("utf-8", "replace"), left


def errors_of(text):
    """What the program or, for a rank that is gone, the launcher says."""
    return [line for line in text.splitlines()
            if re.match(r"weft:.*error:|.*noticed that process rank|.*BAD TERMINATION|"
                        r".*has exited due to process rank", line)]


def names_rank(line, rank):
    return RANKS == 1 or re.search(r"rank %d\b" % rank, line) or "BAD TERMINATION" in line


def fails_at(point, rank, action):
    nth = POINTS[point][0]
    out = os.path.join(TMP, "%s.%s.r%d" % (point, action, rank))
    bad = []
    with few_at_a_time:
        if point == "load":
            go(out, train(out, "--steps", "4"))
        code, text, left = go(out, train(out), "%s:%d:%d:%s" % (point, rank, nth, action))
        lines = errors_of(text)
        wanted = FAILS[point] if action == "fail" else None
        if code is None:
            bad.append("still running after 60 s")
        elif wanted is None and code == 0:
            bad.append("exit code 0")
        elif wanted is None and action == "kill" and code not in KILLED:
            bad.append("exit code %d, needs one of %s" % (code, KILLED))
        elif wanted is not None and code != wanted:
            bad.append("exit code %d, needs %d" % (code, wanted))
        if wanted == 0 and (lines or "a test's fault" not in text):
            bad.append("needs a warning and no error")
        if wanted != 0 and RANKS > 1 and len(lines) != 1:
            bad.append("%d lines tell of it, needs one" % len(lines))
        elif wanted != 0 and lines and not names_rank(lines[0], rank):
            bad.append("rank %d is not named: %s" % (rank, lines[0]))
        bad += left
        if "fail" == action and point.startswith("save") and wanted and \
                not re.search(r"step-000006 not written, kept: \S+step-000003", text):
            bad.append("nothing said of what is kept")
        wrong = whole(out)
        if wrong:
            bad.append(wrong)
        if point != "start" and not checkpoints(out):
            bad.append("no checkpoint")
        code, again, _ = go(out, train(out))
        if code != 0 or (point != "start" and not re.search("resumed from|nothing to do", again)):
            bad.append("does not go on: exit code %s\n%s" % (code, again))
    return bad + ([text] if bad else [])


def spoiled(name, fault, extra, needles, last_good):
    """All stop, with one line; nothing later than step `last_good` is saved."""
    out = os.path.join(TMP, name)
    with few_at_a_time:
        code, text, left = go(out, train(out, *extra), fault)
    bad = [] if code == 3 else ["exit code %s, needs 3" % code]
    lines = errors_of(text)
    lines = [line for line in lines if line.startswith("weft")]
    if len(lines) != 1:
        bad.append("%d error lines, needs one" % len(lines))
    bad += ["no '%s' in the error line" % n for n in needles
            if not any(re.search(n, line) for line in lines)]
    bad += left
    saved = checkpoints(out)
    if not saved or int(saved[-1][5:]) != last_good:
        bad.append("checkpoints %s, needs step %d as the last" % (saved, last_good))
    wrong = whole(out)
    return bad + ([wrong] if wrong else []) + ([text] if bad else [])


def tokenize_dies(action):
    """A killed tokenize leaves no shard under its name, and the next one works."""
    folder = os.path.join(TMP, "tokens." + action)
    text = write(os.path.join(TMP, "text.txt"), b"words of a text " * 5000)
    args = ["tokenize", "--bytes", "--shard-tokens", "10000", "--out", folder, text]
    r = run(1, args, TMP, {"WEFT_FAULT": "tokenize:0:1:" + action})
    bad = [] if r.code != 0 else ["exit code 0"]
    if os.path.isdir(folder):
        bad += ["a half set: " + n for n in os.listdir(folder) if n.endswith((".bin", ".json"))]
    if action == "fail" and len(r.errors()) != 1:
        bad.append("%d error lines" % len(r.errors()))
    again = run(1, args, TMP)
    if again.code != 0 or leftovers(folder):
        bad.append("the next one fails: %s %s" % (again.err, leftovers(folder)))
    return bad


def main():
    if os.environ.get("WEFT_FAULTS", "ON") not in ("ON", "1", "TRUE"):
        print("skipped: built without WEFT_FAULTS")
        return 77
    every = "--all" in sys.argv
    if every:
        sys.argv.remove("--all")
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(TMP, "data", "t_train_000001.bin"), [i * 7 % 64 for i in range(20000)])
    shard(os.path.join(TMP, "data", "t_val_000000.bin"), [i * 7 % 64 for i in range(400)])
    jobs = []
    missing = points_of_source() ^ (set(POINTS) | ELSEWHERE)
    jobs.append(("every-point-is-here", lambda: ["not in both lists: %s" % sorted(missing)]
                 if missing else []))
    for number, (point, (_, everywhere)) in enumerate(POINTS.items()):
        if not every and point not in SHORT:
            continue
        ranks = [0] if RANKS == 1 or not everywhere else \
            range(RANKS) if every else [number % RANKS]
        for rank in ranks:
            jobs.append(("%s.kill.r%d" % (point, rank),
                         lambda p=point, r=rank: fails_at(p, r, "kill")))
            if point in FAILS and (every or point == "save-write"):
                jobs.append(("%s.fail.r%d" % (point, rank),
                             lambda p=point, r=rank: fails_at(p, r, "fail")))
    jobs.append(("tokenize.kill", lambda: tokenize_dies("kill")))
    if every:
        jobs.append(("tokenize.fail", lambda: tokenize_dies("fail")))
    if RANKS > 1:
        jobs.append(("data.exit.r1", lambda: fails_at("data", 1, "exit")))
        for rank in range(RANKS) if every else (2,):
            jobs.append(("infinite-gradient.r%d" % rank, lambda r=rank: spoiled(
                "infinite.r%d" % r, "reduce:%d:7:spoil" % r, [],
                ["step 7:", r"found -?inf in the gradient of \S+ on rank %d" % r,
                 "no weight was changed"], 6)))
        jobs.append(("weights-differ", lambda: spoiled(
            "weights", "weights:1:4:spoil", ["--host-memory", "off"],
            ["step 6:", r"rank 1 holds other weights of \S+ than 3 of 4"], 3)))
    start = time.monotonic()
    code = run_cases(jobs)
    print("%.0f s" % (time.monotonic() - start))
    return code


if __name__ == "__main__":
    sys.exit(main())
