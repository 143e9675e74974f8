#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same training on any number of ranks: parity.py [--more] [RUN...]

Trains a small model for 20 steps on 120 sequences a step, split over ranks, micro-batches,
workers, strategies, engines, rounds, hosts, block sizes and layouts in many ways, and
compares each run with the one on a single rank: losses and gradient norms of every step,
and weights and moments at the end. Runs whose sums are made in the same order must agree
bit for bit, and so must runs whose messages start late and whose tasks come in another
order.

By default every pair of settings occurs, and every triple of ranks, strategy, split of the
embedding, engine and layout; --more tries their full product. Names of runs, or patterns of
names as '*.p2.*', leave out the others. Needs $WEFT (the program); $WEFT_TMP is the scratch
folder; $WEFT_PMPI the library that delays MPI calls and pretends hosts.

What an exchange with --wire bf16 costs, as the relative distance from fp32 on one rank
after 20 steps (loss and norm: the worst step; the rest: Euclidean norm of the difference);
the worst of 2, 3, 4, 5 and 8 ranks, flat and recursive, with and without shared memory:

                        loss     norm     weights  m        v
    central             1.1e-05  8.9e-04  4.6e-04  5.9e-04  8.2e-04
    reduce-broadcast    1.3e-05  7.6e-04  4.7e-04  6.2e-04  8.3e-04
    reduce-scatter      1.3e-05  1.3e-03  4.2e-04  5.8e-04  8.7e-04
    allreduce           1.2e-05  1.3e-03  4.6e-04  7.7e-04  1.3e-03

(parity.py --more 'bf16.*'); the limits are three times the worst.
"""

import array
import collections
import fnmatch
import math
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from block_plan import Grid
from covering import covering
from native_checkpoint import read_metrics, read_native
from token_shard import write_tokens

WEFT = os.environ.get("WEFT", "weft")
TMP = os.environ.get("WEFT_TMP", "parity-runs")
PMPI = os.environ.get("WEFT_PMPI")
MPIRUN = os.path.join(HERE, "..", "support", "mpirun")

C, VOCAB, STEPS, SEQUENCES = 48, 97, 20, 120
MODEL = f"L=3,H=3,C={C},T=32,V={VOCAB}"
STRATEGIES = ("central", "reduce-broadcast", "reduce-scatter", "allreduce")
KINDS = ("loss", "norm", "weights", "m", "v")
LIMITS = dict(zip(KINDS, (1e-6, 2e-6, 2e-6, 5e-6, 1e-5)))
BF16_LIMITS = dict(zip(KINDS, (4e-5, 4e-3, 1.5e-3, 2.5e-3, 4e-3)))

# How ranks lie on hosts where they may share memory; "off": they may not.
HOSTS = {"one": lambda r: 0, "pairs": lambda r: r // 2, "turns": lambda r: r % 2, "off": None}
MICRO_BATCHES = {1: 4, 2: 3, 3: 5, 4: 2, 5: 3, 8: 3}


class Run:
    """One way to train. `bits` names a run that must have the same bits at the end."""

    def __init__(self, name, ranks=1, strategy="reduce-broadcast", split="on", engine="direct",
                 layout="production", block="64k", hosts="one", rounds="flat", threads=1,
                 overlap="on", accum=False, clip=0.5, roots=1, wire="fp32", shuffle=0,
                 delay_ms=0, bits=None, recompute="none"):
        self.name, self.ranks, self.strategy, self.split = name, ranks, strategy, split
        self.engine, self.layout, self.block, self.hosts = engine, layout, block, hosts
        self.rounds = rounds if engine == "direct" else "auto"
        self.threads, self.overlap, self.clip, self.roots = threads, overlap, clip, roots
        self.wire, self.shuffle, self.delay_ms, self.bits = wire, shuffle, delay_ms, bits
        self.recompute = recompute
        self.accum = MICRO_BATCHES[ranks] if accum else 1
        self.batch = SEQUENCES // ranks // self.accum
        assert self.accum * self.batch * ranks == SEQUENCES, name

    def words(self):
        return ["--batch", self.batch, "--accum", self.accum, "--clip", self.clip, "--threads",
                self.threads, "--strategy", self.strategy, "--split-embedding", self.split,
                "--engine", self.engine, "--rounds", self.rounds, "--roots", self.roots,
                "--wire", self.wire, "--layout", self.layout, "--block-bytes", self.block,
                "--overlap", self.overlap, "--recompute", self.recompute, "--host-memory",
                "off" if self.hosts == "off" else "on"]

    def describe(self):
        return (f"P={self.ranks} hosts {self.hosts} {' '.join(str(w) for w in self.words())} "
                f"shuffle={self.shuffle} delay={self.delay_ms} ms")

    def host_numbers(self):
        of = HOSTS[self.hosts]
        return None if of is None else [of(r) for r in range(self.ranks)]

    def order(self):
        """What decides in which order numbers are added: runs with the same one have the
        same bits, where no norm, itself a sum by blocks, scales them. None: the library
        decides, or messages round."""
        if self.clip:
            return None
        if self.ranks == 1:
            return 1, self.accum
        if self.engine == "collective" or self.wire != "fp32":
            return None
        grid = Grid(self.ranks, self.host_numbers(), self.rounds)
        return (self.ranks, self.accum, self.split, tuple(grid.radixes), tuple(grid.rank_at))

    def base(self):
        """The run on one rank to be compared with."""
        return "one" if self.clip else "one.unclipped"


FACTORS = {
    "ranks": (8, 5, 4, 3, 2, 1),
    "strategy": STRATEGIES,
    "split": ("on", "off"),
    "engine": ("direct", "collective"),
    "layout": ("production", "storage"),
    "block": ("4k", "64k", "1M", "one"),
    "hosts": ("one", "off", "pairs", "turns"),
    "rounds": ("flat", "recursive"),
    "threads": (1, 2, 3),
    "overlap": ("on", "off"),
    "accum": (False, True),
    "clip": (0.5, 0),
}
TRIPLES = {"ranks", "strategy", "split", "engine", "layout"}


def allowed(setting):
    """One rank and MPI's collectives know no rounds and hosts."""
    plain = all(setting.get(name, FACTORS[name][0]) == FACTORS[name][0]
                for name in ("hosts", "rounds"))
    if setting.get("engine") == "collective":
        return plain and setting.get("ranks") != 1
    return setting.get("ranks") != 1 or (plain and setting.get("split", "on") == "on")


