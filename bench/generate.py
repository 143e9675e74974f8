#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokens a second of weft generate beside llama.cpp's, in turns, on the same GGUF file; or
beside what they would be without the cache.

    bench/generate.py --weft build/weft --gguf MODEL.gguf --llama FOLDER
                      [--tokens 128] [--threads 2] [--rounds 5] [--prompt-words 64]
    bench/generate.py --weft build/weft --gguf MODEL.gguf --recompute --prompt-words 256

FOLDER is where `npm i -E --omit=optional --ignore-scripts node-llama-cpp@3.21.1
@node-llama-cpp/linux-x64@3.21.1` was run. Both read the same prompt and write greedily with
their weights in fp32 and the same number of threads; a round is one run of each, and what is
told is the median of the rounds' ratios: other work on the machine hits both.

--recompute: a token without a cache would take the time of reading all that is before it, of
which the prompt is the least; with many rows a pass, as the prompt is read.
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
            "tokens": int(found[3]), "wrote_per_s": float(found[4])}


def time_llama(args, prompt):
    r = subprocess.run(["node", HERE / "llama.mjs", args.gguf, prompt, str(args.tokens),
                        str(args.threads)], check=True, stdout=subprocess.PIPE, text=True,
                       env={**os.environ, "LLAMA": args.llama})
    return json.loads(r.stdout.splitlines()[-1])


def write_prompt(path, words):
    some = "the light of the day and the dark of the night were".split()
    Path(path).write_text(" ".join(some[i % len(some)] for i in range(words)), encoding="ascii")


def beside_recomputing(args, prompt):
    ratios = []
    print("| round | tokens | reading them, s | one more with the cache, s | ratio |\n"
          "|---|---|---|---|---|")
    for i in range(args.rounds):
        found = time_weft(args, prompt)
        again = found["prompt_tokens"] / found["read_per_s"]
        ratios.append(again * found["wrote_per_s"])
        print(f"| {i + 1} | {found['prompt_tokens']} | {again:.3f} | {1 / found['wrote_per_s']:.4f} "
              f"| {ratios[-1]:.1f} |", flush=True)
    print(f"\nmedian: {statistics.median(ratios):.1f} times as fast as without a cache")


def beside_llama(args, prompt):
    ratios = {"read": [], "wrote": []}
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


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("weft", "gguf"):
        parser.add_argument(f"--{name}", required=True)
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument("--llama")
    other.add_argument("--recompute", action="store_true")
    for name, value in (("tokens", 128), ("threads", 2), ("rounds", 5), ("prompt-words", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prompt = f"{folder}/prompt.txt"
        write_prompt(prompt, args.prompt_words)
        (beside_recomputing if args.recompute else beside_llama)(args, prompt)
    return 0


if __name__ == "__main__":
    sys.exit(main())
