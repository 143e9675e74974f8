#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Everything due at once, in every step: all_due.py LIBPMPI [STEPS]

Trains a very small model, evaluates and saves after each step (with the check that all
numbers are finite), and asks one rank to stop when 200 steps, or STEPS, are done; for
every strategy, and for fewer steps without shared memory and on the collective engine.
Nothing may hang; the run ends with exit code 4 and a whole checkpoint of its last step;
and in the log of all MPI calls agreement, control and blocks never share a communicator,
control is silent while a step runs, and what was started was completed.
Needs $WEFT (the program); $WEFT_TMP is the scratch folder.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(HERE, "..", "fault"))
import pmpi_check
from harness import TMP, WEFT, checkpoints, metrics, whole
from kill import Job, runs_weft
from token_shard import write_tokens

STRATEGIES = ("central", "reduce-broadcast", "reduce-scatter", "allreduce")
FEWER_STEPS = 50
STOPPED = 4
STALL_S = 60  # without a step: it hangs


def is_mpich():
    found = subprocess.run(["ldd", WEFT], capture_output=True, text=True, check=False)
    return "libmpich" in found.stdout


def steps_done(folder):
    try:
        return sum("grad_norm" in line for line in metrics(folder))
    except (OSError, ValueError):  # not there yet, or a line half written
        return 0


def wait_for(job, folder, steps):
    """True when so many steps are done; False when the job has ended or stands still."""
    done, since = 0, time.monotonic()
    while job.p.poll() is None and done < steps:
        time.sleep(0.2)
        now = steps_done(folder)
        if now > done:
            done, since = now, time.monotonic()
        elif time.monotonic() - since > STALL_S:
            return False
    return done >= steps


def train(name, ranks, steps, pmpi, words):
    """Runs until so many steps are done and lets the last rank stop it."""
    folder = os.path.join(TMP, name)
    hosts = ",".join(str(r // 2) for r in range(ranks))
    prefix = ["env", f"LD_PRELOAD={pmpi}", f"WEFT_PMPI_LOG={folder}.log",
              f"WEFT_PMPI_HOSTS={hosts}"]
    with open(folder + ".out", "wb+") as log:
        job = Job(ranks, ["train", "--data", os.path.join(TMP, "tokens"), "--model",
                          "L=2,H=2,C=32,T=16,V=64", "--out", folder, "--batch", "2", "--threads",
                          "1", "--steps", "1000000", "--schedule", "constant", "--warmup", "0",
                          "--eval-every", "1", "--eval-batches", "1", "--save-every", "1",
                          "--keep", "1", "--block-bytes", "4k", *words], log, prefix)
        if not job.find_ranks() or not wait_for(job, folder, steps):
            job.end(0.1)
            return "it stands still, or has ended by itself"
        os.kill(job.pids[-1], signal.SIGTERM)
        code = job.end(STALL_S)
    if code != STOPPED:
        return f"exit code {code}, needs {STOPPED}"
    left = [pid for pid in job.pids if runs_weft(pid)]
    return f"processes left: {left}" if left else ""


def check(name, ranks, steps):
    """What is wrong with the run, and its figures."""
    folder = os.path.join(TMP, name)
    lines = metrics(folder)
    done = steps_done(folder)
    evaluated = sum("val_loss" in line for line in lines)
    if done < steps or evaluated < done - 1:  # the stop comes before an evaluation
        return f"{done} steps and {evaluated} evaluations, needs {steps}", ""
    # The newest, and the best one of those that were evaluated.
    if checkpoints(folder)[-1:] != [f"step-{done:06d}"] or len(checkpoints(folder)) > 2 or \
            whole(folder):
        return f"{done} steps done, checkpoints {checkpoints(folder)}: {whole(folder)}", ""
    try:
        logs, logged, requests = pmpi_check.check(folder + ".log", ranks, early=False)
        spoken = [pmpi_check.check_agreements(rank, calls, logged)
                  for rank, calls in enumerate(logs)]
    except pmpi_check.Violation as e:
        return str(e), ""
    if logged != done or min(spoken) < 4 * done:
        return f"{logged} steps in the log, control spoke {min(spoken)} times", ""
    return "", f"{done} steps, {requests} requests, control spoke {spoken[0]} times"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    pmpi = os.path.abspath(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) == 3 else 200
    ranks = 2 if is_mpich() else 4
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(os.path.join(TMP, "tokens"))
    write_tokens(os.path.join(TMP, "tokens", "due_train_000000.bin"), 20000, 64)
    write_tokens(os.path.join(TMP, "tokens", "due_val_000000.bin"), 1000, 64)
    bad = 0
    for strategy in STRATEGIES:
        for name, words in (("direct", []), ("private", ["--host-memory", "off", "--rounds",
                                                         "recursive", "--wire", "bf16"]),
                            ("collective", ["--engine", "collective"])):
            wanted = steps if name == "direct" else min(steps, FEWER_STEPS)
            name = f"{strategy}.{name}"
            start = time.monotonic()
            wrong = train(name, ranks, wanted, pmpi, ["--strategy", strategy, *words])
            wrong, figures = (wrong, "") if wrong else check(name, ranks, wanted)
            if wrong:
                bad += 1
                with open(os.path.join(TMP, name + ".out"), errors="replace") as f:
                    wrong += "\n" + f.read()[-1000:]
            else:
                shutil.rmtree(os.path.join(TMP, name))
                for rank in range(ranks):
                    os.unlink(os.path.join(TMP, f"{name}.log.{rank}"))
            print(f"{name}: {'BAD: ' + wrong if wrong else figures}; "
                  f"{time.monotonic() - start:.1f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
