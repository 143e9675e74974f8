#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a power cut would leave: the order in which a run of two ranks writes, syncs and
renames the files of its checkpoints, seen by a preloaded library (sync_order.py LIBRARY).
"""
import glob
import os
import shutil
import sys

sys.dont_write_bytecode = True
from harness import *  # noqa: E402,F403

RANKS = 1 if SERIAL else 2


def read_log(prefix):
    """(time, operation, path, other path) of all processes, in order."""
    found = []
    for path in glob.glob(prefix + ".*"):
        with open(path) as f:
            for line in f:
                words = line.split()
                found.append((int(words[0]), words[1], os.path.realpath(words[2]),
                              words[3] if len(words) > 3 else ""))
    return sorted(found)


def last(log, operation, path, before):
    """Time of the last such operation before a moment, or 0."""
    return max([t for t, op, p, _ in log if op == operation and p == path and t < before],
               default=0)


def check_publish(log, folder, name, files):
    """Everything of a checkpoint is durable before it has its name; then the name is."""
    bad = []
    tmp, final = os.path.join(folder, name + ".tmp"), os.path.join(folder, name)
    named = [t for t, op, p, q in log if op == "rename" and p == tmp]
    if len(named) != 1:
        return ["%s: renamed %d times, needs once" % (name, len(named))]
    named = named[0]
    for file in files:
        path = os.path.join(tmp, file)
        written = path + ".tmp" if file.endswith(".json") else path
        w, s = last(log, "write", written, named), last(log, "sync", written, named)
        if not 0 < w < s:
            bad.append("%s/%s: not synced after its last write" % (name, file))
        if written != path:
            moved = last(log, "rename", written, named)
            if not s < moved:
                bad.append("%s/%s: renamed before it was synced" % (name, file))
            s = moved
        if not s < last(log, "sync", tmp, named):
            bad.append("%s: the folder was not synced after %s" % (name, file))
    synced = [t for t, op, p, _ in log if op == "sync" and p == folder and t > named]
    latest = os.path.join(folder, "latest.tmp")
    told = [t for t, op, p, _ in log if op == "rename" and p == latest and t > named]
    if not synced or not told or not synced[0] < told[0]:
        bad.append("%s: 'latest' was written before the name was synced" % name)
    elif not last(log, "write", latest, told[0]) < last(log, "sync", latest, told[0]):
        bad.append("%s: 'latest' was not synced" % name)
    gone = [t for t, op, p, _ in log if op == "remove" and t > 0 and final not in p and
            os.path.basename(p).startswith("step-") and named - 1 < t < (told or [named])[0]]
    if gone:
        bad.append("%s: an older one was removed before this one was complete" % name)
    return bad


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    shard(os.path.join(TMP, "data", "t_train_000001.bin"), [i * 7 % 64 for i in range(4000)])
    out = os.path.realpath(os.path.join(TMP, "out"))
    log = os.path.join(TMP, "log")
    r = run(RANKS, ["train", "--data", os.path.join(TMP, "data"), "--model",
                    "L=1,H=2,C=16,T=16,V=64", "--out", out, "--batch", "2", "--steps", "8",
                    "--save-every", "2", "--keep", "1", "--threads", "1"], TMP,
            {"LD_PRELOAD": sys.argv[1], "SYNC_LOG": log, "SYNC_ONLY": "checkpoints"})
    if r.code != 0:
        print("exit code %d\n%s" % (r.code, r.err))
        return 1
    entries = read_log(log)
    files = ["state-%05d-of-%05d.bin" % (i, RANKS) for i in range(RANKS)] + ["manifest.json"]
    bad = []
    for step in (2, 4, 6, 8):
        bad += check_publish(entries, os.path.join(out, "checkpoints"), "step-%06d" % step,
                             files)
    removed = [p for _, op, p, _ in entries if op == "remove"]
    if len(removed) < 3:
        bad.append("removed %s, needs the three older ones" % removed)
    print("\n".join(bad) if bad else "ok: %d operations in order" % len(entries))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