def named(settings):
    for number, setting in enumerate(settings):
        short = "".join(word[0] for word in setting["strategy"].split("-"))
        yield Run(f"{number:03d}.p{setting['ranks']}.{short}.{setting['engine'][:3]}",
                  shuffle=number, **setting)


def product():
    """Everything named in TRIPLES with everything; the rest takes turns."""
    rest = [s for s in covering({n: v for n, v in FACTORS.items() if n not in TRIPLES}, set(),
                                allowed)]
    settings, turn = [], 0
    for ranks in FACTORS["ranks"]:
        for strategy in STRATEGIES:
            for split in FACTORS["split"]:
                for engine in FACTORS["engine"]:
                    for layout in FACTORS["layout"]:
                        setting = dict(ranks=ranks, strategy=strategy, split=split,
                                       engine=engine, layout=layout)
                        if not allowed(setting):
                            continue
                        turn += 1
                        for name, value in rest[turn % len(rest)].items():
                            fits = allowed(dict(setting, **{name: value}))
                            setting[name] = value if fits else FACTORS[name][0]
                        settings.append(setting)
    return settings


BASES = [Run("one"), Run("one.unclipped", clip=0)]

# The same plan, and with it the same norm, whatever the workers do.
WORKERS = [
    Run("one.threads2", threads=2, bits="one"),
    Run("one.threads3", threads=3, layout="storage", overlap="off", shuffle=7, bits="one"),
    Run("one.recompute", threads=2, recompute="mlp", shuffle=5, bits="one"),
    Run("two", 2, block="4k"),
    Run("two.threads2", 2, threads=2, block="4k", shuffle=1, bits="two"),
    Run("two.threads3", 2, threads=3, block="4k", layout="storage", overlap="off", shuffle=2,
        bits="two"),
    Run("two.recompute", 2, threads=2, block="4k", recompute="all", shuffle=6, bits="two"),
    Run("four.roots2", 4, roots=2, hosts="pairs", block="4k"),
    Run("four.roots2.threads2", 4, roots=2, hosts="pairs", block="4k", threads=2, shuffle=3,
        bits="four.roots2"),
    Run("five.roots3", 5, roots=3, block="4k", layout="storage", wire="fp32"),
]


