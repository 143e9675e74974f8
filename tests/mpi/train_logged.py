#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The communication of whole training runs, call by call: train_logged.py LIBPMPI PLAN_FIGURES

Trains a small model on several ranks, each of which orders its tasks differently, with
accumulation, clipping, evaluation and checkpoints, under the MPI logger, and checks for
every strategy on both engines:
- the log is that of a sound program (pmpi_check.py), and in every step the first reduction
  comes before the backward pass ends;
- what a rank sends to whom, of which block, in which round, is what the plan says, as it
  stands on paper (block_plan.py), and the sum is what the program's own plan predicts
  (plan_figures), to the byte, in each step; a block is reduced once a step and returned
  once an update, however many micro-batches there are;
- steps use one communicator for blocks and another one for the agreement, once a step, and
  never that of control;
- calls delayed at random, and one message held back, change no bit of the result;
- a thread level below MPI_THREAD_FUNNELED is warned of by one rank, and works.
Needs $WEFT (the program); $WEFT_TMP is the scratch folder.
"""

import collections
import functools
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
from block_plan import REDUCE, RETURN, Grid, Plan, model_elems, row_owners
from native_checkpoint import read_native
from token_shard import read_tokens, write_tokens

WEFT = os.environ.get("WEFT", "weft")
TMP = os.environ.get("WEFT_TMP", "train-logged-runs")
MPIRUN = os.path.join(HERE, "..", "support", "mpirun")

# 60 columns: most vectors do not fill their last 64 bytes, so blocks hold gaps too.
L, H, C, T, VOCAB = 6, 4, 60, 32, 97
MODEL = f"L={L},H={H},C={C},T={T},V={VOCAB}"
STRATEGIES = ("central", "reduce-broadcast", "reduce-scatter", "allreduce")
ENGINES = ("direct", "collective")
LAYOUTS = ("production", "storage")
ACCUM = 2
TRAIN_SHARD = "logged_train_000000.bin"
ATTEMPTS = 4
MOST_LATE = 0.3  # of all ranks and steps
HOLD_MS = 500
FLOAT = 4  # bytes
TAG_FETCH, TAG_ROWS = 1, 2  # on the communicator of the embedding's rows
# Every rank has an order of tasks of its own.
RANK_SHELL = ('WEFT_TASK_SHUFFLE=$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} + $1)); shift; '
              'export WEFT_TASK_SHUFFLE; exec env "$@"')


class Failed(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failed(text)


# ---- runs ----

Run = collections.namedtuple(
    "Run", "name ranks strategy engine layout hosts host_memory rounds roots wire split steps "
           "block every batch seed overlap env",
    defaults=("reduce-broadcast", "direct", "production", None, "on", "auto", 1, "fp32", "on", 7,
              16384, (3, 4), 4, 1, "on", {}))


def update_words(run):
    """Options that decide about the update phase."""
    return ["--strategy", run.strategy, "--engine", run.engine, "--layout", run.layout,
            "--host-memory", run.host_memory, "--rounds", run.rounds, "--roots", run.roots,
            "--wire", run.wire, "--block-bytes", run.block, "--split-embedding", run.split]


def hosts_of(run):
    """Host numbers: a rank has its memory to itself unless the run says otherwise."""
    return run.hosts or list(range(run.ranks))


def listed(numbers):
    return ",".join(str(n) for n in numbers)


def execute(ranks, words, seed=1):
    command = [MPIRUN, ranks, "sh", "-c", RANK_SHELL, "sh", seed] + words
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=300)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    return done


def train_words(out, *options):
    return [WEFT, "train", "--data", os.path.join(TMP, "tokens"), "--model", MODEL, "--out",
            out, "--accum", ACCUM, "--lr", 3e-3, "--threads", 2, "--resume", "none",
            "--order", "sequential", *options]


def train(run, pmpi):
    """Returns the seconds it took; the log and the run folder bear the run's name."""
    folder = os.path.join(TMP, run.name)
    shutil.rmtree(folder, ignore_errors=True)
    env = dict(run.env, LD_PRELOAD=pmpi, WEFT_PMPI_LOG=folder + ".log",
               WEFT_PMPI_HOSTS=listed(hosts_of(run)))
    start = time.monotonic()
    done = execute(run.ranks, [f"{name}={value}" for name, value in env.items()] + train_words(
        folder, "--batch", run.batch, "--steps", run.steps, "--clip", 0.5, "--overlap",
        run.overlap, "--eval-every", run.every[0], "--save-every", run.every[1],
        *update_words(run)), run.seed)
    require(done.returncode == 0,
            f"{run.name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    check_banner(run, done.stderr)
    return time.monotonic() - start


def check_banner(run, text):
    """What the program says at its start about the bytes of rank 0."""
    plan = plan_of(run)
    sent = sum(elem_bytes(run, phase) * plan.wire_elems(phase, 0) for phase in (REDUCE, RETURN))
    if run.engine == "direct":
        found = re.search(r"a rank sends ([0-9.]+) MB a step", text)
        require(found and abs(float(found[1]) - sent * 1e-6) <= 0.0501,
                f"{run.name}: {sent} bytes from rank 0, the program says {found and found[0]}")


def read_result(run):
    """What the run calculated, as text and bytes: nothing that depends on time."""
    folder = os.path.join(TMP, run.name)
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line, parse_float=str) for line in f]
    metrics = [[(key, line[key]) for key in ("step", "loss", "lr", "grad_norm", "val_loss")
                if key in line] for line in lines if "save_s" not in line]  # as they end
    checkpoint = os.path.join(folder, "checkpoints", f"step-{run.steps:06d}")
    return metrics, [vector.tobytes() for vector in read_native(checkpoint)[1]]


