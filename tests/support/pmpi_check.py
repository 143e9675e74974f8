#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pmpi_check.py PREFIX RANKS: are the logs of pmpi_log.c those of a sound program?

Checked: every rank makes the same collectives in the same order on each communicator, in
each step; every message has its receive; what was started was completed; no count is above
2^30; a communicator carries either blocks or control, never both; a step's reductions have
begun before its backward pass ends and are the same in every step. Prints one line; exit
code 1 and the first violation otherwise.
"""
import collections
import sys

STEP_BEGIN, BACKWARD_END, STEP_END = 101, 102, 103
WATCH_TAG = 31000
COLLECTIVES = {"Ireduce", "Ibcast", "Iallreduce", "Ireduce_scatter", "Iallgather",
               "Iallgatherv", "Ibarrier", "Comm_dup", "Comm_idup", "Comm_split_type",
               "Allreduce", "Allgather", "Bcast", "Barrier"}
MAX_COUNT = 1 << 30
FLOAT = 4  # bytes: what control says is never made of floats

Call = collections.namedtuple("Call", "time name comm op count size peer tag step")


class Violation(Exception):
    pass


def is_reduction(call):
    # Messages of reductions have even tags, those of returns odd ones; a communicator
    # with tags carries nothing else.
    return (call.name in ("Ireduce", "Ireduce_scatter") or
            (call.name == "Iallreduce" and call.op == "sum") or
            (call.name == "Isend" and call.tag % 2 == 0))


def tells_rows(call):
    """The sets of embedding rows that a step's tokens touch: rows follow."""
    return call.name == "Iallgather" and call.op == "words"


def rows_comm(calls):
    """The communicator of the embedding's rows, or None when they go with the blocks."""
    return next((c.comm for c in calls if tells_rows(c)), None)


def carries_blocks(call):
    """Part of a block's gradient or parameters is in this call, or rows of one."""
    return (is_reduction(call) or call.name in ("Isend", "Irecv", "Iallgatherv") or
            tells_rows(call) or (call.name == "Ibcast" and call.size == FLOAT))


def read(path, rank):
    """Calls of one rank, each with the number of its step, and the request counts."""
    calls, requests, step, steps = [], None, None, 0
    with open(path) as lines:
        for line in lines:
            if line.startswith("# requests"):
                words = line.split()
                requests = (int(words[3]), int(words[5]))
                continue
            words = line.split()
            if len(words) != 8 or not line.endswith("\n"):
                break  # the program was stopped while it wrote
            time, name, comm, op, count, size, peer, tag = words
            if int(tag) == WATCH_TAG:
                continue  # signs of life come when they come
            call = Call(int(time), name, int(comm), op, int(count), int(size), int(peer),
                        int(tag), step)
            if name == "Pcontrol" and call.count == STEP_BEGIN:
                step, steps = steps, steps + 1
                call = call._replace(step=step)
            calls.append(call)
            if name == "Pcontrol" and call.count == STEP_END:
                step = None
    if requests is None:
        raise Violation(f"rank {rank}: the log has no end: MPI_Finalize was not reached")
    return calls, requests, steps


def check_requests(rank, requests):
    if requests[0] != requests[1]:
        raise Violation(f"rank {rank}: {requests[0]} requests started, {requests[1]} completed")


def check_counts(rank, calls):
    for c in calls:
        if c.comm >= 0 and c.count > MAX_COUNT:
            raise Violation(f"rank {rank}: {c.name} with a count of {c.count}")


def check_collectives(logs):
    def sequences(calls):
        by_comm = collections.defaultdict(list)
        for c in calls:
            if c.name in COLLECTIVES:
                by_comm[c.comm].append((c.step, c.name, c.op, c.count, c.size, c.peer))
        return by_comm

    first = sequences(logs[0])
    for rank, calls in enumerate(logs[1:], 1):
        other = sequences(calls)
        if set(first) != set(other):
            raise Violation(f"rank {rank}: communicators {sorted(other)}, "
                            f"rank 0: {sorted(first)}")
        for comm, mine in first.items():
            theirs = other[comm]
            for i, pair in enumerate(zip(mine, theirs)):
                if pair[0] != pair[1]:
                    raise Violation(f"communicator {comm}, collective {i}: rank 0 "
                                    f"{pair[0]}, rank {rank} {pair[1]}")
            if len(mine) != len(theirs):
                raise Violation(f"communicator {comm}: rank 0 {len(mine)} collectives, "
                                f"rank {rank} {len(theirs)}")