def delayed():
    """Calls start late, at random, and tasks come in another order: what does not wait for
    what it needs computes on old numbers. The bits are those of other runs of their order."""
    return [Run(f"late.{strategy}.{name}", delay_ms=2, shuffle=40 + number, block="4k", clip=0,
                strategy=strategy, **options)
            for number, strategy in enumerate(STRATEGIES)
            for name, options in (
                ("direct", dict(ranks=4, rounds="recursive", threads=2)),
                ("hosts", dict(ranks=4, hosts="pairs")),
                ("collective", dict(ranks=3, engine="collective")))]


def rounded(more):
    """What travels as bf16."""
    ways = [(4, "off", "flat"), (4, "pairs", "recursive")]
    if more:
        ways = [(p, hosts, rounds) for p in (2, 3, 4, 5, 8) for hosts in ("off", "turns")
                for rounds in ("flat", "recursive")]
    runs = [Run(f"bf16.{strategy}.p{ranks}.{hosts}.{rounds}", ranks, strategy, wire="bf16",
                block="16k", hosts=hosts, rounds=rounds, split="on" if rounds == "flat" else "off")
            for strategy in STRATEGIES for ranks, hosts, rounds in ways]
    # And the same bits, whatever the workers do.
    for strategy in STRATEGIES:
        like = f"bf16.{strategy}.p4.off.flat"
        if any(run.name == like for run in runs):
            runs.append(Run(like + ".late", 4, strategy, wire="bf16", block="16k", hosts="off",
                            threads=2, layout="storage", shuffle=9, delay_ms=2, bits=like))
    return runs


def is_mpich():
    found = subprocess.run(["ldd", WEFT], capture_output=True, text=True, check=False)
    return "libmpich" in found.stdout


def needs_pmpi(run):
    return run.delay_ms > 0 or (run.ranks > 1 and run.hosts in ("pairs", "turns"))


def possible(run):
    if needs_pmpi(run) and not PMPI:
        return False
    if run.ranks == 1:
        return True
    if os.environ.get("WEFT_COMM") == "serial":
        return False
    # MPICH waits by spinning: with more ranks than cores nothing gets done.
    return run.ranks <= 2 or not is_mpich()


def preloaded(run):
    """Messages start late, at random, and ranks are told of hosts."""
    if not needs_pmpi(run):
        return []
    numbers = run.host_numbers() or range(run.ranks)
    return ["env", f"LD_PRELOAD={PMPI}", f"WEFT_PMPI_DELAY_MS={run.delay_ms}",
            "WEFT_PMPI_DELAY_TOTAL_MS=1500",
            "WEFT_PMPI_HOSTS=" + ",".join(str(n) for n in numbers)]


def train(run, data):
    folder = os.path.join(TMP, run.name)
    command = [WEFT, "train", "--data", data, "--model", MODEL, "--out", folder, "--steps",
               STEPS, "--lr", 3e-3, "--warmup", 3, "--seed", 3, "--resume", "none"]
    command += run.words()
    if run.ranks > 1:
        command = [MPIRUN, run.ranks] + preloaded(run) + command
    env = dict(os.environ, WEFT_TASK_SHUFFLE=str(run.shuffle))
    start = time.monotonic()
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True,
                          text=True, check=False, timeout=300)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    if done.returncode != 0:
        print(f"{run.name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        sys.exit(1)
    result = dict(read_run(folder), seconds=time.monotonic() - start)
    shutil.rmtree(folder)
    return result


def read_run(folder):
    steps = read_metrics(folder)
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1)), "steps are missing"
    checkpoint = os.path.join(folder, "checkpoints", f"step-{STEPS:06d}")
    manifest, (weights, m, v) = read_native(checkpoint)
    return {"losses": [line["loss"] for line in steps],
            "norms": [line["grad_norm"] for line in steps],
            "weights": weights, "m": m, "v": v, "tensors": manifest["tensors"]}


def without_key_bias(result, kind):
    """The vector without qkvb[C..2C) of each layer: its true gradient is 0, and AdamW makes
    full steps of the rounding noise."""
    vector = result[kind][:]
    qkvb = next(t for t in result["tensors"] if t["name"] == "qkvb")
    for layer in range(qkvb["layers"]):
        begin = qkvb["begin"] + layer * 3 * C + C
        vector[begin:begin + C] = array.array("f", bytes(4 * C))
    return vector


