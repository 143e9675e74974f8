#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The communication of whole training runs, call by call: train_logged.py LIBPMPI

Trains a small model on several ranks, each of which orders its tasks differently, with
accumulation, clipping, evaluation and checkpoints, under the MPI logger, and checks:
- the log is that of a sound program (pmpi_check.py), and in every step the first reduction
  comes before the backward pass ends;
- a rank moves exactly the bytes the block plan predicts: each block is reduced once a step
  and broadcast once an update, however many micro-batches there are;
- calls delayed at random, and one message held back, change no bit of the result;
- a thread level below MPI_THREAD_FUNNELED is refused.
Needs $WEFT (the program); $WEFT_TMP is the scratch folder.
"""

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import pmpi_check
from native_checkpoint import read_native
from token_shard import write_tokens

WEFT = os.environ.get("WEFT", "weft")
TMP = os.environ.get("WEFT_TMP", "train-logged-runs")
MPIRUN = os.path.join(HERE, "..", "support", "mpirun")
ALIGN = 16

# 60 columns: most vectors do not fill their last 64 bytes, so blocks hold gaps too.
L, H, C, T, VOCAB, VOCAB_PADDED = 6, 4, 60, 32, 97, 128
ACCUM = 2
ATTEMPTS = 4
MOST_LATE = 0.3  # of all ranks and steps
# Every rank has an order of tasks of its own.
RANK_SHELL = ('WEFT_TASK_SHUFFLE=$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} + $1)); shift; '
              'export WEFT_TASK_SHUFFLE; exec env "$@"')


class Failed(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failed(text)


# ---- the plan, calculated once more ----

def plan_elems():
    def span(elems):
        return (elems + ALIGN - 1) // ALIGN * ALIGN

    layer = 6 * span(C) + span(3 * C) + span(4 * C) + 12 * C * C
    return span(VOCAB_PADDED * C) + span(T * C) + 2 * span(C) + L * layer


def plan_blocks(ranks, block_bytes):
    """Lengths of the blocks in production order; block i has root i mod ranks."""
    units = plan_elems() // ALIGN
    group = ranks * block_bytes
    rounds = max((4 * plan_elems() + group // 2) // group, 1)
    count = ranks * rounds
    edges = [i * units // count * ALIGN for i in range(count + 1)]
    return [end - begin for begin, end in zip(edges, edges[1:])]


# ---- runs ----

Run = collections.namedtuple(
    "Run", "name engine layout steps block every batch seed overlap env",
    defaults=(4, 1, "on", {}))


def execute(ranks, words, seed=1):
    command = [MPIRUN, ranks, "sh", "-c", RANK_SHELL, "sh", seed] + words
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=300)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    return done


def train_words(out, *options):
    return [WEFT, "train", "--data", os.path.join(TMP, "tokens"), "--model",
            f"L={L},H={H},C={C},T={T},V={VOCAB}", "--out", out, "--accum",
            ACCUM, "--lr", 3e-3, "--threads", 2, "--resume", "none", *options]


def train(run, ranks, pmpi):
    """Returns the seconds it took; the log and the run folder bear the run's name."""
    folder = os.path.join(TMP, run.name)
    shutil.rmtree(folder, ignore_errors=True)
    env = dict(run.env, LD_PRELOAD=pmpi, WEFT_PMPI_LOG=folder + ".log")
    start = time.monotonic()
    done = execute(ranks, [f"{name}={value}" for name, value in env.items()] + train_words(
        folder, "--batch", run.batch, "--steps", run.steps, "--clip", 0.5, "--engine",
        run.engine, "--layout", run.layout, "--block-bytes", run.block, "--overlap",
        run.overlap, "--eval-every", run.every[0], "--save-every", run.every[1]), run.seed)
    require(done.returncode == 0,
            f"{run.name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return time.monotonic() - start


def read_result(run):
    """What the run calculated, as text and bytes: nothing that depends on time."""
    folder = os.path.join(TMP, run.name)
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line, parse_float=str) for line in f]
    metrics = [[(key, line[key]) for key in ("step", "loss", "lr", "grad_norm", "val_loss")
                if key in line] for line in lines]
    checkpoint = os.path.join(folder, "checkpoints", f"step-{run.steps:06d}")
    return metrics, [vector.tobytes() for vector in read_native(checkpoint)[1]]