def is_mpich():
    found = subprocess.run(["ldd", WEFT], capture_output=True, text=True, check=False)
    return "libmpich" in found.stdout


# ---- the plan, on paper and as the program has it ----

def plan_of(run):
    shared = run.engine == "direct" and run.host_memory == "on"
    rounds = run.rounds if run.engine == "direct" else "flat"
    return Plan(model_elems(L, C, T, VOCAB),
                Grid(run.ranks, hosts_of(run) if shared else None, rounds), run.strategy,
                run.block, run.roots)


def has_rows(run):
    """The embedding's part of a gradient goes as rows."""
    return (run.split == "on" and run.ranks > 1 and
            not (run.engine == "collective" and run.strategy == "allreduce"))


@functools.lru_cache(maxsize=None)
def train_tokens():
    return read_tokens(os.path.join(TMP, "tokens", TRAIN_SHARD))


def rows_of(run, step, rank):
    """The tokens that a rank reads in a step (from 1), without repeats."""
    tokens = train_tokens()
    batch = run.ranks * run.batch * ACCUM
    per_epoch = (len(tokens) - 1) // T // batch
    found = set()
    for a in range(ACCUM):
        for b in range(run.batch):
            window = ((step - 1) % per_epoch) * batch + (a * run.ranks + rank) * run.batch + b
            found |= set(tokens[window * T:(window + 1) * T])
    return found


def elem_bytes(run, phase):
    return 2 if run.wire == "bf16" and (phase == REDUCE or run.strategy == "allreduce") else 4


