# SPDX-License-Identifier: MIT
"""Markdown tables from the rows of `weft bench update --json`, shared by the drivers here."""


def size(value):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.3g} {unit}"
        value /= 1024
    return None


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def strategy(row):
    if row["one_root"]:
        return row["strategy"] + ", one root"
    if row["roots"] > 1:
        return f"{row['strategy']}, {row['roots']} roots"
    return row["strategy"]


# Columns that say what a row is; those that are the same in all rows are said once, above.
SETUP = {
    "strategy": strategy,
    "engine": lambda r: r["engine"],
    "layout": lambda r: r["layout"],
    "block": lambda r: size(r["block_bytes"]),
    "rounds": lambda r: f"{r['exchange_rounds']} ({r['schedule']})",
    "wire": lambda r: r["wire"],
    "split": lambda r: "on" if r["split_embedding"] else "off",
    "memory": lambda r: "shared" if r["host_memory"] else "own",
    "overlap": lambda r: "on" if r["overlap"] else "off",
}
FIGURES = {
    "step s": lambda r: f"{r['step_s']:.3f} [{r['step_s_min']:.3f}, {r['step_s_max']:.3f}]",
    "exposed": lambda r: number(r["exposed_s"]),
    "hidden": lambda r: number(r["hidden_s"]),
    "idle": lambda r: number(r["idle_s"]),
    "MB/rank": lambda r: number(r["bytes_per_rank"] / 1e6, 1),
    "planned": lambda r: number(r["bytes_predicted"] and r["bytes_predicted"] / 1e6, 1),
    "messages": lambda r: number(r["messages"], 0),
    "balance": lambda r: number(r["balance"], 2),
    "compute": lambda r: number(r["compute_s"]),
    "wire bound": lambda r: number(r["wire_bound_s"]),
    "step/bound": lambda r: number(r["bound_s"] and r["step_s"] / r["bound_s"], 2),
}


def markdown(head, lines):
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *lines]) + "\n"


def setting(row):
    compute = f"{row['compute_s']:g} s of simulated compute" if row["compute"] == "simulated" \
        else "real compute"
    return (f"{row['model']}, B={row['batch']} T={row['seq']} accum={row['accum']}, "
            f"{row['ranks']} ranks on {row['hosts']} hosts, {row['threads']} workers a rank, "
            f"{compute}, {row['library']}, {row['steps']} steps a row")


def update_table(rows):
    """What the rows have in common, and a table of what they do not."""
    differing = [name for name, cell in SETUP.items()
                 if name == "strategy" or len({cell(row) for row in rows}) > 1]
    common = [f"{name} {cell(rows[0])}" for name, cell in SETUP.items()
              if name not in differing]
    lines = [[SETUP[name](row) for name in differing] +
             [cell(row) for cell in FIGURES.values()] for row in rows]
    text = setting(rows[0]) + (f"; all rows: {', '.join(common)}" if common else "") + ".\n\n"
    return text + markdown(differing + list(FIGURES), lines)