def is_mpich():
    found = subprocess.run(["ldd", WEFT], capture_output=True, text=True, check=False)
    return "libmpich" in found.stdout


# ---- what a log must contain ----

def split_windows(calls):
    """The calls of each step, and of the time after each step (0: before the first)."""
    inside, after, step = collections.defaultdict(list), collections.defaultdict(list), 0
    within = False
    for c in calls:
        if c.name == "Pcontrol" and c.count == pmpi_check.STEP_BEGIN:
            step, within = step + 1, True
        (inside if within else after)[step].append(c)
        if c.name == "Pcontrol" and c.count == pmpi_check.STEP_END:
            within = False
    return inside, after


def moved(calls, name, odd):
    """Bytes, messages of one kind: reductions have even tags, broadcasts odd ones."""
    chosen = [c for c in calls if c.name == name and c.tag % 2 == odd]
    return sum(c.count * c.size for c in chosen), len(chosen)


def by_root(calls, name, control):
    found = collections.Counter()
    for c in calls:
        if c.name == name and c.comm != control:
            found[c.peer] += c.count * c.size
    return dict(found)


def flushed_steps(run):
    """Steps whose update is not left to the next step: others read the parameters."""
    return {s for s in range(1, run.steps + 1)
            if s == run.steps or any(s % every == 0 for every in run.every)}


def check_direct(run, where, calls, own, others, phase):
    """One phase of one round: who is not the root sends a gradient and receives
    parameters; the root has one message for each of the others."""
    ranks, own_bytes, own_blocks, other_bytes, other_blocks = own[:3] + others
    expected = {"few": (other_bytes, other_blocks),
                "many": ((ranks - 1) * own_bytes, (ranks - 1) * own_blocks)}
    sends, receives = ("few", "many") if phase == 0 else ("many", "few")
    for name, which in (("Isend", sends), ("Irecv", receives)):
        found, wanted = moved(calls, name, phase), expected[which]
        # In production order a block is one piece of memory, hence one message.
        same = found == wanted if run.layout == "production" else (
            found[0] == wanted[0] and found[1] >= wanted[1])
        require(same, f"{run.name}, {where}: {'broadcast' if phase else 'reduction'} "
                      f"{name} of {found} (bytes, messages), needs {wanted}")


def check_round(run, rank, where, calls, blocks, ranks, phase, control):
    roots = {r: 4 * sum(blocks[r::ranks]) for r in range(ranks)}
    if run.engine == "direct":
        own_blocks = len(blocks[rank::ranks])
        check_direct(run, where, calls, (ranks, roots[rank], own_blocks),
                     (4 * sum(blocks) - roots[rank], len(blocks) - own_blocks), phase)
        return
    name = "Ibcast" if phase else "Ireduce"
    found = by_root(calls, name, control)
    require(found == roots, f"{run.name}, {where}: {name} of {found} bytes by root, "
                            f"needs {roots}")


def has_broadcasts(run, calls, control):
    if run.engine == "direct":
        return moved(calls, "Isend", 1) != (0, 0) or moved(calls, "Irecv", 1) != (0, 0)
    return by_root(calls, "Ibcast", control) != {}


def check_volume(run, logs, ranks):
    blocks = plan_blocks(ranks, run.block)
    flushed = flushed_steps(run)
    for rank, calls in enumerate(logs):
        inside, after = split_windows(calls)
        control = next(c.count for c in calls if c.name == "Comm_dup")
        require(sorted(inside) == list(range(1, run.steps + 1)), f"{run.name}: steps")
        for step in range(1, run.steps + 1):
            where = f"rank {rank}, step {step}"
            check_round(run, rank, where, inside[step], blocks, ranks, 0, control)
            # The update of a step comes after it when somebody reads the parameters
            # then, and otherwise while the next step runs.
            for window, name, wanted in (
                    (inside[step], where, step > 1 and step - 1 not in flushed),
                    (after[step], "after " + where, step in flushed)):
                if wanted:
                    check_round(run, rank, name, window, blocks, ranks, 1, control)
                else:
                    require(not has_broadcasts(run, window, control),
                            f"{run.name}, {name}: broadcasts without an update")
        require(not any(pmpi_check.is_reduction(c) for w in after.values() for c in w),
                f"{run.name}, rank {rank}: reductions outside of steps")
    return blocks