def check_messages(logs):
    def channels(name, calls, rank):
        found = collections.defaultdict(list)
        for c in calls:
            if c.name == name:
                key = (c.comm, rank, c.peer, c.tag)
                if name == "Irecv":
                    key = (c.comm, c.peer, rank, c.tag)
                found[key].append(c.count * c.size)
        return found

    sent, received = {}, {}
    for rank, calls in enumerate(logs):
        sent.update(channels("Isend", calls, rank))
        received.update(channels("Irecv", calls, rank))
    for key in sorted(set(sent) | set(received)):
        if sent.get(key) != received.get(key):
            raise Violation("communicator {}, from {} to {}, tag {}: ".format(*key) +
                            f"sent {sent.get(key)} bytes, received {received.get(key)}")


def check_early(rank, calls, steps):
    """In each step the first reduction comes before the end of the backward pass."""
    for step in range(steps):
        inside = [c for c in calls if c.step == step]
        marks = [c.time for c in inside if c.name == "Pcontrol" and c.count == BACKWARD_END]
        reductions = [c.time for c in inside if is_reduction(c)]
        if marks and reductions and reductions[0] > marks[0]:
            raise Violation(f"rank {rank}, step {step}: the first reduction was posted "
                            f"{reductions[0] - marks[0]} us after the backward pass")


def check_again(rank, calls):
    """The reductions on a communicator are the same in every step, but for rows, which
    depend on the data. Messages of several rounds are on their way at once, so their order
    is looked at for each partner."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    rows = rows_comm(calls)
    for c in calls:
        if c.step is not None and is_reduction(c) and c.comm != rows:
            found[c.comm, c.step][c.peer].append((c.count, c.op, c.tag))
    first = {}
    for comm, step in sorted(found):
        begin = first.setdefault(comm, step)
        if found[comm, step] != found[comm, begin]:
            raise Violation(f"rank {rank}, communicator {comm}: reductions of step {step} are "
                            f"not those of step {begin}")


def check_apart(rank, calls):
    """Blocks never share a communicator with agreement or control."""
    kinds = {}
    for c in calls:
        if c.comm < 0:
            continue
        first = kinds.setdefault(c.comm, c)
        if carries_blocks(c) != carries_blocks(first):
            raise Violation(f"rank {rank}, communicator {c.comm}: {first.name} and {c.name} "
                            "on it, one with blocks and one without")


def check_agreements(rank, calls, steps):
    """Beside the blocks a step has one agreement, on a communicator of its own. Control has
    another one and is silent while a step runs. Returns how often control spoke."""
    control = next(c.count for c in calls if c.name == "Comm_dup")
    rest = collections.defaultdict(list)
    for c in calls:
        if c.comm >= 0 and not carries_blocks(c):
            rest[c.step].append(c)
    comms = {c.comm for step in range(steps) for c in rest[step]}
    for step in range(steps):
        if len(rest[step]) != 1 or rest[step][0].name != "Iallgather":
            raise Violation(f"rank {rank}, step {step}: beside the blocks {rest[step]}, needs "
                            "one agreement")
    if len(comms) > 1 or comms & ({0, control} | {c.comm for c in rest[None]}):
        raise Violation(f"rank {rank}: agreements on communicators {sorted(comms)}, control is "
                        f"on {control}")
    return sum(c.comm == control for c in rest[None])


def check(prefix, ranks, early=True):
    """Raises Violation, or returns the calls of each rank and the numbers of steps and of
    requests. Not early: the first reduction may come late (a log of delayed calls)."""
    logs, counts, started = [], [], 0
    for rank in range(ranks):
        calls, requests, steps = read(f"{prefix}.{rank}", rank)
        check_requests(rank, requests)
        check_counts(rank, calls)
        if early:
            check_early(rank, calls, steps)
        check_again(rank, calls)
        check_apart(rank, calls)
        started += requests[0]
        logs.append(calls)
        counts.append(steps)
    if len(set(counts)) != 1:
        raise Violation(f"the ranks made {counts} steps")
    check_collectives(logs)
    check_messages(logs)
    return logs, counts[0], started


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    prefix, ranks = sys.argv[1], int(sys.argv[2])
    try:
        logs, steps, started = check(prefix, ranks)
    except (Violation, OSError) as e:
        print(f"pmpi_check: {e}")
        sys.exit(1)
    reductions = sum(is_reduction(c) for calls in logs for c in calls if c.step is not None)
    print(f"pmpi_check: {ranks} ranks, {steps} steps, {started} requests, "
          f"{reductions} reductions: sound")


if __name__ == "__main__":
    main()
