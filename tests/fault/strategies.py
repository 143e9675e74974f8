#!/usr/bin/env python3
"""Every strategy, with ranks that share memory: a rank that is killed ends the job, a signal
stops it after a checkpoint, and neither leaves anything behind: no process, and no file of
those that the ranks had open or mapped in /dev/shm or as memory.
"""
import os
import shutil
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403
from kill import Job, kill, left_of, steps_done, train, wait_for_steps  # noqa: E402

STRATEGIES = ("central", "reduce-broadcast", "reduce-scatter", "allreduce")
STOPPED = 4
KILLED = 128 + signal.SIGKILL
RANKS = 3
# A run has its ranks, a launcher and its shell: more than two at a time are in each
# other's way.
two_at_a_time = threading.Semaphore(2)


def shared_files(pid):
    """Files in shared memory that a process has open or mapped, and how many have no
    name."""
    found, nameless = set(), 0
    try:
        with open("/proc/%d/maps" % pid) as f:
            names = {line.split(None, 5)[5].strip() for line in f if line.count(" ") > 4
                     and len(line.split(None, 5)) == 6}
        names |= {os.readlink("/proc/%d/fd/%s" % (pid, fd))
                  for fd in os.listdir("/proc/%d/fd" % pid)}
    except OSError:
        return found, nameless
    for name in names:
        nameless += name.startswith("/memfd:weft")
        if name.startswith("/dev/shm/") and not name.endswith(" (deleted)"):
            found.add(name)
    return found, nameless


def start(name, options):
    """A job that has done some steps, and the shared memory it uses."""
    out = os.path.join(TMP, name)
    log = open(out + ".log", "wb+")
    job = Job(RANKS, train(out, 10**6, "--save-every", "0", *options), log)
    if not job.find_ranks() or not wait_for_steps(job, out, 5):
        job.end(0.1)
        return job, out, None
    seen = [shared_files(pid) for pid in job.pids]
    return job, out, (set().union(*(files for files, _ in seen)), sum(n for _, n in seen))


def left_behind(job, files):
    """Files may go a moment after the last process."""
    bad = left_of(job.pids)
    patience = Patience(5)
    while any(map(os.path.exists, files)) and not patience.over():
        time.sleep(0.1)
    return bad + ["file left: " + path for path in sorted(files) if os.path.exists(path)]


def text_of(out):
    with open(out + ".log", errors="replace") as f:
        return f.read()


def is_mpich(text):
    return "MPI MPICH" in text


def dies(name, victim, options):
    with two_at_a_time:
        job, out, memory = start(name, options)
        if memory is None:
            return ["the run did not start: " + text_of(out)]
        kill(job.pids[victim])
        code = job.end(60)
        bad = left_behind(job, memory[0])
    # MPICH's launcher gives the signal's number.
    wanted = (KILLED, signal.SIGKILL) if is_mpich(text_of(out)) else (KILLED,)
    if code not in wanted:
        bad.append("exit code %s, needs %s\n%s" % (code, wanted, text_of(out)))
    return bad + no_memory(memory, options) + ["left over: " + p for p in leftovers(out)]


def no_memory(memory, options):
    """Whether memory was shared is what these tests stand on; MPI's collectives know none."""
    shares = "off" not in options and "collective" not in options
    if shares != (memory[1] > 0):
        return ["%d mappings of shared memory, %s" % (memory[1],
                                                      "needs some" if shares else "needs none")]
    return []


def stops(name, options):
    with two_at_a_time:
        job, out, memory = start(name, options)
        if memory is None:
            return ["the run did not start: " + text_of(out)]
        os.kill(job.pids[-1], signal.SIGTERM)
        code = job.end(60)
        bad = left_behind(job, memory[0])
    text, done = text_of(out), steps_done(out)
    if code != STOPPED or text.count("stopped at step") != 1 or "error:" in text:
        bad.append("exit code %s, needs %d\n%s" % (code, STOPPED, text))
    if checkpoints(out) != ["step-%06d" % done] or whole(out):
        bad.append("%d steps done, checkpoints %s" % (done, checkpoints(out)))
    return bad + no_memory(memory, options) + ["left over: " + p for p in leftovers(out)]


def main():
    if SERIAL:
        print("skipped: one rank only")
        return 77
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(TMP, "data", "t_train_000001.bin"), [i * 7 % 64 for i in range(4000)])
    jobs = []
    for number, strategy in enumerate(STRATEGIES):
        options = ["--strategy", strategy]
        jobs.append(("dies." + strategy, lambda o=options, n="dies." + strategy, v=number % RANKS:
                     dies(n, v, o)))
        jobs.append(("stops." + strategy, lambda o=options, n="stops." + strategy: stops(n, o)))
    for word in ("--host-memory=off", "--engine=collective"):
        name = "dies" + word
        options = ["--host-memory", "off"] if "memory" in word else ["--engine", "collective"]
        jobs.append((name, lambda o=options, n=name: dies(n, 0, o)))
    begin = time.monotonic()
    code = run_cases(jobs)
    print("%.0f s" % (time.monotonic() - begin))
    return code


if __name__ == "__main__":
    sys.exit(main())
