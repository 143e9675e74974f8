#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Runs the commands of docs/FORMATS.md as they stand there."""

import gzip
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys

TMP, SOURCE = os.environ["WEFT_TMP"], os.environ["WEFT_SOURCE"]


def make_inputs():
    text = "".join(f"In the beginning of part {i} there were {i * i} words.\n" for i in range(300))
    os.makedirs(f"{TMP}/more")
    for name in ("book.txt", "more/again.txt"):
        with open(f"{TMP}/{name}", "w", encoding="ascii") as f:
            f.write(text)
    with gzip.open(f"{TMP}/documents.jsonl.gz", "wt") as f:
        for line in text.splitlines():
            f.write(json.dumps({"body": line}) + "\n")
    chars = sorted(set(text))
    ids = [chars.index(c) for c in text]
    os.makedirs(f"{TMP}/nano")
    for name, part in (("train", ids[:9000]), ("val", ids[9000:])):
        with open(f"{TMP}/nano/{name}.bin", "wb") as f:
            f.write(struct.pack(f"<{len(part)}H", *part))
    with open(f"{TMP}/nano/meta.pkl", "wb") as f:
        pickle.dump({"vocab_size": len(chars), "itos": dict(enumerate(chars)),
                     "stoi": {c: i for i, c in enumerate(chars)}}, f)


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(f"{TMP}/bin")
    os.symlink(os.environ["WEFT"], f"{TMP}/bin/weft")
    make_inputs()
    with open(f"{SOURCE}/docs/FORMATS.md", encoding="utf-8") as f:
        blocks = re.findall(r"```sh\n(.*?)```", f.read(), re.S)
    commands = [c for b in blocks for c in b.splitlines()]
    if len(commands) < 14:
        print(f"only {len(commands)} commands found")
        return 1
    path = f"{TMP}/bin:{os.environ['PATH']}"
    for command in commands:
        r = subprocess.run(["sh", "-c", command], cwd=TMP, env={**os.environ, "PATH": path},
                           capture_output=True, check=False)
        print(f"$ {command}\n{r.stdout.decode(errors='replace')}", flush=True)
        if r.returncode != 0 or b"warning" in r.stderr:
            print(f"exit code {r.returncode}\n{r.stderr.decode(errors='replace')}")
            return 1
    shutil.rmtree(TMP)
    return 0


if __name__ == "__main__":
    sys.exit(main())
