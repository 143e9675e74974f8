#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A run that goes on in another way is the run that was never stopped: resume.py

Trains the model of parity.py for 20 steps in several pieces; each piece goes on from the
checkpoint of the one before, with another strategy, another number of ranks, another
layout, engine and block size, so that the moments are cut anew each time. The end agrees
with that of one rank without a stop, within rounding. Pieces done in the same way as the
whole have the same bits as the whole. Needs $WEFT; $WEFT_TMP is the scratch folder.
"""

import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import parity
from native_checkpoint import read_native
from parity import LIMITS, STEPS, STRATEGIES, TMP, WEFT, Run, possible
from token_shard import write_tokens

C, RB, RS, A = STRATEGIES


def chain(*pieces):
    return [Run(f"piece{i}", **options) for i, options in enumerate(pieces)]


# Every strategy follows every other one, most numbers of ranks follow most others, and each
# other one follows 4.
CHAINS = {
    "a": chain(dict(ranks=2, strategy=C), dict(ranks=3, strategy=RB, block="4k"),
               dict(ranks=5, strategy=RS, hosts="off"), dict(ranks=4, strategy=A),
               dict(ranks=1, strategy=C)),
    "b": chain(dict(ranks=4, strategy=A, block="4k"), dict(ranks=2, strategy=RS, split="off"),
               dict(ranks=3, strategy=RB, roots=2, block="4k"), dict(ranks=4, strategy=C),
               dict(ranks=5, strategy=A, layout="storage")),
    "c": chain(dict(ranks=3, strategy=RB, layout="storage"), dict(ranks=4, strategy=A),
               dict(ranks=8, strategy=RB, rounds="recursive", hosts="off", block="4k"),
               dict(ranks=3, strategy=C), dict(ranks=5, strategy=RS, block="4k")),
    "d": chain(dict(ranks=1), dict(ranks=4, strategy=RS, engine="collective"),
               dict(ranks=3, strategy=C, engine="collective"),
               dict(ranks=2, strategy=RS, block="one"), dict(ranks=4, strategy=A, split="off")),
    # Two ranks alone, for builds that can have no more.
    "e": chain(*(dict(ranks=2, strategy=s) for s in (RB, C, A, RS, RB))),
}


def same_way(strategy):
    """The whole in one way, and the same in pieces."""
    if strategy == RB:
        return Run(strategy, 3, strategy, roots=2, block="4k")
    return Run(strategy, 4 if strategy == RS else 2, strategy, block="4k", threads=2)


def piece(run, folder, steps, resume):
    """Trains up to `steps`, going on from what is in the folder."""
    command = [WEFT, "train", "--data", os.path.join(TMP, "tokens"), "--model", parity.MODEL,
               "--out", folder, "--steps", steps, "--lr", 3e-3, "--warmup", 3, "--seed", 3,
               "--schedule", "constant", "--save-every", 0, "--keep", 9, *run.words()]
    if run.ranks > 1:
        command = [parity.MPIRUN, run.ranks] + command
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=300)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    text = done.stdout + done.stderr
    if done.returncode != 0 or ("resumed from" in text) != resume:
        print(f"{folder}, to step {steps}, {run.describe()}: exit code {done.returncode}\n{text}")
        sys.exit(1)
    check_files(run, folder, steps)


def check_files(run, folder, steps):
    """What is saved is whole, in a file a rank."""
    checkpoint = os.path.join(folder, "checkpoints", f"step-{steps:06d}")
    manifest, vectors = read_native(checkpoint)
    if len(manifest["files"]) != run.ranks or not all(any(v) for v in vectors):
        print(f"{checkpoint}: {len(manifest['files'])} files, or a vector of zeros")
        sys.exit(1)


def in_pieces(name, runs):
    folder = os.path.join(TMP, name)
    for i, run in enumerate(runs):
        piece(run, folder, STEPS * (i + 1) // len(runs), i > 0)
    return parity.read_run(folder)


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(os.path.join(TMP, "tokens"))
    write_tokens(os.path.join(TMP, "tokens", "resume_train_000000.bin"), 20000, parity.VOCAB)
    whole = in_pieces("whole", [Run("one")])
    good = parity.learns(whole)
    for name, runs in CHAINS.items():
        if not all(map(possible, runs)):
            print(f"chain {name}: left out, this build cannot do it here")
            continue
        d = parity.distances(in_pieces(f"chain.{name}", runs), whole)
        bad = [kind for kind, value in d.items() if not value <= LIMITS[kind]]
        way = " -> ".join(f"{run.strategy} P={run.ranks}" for run in runs)
        print(f"chain {name}: " + "  ".join(f"{kind} {value:.1e}" for kind, value in d.items()) +
              f"  {'BAD: ' + ', '.join(bad) if bad else 'ok'}  ({way})", flush=True)
        good = good and not bad
    for strategy in STRATEGIES:
        run = same_way(strategy)
        if not possible(run):
            print(f"{strategy}: left out, this build cannot do it here")
            continue
        straight = in_pieces(f"straight.{strategy}", [run])
        pieces = in_pieces(f"pieces.{strategy}", [run, run])
        equal = parity.same_bits(straight, pieces) and all(
            straight[kind] == pieces[kind] for kind in ("losses", "norms"))
        print(f"{strategy}, P={run.ranks}, in two pieces: "
              f"{'same bits' if equal else 'BAD: other bits'}", flush=True)
        good = good and equal
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
