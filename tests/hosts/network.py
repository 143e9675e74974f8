#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Do the links between the hosts have the bandwidth and the delay they should have?

Plain sockets. The bounds are wide: this tests the test bed and must hold on a busy machine;
docs/TESTBED.md has measured figures.
"""

import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import hosts

TRAFFIC = os.path.join(HERE, "traffic.py")
SECONDS = 1.5
ATTEMPTS = 5


def start(bed, host, *words):
    return subprocess.Popen(bed.command(host, [sys.executable, TRAFFIC, *words]),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def result(process):
    out, err = process.communicate(timeout=60)
    if process.returncode:
        raise RuntimeError(f"traffic.py: exit code {process.returncode}\n{err}")
    return json.loads(out) if out else None


def prepare_streams(bed, pairs):
    """Streams between pairs of hosts (from, to), ready to start."""
    return [start(bed, i, "stream", address, SECONDS,
                  *(bed.addresses[to] for source, to in pairs if source == i))
            for i, address in enumerate(bed.addresses)]


def start_streams(processes):
    for process in processes:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("traffic.py does not start")
    for process in processes:
        process.stdin.write(f"{time.time() + 0.2}\n")
        process.stdin.flush()


def judge_rates(bed, pairs, received):
    """Every host with a sender must receive at the full rate of its link."""
    complaints, shares = [], []
    for i, rates in enumerate(received):
        senders = {bed.addresses[source] for source, to in pairs if to == i}
        if senders != set(rates):
            complaints.append(f"host {i} hears {sorted(rates)}, not {sorted(senders)}")
        elif senders:
            shares.append(sum(rates.values()) / bed.rate)
    if not all(0.9 <= share <= 1.0 for share in shares):
        complaints.append("a rate is not from 0.9 to 1 of that of the link")
    return complaints, "received: " + " ".join(f"{share:.3f}" for share in shares)


def streams(n, rate, pairs, delay):
    with hosts.Hosts(n, rate, delay) as bed:
        processes = prepare_streams(bed, pairs)
        start_streams(processes)
        return judge_rates(bed, pairs, [result(process) for process in processes])


def side_by_side():
    pairs = [(0, 1), (1, 0)]
    with hosts.Hosts(2, "100mbit", "1ms") as slow, hosts.Hosts(2, "200mbit", "0us") as fast:
        processes = [prepare_streams(bed, pairs) for bed in (slow, fast)]
        start_streams(sum(processes, []))
        received = [[result(process) for process in group] for group in processes]
        found = [judge_rates(bed, pairs, rates) for bed, rates in zip((slow, fast), received)]
        complaints = found[0][0] + found[1][0]
        if set(slow.names) & set(fast.names):
            complaints.append("two beds share a name")
        return complaints, f"{found[0][1]}; {found[1][1]}"


def ask(bed, count, size):
    answering = start(bed, 1, "answer", bed.addresses[1])
    times = sorted(result(start(bed, 0, "ask", bed.addresses[1], count, size)))
    result(answering)
    return times[0], times[len(times) // 2]


def round_trip(rate, delay):
    """A byte there and a byte back: twice the delay, and what waking up takes."""
    with hosts.Hosts(2, rate, delay) as bed:
        least, median = ask(bed, 50, 1)
        expected = 2 * bed.delay / 1e9
    complaints = []
    if not (expected - 100e-6 <= least and median <= expected + 3e-3):
        complaints.append(f"must be from {expected * 1e6:.0f} us to 3 ms more")
    return complaints, f"least {least * 1e6:.0f} us, median {median * 1e6:.0f} us"


def message(rate, size):
    """No part of a message after a pause passes faster than the link is."""
    with hosts.Hosts(2, rate, "0us") as bed:
        least, median = ask(bed, 12, size)
        wire = size * 8 / bed.rate
    complaints = []
    if not (0.98 * wire <= least and median <= 1.2 * wire + 3e-3):
        complaints.append(f"must be from {wire * 1e3:.2f} ms to a fifth and 3 ms more")
    return complaints, f"least {least * 1e3:.2f} ms, median {median * 1e3:.2f} ms"


CASES = {
    "round trip without delay": lambda: round_trip("1gbit", "0us"),
    "round trip with 2 x 5 ms": lambda: round_trip("1gbit", "5ms"),
    "60000 bytes at 100 Mbit/s": lambda: message("100mbit", 60000),
    "1 MiB at 100 Mbit/s": lambda: message("100mbit", 1 << 20),
    "one stream at 500 Mbit/s": lambda: streams(2, "500mbit", [(0, 1)], "200us"),
    "both ways at 200 Mbit/s": lambda: streams(2, "200mbit", [(0, 1), (1, 0)], "1ms"),
    "four hosts, each to the next, at 200 Mbit/s":
        lambda: streams(4, "200mbit", [(i, (i + 1) % 4) for i in range(4)], "100us"),
    "three hosts to one at 200 Mbit/s":
        lambda: streams(4, "200mbit", [(1, 0), (2, 0), (3, 0)], "0us"),
    "two beds side by side at 100 and 200 Mbit/s": side_by_side,
}


def attempt(name, case):
    """A machine that is busy with other things may spoil an attempt, but not all."""
    for _ in range(ATTEMPTS):
        complaints, text = case()
        print(f"{'BAD' if complaints else 'ok '} {name}: {text} {'; '.join(complaints)}",
              flush=True)
        if not complaints:
            return True
    return False


def main():
    reason = hosts.why_not()
    if reason:
        print(f"skipped: {reason}")
        return hosts.SKIPPED
    good = [attempt(name, case) for name, case in CASES.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
