#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds with other task runtimes side by side, in turn, as Markdown tables:

    bench/backends.py --build OpenMP=build/weft --build OmpSs-2=build-ompss2/weft

First one rank (`weft bench step`), then several and both engines (`weft bench update`). Each rank
is bound to its cores by --launch: OmpSs-2 would else use the same ones in all of them. Medians of
the rounds; in brackets the least and the largest ratio of a round to the first row.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

from tables import markdown


def figures(command, folder):
    path = os.path.join(folder, "figures.json")
    run = subprocess.run(command + ["--json", path], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{run.stdout}{run.stderr}")
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def named_build(text):
    name, equals, weft = text.partition("=")
    if not (name and equals and weft):
        raise argparse.ArgumentTypeError(f"found '{text}', needs NAME=WEFT")
    if not os.access(weft, os.X_OK):
        raise argparse.ArgumentTypeError(f"{name}: found no program '{weft}'")
    return name, weft


def one_round(args, folder, alone, together):
    model = ["--model", args.model, "--batch", str(args.batch), "--seq", str(args.seq), "--steps",
             str(args.steps), "--quiet"]
    for name, weft in args.build:
        step = figures([weft, "bench", "step", "--threads", str(args.threads), *model], folder)
        alone.setdefault(name, []).append(
            {"step": step["step_s"], "cpu": step["cpu_s"],
             "tasks": step["tasks"], "outside": 100 * step["overhead_share"]})
        update = figures(shlex.split(args.launch) +
                         [weft, "bench", "update", "--strategies", args.strategy, "--engines",
                          "direct,collective", "--host-memory", "off", "--rounds", "1", *model],
                         folder)
        for row in update["rows"]:
            together.setdefault(f"{name}, {row['engine']}", []).append(
                {"step": row["step_s"], "exposed": row["exposed_s"], "idle": row["idle_s"],
                 "comm": row["comm_cpu_s"]})
    return f"{update['rows'][0]['ranks']} ranks, {update['rows'][0]['threads']} workers a rank"


def table(found, columns):
    """A line a row of `found`; its ratios are of the same round."""
    first = next(iter(found.values()))
    lines = []
    for name, rounds in found.items():
        ratios = [mine["step"] / base["step"] for mine, base in zip(rounds, first)]
        cells = [format(statistics.median(r[key] for r in rounds), form)
                 for key, (_, form) in columns.items()]
        lines.append([name, cells[0], f"{statistics.median(ratios):.3f} "
                      f"[{min(ratios):.3f}, {max(ratios):.3f}]", *cells[1:]])
    titles = [title for title, _ in columns.values()]
    return markdown(["build", titles[0], "ratio", *titles[1:]], lines)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--build", action="append", required=True, type=named_build,
                   metavar="NAME=WEFT")
    p.add_argument("--launch", default="mpirun --bind-to core -n 2")
    p.add_argument("--model", default="L=4,H=8,C=512,T=256,V=7424")
    p.add_argument("--batch", type=int, default=2)
    p.add_argument("--seq", type=int, default=128)
    p.add_argument("--threads", type=int, default=2, help="of the one rank")
    p.add_argument("--strategy", default="reduce-broadcast")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--rounds", type=int, default=5)
    args = p.parse_args()
    alone, together = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(args.rounds):
            ranks = one_round(args, folder, alone, together)
            print(f"round {i + 1} of {args.rounds} is over", file=sys.stderr, flush=True)
    print(f"{args.model}, B={args.batch} T={args.seq}; one rank, {args.threads} workers:\n")
    print(table(alone, {"step": ("step s", ".4f"), "cpu": ("CPU s", ".4f"),
                        "tasks": ("tasks", ".0f"), "outside": ("CPU outside of them %", ".1f")}))
    print(f"{ranks}, {args.strategy}:\n")
    print(table(together, {"step": ("step s", ".4f"), "exposed": ("exposed", ".4f"),
                           "idle": ("idle", ".4f"), "comm": ("comm CPU", ".4f")}), end="")


if __name__ == "__main__":
    main()
