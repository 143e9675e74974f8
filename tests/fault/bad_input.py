#!/usr/bin/env python3
"""Bad input of every kind, one named case each, on one rank and on several.

Every case asserts: the documented exit code of every rank, within seconds, one error line
that names the file or option with what was found and what is needed, no signal, no core
dump, and nothing half-written or changed in the run folder.

usage: bad_input.py [part of a case's name ...]
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403

SPEC = "L=1,H=2,C=16,T=16,V=64"
IDS = [i * 7 % 64 for i in range(4000)]
TRAINED = 20  # seconds for cases that train and save before they fail
CASES = []


def at(*parts):
    return os.path.join(*parts)


# ---- fixtures, made once ----

BASE = at(TMP, "base")
DATA = at(BASE, "data")
TEXT = at(BASE, "tokens")
RUN = at(BASE, "run")
MODEL = at(BASE, "model.bin")


def make_fixtures():
    shutil.rmtree(TMP, ignore_errors=True)
    shard(at(DATA, "t_train_000001.bin"), IDS)
    shard(at(DATA, "t_val_000000.bin"), IDS[:400])
    model(MODEL)
    write(at(BASE, "text.txt"), b"some words to count, and some more of them.\n" * 100)
    need("tokenize", ["tokenize", "--char", "--out", TEXT, at(BASE, "text.txt")], 1)
    need("train", ["train", "--data", DATA, "--model", SPEC, "--out", RUN, "--batch", "2",
                   "--steps", "4", "--save-every", "2", "--keep", "5", "--threads", "1"],
         1 if SERIAL else 2)
    need("train on text",
         ["train", "--data", TEXT, "--model", "L=1,H=2,C=16,T=16", "--out",
          at(BASE, "textrun"), "--batch", "2", "--steps", "2", "--threads", "1"], 1)


def need(what, args, ranks):
    r = run(ranks, args, BASE)
    if r.code != 0:
        print("%s: cannot make the fixtures:\n%s" % (what, r.err))
        sys.exit(1)


# ---- cases ----

def train(*extra, data=DATA, spec=SPEC, out="{d}/out"):
    return ["train", "--data", data, "--model", spec, "--out", out, "--batch", "2",
            "--steps", "6", "--threads", "1"] + list(extra)


def case(name, args, code, *needles, ranks=(1, 2), setup=None, after=None, absent=(),
         run_copy=False, limit=None):
    """needles: parts of the error line; {d} is the case's folder. run_copy: the run folder
    {d}/out is a copy of RUN, then setup may damage it; it must stay as it is."""
    for p in ranks:
        if p == 1 or not SERIAL:
            CASES.append(("%s.p%d" % (name, p),
                          lambda p=p, name=name: check(name, args, code, needles, p, setup,
                                                       after, absent, run_copy, limit)))


def fill(text, folder):
    return text.replace("{d}", folder)


def check(name, args, code, needles, ranks, setup, after, absent, run_copy, limit):
    folder = at(TMP, "cases", "%s.p%d" % (name, ranks))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    if run_copy:
        shutil.copytree(RUN, at(folder, "out"))
    reason = setup(folder) if setup else None
    if isinstance(reason, str):
        return reason
    try:
        before = tree(at(folder, "out", "checkpoints"))
        args = [fill(a, folder) for a in args]
        r = run(ranks, args, folder)
        # A busy machine is no fault of the program.
        most = limit or SECONDS
        if r.seconds > most and r.seconds > most + 4 * starting_time(ranks):
            return ["took %.1f s, needs %.0f" % (r.seconds, most), r.err]
        bad = broken_rules(r, ranks, folder, code, [fill(n, folder) for n in needles],
                           absent)
        if after:
            bad += after(folder, r) or []
        elif tree(at(folder, "out", "checkpoints")) != before:
            bad.append("checkpoints were changed: %s" % checkpoints(at(folder, "out")))
        bad += ["left over: " + path for path in leftovers(folder)]
        if bad:
            bad = [" ".join(["weft"] + args)] + bad + [r.err]
        return bad
    finally:
        subprocess.run(["umount", at(folder, "disk")], stderr=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)


# ---- data ----

def one(name="x_train_000001.bin", ids=None, **keys):
    return lambda d: shard(at(d, "data", name), IDS if ids is None else ids, **keys) and None


def data_cases():
    file = "{d}/data/x_train_000001.bin"

    def data(name, needles, setup, code=1, **keys):
        case("data-" + name, train(data="{d}/data"), code, *needles, setup=setup, **keys)

    data("cut", [file, "9023", "9024"], one(cut=1))
    data("cut-in-header", [file, "1000", "1024"], one(cut=8024))
    data("long", [file, "9025", "9024"], one(extra=b"x"))
    data("count-too-large", [file, "9024", "2147483647"], one(count=2**31 - 1))
    data("count-negative", [file, "9024"], one(count=-1))
    data("count-zero", [file, "0 tokens"], one(count=0))
    data("magic", [file, "20240521", "20240520"], one(magic=20240521), ranks=(1, 2, 3))
    data("version", [file, "version 2", "1"], one(version=2))
    data("empty", [file, "1024"], lambda d: write(at(d, "data/x_train_000001.bin"), b"") and None)
    data("no-folder", ["{d}/data"], None)
    data("empty-folder", ["{d}/data", "*.bin"], lambda d: os.makedirs(at(d, "data")))
    data("folder-as-shard", [file],
         lambda d: os.makedirs(at(d, "data/x_train_000001.bin")))
    data("dangling-link", [file],
         lambda d: (os.makedirs(at(d, "data")),
                    os.symlink("nowhere", at(d, "data/x_train_000001.bin"))) and None)
    data("pipe", [file], lambda d: (os.makedirs(at(d, "data")),
                                    os.mkfifo(at(d, "data/x_train_000001.bin"))) and None)
    data("mixed-widths", ["x_train_000002.bin", "32-bit", "16-bit"],
         lambda d: (one()(d), shard(at(d, "data/x_train_000002.bin"), IDS, magic=20240801,
                                    version=7)) and None)
    data("second-shard-cut", ["x_train_000002.bin", "9022", "9024"],
         lambda d: (one()(d), shard(at(d, "data/x_train_000002.bin"), IDS, cut=2)) and None)
    data("unreadable", [file, "ermission"],
         lambda d: "root may read every file" if os.geteuid() == 0 else
         (one()(d), os.chmod(at(d, "data/x_train_000001.bin"), 0)) and None)
    case("data-pattern-none", train(data="{d}/*.bin"), 1, "{d}/*.bin")
    case("data-is-model", train(data=MODEL), 1, MODEL, "20240326", "20240520")
    case("data-tokens-json-broken", train(data="{d}/data"), 1, "{d}/data/tokens.json", "JSON",
         setup=lambda d: (one()(d), write(at(d, "data/tokens.json"), b"{")) and None)
    case("data-tokens-json-vocab", train(data="{d}/data"), 1, "{d}/data/tokens.json", "0",
         setup=lambda d: (one()(d), write(
             at(d, "data/tokens.json"),
             b'{"format":"weft-tokens","version":1,"kind":"char","vocab":0}')) and None)
    case("data-vocabulary-above-model", train(data=TEXT, spec="L=1,H=2,C=16,T=16,V=8"), 2,
         "V=8", TEXT)
    # Too small: one step of 2 ranks x 4 sequences x 64 tokens needs 513 tokens.
    tiny = at("{d}", "tiny50.bin")
    make_tiny = one(name="../tiny50.bin", ids=range(50))
    case("data-too-small", train("--batch", "4", data=tiny,
                                 spec="L=1,H=2,C=16,T=64,V=64"), 1, tiny, "50 tokens",
         "513", "--batch", ranks=(2,), setup=make_tiny)
    case("data-too-small", train("--batch", "4", data=tiny,
                                 spec="L=1,H=2,C=16,T=64,V=64"), 1, tiny, "50 tokens",
         "257", "--batch", ranks=(1,), setup=make_tiny)

    def val(name, needles, setup, code=1, **keys):
        case("val-" + name, train("--val", "{d}/data/x_val_000000.bin"), code,
             "{d}/data/x_val_000000.bin", *needles, setup=setup, **keys)

    val("missing", [], None)
    val("cut", ["9023", "9024"], one(name="x_val_000000.bin", cut=1))
    val("long", ["9025", "9024"], one(name="x_val_000000.bin", extra=b"x"))
    val("magic", ["7", "20240520"], one(name="x_val_000000.bin", magic=7))
    val("version", ["9"], one(name="x_val_000000.bin", version=9))
    val("empty", ["1024"],
        lambda d: write(at(d, "data/x_val_000000.bin"), b"") and None)
    val("too-small", ["10 tokens", "17"], one(name="x_val_000000.bin", ids=range(10)),
        absent=("nan",))
    # The data folder's own validation file: bad is refused, absent is fine.
    case("val-of-folder-cut", train(data="{d}/data"), 1, "x_val_000000.bin", "9023",
         setup=lambda d: (one()(d), one(name="x_val_000000.bin", cut=1)(d)) and None)


def id_cases():
    """An id outside the vocabulary, in the middle of the data and of training."""
    def bad_at(index, value, n=2000):
        ids = [i % 50 for i in range(n)]
        ids[index] = value
        return ids

    def stopped(step):
        def after(d, r):
            steps = [m["step"] for m in metrics(at(d, "out")) if "loss" in m]
            bad = [] if steps == list(range(1, step + 1)) else [
                "steps taken: %s, needs 1..%d" % (steps, step)]
            kept = checkpoints(at(d, "out"))
            if kept != ["step-%06d" % i for i in range(max(1, step - 1), step + 1)]:
                bad.append("checkpoints left: %s" % kept)
            wrong = whole(at(d, "out"))
            return bad + ([wrong] if wrong else [])
        return after

    # Sequential order, 32 tokens a step and rank: token 777 is read by step 25 of one
    # rank (step 13 of two).
    for value in (64, 65535):
        for p, step in ((1, 24), (2, 12)):
            case("id-%d" % value, train("--order", "sequential", "--steps", "60",
                                        "--save-every", "1", data="{d}/data"),
                 1, "{d}/data/x_train_000001.bin", "777", str(value), "64", ranks=(p,),
                 setup=one(ids=bad_at(777, value)), after=stopped(step), limit=TRAINED)
    # The padded vocabulary of GPT-2 has rows for 50257..50303, no ids.
    for value in (50257, 50303):
        case("id-gpt2-%d" % value,
             train("--order", "sequential", "--seq", "64", "--batch", "13", data="{d}/data",
                   spec="L=1,H=1,C=8,T=64,V=50257"),
             1, "{d}/data/x_train_000001.bin", "777", str(value), "50257",
             setup=one(ids=bad_at(777, value, 2100)), limit=TRAINED,
             after=lambda d, r: [] if not checkpoints(at(d, "out")) else ["a checkpoint"])

    def kept_the_work(d, r):
        bad = [] if checkpoints(at(d, "out")) == ["step-000006"] else [
            "checkpoints: %s, needs step 6" % checkpoints(at(d, "out"))]
        return bad + [w for w in [whole(at(d, "out"))] if w]

    # Validation comes after the last step: its failure must not cost the steps.
    case("id-in-validation", train("--val", "{d}/data/x_val_000000.bin"), 1,
         "{d}/data/x_val_000000.bin", "77", "999", "64",
         setup=one(name="x_val_000000.bin", ids=bad_at(77, 999)), after=kept_the_work)


# ---- options ----

SIZES = ["batch", "seq", "accum", "total-batch-tokens", "steps", "warmup", "seed", "threads",
         "eval-every", "eval-batches", "save-every", "keep", "log-every", "block-bytes",
         "roots"]
NUMBERS = ["epochs", "lr", "min-lr", "weight-decay", "beta1", "beta2", "eps", "clip"]


def option_cases():
    for i, name in enumerate(SIZES + NUMBERS):
        words = ["-1", "x", "99999999999999999999", "inf", "nan", "", "3x"]
        if name in NUMBERS:
            words = ["x", "inf", "-inf", "nan", "", "1x"]
        for k, word in enumerate(words):
            # Each word on one rank, and in turn one of them on two.
            case("option-%s=%s" % (name, word or "empty"), train("--%s=%s" % (name, word)),
                 2, "--" + name, "'%s'" % word,
                 ranks=(1, 2) if k == i % len(words) else (1,))

    def option(name, args, *needles, **keys):
        case("option-" + name, train(*args), 2, *needles, **keys)

    option("unknown", ["--bacth", "4"], "--bacth", "'--batch'", ranks=(1, 2, 3))
    option("no-value", ["--lr"], "--lr", "value")
    option("short", ["-x"], "-x")
    option("argument", ["more"], "'more'", "options")
    option("batch-0", ["--batch", "0"], "--batch 0", "1")
    option("accum-0", ["--accum", "0"], "--accum 0", "1")
    option("batch-huge", ["--batch", "100M"], "--batch 104857600")
    option("seq-above-T", ["--seq", "17"], "--seq", "17", "T=16", ranks=(1, 2, 3))
    option("total-below-batch", ["--total-batch-tokens", "100"], "--total-batch-tokens",
           "100", "32", ranks=(1,))
    option("total-below-batch", ["--total-batch-tokens", "100"], "--total-batch-tokens",
           "100", "64", "nearest", "128", ranks=(2,))
    option("total-not-divisible", ["--total-batch-tokens", "65536"],
           "--total-batch-tokens", "65536", "96", "65472", "65568", ranks=(3,))
    option("total-and-accum", ["--total-batch-tokens", "128", "--accum", "2"],
           "--accum", "--total-batch-tokens")
    case("option-total-huge", train("--total-batch-tokens", "16G"), 1, DATA, "4000",
         "17179869185")
    option("steps-and-epochs", ["--epochs", "2"], "--steps", "--epochs")
    option("lr-0", ["--lr", "0"], "--lr 0")
    option("lr-negative", ["--lr=-1"], "--lr -1")
    option("lr-beyond-float", ["--lr", "1e39"], "--lr", "1e+39")
    option("min-lr-negative", ["--min-lr=-1"], "--min-lr -1")
    option("min-lr-above-lr", ["--lr", "0.001", "--min-lr", "1"], "--min-lr 1", "0.001")
    option("beta1-1", ["--beta1", "1"], "--beta1 1", absent=["--beta2"])
    option("beta2-2", ["--beta2", "2"], "--beta2 2", absent=["--beta1"])
    option("beta1-negative", ["--beta1=-0.1"], "--beta1 -0.1")
    option("beta2-rounds-to-1", ["--beta2", "0.99999999999"], "--beta2")
    option("eps-0", ["--eps", "0"], "--eps 0")
    option("eps-below-float", ["--eps", "1e-60"], "--eps 1e-60")
    option("clip-negative", ["--clip=-1"], "--clip -1")
    option("weight-decay-negative", ["--weight-decay=-1"], "--weight-decay -1")
    option("weight-decay-beyond-float", ["--weight-decay", "1e60"], "--weight-decay 1e+60")
    option("threads-huge", ["--threads", "100000"], "--threads", "100000")
    option("threads-beyond-int", ["--threads", "4294967297"], "--threads", "4294967297")
    option("steps-huge", ["--steps", "18446744073709551615"], "--steps")
    option("keep-0", ["--keep", "0"], "--keep", "0", "1")
    option("block-bytes-1", ["--block-bytes", "1"], "--block-bytes", "1", "64")
    option("block-bytes-word", ["--block-bytes", "two"], "--block-bytes", "'two'")
    option("order", ["--order", "random"], "--order", "'random'", "shuffled")
    option("schedule", ["--schedule", "step"], "--schedule", "'step'", "cosine")
    option("engine", ["--engine", "mpi"], "--engine", "'mpi'", "direct")
    option("strategy", ["--strategy", "ring"], "--strategy", "'ring'", "reduce-scatter",
           ranks=(1, 2, 3))
    option("rounds", ["--rounds", "many"], "--rounds", "'many'", "recursive")
    option("wire", ["--wire", "fp16"], "--wire", "'fp16'", "bf16")
    option("host-memory", ["--host-memory", "yes"], "--host-memory", "'yes'", "on")
    option("split-embedding", ["--split-embedding", "1"], "--split-embedding", "'1'", "off")
    option("overlap", ["--overlap", "yes"], "--overlap", "'yes'", "on")
    option("layout", ["--layout", "x"], "--layout", "'x'", "production")
    option("isa", ["--isa", "mmx"], "mmx", "generic")
    case("option-epochs-0", ["train", "--data", DATA, "--model", SPEC, "--out", "{d}/out",
                             "--epochs", "0"], 2, "--epochs 0")
    case("option-epochs-huge", ["train", "--data", DATA, "--model", SPEC, "--out", "{d}/out",
                                "--epochs", "1e300"], 2, "--epochs 1e+300")
    for missing in ("--data", "--model", "--out"):
        args = train()
        where = args.index(missing)
        case("option-without" + missing, args[:where] + args[where + 2:], 2, missing)


def update_cases():
    """Options of the update phase that do not go together."""
    def update(name, args, *needles, **keys):
        case("update-" + name, train(*args), 2, *needles, **keys)

    broadcast = ["--strategy", "reduce-broadcast"]
    update("roots-0", ["--roots", "0"], "--roots", "0", "1 to", ranks=(1, 2, 3))
    update("roots-9", ["--roots", "9"], "--roots", "9", "1 to 2", ranks=(2,))
    update("roots-9", ["--roots", "9"] + broadcast, "--roots", "9", "1 to 3", ranks=(3,))
    update("roots-2-of-1", ["--roots", "2"] + broadcast, "--roots", "2", "1 to 1", ranks=(1,))
    update("roots-beyond-int", ["--roots", "4294967297"] + broadcast, "--roots",
           "4294967297", "1 to 2", ranks=(2,))
    for strategy in ("central", "reduce-scatter", "allreduce"):
        update("roots-2-" + strategy, ["--roots", "2", "--strategy", strategy], "--roots 2",
               "--strategy reduce-broadcast", ranks=(2, 3))
    for strategy in ("auto", "central", "reduce-broadcast", "reduce-scatter", "allreduce"):
        update("wire-collective-" + strategy,
               ["--wire", "bf16", "--engine", "collective", "--strategy", strategy],
               "--wire bf16", "--engine direct", ranks=(2,))
    update("wire-collective", ["--wire", "bf16", "--engine", "collective"], "--wire bf16",
           "--engine direct", ranks=(1, 3))
    for rounds in ("flat", "recursive"):
        update("rounds-collective-" + rounds,
               ["--rounds", rounds, "--engine", "collective"], "--rounds " + rounds,
               "--engine direct", ranks=(1, 2, 3))


def config_cases():
    def config(name, text, code, *needles, **keys):
        case("config-" + name, train("--config", "{d}/a.ini"), code, "{d}/a.ini", *needles,
             setup=lambda d: write(at(d, "a.ini"), text) and None, **keys)

    config("unknown-key", b"out = elsewhere\nlr = 1e-4\nlearning = 2\n", 2, "learning")
    config("near-key", b"bacth = 4\n", 2, "bacth", "'batch'")
    config("bad-value", b"clip = many\n", 2, "clip", "'many'")
    config("no-pair", b"lr = 1e-4\nnonsense\n", 2, ":2")
    config("binary", bytes(range(1, 256)) * 20, 2)
    config("names-config", b"config = other.ini\n", 2, "config")
    config("asks-for-help", b"help = true\n", 2, "help")
    case("config-missing", train("--config", "{d}/none.ini"), 1, "{d}/none.ini")
    case("config-folder", train("--config", "{d}"), 1, "{d}", "regular file")

    config("long-line", b"lr = 1\nval = " + b"/long" * 100 + b" = 3\n", 2, ":2", "510",
           "198")


# ---- models and shapes ----

def shape_cases():
    def shape(name, spec, *needles, **keys):
        case("shape-" + name, train(spec=spec), 2, "--model", *needles, **keys)

    shape("heads", "L=1,H=3,C=16,T=16,V=64", "C=16", "H=3", ranks=(1, 2, 3))
    shape("zero-layers", "L=0,H=2,C=16,T=16,V=64", "L=0")
    shape("zero-T", "L=1,H=2,C=16,T=0,V=64", "T=0")
    shape("no-width", "L=1,H=2,T=16", "C=")
    shape("unknown-letter", "L=1,H=2,C=16,X=1", "X=1")
    shape("negative", "L=1,H=2,C=-16,T=16", "C=-16")
    shape("overflow", "L=1,H=2,C=99999999999999999999,T=16", "C=9999")
    shape("comma", "L=1,H=2,C=16,", "C=16")
    shape("layers-out-of-range", "L=100000,H=1,C=64,T=16,V=64", "L=100000", "10000")
    case("shape-far-out-of-memory", train(spec="L=10000,H=1,C=16777216,T=16,V=64"), 1,
         "GB of memory", "need")
    for p, word in ((1, "1 rank needs 1920"), (2, "2 ranks need 2880")):
        case("shape-out-of-memory", train(spec="L=1000,H=1,C=100000,T=16,V=64"), 1,
             "GB of memory", word, ranks=(p,))

    def much_data(d):  # 600,000,000 tokens, all 0, without the disk space
        os.truncate(shard(at(d, "data/x_train_000001.bin"), [], count=600000000),
                    1024 + 1200000000)

    case("shape-batch-out-of-memory", train("--batch", "16000000", data="{d}/data",
                                            spec="L=12,H=2,C=64,T=16,V=64"), 1,
         "GB of memory", "--batch", setup=much_data)


def model_cases():
    elems = shape_elems(1, 16, 16, 128)
    size = 1024 + 4 * elems

    def file(name, needles, code=1, **keys):
        case("model-" + name, train(spec="{d}/m.bin"), code, *needles,
             setup=lambda d: model(at(d, "m.bin"), **keys) and None)

    file("cut", ["{d}/m.bin", str(size - 1), str(size)], cut=1)
    file("cut-in-header", ["{d}/m.bin", "500"], cut=size - 500)
    file("long", ["{d}/m.bin", str(size + 4), str(size)], extra=b"abcd")
    file("magic", ["{d}/m.bin"], magic=20240325)
    file("version", ["{d}/m.bin", "version 4", "3"], version=4)
    file("version-bf16", ["{d}/m.bin", str(size), str(1024 + 2 * elems)], version=5)
    file("heads", ["{d}/m.bin", "C=16", "H=3"], H=3)
    file("negative-layers", ["{d}/m.bin", "-1"],
         header=[20240326, 3, 16, 64, -1, 2, 16, 128])
    file("zero-width", ["{d}/m.bin", "C=0"], header=[20240326, 3, 16, 64, 1, 2, 0, 128])
    file("absurd-layers", ["{d}/m.bin", "L=2147483647"],
         header=[20240326, 3, 16, 64, 2**31 - 1, 2, 16, 128])
    file("absurd-vocabulary", ["{d}/m.bin", "2147483647"],
         header=[20240326, 3, 16, 2**31 - 1, 1, 2, 16, 2**31 - 1])
    file("absurd-width", ["{d}/m.bin", "C=16777216"],
         header=[20240326, 3, 2**24, 2**24, 10000, 1, 2**24, 2**24])
    file("padding-below-vocabulary", ["{d}/m.bin", "32", "64"], Vp=32)

    def no_step(d, r):
        steps = metrics(at(d, "out"))
        return (["steps were taken: %s" % steps] if steps else []) + (
            ["a checkpoint was saved"] if checkpoints(at(d, "out")) else [])

    for value, word in ((float("nan"), "nan"), (float("inf"), "inf")):
        case("model-weights-" + word, train(spec="{d}/m.bin"), 3, "step 1", "not a finite",
             setup=lambda d, v=value: model(at(d, "m.bin"), bad=(elems - 20, v)) and None,
             after=no_step)
    case("model-empty", train(spec="{d}/m.bin"), 1, "{d}/m.bin", "nothing",
         setup=lambda d: write(at(d, "m.bin"), b"") and None)
    case("model-missing", train(spec="{d}/none.bin"), 1, "{d}/none.bin")
    case("model-is-shard", train(spec=at(DATA, "t_train_000001.bin")), 1, "token shard")
    case("model-is-folder", train(spec="{d}"), 1, "{d}", "manifest.json")
    case("model-is-pipe", train(spec="{d}/m.bin"), 1, "{d}/m.bin",
         setup=lambda d: os.mkfifo(at(d, "m.bin")))
    case("model-vocabulary-below-data", train(spec="{d}/m.bin", data=TEXT), 2, "V=8",
         setup=lambda d: model(at(d, "m.bin"), V=8) and None)


# ---- checkpoints and resume ----

def checkpoint_cases():
    newest = "{d}/out/checkpoints/step-000004"
    state = newest + "/state-00000-of-0000%d.bin" % (1 if SERIAL else 2)

    def edit(d, change):
        path = fill(newest, d) + "/manifest.json"
        with open(path) as f:
            m = json.load(f)
        change(m)
        if m["version"] == 2:  # the first version had no checksum of the manifest
            m["version"] = 1
        write(path, json.dumps(m).encode())

    def cut(d, n=1):
        path = fill(state, d)
        os.truncate(path, os.path.getsize(path) - n)

    def flip(d):
        with open(fill(state, d), "r+b") as f:
            f.seek(1000)
            byte = f.read(1)[0]
            f.seek(1000)
            f.write(bytes([byte ^ 16]))

    def overlap(m):
        m["files"][0]["ranges"][0] -= 16

    def hole(m):
        f = m["files"][0]
        n = f["ranges"][-1]
        f["ranges"] = f["ranges"][:-2]
        f["bytes"] -= 12 * n

    def outside(m):
        m["files"][0]["ranges"][0] = m["elems"]

    damages = [
        ("file-missing", lambda d: os.unlink(fill(state, d)), [state]),
        ("file-cut", cut, [state]),
        ("file-empty", lambda d: os.truncate(fill(state, d), 0), [state, "0 bytes"]),
        ("file-long", lambda d: os.truncate(fill(state, d), 10**6), [state, "1000000"]),
        ("file-is-folder", lambda d: (os.unlink(fill(state, d)),
                                      os.mkdir(fill(state, d))) and None, [state]),
        ("manifest-missing", lambda d: os.unlink(fill(newest, d) + "/manifest.json"),
         [newest]),
        ("manifest-empty", lambda d: write(fill(newest, d) + "/manifest.json", b"") and None,
         [newest + "/manifest.json", "JSON"]),
        ("manifest-not-json",
         lambda d: write(fill(newest, d) + "/manifest.json", b"{\"format\": ") and None,
         [newest + "/manifest.json", "JSON"]),
        ("manifest-list", lambda d: write(fill(newest, d) + "/manifest.json", b"[]") and None,
         [newest + "/manifest.json"]),
        ("ranges-overlap", lambda d: edit(d, overlap), [newest + "/manifest.json"]),
        ("ranges-hole", lambda d: edit(d, hole), [newest + "/manifest.json"]),
        ("ranges-outside", lambda d: edit(d, outside), [newest + "/manifest.json"]),
        ("version", lambda d: edit(d, lambda m: m.update(version=99)),
         [newest + "/manifest.json", "99"]),
        ("absurd-shape", lambda d: edit(d, lambda m: m["shape"].update(L=2**39)),
         [newest + "/manifest.json", str(2**39)]),
        ("elems", lambda d: edit(d, lambda m: m.update(elems=17)),
         [newest + "/manifest.json", "17"]),
        ("ranks", lambda d: edit(d, lambda m: m.update(ranks=9)),
         [newest + "/manifest.json", "9"]),
        ("ranks-absurd", lambda d: edit(d, lambda m: m.update(ranks=2**31)),
         [newest + "/manifest.json", str(2**31)]),
        ("step-negative", lambda d: edit(d, lambda m: m["state"].update(step=-1)),
         [newest + "/manifest.json", "step"]),
    ]
    for name, damage, needles in damages:
        # Asked for by name: refused.
        case("checkpoint-" + name, train("--resume", newest), 1, *needles, setup=damage,
             run_copy=True)
        # As a model to start from: refused too.
        case("checkpoint-model-" + name, train(spec=newest, out="{d}/out2"), 1, *needles,
             setup=damage, run_copy=True, ranks=(1,))

        # The only one of its run: never a silent start from step 0.
        def alone(d, damage=damage):
            shutil.rmtree(fill("{d}/out/checkpoints/step-000002", d))
            damage(d)

        if name != "manifest-missing":
            case("checkpoint-alone-" + name, train(), 1, "{d}/out", "step-000004", "--out",
                 setup=alone, run_copy=True, ranks=(1,))
    case("checkpoint-alone-on-2", train(), 1, "{d}/out", "step-000004", setup=lambda d: (
        shutil.rmtree(fill("{d}/out/checkpoints/step-000002", d)), cut(d)) and None,
        run_copy=True, ranks=(2,))
    case("checkpoint-bit-flipped", train("--resume", newest), 1, state, "checksum",
         setup=flip, run_copy=True, ranks=(1, 2, 3))

    def flip_manifest(d):
        path = fill(newest, d) + "/manifest.json"
        text = open(path, "rb").read()
        write(path, text.replace(b'"step":', b'"stex":'))

    # An older whole one takes the place of a damaged one, with one warning.
    for name, damage in (("cut", cut), ("flipped", flip), ("manifest", flip_manifest)):
        for p in (1,) if SERIAL else (1, 2, 3):
            CASES.append(("checkpoint-falls-back-%s.p%d" % (name, p),
                          lambda p=p, n=name, d=damage: falls_back(p, n, d)))
    case("resume-missing", train("--resume", "{d}/none"), 1, "{d}/none")
    case("resume-model-file", train("--resume", MODEL), 2, MODEL, "optimizer")
    case("resume-folder", train("--resume", "{d}"), 1, "{d}")
    case("resume-none", train("--resume", "none"), 2, "--resume none", "step-000004",
         run_copy=True)
    case("resume-other-shape", train(spec="L=2,H=2,C=16,T=16,V=64"), 2, "L=1", "L=2",
         run_copy=True)
    case("resume-vocabulary", train(spec="L=1,H=2,C=16,T=16,V=65"), 2, "V=64", "V=65",
         run_copy=True)
    case("resume-empty-word", train("--resume="), 2, "--resume", run_copy=True)


def falls_back(ranks, name, damage):
    folder = at(TMP, "cases", "checkpoint-falls-back-%s.p%d" % (name, ranks))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(RUN, at(folder, "out"))
    damage(folder)
    r = run(ranks, [fill(a, folder) for a in train("--keep", "5")], folder)
    bad = []
    if r.code != 0:
        bad.append("exit code %d, needs 0" % r.code)
    named = [w for w in r.warnings() if "step-000004" in w]
    if len(named) != 1:
        bad.append("%d warnings name the damaged checkpoint, needs one" % len(named))
    if "step-000002 at step 2" not in r.err:
        bad.append("the older checkpoint was not named")
    if checkpoints(at(folder, "out")) != ["step-000002", "step-000006"]:
        bad.append("checkpoints: %s" % checkpoints(at(folder, "out")))
    if not os.path.isdir(at(folder, "out/checkpoints/step-000004.damaged")):
        bad.append("the damaged one was not set aside")
    return bad + ([r.err] if bad else [])


# ---- disks ----

def tmpfs(folder, options):
    os.makedirs(at(folder, "disk"))
    p = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", at(folder, "disk")],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return None if p.returncode == 0 else "cannot mount a tmpfs: %s" % (
        p.stdout.decode().strip())


def disk_cases():
    # A 1.6 MB checkpoint (L=2, C=64): two fit, a third one does not while both stand.
    spec = "L=2,H=2,C=64,T=16,V=64"
    checkpoint = 12 * shape_elems(2, 64, 16, 64)

    def small(times):
        return lambda d: tmpfs(d, "size=%dk" % (times * checkpoint // 1024 + 120))

    def after_full(kept):
        def after(d, r):
            bad = []
            if checkpoints(at(d, "disk/out")) != kept:
                bad.append("checkpoints: %s, needs %s" % (checkpoints(at(d, "disk/out")), kept))
            bad += [w for w in [whole(at(d, "disk/out"))] if w]
            if not any("free" in w for w in r.warnings()):
                bad.append("no warning about space before step 1")
            if kept and not any(kept[-1] in w and "kept" in w for w in r.warnings()):
                bad.append("nothing said about the checkpoint that was kept")
            if kept and not bad:  # and it loads
                again = run(1, [fill(a, d) for a in train(
                    "--resume", "{d}/disk/out/checkpoints/" + kept[-1], "--steps", "7",
                    spec=spec)], d)
                if again.code != 0:
                    bad.append("the kept checkpoint does not load: " + again.err)
            return bad
        return after

    full = ["--save-every", "5", "--steps", "15", "--keep", "1"]
    case("disk-full-at-second-save", train(*full, spec=spec, out="{d}/disk/out"), 1,
         "{d}/disk/out/checkpoints/step-000010", "No space left", setup=small(1.5),
         after=after_full(["step-000005"]), ranks=(1, 2, 3), limit=TRAINED)
    case("disk-full-at-first-save", train(*full, spec=spec, out="{d}/disk/out"), 1,
         "{d}/disk/out/checkpoints/step-000005", "No space left", setup=small(0.5),
         after=after_full([]), limit=TRAINED)
    case("disk-full-at-start", train(spec=spec, out="{d}/disk/out"), 1, "{d}/disk/out",
         "No space left",
         setup=lambda d: tmpfs(d, "size=4k") or (write(at(d, "disk/x"), b"x" * 4096) and None))
    case("disk-read-only", train(out="{d}/disk/out"), 1, "{d}/disk/out", "ead-only",
         setup=lambda d: tmpfs(d, "ro"))
    case("out-below-a-file", train(out="{d}/file/out"), 1, "{d}/file",
         setup=lambda d: write(at(d, "file"), b"x") and None, ranks=(1, 2, 3))
    case("out-is-a-file", train(out="{d}/file"), 1, "{d}/file",
         setup=lambda d: write(at(d, "file"), b"x") and None)
    case("out-empty", train(out=""), 2, "--out", "''")
    case("data-empty-word", train(data=""), 2, "--data", "''", ranks=(1,))
    case("model-empty-word", train(spec=""), 2, "--model", "''", ranks=(1,))
    case("out-too-long", train(out="{d}/" + "x" * 300), 1, "xxx", "too long")
    case("out-checkpoints-is-a-file", train(), 1, "{d}/out/checkpoints",
         setup=lambda d: write(at(d, "out/checkpoints"), b"x") and None,
         after=lambda d, r: [] if not os.path.isdir(at(d, "out/checkpoints")) else ["?"])


# ---- numbers ----

def numeric_cases():
    def diverged(d, r):
        bad = [w for w in [whole(at(d, "out"))] if w]
        for name in checkpoints(at(d, "out")):
            folder = at(d, "out/checkpoints", name)
            for file in os.listdir(folder):
                if not file.startswith("state"):
                    continue
                data = open(at(folder, file), "rb").read()
                values = struct.unpack("<%df" % (len(data) // 4), data)
                if any(v != v or v in (float("inf"), float("-inf")) for v in values):
                    bad.append("%s/%s holds NaN or infinity" % (name, file))
        steps = [m["step"] for m in metrics(at(d, "out")) if "loss" in m]
        if "step %d:" % (len(steps) + 1) not in r.err:
            bad.append("%d steps in metrics.jsonl, the error names another" % len(steps))
        return bad

    for rate, clip in (("1e6", "0"), ("1e30", "0"), ("1e30", "1")):
        case("diverges-at-lr-%s.clip-%s" % (rate, clip),
             train("--lr", rate, "--warmup", "4", "--steps", "300", "--save-every", "1",
                   "--clip", clip), 3, "step ", "not a finite", after=diverged, limit=TRAINED)

    def last(d, r):
        return [] if not checkpoints(at(d, "out")) else ["a checkpoint was saved"]

    # The last step's update is seen by no later loss: the weights themselves are looked at.
    case("diverges-at-the-last-step",
         train("--lr", "3e38", "--warmup", "0", "--steps", "1", "--weight-decay", "1e6"), 3,
         "step 1", "not a finite", after=last)


# ---- other commands ----

def generate_cases():
    text_run = at(BASE, "textrun")

    def gen(name, args, code, *needles, **keys):
        case("generate-" + name, ["generate"] + args, code, *needles, ranks=(1,), **keys)

    gen("no-model", [], 2, "--model")
    gen("model-missing", ["--model", "{d}/none"], 1, "{d}/none")
    gen("model-cut", ["--model", "{d}/m.bin", "--vocab", "x"], 1, "{d}/m.bin",
        setup=lambda d: model(at(d, "m.bin"), cut=1) and None)
    gen("empty-run", ["--model", "{d}"], 1, "{d}")
    gen("no-tokenizer", ["--model", MODEL, "--prompt", "a"], 2, MODEL, "--vocab")
    gen("vocab-missing", ["--model", MODEL, "--vocab", "{d}/none.bpe"], 1, "{d}/none.bpe")
    gen("vocab-wrong", ["--model", MODEL, "--vocab", at(BASE, "text.txt")], 1,
        at(BASE, "text.txt"))
    gen("tokens-json-broken", ["--model", "{d}/m.bin"], 1, "{d}/tokens.json",
        setup=lambda d: (model(at(d, "m.bin")), write(at(d, "tokens.json"), b"{")) and None)
    gen("prompt-file-missing", ["--model", text_run, "--prompt-file", "{d}/none"], 1,
        "{d}/none")
    gen("prompt-twice", ["--model", text_run, "--prompt", "a", "--prompt-file", "b"], 2,
        "--prompt", "--prompt-file")
    gen("prompt-not-in-vocabulary", ["--model", text_run, "--prompt", "\u4e16"], 1,
        "U+4E16")
    gen("id-outside-vocabulary", ["--model", "{d}/m.bin", "--prompt", "words"], 2, "prompt",
        "8", setup=lambda d: (model(at(d, "m.bin"), V=8),
                              shutil.copy(at(TEXT, "tokens.json"), d)) and None)
    values = (("temperature", "-1"), ("top-p", "0"), ("top-p", "1.5"),
              ("repetition-penalty", "0"), ("threads", "100000000"), ("batch", "0"))
    for option, value in values:  # the one that is wrong, and no other
        gen("%s=%s" % (option, value), ["--model", text_run, "--%s=%s" % (option, value)], 2,
            "--" + option, value, absent=["--" + o for o, _ in values if o != option])
    for option in ("max-tokens", "top-k", "seed", "threads", "temperature", "top-p"):
        gen(option + "=x", ["--model", text_run, "--%s=x" % option], 2, "--" + option, "'x'")
    gen("nan-weights", ["--model", "{d}/m.bin", "--prompt", "a"], 3, "finite",
        setup=lambda d: (model(at(d, "m.bin"), bad=(shape_elems(1, 16, 16, 128) - 20,
                                                    float("nan"))),
                         shutil.copy(at(TEXT, "tokens.json"), d)) and None)
    case("generate-ranks", ["generate", "--model", text_run], 2, "2 ranks", ranks=(2,))
    case("generate-ranks-unknown", ["generate", "--modle", "x"], 2, "--modle", "'--model'",
         ranks=(1, 2))


def other_cases():
    def tok(name, args, code, *needles, **keys):
        case("tokenize-" + name, ["tokenize"] + args, code, *needles, ranks=(1,), **keys)

    text = at(BASE, "text.txt")
    tok("no-input", ["--char", "--out", "{d}/out"], 2, "input")
    tok("no-out", ["--char", text], 2, "--out")
    tok("missing", ["--char", "--out", "{d}/out", "{d}/none.txt"], 1, "{d}/none.txt")
    tok("empty", ["--char", "--out", "{d}/out", "{d}/e.txt"], 1, "{d}/e.txt",
        setup=lambda d: write(at(d, "e.txt"), b"") and None)
    tok("vocab-missing", ["--vocab", "{d}/none.bpe", "--out", "{d}/out", text], 1,
        "{d}/none.bpe")
    tok("shard-as-text", ["--bytes", "--out", "{d}/out", at(DATA, "t_train_000001.bin")], 1,
        "token shard")
    tok("fraction", ["--char", "--val-fraction", "1.5", "--out", "{d}/out", text], 2,
        "--val-fraction", "1.5")
    tok("shard-tokens-0", ["--char", "--shard-tokens", "0", "--out", "{d}/out", text], 2,
        "--shard-tokens")
    tok("two-kinds", ["--char", "--bytes", "--out", "{d}/out", text], 2, "--char")
    tok("out-below-a-file", ["--char", "--out", "{d}/f/out", text], 1, "{d}/f",
        setup=lambda d: write(at(d, "f"), b"x") and None)
    tok("disk-full", ["--bytes", "--out", "{d}/disk/out", "{d}/big.txt"], 1, "{d}/disk/out",
        "No space left",
        setup=lambda d: write(at(d, "big.txt"), b"words " * 200000) and None
        or tmpfs(d, "size=256k"))

    def info(name, path, *needles, **keys):
        case("info-" + name, ["info", path], 1, *needles, ranks=(1,), **keys)

    info("missing", "{d}/none", "{d}/none")
    info("empty-file", "{d}/e", "{d}/e", setup=lambda d: write(at(d, "e"), b"") and None)
    info("unknown-file", text, text)
    info("shard-cut", "{d}/data/x_train_000001.bin", "9023", "9024", setup=one(cut=1))
    info("model-cut", "{d}/m.bin", "{d}/m.bin",
         setup=lambda d: model(at(d, "m.bin"), cut=1) and None)
    case("info-no-path", ["info"], 2, "path", ranks=(1,))
    case("command-unknown", ["trian"], 2, "trian", "'train'")
    case("command-far", ["xyzzy"], 2, "xyzzy", "weft help")


# ---- what looks bad and is not ----

def good(name, ranks, args, check_it, setup=None):
    def job():
        folder = at(TMP, "cases", "%s.p%d" % (name, ranks))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        if setup:
            setup(folder)
        r = run(ranks, [fill(a, folder) for a in args], folder)
        bad = check_it(folder, r) or []
        if r.code != 0 or r.errors():
            bad.append("exit code %d, needs 0" % r.code)
        return bad + ([r.err] if bad else [])

    if ranks == 1 or not SERIAL:
        CASES.append(("%s.p%d" % (name, ranks), job))


def good_cases():
    def warned(word, times=1):
        def check_it(d, r):
            n = len([w for w in r.warnings() if word in w])
            return [] if n == times else ["%d warnings with '%s', needs %d" % (n, word, times)]
        return check_it

    def two_shards(d):
        one(name="a_train_000001.bin")(d)
        one(name="a_train_000002.bin", ids=[1] * 10)(d)

    for p in (1, 2):
        good("good-short-second-shard", p, train(data="{d}/data"),
             warned("a_train_000002.bin"), setup=two_shards)
        good("good-short-validation-of-folder", p, train(data="{d}/data"),
             warned("x_val_000000.bin"),
             setup=lambda d: (one()(d), one(name="x_val_000000.bin", ids=[1] * 10)(d)))
    def numbers(d, r):
        return ["'nan' was printed"] if "nan" in r.err + r.out else []

    good("good-no-validation", 1, train("--eval-every", "2", data="{d}/data"), numbers,
         setup=one())
    good("good-all-validation", 1, train("--eval-every", "2", "--eval-batches", "0"), numbers)
    # One head, one layer, the smallest model: more ranks than there are blocks to share.
    for extra in ([], ["--block-bytes", "one"], ["--engine", "collective"]):
        good("good-more-ranks-than-blocks" + "".join(extra), 3,
             train("--batch", "1", *extra, spec="L=1,H=1,C=1,T=2,V=64"),
             lambda d, r: [] if checkpoints(at(d, "out")) == ["step-000006"] else ["no end"])


def main():
    start = time.monotonic()
    make_fixtures()
    for make in (data_cases, id_cases, option_cases, update_cases, config_cases, shape_cases, model_cases,
                 checkpoint_cases, disk_cases, numeric_cases, generate_cases, other_cases,
                 good_cases):
        make()
    code = run_cases(CASES)
    print("%.0f s" % (time.monotonic() - start))
    return code


if __name__ == "__main__":
    sys.exit(main())
