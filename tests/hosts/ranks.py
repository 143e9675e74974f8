#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Do ranks of one host share memory, and only they? ranks.py REPORT_RANKS"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import hosts

BYTES = 8 << 20
LINE = re.compile(r"rank (\d+) of (\d+) on (\S+): first (\d+) of (\d+), window (.*), "
                  r"sent within (-?\d+), between (-?\d+)$")


def judge(bed, per_host, out):
    found = sorted((LINE.match(line).groups() for line in out.splitlines()),
                   key=lambda line: int(line[0]))
    ranks = per_host * len(bed.names)
    if len(found) != ranks:
        return [f"{len(found)} lines, needs {ranks}"]
    complaints = []
    for i, (rank, size, name, first, together, window, within, between) in enumerate(found):
        host = i // per_host
        expected = (str(i), str(ranks), bed.names[host], str(host * per_host), str(per_host),
                    "shared")
        if (rank, size, name, first, together, window) != expected:
            complaints.append(f"rank {i}: not as in {expected}")
        if per_host > 1 and not 0 <= int(within) < BYTES / 8:
            complaints.append(f"rank {i}: messages within the host leave it")
        if not per_host * BYTES <= int(between) < 1.2 * per_host * BYTES:
            complaints.append(f"rank {i}: messages between hosts do not pass the link")
    return complaints


def run(program, n, per_host):
    with hosts.Hosts(n, "1gbit", "50us") as bed:
        done = bed.mpirun([program], per_host, timeout=120, capture=True)
        print(done.stdout, end="")
        complaints = judge(bed, per_host, done.stdout)
    if done.returncode:
        complaints.append(f"exit code {done.returncode}\n{done.stderr}")
    for text in complaints:
        print(f"BAD {n} hosts with {per_host}: {text}")
    return not complaints


def main():
    reason = hosts.why_not()
    if reason:
        print(f"skipped: {reason}")
        return hosts.SKIPPED
    program = sys.argv[1]
    # MPICH waits by spinning: with more ranks than cores nothing gets done.
    runs = [(2, 1)] if hosts.uses_mpich([program]) else [(2, 1), (2, 2), (3, 2)]
    good = [run(program, n, per_host) for n, per_host in runs]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