def relative_l2(found, expected):
    difference = math.fsum((a - b) ** 2 for a, b in zip(found, expected))
    return math.sqrt(difference / math.fsum(b * b for b in expected))


def worst_relative(found, expected):
    return max(abs(a - b) / abs(b) for a, b in zip(found, expected))


def distances(found, expected):
    out = {"loss": worst_relative(found["losses"], expected["losses"]),
           "norm": worst_relative(found["norms"], expected["norms"])}
    for kind in ("weights", "m", "v"):
        out[kind] = relative_l2(without_key_bias(found, kind), without_key_bias(expected, kind))
    return out


def same_bits(a, b):
    return all(a[kind].tobytes() == b[kind].tobytes() for kind in ("weights", "m", "v"))


def learns(result):
    """A model that learns nothing would agree with anything."""
    first, last = result["losses"][0], result["losses"][-1]
    # The norm must be above the clipping limit for clipping to matter.
    return last < first - 0.3 and max(result["norms"]) > 0.5


class Judge:
    def __init__(self):
        self.results, self.of_order, self.good = {}, {}, True
        self.worst = collections.defaultdict(lambda: dict.fromkeys(KINDS, 0.0))
        self.equals = 0

    def take(self, run, result):
        self.results[run.name] = result
        limits = LIMITS if run.wire == "fp32" else BF16_LIMITS
        d = distances(result, self.results[run.base()])
        bad = [kind for kind, value in d.items() if not value <= limits[kind]]
        bad += self.compare_bits(run, result)
        text = "  ".join(f"{kind} {value:.1e}" for kind, value in d.items())
        print(f"{run.name:<28} {text}  {result['seconds']:5.1f} s  "
              f"{'BAD: ' + ', '.join(bad) if bad else 'ok'}", flush=True)
        if bad:
            print(f"  {run.describe()}; limits {limits}")
            self.good = False
        group = "fp32" if run.wire == "fp32" else f"bf16 {run.strategy}"
        for kind, value in d.items():
            self.worst[group][kind] = max(self.worst[group][kind], value)

    def compare_bits(self, run, result):
        """Names of runs that should have the same bits and have not."""
        names = [run.bits] if run.bits else []
        order = run.order()
        if order is not None and self.of_order.setdefault(order, run.name) != run.name:
            names.append(self.of_order[order])
        self.equals += len(names)
        return [f"other bits than {name}" for name in names
                if not same_bits(result, self.results[name])]

    def report(self):
        for group, d in sorted(self.worst.items()):
            print(f"worst {group:<22} " + "  ".join(f"{k} {v:.2e}" for k, v in d.items()))
        print(f"{len(self.results)} runs, {self.equals} comparisons bit for bit in "
              f"{len(self.of_order)} orders of sums")


def main():
    names = [word for word in sys.argv[1:] if word != "--more"]
    more = "--more" in sys.argv[1:]
    settings = product() if more else covering(FACTORS, TRIPLES, allowed)
    runs = BASES + WORKERS + list(named(settings)) + delayed() + rounded(more)
    if names:
        needed = {run.name for run in runs
                  if any(fnmatch.fnmatchcase(run.name, name) for name in names)}
        needed |= {run.name for run in BASES}
        needed |= {run.bits for run in runs if run.name in needed}
        runs = [run for run in runs if run.name in needed]
    shutil.rmtree(TMP, ignore_errors=True)
    data = os.path.join(TMP, "tokens")
    os.makedirs(data)
    write_tokens(os.path.join(data, "parity_train_000000.bin"), 20000, VOCAB)
    judge = Judge()
    for run in runs:
        if not possible(run):
            print(f"{run.name}: left out, this build cannot do it here")
            continue
        result = train(run, data)
        if run.name == run.base():
            losses = result["losses"]
            print(f"{run.name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
            if not learns(result):
                print(f"{run.name}: learns nothing, or never clips")
                return 1
            judge.results[run.name] = result
            continue
        judge.take(run, result)
    judge.report()
    return 0 if judge.good else 1


if __name__ == "__main__":
    sys.exit(main())
