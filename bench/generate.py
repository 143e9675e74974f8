#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokens a second of weft generate beside llama.cpp's, in turns, on the same GGUF file.

    bench/generate.py --weft build/weft --gguf MODEL.gguf --llama FOLDER
                      [--tokens 128] [--threads 2] [--rounds 5] [--prompt-words 64]

FOLDER is where `npm i -E --omit=optional --ignore-scripts node-llama-cpp@3.21.1
@node-llama-cpp/linux-x64@3.21.1` was run. Both read the same prompt and write greedily with
their weights in fp32 and the same number of threads; a round is one run of each, and what is
told is the median of the rounds' ratios: other work on the machine hits both.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPEED = re.compile(r"read (\d+) tokens in .* s, ([\d.]+) tokens/s; "
                   r"wrote (\d+) tokens in .* s, ([\d.]+) tokens/s")


def time_weft(args, prompt):
    r = subprocess.run([args.weft, "generate", "--model", args.gguf, "--prompt-file", prompt,
                        "--max-tokens", str(args.tokens), "--temperature", "0", "--threads",
                        str(args.threads)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, text=True)
    found = SPEED.search(r.stderr)
    if not found:
        sys.exit(f"generate.py: no speed in what weft said: {r.stderr}")
    return {"prompt_tokens": int(found[1]), "read_per_s": float(found[2]),
            "tokens": int(found[3]) + 1, "wrote_per_s": float(found[4])}


def time_llama(args, prompt):
    r = subprocess.run(["node", HERE / "llama.mjs", args.gguf, prompt, str(args.tokens),
                        str(args.threads)], check=True, stdout=subprocess.PIPE, text=True,
                       env={**os.environ, "LLAMA": args.llama})
    return json.loads(r.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weft", "gguf", "llama"):
        parser.add_argument(f"--{name}", required=True)
    for name, value in (("tokens", 128), ("threads", 2), ("rounds", 5), ("prompt-words", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    ratios = {"read": [], "wrote": []}
    with tempfile.TemporaryDirectory() as folder:
        prompt = f"{folder}/prompt.txt"
        words = "the light of the day and the dark of the night were".split()
        Path(prompt).write_text(" ".join(words[i % len(words)]
                                         for i in range(args.prompt_words)), encoding="ascii")
        print("| round | read: Weft | llama.cpp | ratio | wrote: Weft | llama.cpp | ratio |\n"
              "|---|---|---|---|---|---|---|")
        for i in range(args.rounds):
            order = (time_weft, time_llama) if i % 2 == 0 else (time_llama, time_weft)
            found = {f: f(args, prompt) for f in order}
            weft, llama = found[time_weft], found[time_llama]
            for key in ("prompt_tokens", "tokens"):
                if weft[key] != llama[key]:
                    sys.exit(f"generate.py: {key}: {weft[key]} of Weft, {llama[key]} of llama.cpp")
            row = [str(i + 1)]
            for what in ("read", "wrote"):
                pair = weft[f"{what}_per_s"], llama[f"{what}_per_s"]
                ratios[what].append(pair[0] / pair[1])
                row += [f"{pair[0]:.1f}", f"{pair[1]:.1f}", f"{pair[0] / pair[1]:.2f}"]
            print(f"| {' | '.join(row)} |", flush=True)
    print("\nmedian ratio to llama.cpp, tokens a second: "
          f"reading {statistics.median(ratios['read']):.2f}, "
          f"writing {statistics.median(ratios['wrote']):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