def figures_of(run, program):
    """The program's own figures, a rank each."""
    words = [program, "--model", MODEL, "--ranks", run.ranks, "--hosts",
             listed(hosts_of(run)), *update_words(run)]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False)
    require(done.returncode == 0, f"{run.name}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def expected_messages(run, plan):
    """{phase: [{(tag, peer): bytes} of each rank]} that are sent, and that arrive."""
    sent = {phase: [{} for _ in range(run.ranks)] for phase in (REDUCE, RETURN)}
    come = {phase: [{} for _ in range(run.ranks)] for phase in (REDUCE, RETURN)}
    for phase, ranks in sent.items():
        for rank in range(run.ranks):
            for (round_, block, peer), elems in plan.sends(phase, rank).items():
                tag = (block * plan.rounds + round_) * 2 + phase
                bytes_ = 0 if plan.in_memory(phase, round_) else elems * elem_bytes(run, phase)
                ranks[rank][tag, peer] = bytes_
                come[phase][peer][tag, rank] = bytes_
    return sent, come


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


def messages(calls, name, phase, rows=None):
    """Bytes by tag and peer: reductions have even tags, returns odd ones. `rows`: the
    communicator of the embedding's rows, which are left out."""
    found = {}
    for c in calls:
        if c.name == name and c.tag % 2 == phase and c.comm != rows:
            found[c.tag, c.peer] = found.get((c.tag, c.peer), 0) + c.count * c.size
    return found


def counts_in(op):
    return [int(n) for n in op[op.index("[") + 1:-1].split(",")]


# Tasks make the calls: those on one communicator in order, which pmpi_check.py looks at.
TAMPI = os.environ.get("WEFT_COMM") == "tampi"
COLLECTIVE_CALLS = {"central": ("Ireduce", "Ibcast"), "reduce-broadcast": ("Ireduce", "Ibcast"),
                    "reduce-scatter": ("Ireduce_scatter", "Iallgatherv"),
                    "allreduce": ("Iallreduce", None)}


def collectives(run, calls, phase):
    """[(root or -1, elements or counts of each rank)] of one phase, in the order of calls."""
    name = COLLECTIVE_CALLS[run.strategy][phase]
    found = []
    for c in calls:
        if c.name != name or not pmpi_check.carries_blocks(c):
            continue
        require(c.size == FLOAT, f"{run.name}: {name} with elements of {c.size} bytes")
        found.append((c.peer, counts_in(c.op) if "[" in c.op else [c.count]))
    return found


def expected_collectives(run, plan, phase):
    found = []
    for parts in plan.parts if phase == REDUCE else reversed(plan.parts):
        if run.strategy == "reduce-scatter":
            owned = dict((owner, n) for n, owner in parts)
            found.append((-1, [owned.get(r, 0) for r in range(run.ranks)]))
        elif run.strategy == "allreduce":
            found += [(-1, [sum(n for n, _ in parts)])] if phase == REDUCE else []
        else:
            found += [(owner, [n]) for n, owner in parts]
    return found


def joined(listed_calls):
    """Neighbours with the same root added up: a block may go in several pieces."""
    out = []
    for root, counts in listed_calls:
        if out and out[-1][0] == root:
            out[-1] = (root, [a + b for a, b in zip(out[-1][1], counts)])
        else:
            out.append((root, counts))
    return out


class Expected:
    """What every rank does in each step of a run."""

    def __init__(self, run, program):
        self.run, self.plan = run, plan_of(run)
        self.sent, self.come = expected_messages(run, self.plan)
        self.figures = figures_of(run, program)
        self.calls = [expected_collectives(run, self.plan, phase) for phase in (REDUCE, RETURN)]
        self.row_bytes = 0  # of all ranks and steps

    def check_phase(self, rank, where, calls, phase, rows):
        where = f"{self.run.name}, {where}, {'return' if phase else 'reduction'}"
        if self.run.engine == "direct":
            self.check_direct(rank, where, calls, phase, rows)
        else:
            self.check_collective(where, calls, phase)

    def check_direct(self, rank, where, calls, phase, rows):
        for name, expected in (("Isend", self.sent), ("Irecv", self.come)):
            same_messages(f"{where}: {name}", messages(calls, name, phase, rows),
                          expected[phase][rank])
        predicted = self.figures[rank]["return_bytes" if phase else "reduce_bytes"]
        total = sum(messages(calls, "Isend", phase, rows).values())
        require(total == predicted, f"{where}: {total} bytes, the plan says {predicted}")

    def check_collective(self, where, calls, phase):
        found, wanted = collectives(self.run, calls, phase), self.calls[phase]
        if TAMPI:
            found, wanted = sorted(found), sorted(wanted)
        # In production order a block is one piece of memory, hence one call.
        if self.run.layout == "storage":
            found, wanted = joined(found), joined(wanted)
        if found != wanted:
            i = next((i for i, pair in enumerate(zip(found, wanted)) if pair[0] != pair[1]),
                     min(len(found), len(wanted)))
            raise Failed(f"{where}: call {i} is {found[i:i + 1]}, needs {wanted[i:i + 1]} "
                         f"(root, counts)")

    def has_returns(self, calls, rows):
        if self.run.engine == "direct":
            return bool(messages(calls, "Isend", RETURN, rows) or
                        messages(calls, "Irecv", RETURN, rows))
        return bool(collectives(self.run, calls, RETURN))


def same_messages(where, found, wanted):
    if found != wanted:
        key = next(k for k in set(found) | set(wanted) if found.get(k) != wanted.get(k))
        raise Failed(f"{where} with tag {key[0]} and rank {key[1]} of {found.get(key)} bytes, "
                     f"needs {wanted.get(key)}")


class ExpectedRows:
    """The embedding's rows: gradients of a rank's rows go to their owners in each step, and
    where an update waits for the step, the owners' parameters of the same rows come back
    ahead of the tensor."""

    def __init__(self, run, plan):
        self.run, self.plan, self.bytes = run, plan, 0
        self.owners = row_owners(plan, VOCAB, C)
        self.lengths = {}

    def between(self, step, rank, owner):
        """Elements of the rank's rows that the other one owns."""
        key = step, rank
        if key not in self.lengths:
            total = collections.Counter()
            for row in rows_of(self.run, step, rank):
                total.update(self.owners[row])
            self.lengths[key] = total
        return self.lengths[key][owner]

    def check(self, rank, step, where, calls, fetches):
        where = f"{self.run.name}, {where}, rows"
        told = [c for c in calls if pmpi_check.tells_rows(c)]
        require(len(told) == 1 and told[0].count == -(-VOCAB // 64), f"{where}: told {told}")
        rows = [c for c in calls if c.comm == told[0].comm]
        others = [r for r in range(self.run.ranks) if r != rank]
        mine = {r: FLOAT * self.between(step, rank, r) for r in others}
        theirs = {r: FLOAT * self.between(step, r, rank) for r in others}
        same_messages(f"{where}: Isend", messages(rows, "Isend", REDUCE),
                      {(TAG_ROWS, r): n for r, n in mine.items() if n})
        same_messages(f"{where}: Irecv", messages(rows, "Irecv", REDUCE),
                      {(TAG_ROWS, r): n for r, n in theirs.items() if n})
        seen = self.run.engine == "direct" and self.run.host_memory == "on"
        for name, wanted in (("Isend", theirs), ("Irecv", mine)):
            needed = {} if not fetches else {
                (TAG_FETCH, r): 0 if seen and self.plan.grid.share_host(r, rank) else n
                for r, n in wanted.items() if n}
            same_messages(f"{where}: fetch, {name}", messages(rows, name, RETURN), needed)
        self.bytes += sum(c.count * c.size for c in rows if c.name == "Isend")


def flushed_steps(run):
    """Steps whose update is not left to the next step: others read the parameters."""
    return {s for s in range(1, run.steps + 1)
            if s == run.steps or any(s % every == 0 for every in run.every)}


def check_volume(run, logs, expected):
    flushed = flushed_steps(run)
    rows = ExpectedRows(run, expected.plan) if has_rows(run) else None
    for rank, calls in enumerate(logs):
        inside, after = split_windows(calls)
        apart = pmpi_check.rows_comm(calls)
        require(sorted(inside) == list(range(1, run.steps + 1)), f"{run.name}: steps")
        for step in range(1, run.steps + 1):
            where = f"rank {rank}, step {step}"
            waiting = step > 1 and step - 1 not in flushed
            expected.check_phase(rank, where, inside[step], REDUCE, apart)
            # The update of a step comes after it when somebody reads the parameters
            # then, and otherwise while the next step runs.
            for window, name, wanted in ((inside[step], where, waiting),
                                         (after[step], "after " + where, step in flushed)):
                if wanted:
                    expected.check_phase(rank, name, window, RETURN, apart)
                else:
                    require(not expected.has_returns(window, apart),
                            f"{run.name}, {name}: a return without an update")
            if rows:
                rows.check(rank, step, where, inside[step],
                           waiting and run.strategy != "allreduce")
        outside = [c for w in after.values() for c in w]
        require(not any(pmpi_check.is_reduction(c) or (rows and c.comm == apart and
                                                       pmpi_check.carries_blocks(c))
                        for c in outside),
                f"{run.name}, rank {rank}: reductions or rows outside of steps")
        require(rows or apart is None, f"{run.name}, rank {rank}: rows, and none are wanted")
    expected.row_bytes = rows.bytes if rows else 0


def overlap_figures(run, logs):
    """By rank and step the lead, in us, of the first reduction over the end of the backward
    pass; and the share of reductions begun before that end. A rank that owns all has none
    to send."""
    leads, early, total = {}, 0, 0
    senders = [rank for rank, calls in enumerate(logs) if any(map(pmpi_check.is_reduction, calls))]
    require(len(senders) >= run.ranks - 1, f"{run.name}: only ranks {senders} send reductions")
    for rank, calls in ((rank, logs[rank]) for rank in senders):
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


def check_log(run, program):
    logs, steps, requests = pmpi_check.check(os.path.join(TMP, run.name + ".log"), run.ranks,
                                             early=False)
    require(steps == run.steps, f"{run.name}: {steps} steps in the log")
    expected = Expected(run, program)
    check_volume(run, logs, expected)
    for rank, calls in enumerate(logs):
        pmpi_check.check_agreements(rank, calls, run.steps)
    return logs, expected, requests


# ---- the tests ----

def train_early(run, pmpi, program):
    """Trains until on every rank the first reduction of every step has been early. A machine
    with too much to do may leave the thread that posts it without a core for long: then
    another attempt has to show it for that rank and step."""
    best, late = {}, 0
    for attempt in range(ATTEMPTS):
        seconds = train(run, pmpi)
        logs, expected, requests = check_log(run, program)
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
    report(run, expected, requests, seconds,
           f"first reduction at least {best[where] / 1000:.1f} ms before backward ends "
           f"({late} late, {attempt + 1} attempts), {100 * share:.0f} % of all before")


def report(run, expected, requests, seconds, text):
    sent = [f["reduce_bytes"] + f["return_bytes"] for f in expected.figures]
    volume = (f"{listed(sent)} bytes a step, exact" if run.engine == "direct" else
              f"{sum(len(c) for c in expected.calls)} collectives of the plan's counts a step")
    print(f"{run.name}: {run.ranks} ranks, {run.steps} steps, {len(expected.plan.blocks)} "
          f"blocks, {requests} requests; {volume}, and {expected.row_bytes} bytes of rows in "
          f"all; {text}; {seconds:.1f} s", flush=True)


def plain_runs(ranks, pmpi, program):
    for number, strategy in enumerate(STRATEGIES):
        for engine in ENGINES:
            runs = [Run(f"{strategy}.{engine}.{layout}", ranks, strategy, engine, layout,
                        batch=8, seed=1 + 10 * number) for layout in LAYOUTS]
            for run in runs:
                train_early(run, pmpi, program)
            # Neither the order of tasks nor the place in memory may show.
            same_results(runs[1], runs[0])
    # The figure tells early from late: without overlap nothing may be early.
    apart = Run("apart", ranks, steps=3, overlap="off")
    train(apart, pmpi)
    share = overlap_figures(apart, check_log(apart, program)[0])[1]
    require(share == 0, f"overlap off: {100 * share:.0f} % early")


def volume_runs(ranks, pmpi, program):
    """Bytes in all the ways there are to send them."""
    pairs, one = [r // 2 for r in range(ranks)], [0] * ranks
    turns = [r % 2 for r in range(ranks)]
    runs = [Run(f"{strategy}.{name}", ranks, strategy, steps=5, **options)
            for strategy in STRATEGIES
            for name, options in (
                ("hosts", dict(hosts=pairs)),
                ("hosts.off", dict(hosts=pairs, host_memory="off", rounds="recursive")),
                ("one-host.storage", dict(hosts=one, layout="storage")),
                ("bf16", dict(wire="bf16", layout="storage")),
                ("bf16.hosts", dict(wire="bf16", hosts=turns, rounds="recursive")))]
    broadcast = "reduce-broadcast"
    runs += [Run("roots.2", ranks, broadcast, roots=2, steps=5, layout="storage"),
             Run("roots.all", ranks, broadcast, roots=ranks, steps=5, wire="bf16"),
             Run("roots.collective", ranks, broadcast, "collective", roots=2, steps=5),
             Run("roots.hosts", ranks, broadcast, roots=2, hosts=turns, steps=5),
             Run("one-block", ranks, "reduce-scatter", block="one", steps=5),
             Run("auto-blocks", ranks, "reduce-scatter", block="auto", steps=5)]
    if ranks > 2:
        runs += [Run(f"three.{strategy}", 3, strategy, hosts=[0, 1, 1], steps=5,
                     rounds="recursive") for strategy in STRATEGIES]
        runs += [Run("eight", 8, "reduce-scatter", hosts=[0, 1, 2, 3] * 2, steps=4,
                     rounds="recursive", wire="bf16"),
                 Run("six", 6, "allreduce", rounds="recursive", steps=4)]
    for run in runs:
        seconds = train(run, pmpi)
        _, expected, requests = check_log(run, program)
        report(run, expected, requests, seconds, f"{expected.plan.rounds} rounds")


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


def check_held(run, logs):
    """The call was held, and a message alone let others pass."""
    rank, call, _, _, _, comm = run.env["WEFT_PMPI_HOLD"].split(",")
    calls = logs[int(rank)]
    at = [i for i, c in enumerate(calls) if c.name == "Released"]
    require(len(at) == 1, f"{run.name}: released {len(at)} times")
    released = calls[at[0]]
    require(seconds_of_step(run, released.step + 1) >= HOLD_MS / 1000,
            f"{run.name}: the step did not wait")
    if call != "Isend":
        return 0
    begin = next(i for i, c in enumerate(calls) if c.step == released.step and c.name == "Isend"
                 and (c.comm, c.peer, c.tag) == (int(comm), released.peer, released.tag))
    return sum(c.name in ("Isend", "Irecv") for c in calls[begin + 1:at[0]])


def held_calls(run, logs):
    """(what, hold) of one call of each kind to hold back, as WEFT_PMPI_HOLD has it: of the
    last block's reduction, of the return of the parameters needed first, of the rows of the
    embedding. Step 1 from 0: the update of the step before returns in it."""
    def hold(rank, call, which, comm):
        return f"{rank},{call},{which},1,{HOLD_MS},{comm}"

    plan = plan_of(run)
    last = len(plan.blocks) - 1
    apart = pmpi_check.rows_comm(logs[0])
    if run.engine == "direct":
        comm = next(c.comm for c in logs[-1] if c.name == "Isend" and c.comm != apart)
        for phase, block, what in ((REDUCE, last, "reduction"),
                                   (RETURN, 0 if has_rows(run) else last, "return")):
            rank, (round_, _, _) = next((r, key) for r in range(run.ranks)
                                        for key in plan.sends(phase, r) if key[1] == block)
            yield what, hold(rank, "Isend", (block * plan.rounds + round_) * 2 + phase, comm)
    else:
        for what, name, which in zip(
                ("reduction", "return"), COLLECTIVE_CALLS[run.strategy],
                (len(expected_collectives(run, plan, REDUCE)) - 1, 0)):
            if name:
                yield what, hold(plan.parts[last][0][1], name, which, -1)
    for what, tag in (("rows", TAG_ROWS), ("fetch", TAG_FETCH)):
        for rank, calls in enumerate(logs):
            if apart is not None and any(c.step == 1 and c.name == "Isend" and c.tag == tag and
                                         c.comm == apart for c in calls):
                yield what, hold(rank, "Isend", tag, apart)
                break


def disturbed_runs(ranks, pmpi, program):
    bases = [Run(f"{engine}.{strategy}.base", ranks, strategy, engine, steps=3, block=65536,
                 every=(3, 3), split="off" if engine == "collective" else "on")
             for engine in ENGINES for strategy in STRATEGIES]
    hosts = [r // 2 for r in range(ranks)]
    bases += [Run(f"hosts.{strategy}.base", ranks, strategy, steps=3, block=65536, every=(3, 3),
                  hosts=hosts, wire="bf16", split=split)
              for strategy, split in zip(STRATEGIES[1:], ("on", "off", "on"))]
    for base in bases:
        train(base, pmpi)
        logs = check_log(base, program)[0]
        name = base.name[:-len(".base")]
        runs = [base._replace(name=name + ".delayed", seed=50, env={
            "WEFT_PMPI_DELAY_MS": 20, "WEFT_PMPI_DELAY_TOTAL_MS": 800, "WEFT_PMPI_SEED": 7})]
        runs += [base._replace(name=f"{name}.held.{what}", seed=60, env={
            "WEFT_PMPI_HOLD": hold}) for what, hold in held_calls(base, logs)]
        for run in runs:
            seconds = train(run, pmpi)
            logs, expected, _ = check_log(run, program)
            text = same_results(run, base)
            if "WEFT_PMPI_HOLD" in run.env:
                meanwhile = check_held(run, logs)
                # After the last reduction nothing is left to start; what returns is many
                # blocks.
                require(meanwhile > 0 or not run.name.endswith("held.return") or
                        run.engine == "collective" or len(expected.plan.blocks) == 1,
                        f"{run.name}: nothing started meanwhile")
                text += f", {meanwhile} messages started meanwhile"
            print(f"{run.name}: {text}; {seconds:.1f} s", flush=True)


def thread_levels(ranks, pmpi):
    """One thread makes all calls: a library without support for threads does, too. (TAMPI
    refuses that, where there is something to exchange.)"""
    for count in (1,) if TAMPI else (1, ranks):
        for level in ("single", "funneled"):
            out = os.path.join(TMP, f"{level}.{count}")
            done = execute(count, [f"LD_PRELOAD={pmpi}", f"WEFT_PMPI_THREAD_LEVEL={level}"] +
                           train_words(out, "--steps", 1, "--quiet"))
            text = done.stdout + done.stderr
            require(done.returncode == 0, f"{level}: exit code {done.returncode}\n{text}")
            warnings = [line for line in text.splitlines() if "found thread level" in line]
            wanted = 1 if level == "single" else 0
            require(len(warnings) == wanted and
                    all("MPI_THREAD_SINGLE" in line for line in warnings), f"{level}:\n{text}")
    print("thread levels: single is warned of once, funneled is not")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pmpi, program = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    # MPICH waits by spinning: with more ranks than cores nothing gets done.
    ranks = 2 if is_mpich() else 4
    shutil.rmtree(TMP, ignore_errors=True)
    data = os.path.join(TMP, "tokens")
    os.makedirs(data)
    write_tokens(os.path.join(data, TRAIN_SHARD), 20000, VOCAB)
    write_tokens(os.path.join(data, "logged_val_000000.bin"), 700, VOCAB)
    try:
        plain_runs(ranks, pmpi, program)
        volume_runs(ranks, pmpi, program)
        disturbed_runs(ranks, pmpi, program)
        thread_levels(ranks, pmpi)
    except (Failed, pmpi_check.Violation) as e:
        print(f"train_logged: {e}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
