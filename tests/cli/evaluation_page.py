#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Runs the commands of docs/EVALUATION.md as they stand there."""

import json
import os
import re
import shutil
import subprocess
import sys

TMP = os.environ["WEFT_TMP"]
SOURCE = os.environ["WEFT_SOURCE"]


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(f"{TMP}/bin")
    os.symlink(os.environ["WEFT"], f"{TMP}/bin/weft")
    with open(f"{TMP}/bin/mpirun", "w", encoding="ascii") as f:
        # mpirun -n P weft ...: the tests' own starts the launcher of the program's library.
        f.write(f'#!/bin/sh\nPATH=${{PATH#*:}}\nranks=$2\nshift 3\n'
                f'exec {SOURCE}/tests/support/mpirun "$ranks" "$WEFT" "$@"\n')
    os.chmod(f"{TMP}/bin/mpirun", 0o755)
    with open(f"{TMP}/book.txt", "w", encoding="ascii") as f:
        f.write("".join(f"In the beginning of part {i} there were {i * i} words; then more.\n"
                        for i in range(300)))
    with open(f"{TMP}/prompts.txt", "w", encoding="ascii") as f:
        f.write("In the\nthen\n")
    with open(f"{TMP}/prompts.jsonl", "w", encoding="ascii") as f:
        f.write('{"prompt": "In the"}\n')
    with open(f"{TMP}/questions.jsonl", "w", encoding="ascii") as f:
        question = {"ctx": "In the beginning of", "endings": ["part 7", "xqz[]"], "label": 0}
        f.write(json.dumps(question) + "\n")
    with open(f"{SOURCE}/docs/EVALUATION.md", encoding="utf-8") as f:
        blocks = re.findall(r"```sh\n(.*?)```", f.read(), re.S)
    commands = [c for b in blocks for c in b.replace("\\\n", "").splitlines()]
    path = f"{TMP}/bin:{os.environ['PATH']}"
    if len(commands) < 10:
        print(f"only {len(commands)} commands found")
        return 1
    for command in commands:
        if command.startswith("mpirun") and os.environ.get("WEFT_COMM") == "serial":
            continue
        r = subprocess.run(["sh", "-c", command], cwd=TMP, env={**os.environ, "PATH": path},
                           capture_output=True, check=False)
        print(f"$ {command}\n{r.stdout.decode(errors='replace')}", flush=True)
        silent = r.stdout == b"" and command.split()[1] in ("generate", "eval")
        if r.returncode != 0 or silent:
            print(f"exit code {r.returncode}\n{r.stderr.decode(errors='replace')}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
