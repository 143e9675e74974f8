#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Help that helps: examples that work, a manual page and a completion that know exactly the
options there are."""

import os
import re
import shlex
import shutil
import subprocess
import sys

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
BUILD = os.environ["WEFT_BUILD"]
failures = []


def check(condition, text):
    if not condition:
        failures.append(text)
        print(f"FAILED: {text}")


def run(*args):
    return subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=60, check=False)


def commands():
    overview = run("help").stdout
    names = re.findall(r"^  (\w+) +\w", overview, re.M)
    check("train" in names and "report" in names, f"overview: {overview}")
    benches = re.findall(r"^  (\w+) +\w", run("bench", "--help").stdout, re.M)
    check("step" in benches, f"benchmarks: {benches}")
    return [[name] for name in names] + [["bench", b] for b in benches]


def options_of(command):
    return re.findall(r"^  --([\w-]+)", run(*command, "--help").stdout, re.M)


def examples_work(command):
    """Each example of a command's help, asked for help itself: its options exist."""
    text = run(*command, "--help").stdout
    examples = re.findall(r"^example: (.*(?:\n(?! |\n|example|options).*)*)", text, re.M)
    check(examples, f"{' '.join(command)}: no example")
    for example in examples:
        words = shlex.split(example)
        check("weft" in words, f"example '{example}'")
        words = words[words.index("weft") + 1:]
        if words and words[0] != "help":
            done = run(*words, "--help")
            check(done.returncode == 0, f"example '{example}': {done.stderr}")


def manual(topics):
    page = run("help", "--man").stdout
    for command in topics:
        section = re.search(rf"^\.SH WEFT {' '.join(command).upper()}\n(.*?)(?=^\.SH|\Z)", page,
                            re.M | re.S)
        check(section, f"manual: no section on {command}")
        found = re.findall(r"^\.B \\-\\-(\S+)", section.group(1), re.M)
        check([f.replace("\\-", "-") for f in found] == options_of(command),
              f"manual of {command}: {found}")
    if shutil.which("man"):
        path = os.path.join(TMP, "weft.1")
        with open(path, "w", encoding="utf-8") as f:
            f.write(page)
        done = subprocess.run(["man", "--warnings=all", "-l", path], capture_output=True,
                              text=True, timeout=60, check=False,
                              env=dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8"))
        check(done.returncode == 0 and not done.stderr.strip(), f"man: {done.stderr[:300]}")
        check("WEFT TRAIN" in done.stdout, "man shows no section on train")


def complete(script, *words):
    """What bash would offer for the last word."""
    line = " ".join(shlex.quote(w) for w in words)
    asking = (f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _weft; "
              "printf '%s\\n' \"${COMPREPLY[@]}\"")
    done = subprocess.run(["bash", "--norc", "-c", asking], capture_output=True, text=True,
                          timeout=60, check=False)
    check(not done.stderr, f"completion: {done.stderr}")
    return done.stdout.split()


def completion(topics):
    script = os.path.join(TMP, "completion")
    with open(script, "w", encoding="utf-8") as f:
        f.write(run("help", "--bash-completion").stdout)
    check(complete(script, "weft", "tr") == ["train"], "weft tr")
    check(complete(script, "weft", "train", "--strategy", "") ==
          ["auto", "central", "reduce-broadcast", "reduce-scatter", "allreduce"],
          "words of --strategy")
    check(complete(script, "weft", "train", "--strategy", "reduce-s") == ["reduce-scatter"],
          "weft train --strategy reduce-s")
    check(complete(script, "weft", "train", "--data", "") == [], "--data has files, no words")
    check("step" in complete(script, "weft", "bench", ""), "weft bench")
    check("train" in complete(script, "weft", "help", ""), "weft help")
    for command in topics:
        found = complete(script, "weft", *command, "--")
        check(sorted(found) == sorted("--" + o for o in options_of(command)) or
              command == ["help"], f"completion of {command}: {found}")


def near_misses():
    for args, near in ((["reprot"], "report"), (["train", "--stratgey", "x"], "--strategy"),
                       (["report", "--outt", "x"], "--out"), (["watch", "--hlep"], "--help")):
        done = run(*args)
        check(done.returncode == 2 and f"did you mean '{near}'" in done.stderr,
              f"{args}: {done.stderr}")


def installs():
    prefix = os.path.join(TMP, "prefix")
    done = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], timeout=120,
                          capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"cmake --install: {done.stderr}")
    for path in ("bin/weft", "share/man/man1/weft.1", "share/bash-completion/completions/weft"):
        check(os.path.getsize(os.path.join(prefix, path)) > 1000, f"not installed: {path}")


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(TMP)
    topics = commands()
    for command in topics:
        examples_work(command)
    manual(topics)
    completion(topics)
    near_misses()
    installs()
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
