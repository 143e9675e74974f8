#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What is taken away under a run: a shard that is cut, metrics.jsonl, the whole run
folder, which may be moved, too; and folders that a run may not use.
"""
import os
import re
import shutil
import struct
import sys

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403
from kill import Job, steps_done, text_of, train, wait_for_steps, wait_for_text  # noqa: E402

RANKS = 1 if SERIAL else 2
STEPS = 1500


def under_a_run(name, change, then, steps=STEPS, code=0, extra=()):
    """change(out) while steps are done; then(out, text) complains."""
    out = os.path.join(TMP, name)
    path = out + ".log"
    args = train(out, steps, *extra)
    data = os.path.join(TMP, name + ".data")
    shard(os.path.join(data, "t_train_000001.bin"), [i * 7 % 64 for i in range(100000)])
    args[args.index("--data") + 1] = data
    with open(path, "wb+") as log:
        job = Job(RANKS, args, log)
        if not job.find_ranks() or not wait_for_steps(job, out, 20):
            job.end(0.1)
            return ["the run did not start: " + text_of(path)]
        change(out, data)
        found = job.end(100)
    text = text_of(path)
    bad = [] if found == code else ["exit code %s, needs %d" % (found, code)]
    bad += then(out, text)
    wrong = whole(out)
    return bad + ([wrong] if wrong else []) + ([text] if bad else [])


def cut_shard(out, data):
    os.truncate(os.path.join(data, "t_train_000001.bin"), 1024)


def cut_is_told(out, text):
    lines = [line for line in text.splitlines() if "error:" in line]
    bad = [] if len(lines) == 1 and re.search(
        r"t_train_000001.bin: found 1024 bytes, needs the 201024", lines[0]) else \
        ["error lines: %s" % lines]
    done = steps_done(out)
    if checkpoints(out) != ["step-%06d" % done]:
        bad.append("%d steps done, checkpoints %s" % (done, checkpoints(out)))
    return bad


def metrics_go_on(out, text):
    steps = [m["step"] for m in metrics(out) if "loss" in m]
    bad = [] if steps and steps == list(range(steps[0], STEPS + 1)) and steps[0] > 1 else [
        "metrics.jsonl holds steps %s .. %s" % (steps[:1], steps[-1:])]
    if text.count("metrics.jsonl was moved or removed") != 1:
        bad.append("needs one warning")
    return bad


def remove_folder(out, data):
    os.rename(out, out + ".gone")  # nothing is made in it while it is removed
    shutil.rmtree(out + ".gone")


def is_a_run(out):
    """Lock, options and a start are there as in a folder made by a new run."""
    bad = ["%s: no %s" % (out, name) for name in ("lock", "config.ini", "events.jsonl")
           if not os.path.exists(os.path.join(out, name))]
    if not bad:
        with open(os.path.join(out, "config.ini")) as f:
            bad += [] if "steps = %d" % STEPS in f.read() else ["config.ini is not this run's"]
        with open(os.path.join(out, "events.jsonl")) as f:
            bad += [] if '"event":"start"' in f.read() else ["no start among the events"]
    return bad


def folder_is_back(out, text):
    bad = [] if checkpoints(out) == ["step-%06d" % STEPS] else ["checkpoints %s" % checkpoints(out)]
    return bad + is_a_run(out) + metrics_go_on(out, text)


def move_folder(out, data):
    os.rename(out, out + ".moved")


def both_are_whole(out, text):
    """What was written before is where it was moved to; nothing is missing or twice."""
    steps = [m["step"] for folder in (out + ".moved", out) for m in metrics(folder)
             if "loss" in m]
    bad = folder_is_back(out, text) + is_a_run(out + ".moved")
    return bad + ([] if steps == list(range(1, STEPS + 1)) else ["steps %s" % steps])


def take_the_name(out, data):
    """Another run's folder comes to the old name."""
    move_folder(out, data)
    write(os.path.join(out, "lock"), b"host elsewhere, pid 1, 2.5\n")
    write(os.path.join(out, "checkpoints", "latest"), b"step-000001\n")


