#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same training on any number of ranks: parity.py [--more] [RUN...]

Trains a small model for 20 steps on 120 sequences a step, split over ranks, micro-batches,
workers, communication engines, block sizes and layouts in many ways, and compares each run
with the one on a single rank: losses and gradient norms of every step, and weights and
moments at the end. Runs whose sums are made in the same order must agree bit for bit.
--more tries more combinations; names of runs leave out the others. Needs $WEFT (the
program); $WEFT_TMP is the scratch folder; $WEFT_PMPI the library that delays MPI calls.
"""

import array
import math
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from native_checkpoint import read_metrics, read_native
from token_shard import write_tokens

WEFT = os.environ.get("WEFT", "weft")
TMP = os.environ.get("WEFT_TMP", "parity-runs")
MPIRUN = os.path.join(HERE, "..", "support", "mpirun")

C, VOCAB, STEPS, SEQUENCES = 48, 97, 20, 120
MODEL = f"L=3,H=3,C={C},T=32,V={VOCAB}"
LIMITS = {"loss": 1e-5, "norm": 1e-5, "weights": 1e-4, "m": 1e-3, "v": 1e-3}


class Run:
    """One way to train; `bits` names a run that must have the same bits at the end."""

    def __init__(self, name, ranks=1, batch=None, threads=1, engine="direct", block="64k",
                 layout="production", overlap="on", shuffle=0, bits=None,
                 delay_ms=0):
        self.name, self.ranks, self.threads, self.bits = name, ranks, threads, bits
        self.batch = batch or SEQUENCES // ranks
        self.accum = SEQUENCES // ranks // self.batch
        assert self.accum * self.batch * ranks == SEQUENCES, name
        self.engine, self.block, self.layout = engine, block, layout
        self.overlap, self.shuffle, self.delay_ms = overlap, shuffle, delay_ms

    def describe(self):
        return (f"P={self.ranks} B={self.batch}x{self.accum} threads={self.threads} "
                f"{self.engine} {self.block} {self.layout} overlap={self.overlap} "
                f"shuffle={self.shuffle} delay={self.delay_ms} ms")


RUNS = [
    Run("one"),
    Run("one.threads2", threads=2, bits="one"),
    Run("one.threads3", threads=3, layout="storage", overlap="off", shuffle=7, bits="one"),
    Run("one.accum", batch=8, threads=2),
    Run("two", 2, block="4k"),
    Run("two.threads2", 2, threads=2, block="4k", shuffle=1, bits="two"),
    Run("two.threads3", 2, threads=3, block="4k", layout="storage", overlap="off", shuffle=2,
        bits="two"),
    Run("two.delayed", 2, threads=2, block="4k", delay_ms=3, bits="two"),
    Run("two.accum", 2, batch=20, threads=2, shuffle=3),
    Run("two.collective", 2, engine="collective", block="1M"),
    Run("two.collective.one", 2, batch=30, engine="collective", block="one", layout="storage"),
    Run("three.accum", 3, batch=10, block="4k", shuffle=4),
    Run("three.collective", 3, engine="collective", block="4k", overlap="off"),
    Run("three.collective.delayed", 3, batch=10, engine="collective", block="4k", delay_ms=3),
    Run("four.4k", 4, block="4k"),
    Run("four.4k.delayed", 4, block="4k", delay_ms=3, bits="four.4k"),
    Run("four.64k", 4, block="64k", shuffle=5),
    Run("four.one", 4, block="one", layout="storage"),
    Run("five.accum", 5, batch=8),
    Run("five.collective", 5, engine="collective", layout="storage"),
    Run("eight", 8, shuffle=6),
    Run("eight.collective", 8, batch=5, engine="collective", block="1M", layout="storage"),
]

MORE = [Run("one"), Run("four.4k", 4, block="4k")] + [
    Run(f"p{ranks}.{engine}.{block}.{layout}.{overlap}", ranks, threads=threads, engine=engine,
        block=block, layout=layout, overlap=overlap, shuffle=ranks,
        batch=SEQUENCES // ranks // accum)
    for ranks, threads, accum in ((1, 3, 4), (2, 2, 1), (3, 1, 5), (4, 2, 3), (5, 1, 1), (8, 1, 3))
    for engine in ("direct", "collective")
    for block, layout, overlap in (("4k", "production", "on"), ("64k", "storage", "on"),
                                   ("1M", "production", "off"), ("one", "storage", "off"))
    if ranks > 1 or engine == "direct"
]


def is_mpich():
    found = subprocess.run(["ldd", WEFT], capture_output=True, text=True, check=False)
    return "libmpich" in found.stdout


def possible(run):
    if run.delay_ms and "WEFT_PMPI" not in os.environ:
        return False
    if run.ranks == 1:
        return True
    if os.environ.get("WEFT_COMM") == "serial":
        return False
    # MPICH waits by spinning: with more ranks than cores nothing gets done.
    return run.ranks <= 2 or not is_mpich()


def delay(run):
    """Messages start late, at random: what does not wait for them computes on old numbers."""
    if not run.delay_ms:
        return []
    return ["env", f"LD_PRELOAD={os.environ['WEFT_PMPI']}", f"WEFT_PMPI_DELAY_MS={run.delay_ms}",
            "WEFT_PMPI_DELAY_TOTAL_MS=4000"]


def train(run, data):
    folder = os.path.join(TMP, run.name)
    command = [WEFT, "train", "--data", data, "--model", MODEL, "--out", folder,
               "--batch", run.batch, "--accum", run.accum, "--steps", STEPS, "--lr", 3e-3,
               "--warmup", 3, "--clip", 0.5, "--seed", 3, "--threads", run.threads,
               "--engine", run.engine, "--block-bytes", run.block, "--layout", run.layout,
               "--overlap", run.overlap, "--resume", "none"]
    if run.ranks > 1:
        command = [MPIRUN, run.ranks] + delay(run) + command
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
    return dict(read_run(folder), seconds=time.monotonic() - start)


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


def judge(run, results, worst):
    result = results[run.name]
    d = distances(result, results["one"])
    bad = [kind for kind, value in d.items() if not value <= LIMITS[kind]]
    text = "  ".join(f"{kind} {value:.1e}" for kind, value in d.items())
    if run.bits and not same_bits(result, results[run.bits]):
        bad.append(f"other bits than {run.bits}")
    print(f"{run.name:<28} {text}  {result['seconds']:5.1f} s  "
          f"{'BAD: ' + ', '.join(bad) if bad else 'ok'}", flush=True)
    if bad:
        print(f"  {run.describe()}; limits {LIMITS}")
    for kind, value in d.items():
        worst[kind] = max(worst.get(kind, 0), value)
    return not bad


def report_blocks(runs, results):
    """Block sizes change no bit of the direct engine's sums; only the norm, a sum over
    blocks in double, could, through clipping."""
    base = results.get("four.4k")
    for run in runs:
        if base and run.ranks == 4 and run.batch == 30 and run.engine == "direct" \
                and run.name != "four.4k" and run.name in results:
            equal = same_bits(results[run.name], base)
            print(f"{run.name}: {'same' if equal else 'NOT the same'} bits as four.4k")


def main():
    names = [word for word in sys.argv[1:] if word != "--more"]
    runs = MORE if "--more" in sys.argv[1:] else RUNS
    needed = set(names) | {"one"} | {run.bits for run in runs if run.name in names}
    if names:
        runs = [run for run in runs if run.name in needed]
    shutil.rmtree(TMP, ignore_errors=True)
    data = os.path.join(TMP, "tokens")
    os.makedirs(data)
    write_tokens(os.path.join(data, "parity_train_000000.bin"), 20000, VOCAB)
    results, worst, good = {}, {}, True
    for run in runs:
        if not possible(run):
            print(f"{run.name}: left out, this build cannot do it here")
            continue
        results[run.name] = train(run, data)
        if run.name == "one":
            losses = results["one"]["losses"]
            print(f"one: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
            if not learns(results["one"]):
                print("one: learns nothing, or never clips")
                return 1
        else:
            good = judge(run, results, worst) and good
    report_blocks(runs, results)
    print("worst: " + "  ".join(f"{kind} {value:.2e}" for kind, value in worst.items()))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
