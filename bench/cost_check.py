#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cost model beside measured steps: what `weft bench update --json` wrote, predicted by
`weft plan` from a file of `weft bench network --json`.

usage: cost_check.py --weft build/weft --network net.json [--limit 0.15] [--share 0.9]
                     [--least N] ROWS.json...

Prints a line a row and how far predictions are off; exit code 1 when fewer than --share of
the rows are within --limit of the measured median, or there are fewer than --least rows.
Rows of MPI's collectives are left out: how a library sends is not known.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys


def read_rows(path):
    with open(path, encoding="utf-8") as f:
        found = json.load(f)
    rows = found["rows"] if isinstance(found, dict) else found
    return [dict(row, file=os.path.basename(path)) for row in rows]


def on_off(value):
    return "on" if value else "off"


def plan_arguments(row, network):
    """The options of weft plan that describe a measured row."""
    words = ["--model", row["model"], "--ranks", row["ranks"], "--hosts", row["hosts"],
             "--batch", row["batch"], "--seq", row["seq"], "--accum", row["accum"],
             "--threads", row.get("threads") or 1, "--strategy", row["strategy"],
             "--block-bytes", round(row["block_bytes"]), "--rounds", row["schedule"],
             "--wire", row["wire"], "--layout", row["layout"],
             "--overlap", on_off(row["overlap"]),
             "--split-embedding", on_off(row["split_embedding"]),
             "--host-memory", on_off(row["host_memory"]),
             "--compute", repr(row["compute_s"]), "--network", network]
    if row["strategy"] == "reduce-broadcast":
        words += ["--roots", row.get("roots") or 1]
        if row["one_root"]:
            words.append("--one-root")
    return [str(word) for word in words]


def predict(weft, row, network):
    command = [weft, "plan", "--brief", "--json", *plan_arguments(row, network)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)["prediction"]


def describe(row):
    marks = [row["strategy"], f"{row['block_bytes'] / 1024:.0f}K",
             f"{row['ranks']}r/{row['hosts']}h", f"c{row['compute_s']:.2f}"]
    if row["one_root"]:
        marks.append("one-root")
    if (row.get("roots") or 1) > 1:
        marks.append(f"roots{row['roots']}")
    if row["schedule"] != "auto":
        marks.append(row["schedule"])
    if not row["overlap"]:
        marks.append("no-overlap")
    if not row["split_embedding"]:
        marks.append("no-split")
    if row["wire"] != "fp32":
        marks.append(row["wire"])
    if row["layout"] != "production":
        marks.append(row["layout"])
    if row["host_memory"]:
        marks.append("host-memory")
    return " ".join(marks)


def print_row(row, found):
    error = found["step_s"] / row["step_s"] - 1
    print(f"{describe(row):60} {row['step_s']:9.4f} {found['step_s']:9.4f} {100 * error:+7.1f} %"
          f" {row['exposed_s']:9.4f} {found['exposed_s']:9.4f}")
    return error


def print_errors(errors, limit):
    size = sorted(abs(error) for error in errors)
    within = sum(error <= limit for error in size)
    print(f"\n{len(errors)} rows: {within} within {100 * limit:.0f} %; off by "
          f"{100 * statistics.median(size):.1f} % (median), "
          f"{100 * size[int(0.9 * (len(size) - 1))]:.1f} % (9 of 10), {100 * size[-1]:.1f} % (most); "
          f"mean {100 * statistics.fmean(errors):+.1f} %")
    for edge in (0.02, 0.05, 0.10, 0.15, 0.20, 0.30):
        count = sum(error <= edge for error in size)
        print(f"  within {100 * edge:3.0f} %: {count:4d} {'#' * round(50 * count / len(size))}")
    return within


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--network", required=True)
    parser.add_argument("--limit", type=float, default=0.15)
    parser.add_argument("--share", type=float, default=0.9)
    parser.add_argument("--least", type=int, default=1)
    parser.add_argument("rows", nargs="+")
    options = parser.parse_args()

    rows = [row for path in options.rows for row in read_rows(path)]
    left_out = [row for row in rows if row["engine"] != "direct"]
    rows = [row for row in rows if row["engine"] == "direct"]
    if len(rows) < options.least or not rows:
        print(f"found {len(rows)} rows of the direct engine, needs {max(1, options.least)}")
        return 1
    print(f"{'row':60} {'measured':>9} {'predicted':>9} {'error':>9} {'exposed':>9} {'predicted':>9}")
    errors = [print_row(row, predict(options.weft, row, options.network)) for row in rows]
    if left_out:
        print(f"{len(left_out)} rows of the collective engine left out")
    within = print_errors(errors, options.limit)
    return 0 if within >= options.share * len(errors) else 1


if __name__ == "__main__":
    sys.exit(main())
