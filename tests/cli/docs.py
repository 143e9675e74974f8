#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pages for users: their commands run as they stand (with fewer steps, on this machine),
the lines of output they show have the form of those that come, and the messages they explain are
messages of the program.

usage: docs.py PAGE...     of docs/; commands are those of the blocks marked sh
"""

import glob
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.environ["WEFT_SOURCE"]
TMP = os.environ["WEFT_TMP"]
SUPPORT = os.path.join(SOURCE, "tests", "support")

# mpirun on hosts that are not there: two ranks here. srun and its like: what a job sees.
STUBS = {
    "mpirun": """
ranks=2
while [ $# -gt 0 ]; do
    case $1 in
    -n) ranks=$2; shift 2 ;;
    --hostfile) [ -s "$2" ] || { echo "no hostfile $2"; exit 1; }; ranks=$(wc -l <"$2"); shift 2 ;;
    --map-by) shift 2 ;;
    --bind-to) shift 2 ;;
    -*) echo "mpirun: what is $1?"; exit 1 ;;
    *) break ;;
    esac
done
exec sh "$WEFT_SUPPORT/mpirun" "$ranks" "$@"
""",
    "sbatch": """
for option in --nodes --ntasks-per-node --cpus-per-task --time --signal=USR1 --requeue; do
    grep -q -e "^#SBATCH.*$option" "$1" || { echo "$1: no $option"; exit 1; }
done
export SLURM_JOB_ID=1 SLURM_CPUS_PER_TASK=1
exec bash "$1"
""",
    "srun": """
[ "$SRUN_CPUS_PER_TASK" = 1 ] || { echo "SRUN_CPUS_PER_TASK is not set"; exit 1; }
while [ "${1#--}" != "$1" ]; do shift; done
exec sh "$WEFT_SUPPORT/mpirun" 2 "$@"
""",
    "scontrol": "echo 'requeued without reason'; exit 1\n",
}


def shorter(script):
    """The same commands, for a test's time and two cores."""
    script = re.sub(r"--steps \d+", lambda m: "--steps " + ("14" if "1200" in m[0] else "10"),
                    script)
    script = re.sub(r"--(eval|save)-every \d+", r"--\1-every 5", script)
    script = re.sub(r"--threads \d+", "--threads 1", script)
    return script.replace("C=192,T=128", "C=32,T=32").replace("L=4,H=4", "L=2,H=2")


def form(line):
    """The line without its numbers and times."""
    return re.sub(r"\d[\d.]*(e[-+]\d+|[dhms](\d+[hms])*\b)?", "0", line)


def commands_run(page, text):
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    folder = os.path.join(TMP, page)
    texts = os.path.join(folder, "my-texts")
    os.makedirs(texts)
    for path in glob.glob(os.path.join(SOURCE, "docs", "*.md")):
        shutil.copy(path, os.path.join(texts, os.path.basename(path) + ".txt"))
    if "tokenize" not in script:  # the page takes them for granted
        script = "weft tokenize --bytes --out tokens my-texts\n" + script
    if page == "TROUBLE.md":
        script = script.replace("weft info runs", "weft info tokens #")
    done = subprocess.run(["bash", "-eu", "-c", shorter(script)], cwd=folder,
                          capture_output=True, text=True, errors="replace", timeout=280, check=False,
                          env=dict(os.environ, PATH=f"{TMP}/bin:{os.environ['PATH']}",
                                   WEFT_SUPPORT=SUPPORT))
    printed = {form(line) for line in (done.stdout + done.stderr).splitlines()}
    shown = [line for block in re.findall(r"^```text\n(.*?)^```", text, re.M | re.S)
             for line in block.splitlines() if line.startswith("weft:")]
    for line in shown:
        if form(line) not in printed:
            print(f"FAILED: {page}: its commands print no line like '{line}'")
            return False
    if done.returncode != 0:
        print(f"FAILED: {page}: exit code {done.returncode}\n{done.stdout[-800:]}\n"
              f"{done.stderr[-2000:]}")
    return done.returncode == 0


def all_literals():
    """The texts of the program, adjacent literals joined, as they would be printed."""
    texts = []
    for path in glob.glob(os.path.join(SOURCE, "src", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as f:
            texts.append(re.sub(r'"\s*(?:PRI\w+\s*)?"', "", f.read()))
    return "\n".join(texts)


def messages_exist(page, text):
    literals = all_literals()
    found = re.findall(r"^\| `([^`]+)` \|", text, re.M)
    missing = [(m, part) for m in found for part in m.split("...")
               if part.strip() and part.strip() not in literals]
    for message, part in missing:
        print(f"FAILED: {page}: no message of the program has '{part}' (in '{message}')")
    return not missing and len(found) > 10


def links_lead_somewhere(page, text):
    bad = [link for link in re.findall(r"\]\(([\w./-]+)\)", text)
           if not os.path.exists(os.path.join(SOURCE, "docs", link))]
    if bad:
        print(f"FAILED: {page}: links to nothing: {bad}")
    return not bad


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(os.path.join(TMP, "bin"))
    os.symlink(os.environ["WEFT"], os.path.join(TMP, "bin", "weft"))
    for name, body in STUBS.items():
        path = os.path.join(TMP, "bin", name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/bash\n" + body.lstrip())
        os.chmod(path, 0o755)
    good = True
    for page in sys.argv[1:]:
        with open(os.path.join(SOURCE, "docs", page), encoding="utf-8") as f:
            text = f.read()
        good &= links_lead_somewhere(page, text)
        good &= commands_run(page, text)
        if page == "TROUBLE.md":
            good &= messages_exist(page, text)
        print(f"{page}: {'good' if good else 'not good'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
