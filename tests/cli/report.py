#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weft report: what a run writes down adds up, and the page that shows it opens and draws
in a browser."""

import json
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.environ["WEFT_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import browser  # noqa: E402
from token_shard import write_tokens  # noqa: E402

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
RANKS = 1 if os.environ["WEFT_COMM"] == "serial" else 2
failures = []


def check(condition, text):
    if not condition:
        failures.append(text)
        print(f"FAILED: {text}")


def weft(*args, ranks=1):
    command = [WEFT, *args]
    if ranks > 1:
        command = ["sh", os.path.join(SOURCE, "tests/support/mpirun"), str(ranks)] + command
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=TMP,
                          check=False)


def train(out, *args, ranks=RANKS, steps=24):
    done = weft("train", "--data", "tokens", "--model", "L=2,H=2,C=32,T=32,V=384", "--batch", "2",
                "--steps", str(steps), "--threads", "1", "--out", out, "--quiet",
                "--eval-every", "8", "--eval-batches", "2", *args, ranks=ranks)
    check(done.returncode == 0, f"train {out}: {done.stderr}")


def lines(run, name):
    with open(os.path.join(TMP, run, name), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def near(a, b, share):
    return abs(a - b) <= share * max(abs(a), abs(b))


# ---- the account of a run ----

def accounts_add_up():
    steps = [m for m in lines("a", "metrics.jsonl") if "loss" in m]
    check(len(steps) == 24, f"{len(steps)} training lines, needs 24")
    for m in steps:
        parts = m["compute_s"] + m["comm_exposed_s"] + m["idle_s"]
        check(near(parts, m["step_s"], 0.02),
              f"step {m['step']}: its parts make {parts} s of {m['step_s']} s")
        check(m["comm_exposed_s"] <= m["comm_busy_s"] + 1e-9, f"step {m['step']}: exposed > busy")
        check(0 < m["compute_s"] <= m["step_s"], f"step {m['step']}: compute {m['compute_s']}")
    ranks = [e for e in lines("a", "events.jsonl") if e["event"] == "ranks"]
    check(sum(e["n"] for e in ranks) == 24, "accounts of the ranks miss steps")
    for e in ranks:
        for r in range(RANKS):
            parts = e["compute_s"][r] + e["exposed_s"][r] + e["idle_s"][r]
            check(near(parts, e["wall_s"][r], 0.02), f"step {e['step']} rank {r}: {parts} s of "
                                                     f"{e['wall_s'][r]} s")
    of_rank_0 = sum(e["wall_s"][0] for e in ranks)
    check(near(of_rank_0, sum(m["step_s"] for m in steps), 0.001), "rank 0's steps: two sums")


def speed_counts_every_micro_batch():
    train("accumulated", "--accum", "3", steps=4)
    for run, accum in (("a", 1), ("accumulated", 3)):
        steps = [m for m in lines(run, "metrics.jsonl") if "loss" in m]
        tokens = RANKS * 2 * 32 * accum
        peak = next(e for e in lines(run, "events.jsonl") if e["event"] == "start")["peak_flops"]
        L, C, T, V = 2, 32, 32, 384
        flops = tokens * (6 * (12 * L * C * C + V * C) + 12 * L * C * T)
        for m in steps:
            check(near(m["tokens_per_s"], tokens / m["step_s"], 1e-6),
                  f"{run}: {m['tokens_per_s']} tokens/s, needs {tokens / m['step_s']}")
            check(near(m["mfu"], flops / m["step_s"] / peak, 0.15),
                  f"{run}: mfu {m['mfu']}, needs about {flops / m['step_s'] / peak}")
        check(steps[-1]["tokens"] == tokens * len(steps), f"{run}: tokens {steps[-1]['tokens']}")


def a_stop_leaves_no_step_out():
    """Accounts are shared every 1000 steps of so many, and at the end, whatever it is."""
    done = weft("train", "--data", "tokens", "--model", "L=1,H=1,C=8,T=8,V=384", "--batch", "1",
                "--steps", "100000", "--threads", "1", "--out", "stopped", "--quiet",
                "--time-limit", "4s")
    check(done.returncode == 4, f"a run with a time limit: {done.returncode}, {done.stderr}")
    events = lines("stopped", "events.jsonl")
    counted = sum(e["n"] for e in events if e["event"] == "ranks")
    check(0 < counted == events[-1]["step"], f"{counted} steps in the ranks' accounts, the run "
                                             f"was stopped after {events[-1]['step']}")


def events_tell_the_story():
    train("b", "--save-every", "6", "--lr", "1e-3", "--time-limit", "1h", steps=12)
    cut = '{"event":"sta'  # as a process leaves it that is killed
    with open(os.path.join(TMP, "b/events.jsonl"), "a", encoding="utf-8") as f:
        f.write(cut)
    train("b", "--save-every", "6", "--lr", "1e-3", steps=24)
    with open(os.path.join(TMP, "b/events.jsonl"), "r+", encoding="utf-8") as f:
        text = f.read().replace(cut + "\n", "")
        f.seek(0)
        f.write(text)
        f.truncate()
    events = lines("b", "events.jsonl")
    told = [(e["event"], e["step"]) for e in events if e["event"] != "ranks"]
    check(told == [("start", 0), ("end", 12), ("start", 12), ("end", 24)],
          f"events of a run in two parts: {told}")
    check(all(e["why"] == "done" for e in events if e["event"] == "end"), "an end that is none")


# ---- the page ----

def data_of(page):
    with open(os.path.join(TMP, page), encoding="utf-8") as f:
        text = f.read()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return text, json.loads(found.group(1))


def page_holds_the_run():
    done = weft("report", "a")
    check(done.returncode == 0, f"report a: {done.stderr}")
    text, data = data_of("a/report.html")
    check(len(text) < 2_000_000, f"{len(text)} bytes")
    outside = re.findall(r'(?:src|href|url)\s*[=(]\s*"?(https?:[^"\s)]*)', text)
    check(not outside, f"the page asks for {outside}")
    run = data["runs"][0]
    check(run["step"] == list(range(1, 25)), f"steps in the page: {run['step']}")
    check([v[0] for v in run["val"]] == [8, 16, 24], f"evaluations: {run['val']}")
    check(len(run["ranks"]["wall_s"]) == RANKS and run["ranks"]["steps"] == 24, "rank sums")
    check(run["options"]["batch"] == "2", f"options: {run['options']}")
    steps = [m for m in lines("a", "metrics.jsonl") if "loss" in m]
    seconds = sum(m["step_s"] for m in steps)
    for name, value in (("steps", 24), ("step_s", seconds),
                        ("exposed", sum(m["comm_exposed_s"] for m in steps) / seconds),
                        ("tokens_per_s", steps[-1]["tokens"] / seconds),
                        ("mfu", sum(m["mfu"] * m["step_s"] for m in steps) / seconds)):
        check(near(run["totals"][name], value, 1e-4), f"{name} of the whole run: "
                                                      f"{run['totals'][name]}, needs {value}")


def several_runs():
    done = weft("report", "a", "b/", "--out", "both.html")
    check(done.returncode == 0, f"report a b: {done.stderr}")
    runs = data_of("both.html")[1]["runs"]
    names = [r["name"] for r in runs]
    check(names == ["a", "b"], f"names {names}")
    told = [(e["event"], e["step"]) for e in runs[1]["events"]]
    check(sorted(told) == [("checkpoint", 6), ("checkpoint", 12), ("checkpoint", 18),
                           ("checkpoint", 24), ("end", 12), ("end", 24), ("start", 0),
                           ("start", 12)], f"what the page tells of a run: {told}")


def long_runs_are_thinned():
    """Many steps fit the page and keep their course."""
    os.makedirs(os.path.join(TMP, "long"), exist_ok=True)
    with open(os.path.join(TMP, "long/metrics.jsonl"), "w", encoding="utf-8") as f:
        for i in range(1, 40001):
            f.write(f'{{"step":{i},"loss":{1 + 10 / i:.9g},"lr":1e-3,"grad_norm":0.123456789,'
                    f'"tokens":{i * 512},"step_s":0.0123456789,"tokens_per_s":41472.0123,'
                    f'"mfu":0.123456789,"compute_s":0.0111111111,"comm_busy_s":0.00234567891,'
                    f'"comm_exposed_s":0.00123456789,"idle_s":0.000123456789}}\n')
        f.write('{"step":40001,"lo')
    many = ["long"] * 16
    done = weft("report", *many, "--out", "long.html")
    check(done.returncode == 0, f"report of 16 long runs: {done.stderr}")
    text, data = data_of("long.html")
    check(len(text) < 2_000_000, f"16 long runs: {len(text)} bytes")
    done = weft("report", "long", "--out", "long1.html")
    run = data_of("long1.html")[1]["runs"][0]
    check(1000 < len(run["step"]) <= 2000 and run["step"][-1] == 40000,
          f"{len(run['step'])} points to step {run['step'][-1]}")
    check(run["loss"][0] > 1.5 and near(run["loss"][-1], 1.0001, 1e-3), "thinned losses")


def damaged_lines_are_counted():
    shutil.copytree(os.path.join(TMP, "a"), os.path.join(TMP, "hurt"))
    for name, text in ("metrics.jsonl", '{"step":3,"lo\n[1]\n{"step":25'), ("events.jsonl", "\n"):
        with open(os.path.join(TMP, "hurt", name), "a", encoding="utf-8") as f:
            f.write(text)
    told = "metrics.jsonl: 2 lines, events.jsonl: 1 line passed over: not JSON"
    done = weft("report", "hurt", "--out", "hurt.html")
    check(done.returncode == 0 and done.stderr.count(f"warning: hurt/{told}\n") == 1,
          f"damaged lines of a report: {done.stderr}")
    done = weft("watch", "hurt")
    check(done.returncode == 0 and done.stdout.count(f"\n{told}\n") == 1, f"watch: {done.stdout}")
    for run, found in ("hurt", {"metrics.jsonl": 2, "events.jsonl": 1}), ("a", None):
        info = json.loads(weft("info", "--json", run).stdout)
        check(info.get("damaged_lines") == found and info["last_metrics"]["step"] == 24,
              f"info of {run}: {info}")
    check("passed over" not in weft("report", "a").stderr, "damage where there is none")


def refusals():
    for args, words in ((["nowhere"], "nowhere: found no metrics.jsonl"),
                        ([], "found 0 run folders"), (["a"] * 17, "found 17 run folders"),
                        (["a", "b"], "found 2 run folders and no --out"),
                        (["a", "--out", "no/such/x.html"], "no/such/x.html")):
        done = weft("report", *args)
        check(done.returncode in (1, 2) and words in done.stderr and
              done.stderr.count("\n") == 1, f"report {args[:3]}: {done.stderr}")


def any_name():
    name = os.fsdecode(b"l\xe4ufe")
    os.symlink("a", os.path.join(TMP, name))
    for args in ("report", "--out", "any.html", name), ("info", "--json", name):
        done = weft(*args)
        check(done.returncode == 0, f"{args[0]} of a name that is not UTF-8: {done.stderr}")
    check(data_of("any.html")[1]["runs"][0]["name"] == "l\ufffdufe", "its name in the page")


# ---- the browser ----

MEASURE = """<script>
document.body.dataset.drawn = document.querySelectorAll("svg path[d^=M]").length;
document.body.dataset.empty = document.getElementById("page").textContent.includes("nothing recorded");
document.body.dataset.over = document.documentElement.scrollWidth - innerWidth;
const all = selector => [...document.querySelectorAll(selector)];
const lineCharts = all("svg[role=img]");
document.body.dataset.unmarked = lineCharts.filter(c => !c.querySelector(".resume")).length;
document.body.dataset.ticks = Math.min(...lineCharts.map(
    c => c.querySelectorAll("text[text-anchor=middle]").length));
