#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A rank that is stopped (SIGSTOP): the others name it, with host, process, step and what it
has not entered; when it goes on so does the run, with the same numbers; when it does not,
--stall-limit ends the job and leaves no process behind; also before the first step and after
the last. --long: with the times that users have by default.
"""
import os
import re
import shutil
import signal
import sys
import time

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403
from kill import Job, left_of, text_of, train, wait_for_steps  # noqa: E402
from kill import wait_for_text  # noqa: E402

RANKS = 3
STEPS = 2000


def losses(out):
    return [(m["step"], m["loss"], m["grad_norm"]) for m in metrics(out) if "loss" in m]


def stopped(name, rank, limit, within, goes_on):
    """The rank is stopped in a step; `within` seconds it has to be named."""
    out = os.path.join(TMP, name)
    path = out + ".log"
    bad = []
    with open(path, "wb+") as log:
        job = Job(RANKS, train(out, STEPS, "--stall-limit", limit, "--save-every", "0"), log)
        if not job.find_ranks() or not wait_for_steps(job, out, 5):
            job.end(0.1)
            return ["the run did not start: " + text_of(path)]
        pids = list(job.pids)
        victim = rank_pid(pids, rank)
        os.kill(victim, signal.SIGSTOP)
        begin = time.monotonic()
        if not wait_for_text(job, path, "has not entered", within + 20):
            bad.append("not named")
        took = time.monotonic() - begin
        if took > within:
            bad.append("named after %.0f s, needs at most %.0f" % (took, within))
        if goes_on:
            os.kill(victim, signal.SIGCONT)
        code = job.end(120)
    text = text_of(path)
    said = re.search(r"step (\d+): rank (\d+) \(host (\S+), pid (\d+)\) has not entered "
                     r"the (reduction of block|return of block|agreement|exchange of the "
                     r"embedding's rows)", text)
    if not said or int(said.group(2)) != rank or int(said.group(4)) != victim:
        bad.append("rank %d, pid %d, is not named" % (rank, victim))
    if goes_on:
        if code != 0:
            bad.append("exit code %s after it went on" % code)
        elif losses(out) != losses(os.path.join(TMP, "straight")):
            bad.append("other losses than those of the run that was not stopped")
    else:
        if code in (None, 0):
            bad.append("exit code %s, needs a failure" % code)
        if len([line for line in text.splitlines() if "error:" in line]) != 1:
            bad.append("needs one error line")
        bad += left_of(pids)
    return bad + ([text] if bad else [])


def stopped_at(point, rank, limit, what):
    """The rank is stopped before the first step or after the last, where nothing but the
    watch would ever end the wait."""
    name = "%s.r%d" % (point, rank)
    out = os.path.join(TMP, name)
    with open(out + ".log", "wb+") as log:
        job = Job(RANKS, train(out, 3, "--stall-limit", limit, "--save-every", "0"), log,
                  env={"WEFT_FAULT": "%s:%d:1:stop" % (point, rank)})
        if not job.find_ranks():
            job.end(0.1)
            return ["the run did not start: " + text_of(out + ".log")]
        pids = list(job.pids)
        victim = rank_pid(pids, rank)
        code = job.end(60)
    text = text_of(out + ".log")
    bad = [] if code not in (None, 0) else ["exit code %s, needs a failure" % code]
    lines = [line for line in text.splitlines() if "error:" in line]
    if len(lines) != 1 or not re.search(r"rank %d \(host \S+, pid %d\) has not entered %s; no "
                                        "sign of life" % (rank, victim, what), lines[0]):
        bad.append("needs one error line that names rank %d, pid %d: %s" % (rank, victim, lines))
    if point == "end" and checkpoints(out) != ["step-000003"]:
        bad.append("checkpoints %s" % checkpoints(out))
    bad += left_of(pids)
    return bad + ([text] if bad else [])


def rank_pid(pids, rank):
    """The process of a rank, by what its launcher told it."""
    for pid in pids:
        with open("/proc/%d/environ" % pid, "rb") as f:
            words = f.read().split(b"\0")
        if b"OMPI_COMM_WORLD_RANK=%d" % rank in words or b"PMI_RANK=%d" % rank in words:
            return pid
    raise RuntimeError("no process of rank %d" % rank)


def straight():
    out = os.path.join(TMP, "straight")
    with open(out + ".log", "wb+") as log:
        code = Job(RANKS, train(out, STEPS, "--save-every", "0", "--stall-limit", "0"),
                   log).end(120)
    return [] if code == 0 else ["exit code %s\n%s" % (code, text_of(out + ".log"))]


def main():
    if SERIAL:
        print("skipped: one rank only")
        return 77
    long = "--long" in sys.argv
    if long:
        sys.argv.remove("--long")
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(TMP, "data", "t_train_000001.bin"), [i * 7 % 64 for i in range(20000)])
    bad = straight()
    if bad:
        print("FAIL straight\n" + "\n".join(bad))
        return 1
    limit, within = ("120s", 60) if long else ("6s", 8)
    jobs = [("ends.r%d" % r, lambda r=r: stopped("ends.r%d" % r, r, limit, within, False))
            for r in (0, 2)]
    jobs.append(("goes-on", lambda: stopped("goes-on", 1, limit if long else "20s",
                                            within if long else 15, True)))
    if os.environ.get("WEFT_FAULTS", "ON") == "ON":
        jobs += [("prepare.r2", lambda: stopped_at("prepare", 2, "6s", "the start")),
                 ("end.r0", lambda: stopped_at("end", 0, "6s", "the end of the job")),
                 ("end.r1", lambda: stopped_at("end", 1, "6s", "the end of the job"))]
    begin = time.monotonic()
    code = run_cases(jobs)
    print("%.0f s" % (time.monotonic() - begin))
    return code


if __name__ == "__main__":
    sys.exit(main())