def overlap_figures(run, logs):
    """By rank and step the lead, in us, of the first reduction over the end of the backward
    pass; and the share of reductions begun before that end."""
    leads, early, total = {}, 0, 0
    for rank, calls in enumerate(logs):
        for step in range(run.steps):
            window = [c for c in calls if c.step == step]
            ends = [c.time for c in window
                    if c.name == "Pcontrol" and c.count == pmpi_check.BACKWARD_END]
            starts = [c.time for c in window if pmpi_check.is_reduction(c)]
            require(len(ends) == 1 and starts, f"{run.name}, step {step}: {len(ends)} ends of "
                                               f"backward, {len(starts)} reductions")
            leads[rank, step] = ends[0] - starts[0]
            early += sum(start <= ends[0] for start in starts)
            total += len(starts)
    return leads, early / total


def check_log(run, ranks):
    logs, steps, requests = pmpi_check.check(os.path.join(TMP, run.name + ".log"), ranks,
                                             early=False)
    require(steps == run.steps, f"{run.name}: {steps} steps in the log")
    blocks = check_volume(run, logs, ranks)
    return logs, blocks, requests


# ---- the tests ----

def train_early(run, ranks, pmpi):
    """Trains until on every rank the first reduction of every step has been early. A machine
    with too much to do may leave the thread that posts it without a core for long: then
    another attempt has to show it for that rank and step."""
    best, late = {}, 0
    for attempt in range(ATTEMPTS):
        seconds = train(run, ranks, pmpi)
        logs, blocks, requests = check_log(run, ranks)
        leads, share = overlap_figures(run, logs)
        late += sum(lead < 0 for lead in leads.values())
        best = {key: max(lead, best.get(key, lead)) for key, lead in leads.items()}
        if min(best.values()) >= 0:
            break
    where = min(best, key=best.get)
    require(best[where] >= 0, f"{run.name}: rank {where[0]}, step {where[1] + 1}: the first "
                              f"reduction {-best[where]} us after the end of backward")
    require(late <= MOST_LATE * len(best) * (attempt + 1),
            f"{run.name}: {late} first reductions after the end of backward")
    own = 4 * sum(blocks[::ranks])
    print(f"{run.name}: {ranks} ranks, {run.steps} steps, {len(blocks)} blocks, "
          f"{requests} requests; {4 * sum(blocks) - own} + {(ranks - 1) * own} bytes a step "
          f"from rank 0; first reduction at least {best[where] / 1000:.1f} ms before backward "
          f"ends ({late} late, {attempt + 1} attempts), {100 * share:.0f} % of all before; "
          f"{seconds:.1f} s", flush=True)


def plain_runs(ranks, pmpi):
    runs = [Run(f"{engine}.{layout}", engine, layout, 10, 16384, (4, 5), 8, 1 + 10 * i)
            for i, (engine, layout) in enumerate(
                (e, l) for e in ("direct", "collective") for l in ("production", "storage"))]
    for run in runs:
        train_early(run, ranks, pmpi)
    # Neither the order of tasks nor the place in memory may show.
    require(read_result(runs[0]) == read_result(runs[1]),
            "direct: the layouts do not give the same bits")
    # The figure tells early from late: without overlap nothing may be early.
    apart = runs[0]._replace(name="apart", steps=3, overlap="off")
    train(apart, ranks, pmpi)
    share = overlap_figures(apart, check_log(apart, ranks)[0])[1]
    require(share == 0, f"overlap off: {100 * share:.0f} % early")


def same_results(run, base):
    found, expected = read_result(run), read_result(base)
    if found == expected:
        return "same bits"
    # The direct engine adds in rank order; the library's order is its own business.
    require(run.engine == "collective", f"{run.name}: other results than {base.name}")
    require(len(found[0]) == len(expected[0]), f"{run.name}: other steps than {base.name}")
    worst = max(abs(float(a) - float(b)) / max(abs(float(b)), 1e-30)
                for x, y in zip(found[0], expected[0]) for (_, a), (_, b) in zip(x, y))
    require(worst <= 1e-6, f"{run.name}: {worst:.1e} relative from {base.name}")
    return f"within {worst:.1e}"


def seconds_of_step(run, step):
    with open(os.path.join(TMP, run.name, "metrics.jsonl"), encoding="utf-8") as f:
        return next(line["step_s"] for line in map(json.loads, f)
                    if line["step"] == step and "step_s" in line)


