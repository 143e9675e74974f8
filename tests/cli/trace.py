#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weft train --trace: the timelines of several ranks keep the rules of their formats and
agree with the account in metrics.jsonl."""

import json
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.environ["WEFT_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from token_shard import write_tokens  # noqa: E402

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
SERIAL = os.environ["WEFT_COMM"] == "serial"
RANKS = 1 if SERIAL else 4
failures = []


def check(condition, text):
    if not condition:
        failures.append(text)
        print(f"FAILED: {text}")


def train(out, *args, ranks=RANKS, steps=6):
    command = [WEFT, "train", "--data", "tokens", "--model", "L=2,H=2,C=64,T=64,V=384",
               "--batch", "2", "--steps", str(steps), "--threads", "1", "--out", out, *args]
    if ranks > 1:
        command = ["sh", os.path.join(SOURCE, "tests/support/mpirun"), str(ranks)] + command
    return subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=TMP,
                          check=False)


# ---- Chrome's trace events ----

def slices_nest(pid, tid, slices):
    """Slices of a thread either lie one in another or do not touch."""
    open_until = []
    for ts, end, name in slices:
        while open_until and open_until[-1] <= ts + 1e-3:
            open_until.pop()
        check(not open_until or end <= open_until[-1] + 1e-3,
              f"rank {pid} thread {tid}: '{name}' at {ts} overlaps another")
        open_until.append(end)


def operations_complete(events):
    """Each asynchronous event begins once and ends once, later, as the same thing."""
    open_ones, counts = {}, {}
    for e in events:
        if e["ph"] == "b":
            check(e["id"] not in open_ones, f"id {e['id']} begins twice")
            open_ones[e["id"]] = [e, False]
        elif e["ph"] in "ne":
            check(e["id"] in open_ones, f"{e['cat']} {e['id']} has no begin")
            begin, moved = open_ones.get(e["id"], [e, True])
            check((begin["cat"], begin["name"], begin["pid"]) == (e["cat"], e["name"], e["pid"]),
                  f"id {e['id']} ends as another thing")
            check(begin["ts"] <= e["ts"], f"id {e['id']} ends before it begins")
            if e["ph"] == "n":
                open_ones[e["id"]][1] = True
            else:
                check(begin["cat"] == "message" or moved, f"id {e['id']}: moved unseen")
                counts[begin["name"]] = counts.get(begin["name"], 0) + 1
                open_ones.pop(e["id"], None)
    check(not open_ones, f"{len(open_ones)} posted operations never complete")
    return counts


def chrome(run, ranks):
    with open(os.path.join(TMP, run, "trace/trace.json"), encoding="utf-8") as f:
        root = json.load(f)
    events = root["traceEvents"]
    check(root["displayTimeUnit"] == "ms", "displayTimeUnit")
    for e in events:
        check({"ph", "pid", "tid", "ts", "name"} <= set(e) and e["ts"] >= 0, f"event {e}")
    times = [e["ts"] for e in events]
    check(times == sorted(times), "events are not sorted by time")
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    check({f"rank {ranks - 1} (host 0)", "worker 0", "communication"} <= names, f"names {names}")
    threads = {}
    for e in events:
        if e["ph"] == "X":
            check(e["dur"] >= 0, f"slice {e}")
            threads.setdefault((e["pid"], e["tid"]), []).append(
                (e["ts"], e["ts"] + e["dur"], e["name"]))
    check(len({pid for pid, _ in threads}) == ranks, f"slices of ranks {sorted(threads)}")
    for (pid, tid), slices in threads.items():
        slices_nest(pid, tid, slices)
    return events, operations_complete(events)


def steps_of(events, pid):
    return {int(e["name"].split()[1]): (e["ts"], e["ts"] + e["dur"]) for e in events
            if e["ph"] == "X" and e["cat"] == "step" and e["pid"] == pid}


def agrees_with_the_account(events):
    """Tasks of rank 0's worker in each step, beside compute_s of that step."""
    with open(os.path.join(TMP, "a/metrics.jsonl"), encoding="utf-8") as f:
        account = {m["step"]: m for m in map(json.loads, f) if "loss" in m}
    for step, (begin, end) in steps_of(events, 0).items():
        tasks = [e for e in events if e["ph"] == "X" and e["cat"] == "task" and
                 e["pid"] == 0 and begin <= e["ts"] < end]
        busy = sum(e["dur"] for e in tasks) * 1e-6
        found = account[step]["compute_s"]
        # Of no task's own: joining tasks without a body, some 2 microseconds each.
        check(abs(busy - found) <= 0.02 * found + 2e-4,
              f"step {step}: tasks take {busy} s, the account says {found} s")


def same_time_everywhere(events):
    """Ranks wait for each other in each step: on one clock their steps end together."""
    ends = [steps_of(events, pid) for pid in range(RANKS)]
    for step in ends[0]:
        first, last = min(e[step][1] for e in ends), max(e[step][1] for e in ends)
        begin = min(e[step][0] for e in ends)
        check(last - begin > 0 and last - first < 0.5 * (last - begin) + 20000,
              f"step {step} ends {(last - first) * 1e-3} ms apart")


# ---- Paraver ----

