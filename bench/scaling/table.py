#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A table with efficiencies from the files of strong.sh or weak.sh: table.py FILE...

Rows of one way to update stand together, by number of ranks. Efficiency: tokens a second of a
rank, over those at the smallest number of ranks measured.
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tables


def key(row):
    """What must be alike for rows to be compared; with one rank some of it means nothing."""
    return tuple(row[name] for name in ("strategy", "engine", "layout", "roots", "one_root",
                                        "overlap", "accum", "threads", "model", "seq"))


def extra(row):
    return tuple(row[name] for name in ("schedule", "wire", "split_embedding", "host_memory"))


def groups_of(rows):
    """Lists of rows that differ in their number of ranks alone. A row of one rank, for which
    wire, rounds and memory mean nothing, starts each list it fits."""
    groups = {}
    for row in rows:
        if row["ranks"] > 1:
            groups.setdefault((key(row), extra(row)), []).append(row)
    single = {key(row): row for row in rows if row["ranks"] == 1}
    for (alike, _), group in groups.items():
        if alike in single:
            group.append(single[alike])
    grouped = {alike for alike, _ in groups}
    return list(groups.values()) + [[row] for alike, row in single.items()
                                    if alike not in grouped]


def tokens(row):
    return row["ranks"] * row["batch"] * row["accum"] * row["seq"]


def lines_of(group):
    group = sorted(group, key=lambda row: row["ranks"])
    first = group[0]
    base = tokens(first) / first["step_s"] / first["ranks"]
    for row in group:
        rate = tokens(row) / row["step_s"]
        step = f"{row['step_s']:.4f} [{row['step_s_min']:.4f}, {row['step_s_max']:.4f}]"
        yield [tables.strategy(row), row["engine"], row["wire"], str(row["ranks"]),
               str(row["hosts"]), str(row["batch"]), step, f"{rate:.4g}",
               f"{rate / (base * first['ranks']):.2f}", f"{rate / row['ranks'] / base:.2f}",
               f"{row['exposed_s']:.4f}", f"{row['bytes_per_rank'] / 1e6:.1f}",
               tables.number(row["compute_s"], 4), tables.number(row["wire_bound_s"], 4)]


def main(paths):
    if not paths:
        sys.exit(__doc__.splitlines()[0])
    rows = [row for path in paths for row in json.loads(Path(path).read_text())["rows"]]
    head = ["strategy", "engine", "wire", "ranks", "hosts", "batch", "step s", "tokens/s",
            "speed-up", "efficiency", "exposed s", "MB/rank", "compute s", "wire s"]
    groups = groups_of(rows)
    first = rows[0]
    print(f"{first['model']}, T={first['seq']}, accum={first['accum']}, {first['threads']} "
          f"workers a rank, {first['library']}. Step: median [least, most]; batch: sequences "
          "a rank; compute: the step without exchange; wire: bytes through the busiest link "
          "/ its bandwidth.\n")
    print(tables.markdown(head, [line for group in groups for line in lines_of(group)]),
          end="")


if __name__ == "__main__":
    main(sys.argv[1:])
