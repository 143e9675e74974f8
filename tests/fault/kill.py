#!/usr/bin/env python3
"""Ranks that die: the job ends and leaves no process behind; saves that are cut short at a
random moment cost nothing but the steps since the checkpoint before.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403

ROUNDS = 10


def children(pid):
    """Process ids below `pid` whose program is weft."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry) as f:
                    text = f.read()
            except OSError:
                continue
            parents[int(entry)] = int(text.rsplit(")", 1)[1].split()[1])
    found = []
    for p in parents:
        q = p
        while q in parents and q != pid:
            q = parents[q]
        if q == pid and runs_weft(p):
            found.append(p)
    return found


def runs_weft(pid):
    try:
        return os.path.realpath("/proc/%d/exe" % pid) == os.path.realpath(WEFT)
    except OSError:
        return False


def kill(pid):
    if runs_weft(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def left_of(pids, seconds=20):
    """Complains of processes that are still there; the launcher may return a moment before
    the last one is gone."""
    patience = Patience(seconds)
    while any(map(runs_weft, pids)) and not patience.over():
        time.sleep(0.1)
    left = [pid for pid in pids if runs_weft(pid)]
    for pid in left:
        kill(pid)
    return ["processes left: %s" % left] if left else []


class Job:
    """A training run in the background; `prefix` are words before the program's."""

    def __init__(self, ranks, args, log, prefix=(), env=None):
        self.log = log
        command = [] if ranks == 1 else ["sh", MPIRUN, str(ranks)]
        command += list(prefix) + [WEFT] + args
        self.p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  env=dict(os.environ, OMP_NUM_THREADS="1", **(env or {})))
        self.ranks = ranks
        self.pids = []

    def find_ranks(self, seconds=30):
        patience = Patience(seconds)
        while not patience.over() and self.p.poll() is None:
            self.pids = [self.p.pid] if self.ranks == 1 else children(self.p.pid)
            if len(self.pids) == self.ranks and all(map(runs_weft, self.pids)):
                return True
            time.sleep(0.05)
        return False

    def end(self, seconds):
        """Exit code, or None when it did not end by itself in time."""
        patience = Patience(seconds)
        while not patience.over():
            try:
                return self.p.wait(0.5)
            except subprocess.TimeoutExpired:
                pass
        for pid in self.pids:
            kill(pid)
        self.p.kill()
        self.p.wait()
        return None


def steps_done(run_folder):
    try:
        with open(os.path.join(run_folder, "metrics.jsonl")) as f:
            return f.read().count('"loss"')
    except OSError:
        return 0


def wait_for_steps(job, run_folder, steps, seconds=30):
    patience = Patience(seconds)
    while not patience.over() and job.p.poll() is None:
        if steps_done(run_folder) >= steps:
            return True
        time.sleep(0.05)
    return False


def train(out, steps, *extra):
    return ["train", "--data", os.path.join(TMP, "data"), "--model",
            "L=2,H=2,C=32,T=16,V=64", "--out", out, "--batch", "2", "--steps", str(steps),
            "--schedule", "constant", "--warmup", "0", "--threads", "1"] + list(extra)


def one_rank_dies():
    out = os.path.join(TMP, "dies")
    log = open(os.path.join(TMP, "dies.log"), "wb+")
    job = Job(3, train(out, 10**6), log)
    bad = []
    if not job.find_ranks() or not wait_for_steps(job, out, 5):
        job.end(0.1)
        return ["the run did not start"]
    pids = list(job.pids)
    kill(pids[1])
    code = job.end(60)
    if code is None:
        bad.append("still running 60 s after a rank died")
    elif code == 0:
        bad.append("exit code 0 after a rank died")
    return bad + left_of(pids)


def text_of(path):
    with open(path, errors="replace") as f:
        return f.read()


def wait_for_text(job, path, words, seconds=60):
    patience = Patience(seconds)
    while not patience.over() and job.p.poll() is None:
        if words in text_of(path):
            return True
        time.sleep(0.02)
    return words in text_of(path)


def interrupted_saves(ranks, folder, rounds, longest=0.3):
    """Killed at a random moment while every step is saved; goes on each time from a whole
    checkpoint, never from an older one than was whole when it was killed."""
    name = "saves.p%d" % ranks
    out = os.path.join(folder, name)
    rng = random.Random(ranks)
    bad = []
    seen = cut_short = 0
    for i in range(rounds + 1):
        last = i == rounds
        path = os.path.join(TMP, "%s.log" % os.path.basename(folder + name))
        steps = seen + 3 if last else 10**6
        with open(path, "wb+") as log:
            job = Job(ranks, train(out, steps, "--save-every", "1"), log)
            if last:
                code = job.end(60)
            else:
                job.find_ranks()
                wait_for_text(job, path, "resumed from" if seen else "saved")
                time.sleep(rng.uniform(0, longest))
                for pid in rng.sample(job.pids, rng.randint(1, len(job.pids))):
                    kill(pid)
                code = job.end(60)
        text = text_of(path)
        found = re.search(r"resumed from \S+ at step (\d+)", text)
        step = int(found.group(1)) if found else 0
        if step < seen or (i > 0 and not found):
            bad.append("round %d: resumed at step %s, needs at least %d\n%s" %
                       (i, found and step, seen, text))
        if "error:" in text or "passed over" in text:
            bad.append("round %d: %s" % (i, text))
        if code is None or (code != 0) == last:
            bad.append("round %d: exit code %s" % (i, code))
        wrong = whole(out)
        if wrong:
            bad.append("round %d: %s" % (i, wrong))
        cut_short += bool(leftovers(out))
        newest = checkpoints(out)[-1:]
        seen = int(newest[0][5:]) if newest else 0
        if bad:
            return bad
    steps = [m["step"] for m in metrics(out) if "loss" in m]
    if steps != list(range(1, len(steps) + 1)) or len(steps) != seen:
        bad.append("metrics.jsonl: %d lines, last step %s, needs every step once to %d" %
                   (len(steps), steps[-1:], seen))
    print("%s: %d kills, %d of them in the middle of a save; %d steps" %
          (out, rounds, cut_short, seen))
    return bad + ["left over: " + path for path in leftovers(out)]


def in_memory(ranks, rounds, longest=0.3):
    """The same on a file system in memory, where a sync costs nothing."""
    if not os.path.isdir("/dev/shm"):
        return "no /dev/shm here"
    folder = tempfile.mkdtemp(prefix="weft-kill-", dir="/dev/shm")
    try:
        return interrupted_saves(ranks, folder, rounds, longest)
    finally:
        shutil.rmtree(folder)


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(TMP, "data", "t_train_000001.bin"), [i * 7 % 64 for i in range(4000)])
    if "--long" in sys.argv:
        sys.argv.remove("--long")
        jobs = [("interrupted-saves.disk.p4", lambda: interrupted_saves(4, TMP, 200, 3.0)),
                ("interrupted-saves.memory.p4", lambda: in_memory(4, 200, 3.0))]
    else:
        jobs = [("interrupted-saves.memory.p1", lambda: in_memory(1, ROUNDS))]
        if not SERIAL:
            jobs += [("one-rank-dies", one_rank_dies),
                     ("interrupted-saves.disk.p2", lambda: interrupted_saves(2, TMP, ROUNDS))]
    start = time.monotonic()
    code = run_cases(jobs)
    print("%.0f s" % (time.monotonic() - start))
    return code


if __name__ == "__main__":
    sys.exit(main())