def paraver(run, ranks):
    with open(os.path.join(TMP, run, "trace/trace.prv"), encoding="utf-8") as f:
        head, *records = f.read().splitlines()
    found = re.fullmatch(r"#Paraver \((\d\d/\d\d/\d\d) at (\d\d:\d\d)\):(\d+)_ns:(\d+)\(([\d,]+)\):"
                         r"1:(\d+)\(([\d:,]+)\)", head)
    check(found, f"header {head}")
    length, tasks = int(found.group(3)), int(found.group(6))
    threads = [int(t.split(":")[0]) for t in found.group(7).split(",")]
    check(tasks == ranks and threads == [3] * ranks, f"header {head}")
    processors = sum(int(n) for n in found.group(5).split(","))
    check(processors == sum(threads), f"header {head}")
    before, until, running, flying, messages = -1, {}, {}, {}, 0

    def checked(cpu, appl, task, thread):
        check(1 <= cpu <= processors and appl == 1 and 1 <= task <= tasks and
              1 <= thread <= threads[task - 1], f"object {cpu}:{appl}:{task}:{thread}")
        return task, thread

    for line in records:
        kind, *numbers = map(int, line.split(":"))
        who = checked(*numbers[:4])
        time = numbers[4]
        check(before <= time <= length, f"'{line}' at its place")
        before = time
        if kind == 1:
            check(until.get(who, 0) == time < numbers[5] <= length, f"state '{line}' leaves a gap")
            until[who] = numbers[5]
        elif kind == 2:
            value = numbers[6]
            if numbers[5] == 90000001:
                check(bool(value) != bool(running.get(who)), f"'{line}': a task in a task")
                running[who] = value
            elif numbers[5] >= 90000010:
                check(abs(value - flying.get((who, numbers[5]), 0)) == 1, f"'{line}': in flight")
                flying[who, numbers[5]] = value
        else:
            check(kind == 3 and len(numbers) == 14, f"record '{line}'")
            checked(*numbers[6:10])
            check(time <= numbers[5] <= numbers[11], f"'{line}' arrives before it leaves")
            messages += 1
    check(not any(running.values()) and not any(flying.values()), "left open at the end")
    check(all(end == length for end in until.values()) and len(until) == ranks, "states")
    labels(run, records)
    return messages


def labels(run, records):
    """Every value has a name, every object a row."""
    with open(os.path.join(TMP, run, "trace/trace.pcf"), encoding="utf-8") as f:
        text = f.read()
    values = re.search(r"90000001\s+Task\nVALUES\n((?:\d+ +.+\n)+)", text).group(1)
    named = {int(line.split()[0]) for line in values.splitlines()}
    used = {int(r.split(":")[7]) for r in records if r.startswith("2:") and ":90000001:" in r}
    check(used <= named, f"values without names: {used - named}")
    with open(os.path.join(TMP, run, "trace/trace.row"), encoding="utf-8") as f:
        rows = f.read().split("\n")
    n = int(re.search(r"LEVEL THREAD SIZE (\d+)", "\n".join(rows)).group(1))
    check(n == 3 * RANKS, f"{n} rows")


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(os.path.join(TMP, "tokens"))
    write_tokens(os.path.join(TMP, "tokens/x_train_000001.bin"), 20000, 384)
    # Messages, not memory of the host; several blocks, so that roots differ.
    done = train("a", "--trace", "--host-memory", "off", "--block-bytes", "64k")
    check(done.returncode == 0 and "timeline of steps 3 to 6" in done.stderr,
          f"train --trace: {done.stderr}")
    events, counts = chrome("a", RANKS)
    check(sorted(steps_of(events, 0)) == [3, 4, 5, 6], f"steps {steps_of(events, 0)}")
    agrees_with_the_account(events)
    messages = paraver("a", RANKS)
    with open(os.path.join(TMP, "a/trace/step.json"), encoding="utf-8") as f:
        step = json.load(f)
    check(step["step"] == 6 and len(step["ranks"]) == RANKS and step["length_s"] > 0,
          f"step.json: {step['step']}")
    if not SERIAL:
        same_time_everywhere(events)
        roots = {e["args"]["root"] for e in events if e["ph"] == "b" and e["name"] == "reduce"}
        check(roots == set(range(RANKS)), f"roots {roots}")
        sends = sum(n for name, n in counts.items() if " to " in name)
        check(messages > 100 and messages >= 0.95 * sends, f"{messages} pairs of {sends} sends")
        check(counts.get("reduce", 0) >= 4 * RANKS and counts.get("agree") == 4 * RANKS,
              f"operations {counts}")
    done = train("one", "--trace", "--trace-steps", "1", ranks=1, steps=3)
    check("timeline of steps 3 to 3" in done.stderr, f"--trace-steps 1: {done.stderr}")
    chrome("one", 1)
    for args in (["--trace-steps", "2"], ["--trace", "--trace-steps", "0"]):
        done = train("none", *args, ranks=1)
        check(done.returncode == 2 and "--trace-steps" in done.stderr, f"{args}: {done.stderr}")
    if not SERIAL:
        done = train("collective", "--trace", "--engine", "collective", ranks=2)
        check(done.returncode == 0, f"collective engine: {done.stderr}")
        check(chrome("collective", 2)[1].get("reduce", 0) > 0, "collective engine: no operation")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
