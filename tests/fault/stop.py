#!/usr/bin/env python3
"""Signals and the time limit: all ranks save at the same step and leave with exit code 4;
the same command goes on, and the run as a whole is the run that was never stopped.
"""
import os
import shutil
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403
from kill import Job, steps_done, train, wait_for_steps  # noqa: E402

STEPS = 400
STOPPED = 4
KEPT_TO_THE_END = ("--save-every", "0")
one_at_a_time = threading.Lock()


def text_of(path):
    with open(path, errors="replace") as f:
        return f.read()


def losses(out):
    return [(m["step"], m["loss"], m["grad_norm"], m["lr"])
            for m in metrics(out) if "loss" in m]


def straight(ranks):
    """Losses of a run nobody stops, made once for each rank count; cases run side by side."""
    out = os.path.join(TMP, "straight.p%d" % ranks)
    with one_at_a_time:
        if not checkpoints(out):
            with open(out + ".log", "wb+") as log:
                Job(ranks, train(out, STEPS, "--save-every", "0"), log).end(120)
    return losses(out)


def stop_and_go_on(name, ranks, send, extra=(), env=None):
    """send(job, log) asks for the stop once the run is under way; then it is run to its
    end."""
    out = os.path.join(TMP, name)
    log_path = out + ".log"
    bad = []
    with open(log_path, "wb+") as log:
        job = Job(ranks, train(out, STEPS, *(extra or KEPT_TO_THE_END)), log, env=env)
        if not job.find_ranks() or not wait_for_steps(job, out, 3):
            job.end(0.1)
            return ["the run did not start: " + text_of(log_path)]
        send(job, log_path)
        code = job.end(60)
    text = text_of(log_path)
    if code != STOPPED:
        bad.append("exit code %s, needs %d\n%s" % (code, STOPPED, text))
    if text.count("stopped at step") != 1 or "error:" in text:
        bad.append("needs one line 'stopped at step'\n" + text)
    done = steps_done(out)
    if checkpoints(out)[-1:] != ["step-%06d" % done] or whole(out):
        bad.append("%d steps done, checkpoints %s" % (done, checkpoints(out)))
    if not 3 <= done < STEPS:
        bad.append("%d steps done, needs at least 3 and fewer than %d" % (done, STEPS))
    if bad:
        return bad
    with open(log_path, "ab+") as log:
        code = Job(ranks, train(out, STEPS, *(extra or KEPT_TO_THE_END)), log).end(120)
    if code != 0:
        bad.append("going on: exit code %s\n%s" % (code, text_of(log_path)))
    if losses(out) != straight(ranks):
        bad.append("losses, norms and rates are not those of the run that was not stopped")
    return bad


def to_rank(index, number):
    return lambda job, log: os.kill(job.pids[index], number)


def to_launcher(number):
    return lambda job, log: os.kill(job.p.pid, number)


def while_waiting(number, times=1):
    """In the evaluation or save in which a fault lets one rank wait some seconds."""
    def send(job, log):
        wait_for_steps(job, log[:-4], 10)
        for _ in range(times):
            time.sleep(1)
            os.kill(job.pids[-1], number)
    return send


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(TMP, "data", "t_train_000001.bin"), [i * 7 % 64 for i in range(20000)])
    shard(os.path.join(TMP, "data", "t_val_000000.bin"), [i * 7 % 64 for i in range(200)])
    cases = [("usr1.p1", 1, to_rank(0, signal.SIGUSR1)),
             ("term.p1", 1, to_rank(0, signal.SIGTERM)),
             ("int.p1", 1, to_rank(0, signal.SIGINT))]
    if not SERIAL:
        cases += [("one-rank-usr1.p3", 3, to_rank(2, signal.SIGUSR1)),
                  ("one-rank-term.p2", 2, to_rank(1, signal.SIGTERM)),
                  ("launcher-usr1.p2", 2, to_launcher(signal.SIGUSR1))]
    start = time.monotonic()
    jobs = [(name, lambda n=name, r=ranks, s=send: stop_and_go_on(n, r, s))
            for name, ranks, send in cases]
    jobs.append(("time-limit.p1", lambda: time_limit(1)))
    if os.environ.get("WEFT_FAULTS", "ON") == "ON":
        ranks = 1 if SERIAL else 2
        for name, point, times in (("in-evaluation", "evaluate:0:1:wait", 1),
                                   ("in-save-twice", "save-write:0:1:wait", 2)):
            jobs.append((name, lambda n=name, f=point, k=times: stop_and_go_on(
                n, ranks, while_waiting(signal.SIGTERM, k),
                ["--save-every", "10", "--eval-every", "10"], {"WEFT_FAULT": f})))
    if not SERIAL:
        jobs.append(("launcher-term", launcher_ends))
    code = run_cases(jobs)
    print("%.0f s" % (time.monotonic() - start))
    return code


def launcher_ends():
    """Open MPI's launcher kills its ranks 0.9 s after it has passed on SIGTERM: they may get
    to their end or not, and whatever is there is whole and goes on."""
    out = os.path.join(TMP, "launcher-term")
    with open(out + ".log", "wb+") as log:
        job = Job(2, train(out, STEPS, "--save-every", "1"), log)
        if not job.find_ranks() or not wait_for_steps(job, out, 10):
            job.end(0.1)
            return ["the run did not start: " + text_of(out + ".log")]
        os.kill(job.p.pid, signal.SIGTERM)
        code = job.end(60)
        bad = [] if code else ["exit code %s, needs another than 0" % code]
        wrong = whole(out)
        if wrong or not checkpoints(out):
            bad.append("checkpoints %s: %s" % (checkpoints(out), wrong))
        code = Job(2, train(out, STEPS, "--save-every", "0"), log).end(120)
    if code != 0 or losses(out) != straight(2):
        bad.append("going on: exit code %s, or other losses\n%s" %
                   (code, text_of(out + ".log")))
    return bad


def time_limit(ranks):
    out = os.path.join(TMP, "limit")
    with open(out + ".log", "wb+") as log:
        job = Job(ranks, train(out, 10**6, "--time-limit", "6s"), log)
        begin = time.monotonic()
        code = job.end(60)
        took = time.monotonic() - begin
    text = text_of(out + ".log")
    bad = []
    if code != STOPPED or "time limit" not in text:
        bad.append("exit code %s, needs %d and the words 'time limit'\n%s" %
                   (code, STOPPED, text))
    if took > 8 or not checkpoints(out):
        bad.append("took %.1f s of 6, checkpoints %s" % (took, checkpoints(out)))
    return bad


if __name__ == "__main__":
    sys.exit(main())