document.body.dataset.hidden = all("td").filter(
    c => c.getBoundingClientRect().right > innerWidth).length;
document.body.dataset.tile = (document.querySelector(".tile b, .summary td + td")).textContent;
document.body.dataset.legend = document.querySelector(".legend b").textContent;
document.body.dataset.dated = /^\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d$/.test(
    document.querySelector(".history td").textContent);
document.getElementById("log-y").click();
document.getElementById("log-x").click();
document.getElementById("axis").value = "hours";
document.getElementById("axis").onchange();
document.body.dataset.again = document.querySelectorAll("svg path[d^=M]").length;
document.body.dataset.wrong = document.getElementById("page").innerHTML.includes('NaN');
</script></body>"""


def measured(page, width):
    """The page with questions added, after its scripts; and its console."""
    text, _ = data_of(page)
    asking = os.path.join(TMP, "asking.html")
    with open(asking, "w", encoding="utf-8") as f:
        f.write(text.replace("</body>", MEASURE))
    dom, console = browser.document(asking, TMP, width)
    return dict(re.findall(r'data-(\w+)="([^"]*)"', dom)), console


def opens_in_a_browser():
    weft("report", "b")
    # Of both, the chart that shows a alone has no resumption to mark.
    for page, width, least, unmarked in (("b/report.html", 390, 8, "0"),
                                         ("both.html", 1280, 12, "1")):
        found, console = measured(page, width)
        check(not console, f"{page} at {width}: console says {console}")
        check(int(found.get("drawn", 0)) >= least, f"{page} at {width}: {found}")
        check(int(found.get("again", 0)) >= least, f"{page} at {width}, changed: {found}")
        check(found.get("over") == "0" and found.get("hidden") == "0",
              f"{page} at {width}: too wide: {found}")
        check(found.get("unmarked") == unmarked and int(found.get("ticks", 0)) >= 2,
              f"{page} at {width}: marks and scales: {found}")
        check(found.get("tile") == found.get("legend") and found.get("dated") == "true",
              f"{page} at {width}: one loss, one figure; dates: {found}")
        check(found.get("empty") == "false" and found.get("wrong") == "false",
              f"{page} at {width}: {found}")
    # What looks for errors finds one. And a single step is not called steps.
    train("one", steps=1)
    weft("report", "one")
    text, _ = data_of("one/report.html")
    with open(os.path.join(TMP, "broken.html"), "w", encoding="utf-8") as f:
        f.write(text.replace("build();\n", "build();\nthrow new Error('planted');\n"))
    dom, console = browser.document(os.path.join(TMP, "broken.html"), TMP)
    check("the time of 1 step went" in dom, "the heading of a page of one step")
    check(any("planted" in line for line in console), f"a planted error: console says {console}")


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(os.path.join(TMP, "tokens"))
    write_tokens(os.path.join(TMP, "tokens/x_train_000001.bin"), 20000, 384)
    write_tokens(os.path.join(TMP, "tokens/x_val_000001.bin"), 2000, 384)
    train("a")
    accounts_add_up()
    speed_counts_every_micro_batch()
    events_tell_the_story()
    a_stop_leaves_no_step_out()
    page_holds_the_run()
    several_runs()
    long_runs_are_thinned()
    damaged_lines_are_counted()
    refusals()
    any_name()
    if browser.find():
        opens_in_a_browser()
    else:
        print("no chromium here: the page was not opened")
    print(f"{len(failures)} failures")
    if failures:
        return 1
    return 0 if browser.find() else 77


if __name__ == "__main__":
    sys.exit(main())
