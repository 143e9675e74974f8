#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weft's GPT-2 ids of a few hundred tricky strings against strings.json.

strings.json holds tiktoken's ids; tests/judge/tokenizer.sh --golden writes it anew. Each
string becomes a file, a folder of them one shard, cut again at the end-of-text ids. Needs
WEFT and WEFT_TMP, and a merge table in WEFT_VOCAB or vocab/vocab.bpe of the source; exits
with 77 without one.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

END_OF_TEXT = 50256


def main() -> int:
    here = Path(__file__).resolve().parent
    vocab = Path(os.environ.get("WEFT_VOCAB") or here.parents[2] / "vocab" / "vocab.bpe")
    if not vocab.exists():
        print(f"skipped: no {vocab}; scripts/get-vocab fetches it")
        return 77
    strings = json.loads((here / "strings.json").read_text())
    tmp = Path(os.environ["WEFT_TMP"])
    shutil.rmtree(tmp, ignore_errors=True)
    (tmp / "texts").mkdir(parents=True)
    for i, row in enumerate(strings):
        (tmp / "texts" / f"{i:04d}").write_bytes(row["text"].encode("utf-8"))
    subprocess.run(
        [os.environ["WEFT"], "tokenize", "--vocab", vocab, "--val-fraction", "0", "--quiet",
         "--out", tmp / "out", tmp / "texts"], check=True)
    shard = (tmp / "out" / "text_train_000001.bin").read_bytes()
    count = struct.unpack_from("<i", shard, 8)[0]
    found = [[]]
    for token in struct.unpack_from(f"<{count}H", shard, 1024):
        if token == END_OF_TEXT:
            found.append([])
        else:
            found[-1].append(token)
    if len(found) != len(strings):
        print(f"{len(found)} documents, needs {len(strings)}")
        return 1
    bad = 0
    for row, ids in zip(strings, found):
        if ids != row["ids"]:
            print(f"{row['text']!r}: {ids}, needs {row['ids']}")
            bad += 1
    print(f"{len(strings)} strings, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