def check_held(run, logs, hold_ms):
    """The call was held, and a message alone let others pass."""
    rank, call = run.env["WEFT_PMPI_HOLD"].split(",")[:2]
    calls = logs[int(rank)]
    at = [i for i, c in enumerate(calls) if c.name == "Released"]
    require(len(at) == 1, f"{run.name}: released {len(at)} times")
    released = calls[at[0]]
    require(seconds_of_step(run, released.step + 1) >= hold_ms / 1000,
            f"{run.name}: the step did not wait")
    if call != "Isend":
        return 0
    begin = next(i for i, c in enumerate(calls) if c.step == released.step
                 and c.name == "Isend" and (c.peer, c.tag) == (released.peer, released.tag))
    return sum(c.name in ("Isend", "Irecv") for c in calls[begin + 1:at[0]])


def disturbed_runs(ranks, pmpi):
    steps, block, hold_ms, every = 4, 65536, 500, (3, 2)
    last = len(plan_blocks(ranks, block)) - 1
    root = last % ranks
    sender = (root + 1) % ranks
    # The last block holds the tokens' embeddings: the last gradient, the first parameters
    # needed. Step 1 from 0: the update of the step before is broadcast in it.
    holds = {"direct": (f"{sender},Isend,{2 * last},1", f"{root},Isend,{2 * last + 1},1"),
             "collective": (f"{sender},Ireduce,{last},1", f"{root},Ibcast,0,1")}
    for engine in ("direct", "collective"):
        base = Run(f"{engine}.base", engine, "production", steps, block, every)
        train(base, ranks, pmpi)
        check_log(base, ranks)
        runs = [base._replace(name=f"{engine}.delayed", seed=50, env={
            "WEFT_PMPI_DELAY_MS": 50, "WEFT_PMPI_DELAY_TOTAL_MS": 60000,
            "WEFT_PMPI_SEED": 7})]
        runs += [base._replace(name=f"{engine}.held.{what}", seed=60, env={
            "WEFT_PMPI_HOLD": f"{hold},{hold_ms}"})
                 for what, hold in zip(("reduction", "broadcast"), holds[engine])]
        for run in runs:
            seconds = train(run, ranks, pmpi)
            logs, _, _ = check_log(run, ranks)
            text = same_results(run, base)
            if "WEFT_PMPI_HOLD" in run.env:
                meanwhile = check_held(run, logs, hold_ms)
                # After the last reduction nothing is left to start; the last block's
                # parameters are the first of all.
                require(meanwhile > 0 or run.name != "direct.held.broadcast",
                        f"{run.name}: nothing started meanwhile")
                text += f", {meanwhile} messages started meanwhile"
            print(f"{run.name}: {text}; {seconds:.1f} s", flush=True)


def thread_levels(ranks, pmpi):
    for count in (1, ranks):
        for level in ("single", "funneled"):
            out = os.path.join(TMP, f"{level}.{count}")
            done = execute(count, [f"LD_PRELOAD={pmpi}", f"WEFT_PMPI_THREAD_LEVEL={level}"] +
                           train_words(out, "--steps", 1, "--quiet"))
            text = done.stdout + done.stderr
            if level == "funneled":
                require(done.returncode == 0, f"funneled: exit code {done.returncode}\n{text}")
                continue
            lines = [line for line in text.splitlines() if "weft" in line or "error" in line]
            require(done.returncode == 2, f"single: exit code {done.returncode}\n{text}")
            require(1 <= len(lines) <= count and all(re.search(
                "found thread level MPI_THREAD_SINGLE, needs MPI_THREAD_FUNNELED", line)
                                                     for line in lines), f"single:\n{text}")
            require(not os.path.exists(out), "single: a run folder was made")
    print("thread levels: single is refused, funneled works")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    pmpi = os.path.abspath(sys.argv[1])
    # MPICH waits by spinning: with more ranks than cores nothing gets done.
    ranks = 2 if is_mpich() else 4
    shutil.rmtree(TMP, ignore_errors=True)
    data = os.path.join(TMP, "tokens")
    os.makedirs(data)
    write_tokens(os.path.join(data, "logged_train_000000.bin"), 20000, VOCAB)
    write_tokens(os.path.join(data, "logged_val_000000.bin"), 700, VOCAB)
    try:
        plain_runs(ranks, pmpi)
        disturbed_runs(ranks, pmpi)
        thread_levels(ranks, pmpi)
    except (Failed, pmpi_check.Violation) as e:
        print(f"train_logged: {e}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
