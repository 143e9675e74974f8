#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Going on with other options: what may change is announced with the old and the new value,
what cannot is refused, and nothing is said of what is as it was.
"""
import os
import re
import shutil
import sys

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403

SPEC = "L=1,H=2,C=16,T=16,V=64"
DATA = os.path.join(TMP, "data")
OTHER = os.path.join(TMP, "other")
TEXTS = {"abc": b"abc cab bca " * 300, "xyz": b"xyz zyx yxz " * 300}
RUN = os.path.join(TMP, "run")
TEXT_RUN = os.path.join(TMP, "textrun")
RATE = 6e-4


def train(out, *extra, data=DATA, spec=SPEC):
    return ["train", "--data", data, "--model", spec, "--out", out, "--batch", "2", "--steps",
            "100", "--warmup", "10", "--lr", str(RATE), "--min-lr", "0", "--schedule", "cosine",
            "--threads", "1", "--eval-every", "0", "--save-every", "50"] + list(extra)


def replaced(args, option, value):
    args = list(args)
    args[args.index(option) + 1] = value
    return args


def need(what, args, ranks=1, env=None):
    r = run(ranks, args, TMP, env)
    if r.code != 0:
        print("%s: cannot make the fixtures:\n%s" % (what, r.err))
        sys.exit(1)


def make_fixtures():
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(DATA, "t_train_000001.bin"), [i * 7 % 64 for i in range(20000)])
    shard(os.path.join(DATA, "t_val_000000.bin"), [i * 7 % 64 for i in range(300)])
    shard(os.path.join(OTHER, "t_train_000001.bin"), [i * 5 % 64 for i in range(20000)])
    need("train", train(RUN))
    shutil.rmtree(os.path.join(RUN, "checkpoints", "step-000100"))
    for name, text in TEXTS.items():
        write(os.path.join(TMP, name + ".txt"), text)
        need("tokenize", ["tokenize", "--char", "--out", os.path.join(TMP, name),
                          os.path.join(TMP, name + ".txt")])
    need("train on text", replaced(train(TEXT_RUN, data=os.path.join(TMP, "abc"),
                                         spec="L=1,H=2,C=16,T=16"), "--steps", "4"))


def copy_of(run_folder, name):
    out = os.path.join(TMP, name)
    shutil.copytree(run_folder, out)
    return out


def goes_on(name, change, needles, absent=(), ranks=1):
    """The run goes on from step 50 as `change` makes its arguments."""
    def job():
        out = copy_of(RUN, "%s.p%d" % (name, ranks))
        r = run(ranks, change(train(out)), out)
        bad = [] if r.code == 0 else ["exit code %d, needs 0" % r.code]
        for needle in ["at step 50"] + list(needles):
            if not re.search(needle, r.err):
                bad.append("no line with '%s'" % needle)
        for needle in absent:
            if re.search(needle, r.err):
                bad.append("a line with '%s'" % needle)
        return bad + ([r.err] if bad else [])
    return ("%s.p%d" % (name, ranks), job)


def rates(name, steps, needles, wanted):
    """Learning rates of steps after the resume at 50, as written down (steps count from 1)."""
    def job():
        out = copy_of(RUN, name)
        r = run(1, replaced(train(out), "--steps", str(steps)), out)
        found = {m["step"]: m["lr"] for m in metrics(out) if "loss" in m}
        bad = ["step %d: rate %r, needs %r" % (step, found.get(step), lr)
               for step, lr in wanted.items()
               if abs(found.get(step, -1) - lr) > 1e-6 * max(lr, 1e-12)]
        bad += ["no line with '%s'" % n for n in needles if not re.search(n, r.err)]
        return bad + ([r.err] if bad else [])
    return (name, job)


def same_run():
    """20 steps, and 10 and 10 with other save periods: the same to the last bit."""
    def options(out, steps, every):
        args = replaced(replaced(train(out), "--steps", str(steps)), "--save-every", every)
        return replaced(args, "--eval-every", "5") + [
            "--accum", "2", "--clip", "0.5", "--schedule", "constant"]

    def state(out):
        folder = os.path.join(out, "checkpoints", "step-000020")
        return {n: tree(folder)[n] for n in os.listdir(folder) if n.endswith(".bin")}

    def job():
        bad = []
        ranks = 1 if SERIAL else 2
        straight, pieces = os.path.join(TMP, "straight"), os.path.join(TMP, "pieces")
        for out, steps, every in ((straight, 20, "7"), (pieces, 10, "4"), (pieces, 20, "3")):
            os.makedirs(out, exist_ok=True)
            r = run(ranks, options(out, steps, every), out)
            if r.code != 0:
                bad.append("exit code %d\n%s" % (r.code, r.err))
        numbers = [[[m.get(k) for k in ("step", "loss", "grad_norm", "lr", "tokens",
                                        "val_loss")]
                    for m in metrics(out) if "save_s" not in m] for out in (straight, pieces)]
        # The end of the first piece was evaluated as the last step of its run, too.
        if numbers[0] != numbers[1]:
            bad.append("other numbers: %s\n%s" % tuple(numbers))
        if state(straight) != state(pieces):
            bad.append("other weights or moments")
        return bad
    return ("same-run", job)


def total_batch():
    """The tokens of a step that were asked for stay when the run's own file starts it again on
    other ranks; what is typed beside the file wins."""
    def job():
        out = os.path.join(TMP, "total")
        own = ["train", "--config", os.path.join(out, "config.ini")]
        ranks = 1 if SERIAL else 2
        bad = []
        for p, args, line, batch in (
                (1, train(out, "--total-batch-tokens", "128"), "x 4 micro-batches = 128", None),
                (ranks, own + ["--batch", "1", "--steps", "110"], "= 128 tokens a step", None),
                (1, own + ["--accum", "3", "--dry-run", "--steps", "120"],
                 "x 3 micro-batches = 48", None),
                (1, own + ["--accum", "3", "--steps", "120"], "= 48 tokens", "8 to 3"),
                (1, own + ["--total-batch-tokens", "64", "--steps", "130"], "= 64 tokens",
                 "3 to 4")):
            os.makedirs(out, exist_ok=True)
            r = run(p, args, out)
            changed = re.search("global batch changed from (.*) seq", r.err)
            if r.code != 0 or line not in r.err or (changed and changed[1]) != batch:
                bad.append("%s on %d: exit code %d, needs '%s', batch %s\n%s" %
                           (" ".join(args), p, r.code, line, batch, r.err))
        return bad
    return ("total-batch", job)


def refused(name, args, code, *needles):
    def job():
        out = copy_of(TEXT_RUN, name)
        folder = os.path.join(TMP, name)
        before = tree(os.path.join(out, "checkpoints"))
        r = run(1, [a.replace("{out}", out) for a in args], folder)
        bad = broken_rules(r, 1, folder, code, needles)
        if tree(os.path.join(out, "checkpoints")) != before:
            bad.append("checkpoints were changed")
        return bad + ([r.err] if bad else [])
    return (name, job)


def beyond_the_end(name):
    """More steps than were planned stretch the schedule, which ends at its end all the same."""
    def job():
        out = copy_of(RUN, name)
        run(1, train(out), out)
        r = run(1, replaced(train(out), "--steps", "120"), out)
        last = [m["lr"] for m in metrics(out) if "loss" in m][-1]
        bad = [] if r.code == 0 and last < 1e-6 else ["rate %r at step 120" % last]
        if not re.search(r"changed: --steps 100 -> 120", r.err):
            bad.append("the new length is not announced")
        return bad + ([r.err] if bad else [])
    return (name, job)


def main():
    make_fixtures()
    jobs = [
        goes_on("same", lambda a: a, [], ["changed", "other training data", "written by"]),
        goes_on("rate", lambda a: replaced(a, "--lr", "0.0003"),
                [r"changed: --lr 0\.0006 -> 0\.0003",
                 r"changed: the learning rate of step 51 is 1\.7605e-04, was to be 3\.5209e-04"],
                ["changed: --steps"]),
        goes_on("several", lambda a: replaced(a, "--batch", "4") + ["--layout", "storage"],
                [r"changed: --batch 2 -> 4", r"changed: --layout production -> storage",
                 r"global batch changed from 2 to 4"]),
        goes_on("seed", lambda a: a + ["--seed", "9"], [r"seed changed from 1 to 9"]),
        goes_on("data", lambda a: replaced(a, "--data", OTHER),
                [r"warning: .*other: found other training data", r"changed: --data .* -> .*other"]),
        rates("rate-goes-on", 100, [], {51: 3.520945e-4, 52: 3.417519e-4, 100: 1.8275189e-7}),
        rates("longer", 200, [r"--steps 100 -> 200", r"is 5\.3674e-04, was to be 3\.5209e-04"],
              {51: 5.36742153e-4}),
        beyond_the_end("beyond"),
        same_run(),
        total_batch(),
        refused("other-tokenizer",
                replaced(train("{out}", data=os.path.join(TMP, "xyz"), spec="L=1,H=2,C=16,T=16"),
                         "--steps", "8"), 2, "another tokenizer", "--model"),
    ]
    if not SERIAL:
        jobs.append(goes_on("ranks", lambda a: replaced(a, "--batch", "1"),
                            [r"written by 1 rank, read by 2"], ranks=2))
    return run_cases(jobs)


if __name__ == "__main__":
    sys.exit(main())