def others_are_left_alone(out, text):
    lines = [line for line in text.splitlines() if "error:" in line]
    bad = [] if len(lines) == 1 and "%s: found another folder" % out in lines[0] else [
        "error lines: %s" % lines]
    if os.listdir(os.path.join(out, "checkpoints")) != ["latest"] or os.path.exists(
            os.path.join(out, "config.ini")):
        bad.append("the other folder was written to: %s" % sorted(tree(out)))
    return bad + is_a_run(out + ".moved")


def busy_folder():
    """A second run in the same folder is refused and told whose it is."""
    out = os.path.join(TMP, "busy")
    with open(out + ".log", "wb+") as log:
        job = Job(RANKS, train(out, 10**6), log)
        if not job.find_ranks() or not wait_for_steps(job, out, 3):
            job.end(0.1)
            return ["the run did not start"]
        r = run(1, train(out, 10), TMP)
        job.end(0)
    if r.code != 2 or len(r.errors()) != 1 or not re.search(
            r"another run is training in this folder \(host \S+, pid \d+", r.errors()[0]):
        return ["exit code %d\n%s" % (r.code, r.err)]
    return []


def unusable(name, folders, needle, prefix=(), out=None):
    """Refused before step 1 by all ranks; `folders` are there and may not be written to."""
    folders = [os.path.join(TMP, name, f) for f in folders]
    for folder in folders:
        os.makedirs(folder)
    for folder in folders:
        os.chmod(folder, 0o555)
    path = os.path.join(TMP, name + ".log")
    # Root may write anywhere, unless that right is taken from it.
    rights = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    if rights and not shutil.which("setpriv"):
        return "no setpriv here"
    with open(path, "wb+") as log:
        code = Job(RANKS, train(out or os.path.join(TMP, name), 10), log,
                   rights + list(prefix)).end(60)
    text = text_of(path)
    lines = [line for line in text.splitlines() if "error:" in line]
    for folder in folders:
        os.chmod(folder, 0o755)
    bad = [] if code == 1 else ["exit code %s, needs 1" % code]
    if len(lines) != 1 or not re.search(needle, lines[0]):
        bad.append("needs one error line with '%s'" % needle)
    bad += ["steps were done"] if "step 1" in text else []
    return bad + ([text] if bad else [])


# Every rank in a folder of its own, as on hosts that share none.
APART = ["sh", "-c", 'mkdir "$0.$$" && cd "$0.$$" && exec "$@"']


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(TMP, "data", "t_train_000001.bin"), [i * 7 % 64 for i in range(4000)])
    rare = ["--save-every", "0"]
    jobs = [
        ("shard-cut", lambda: under_a_run("shard", cut_shard, cut_is_told, code=1, extra=rare)),
        ("metrics-removed", lambda: under_a_run(
            "metrics", lambda out, data: os.unlink(os.path.join(out, "metrics.jsonl")),
            metrics_go_on, extra=rare)),
        ("run-folder-removed", lambda: under_a_run(
            "folder", remove_folder, folder_is_back, extra=rare)),
        ("run-folder-moved", lambda: under_a_run(
            "moving", move_folder, both_are_whole, extra=rare)),
        ("run-folder-replaced", lambda: under_a_run(
            "replaced", take_the_name, others_are_left_alone, code=1, extra=rare)),
        ("folder-in-use", busy_folder),
        ("no-permission", lambda: unusable("locked", [""], "locked.*Permission denied")),
        ("no-permission-below", lambda: unusable(
            "below", ["checkpoints"], "below/checkpoints: cannot be written to on host")),
    ]
    if not SERIAL:
        jobs.append(("not-shared", lambda: unusable(
            "apart", [], "--out out: found on host .* another folder than rank 0's",
            APART + [os.path.join(TMP, "own")], "out")))
    return run_cases(jobs)


if __name__ == "__main__":
    sys.exit(main())
