#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A training run on several hosts is the one that the same ranks make on one host.

Losses and gradient norms of every step are compared, on one rank a host and on two. Needs
$WEFT (the program); $WEFT_TMP is the scratch folder.
"""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import hosts
from native_checkpoint import read_metrics
from token_shard import write_tokens

WEFT = os.path.abspath(os.environ.get("WEFT", "weft"))
TMP = os.path.abspath(os.environ.get("WEFT_TMP", "hosts-train"))
MPIRUN = os.path.join(HERE, "..", "support", "mpirun")
VOCAB, STEPS, SEQUENCES = 97, 8, 24
LIMIT = 1e-5  # relative; that of tests/parity

OMPSS2 = os.environ.get("WEFT_TASKS") == "ompss2"
CPUS = sorted(os.sched_getaffinity(0))
# Idle workers of OmpSs-2 look for work on all cores they may use: a rank has its own.
BIND = ["sh", "-c", f"exec taskset -c $(echo {' '.join(map(str, CPUS))} | "
        'cut -d " " -f $((OMPI_COMM_WORLD_RANK + 1))) "$@"', "sh"] if OMPSS2 else []


def command(data, out, ranks):
    return BIND + [
        WEFT, "train", "--data", data, "--model", f"L=2,H=2,C=32,T=32,V={VOCAB}", "--out", out,
        "--batch", SEQUENCES // ranks, "--steps", STEPS, "--lr", 3e-3, "--seed", 3,
        "--threads", 1, "--block-bytes", "4k", "--resume", "none"]


def finish(done, out):
    if done.returncode:
        print(f"{out}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        sys.exit(done.returncode if done.returncode == hosts.SKIPPED else 1)
    lines = read_metrics(out)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1)), "steps are missing"
    return [line[key] for line in lines for key in ("loss", "grad_norm")]


def on_one_host(data, ranks):
    out = os.path.join(TMP, f"one-host-{ranks}")
    words = [MPIRUN, ranks] + command(data, out, ranks)
    return finish(subprocess.run([str(word) for word in words], capture_output=True, text=True,
                                 check=False, timeout=120), out)


def on_hosts(data, n, per_host):
    out = os.path.join(TMP, f"hosts-{n}x{per_host}")
    with hosts.Hosts(n, "1gbit", "50us") as bed:
        return finish(bed.mpirun(command(data, out, n * per_host), per_host, timeout=120,
                                 capture=True), out)


def main():
    reason = hosts.why_not()
    if reason:
        print(f"skipped: {reason}")
        return hosts.SKIPPED
    # MPICH waits by spinning: with more ranks than cores nothing gets done.
    layouts = [(2, 1)] if hosts.uses_mpich([WEFT]) else [(2, 1), (4, 1), (2, 2)]
    if OMPSS2:
        print(f"layouts of more ranks than the {len(CPUS)} CPUs here are left out")
        layouts = [(n, per_host) for n, per_host in layouts if n * per_host <= len(CPUS)]
        if not layouts:
            print("skipped: no layout is left")
            return hosts.SKIPPED
    shutil.rmtree(TMP, ignore_errors=True)
    data = os.path.join(TMP, "tokens")
    os.makedirs(data)
    write_tokens(os.path.join(data, "hosts_train_000000.bin"), 5000, VOCAB)
    good, expected = True, {}
    for n, per_host in layouts:
        ranks = n * per_host
        if ranks not in expected:
            expected[ranks] = on_one_host(data, ranks)
        found = on_hosts(data, n, per_host)
        worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected[ranks]))
        fine = worst <= LIMIT and found[-2] < found[0]  # and it learns
        good = good and fine
        print(f"{'ok ' if fine else 'BAD'} {n} hosts with {per_host}: loss {found[0]:.4f} -> "
              f"{found[-2]:.4f}, farthest from one host {worst:.1e}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
