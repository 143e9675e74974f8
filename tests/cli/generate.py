#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""weft generate: one prompt and many, streaming, stop strings, JSON, errors."""

import json
import os
import shutil
import subprocess
import sys

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
bad = []


def check(right, what):
    if not right:
        bad.append(what)
        print("FAILED:", what)


def weft(*args, code=0):
    r = subprocess.run([WEFT, *args], capture_output=True, check=False)
    check(r.returncode == code, f"weft {' '.join(args)}: exit code {r.returncode}, needs "
                                f"{code}: {r.stderr.decode(errors='replace')}")
    return r


def generate(*args, code=0):
    return weft("generate", "--model", f"{TMP}/run", *args, code=code)


def error(*args, code=2, needles=()):
    r = generate(*args, code=code)
    lines = r.stderr.decode().splitlines()
    check(len(lines) == 1, f"{args}: {len(lines)} lines: {lines}")
    for needle in needles:
        check(needle in lines[0], f"{args}: no '{needle}' in {lines[0]}")
    check(r.stdout == b"", f"{args}: output {r.stdout}")


def make_run():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(TMP)
    # Characters of one to four bytes, so that most tokens of --bytes are parts of one.
    text = "".join(f"Zeile {i}: äöü € und 😀, dann {i * i}\n" for i in range(600))
    with open(f"{TMP}/text", "w", encoding="utf-8") as f:
        f.write(text)
    weft("tokenize", "--bytes", "--quiet", "--out", f"{TMP}/tokens", f"{TMP}/text")
    weft("train", "--quiet", "--data", f"{TMP}/tokens", "--model", "L=2,H=2,C=32,T=64",
         "--batch", "8", "--steps", "120", "--lr", "1e-2", "--threads", "2", "--out",
         f"{TMP}/run")


def lines_of(r):
    return [json.loads(line) for line in r.stdout.decode().splitlines()]


def test_threads_and_batch():
    """The same text for any number of threads, beyond the context too; another seed makes
    another text."""
    draws = ["--prompt", "Zeile 1", "--max-tokens", "150", "--temperature", "0.9", "--top-k",
             "40", "--top-p", "0.95", "--repetition-penalty", "1.1"]
    texts = {generate(*draws, "--threads", n).stdout for n in ("1", "2", "3")}
    check(len(texts) == 1, "texts differ with the number of threads")
    check(generate(*draws).stdout in texts, "the default number of threads: another text")
    check(generate(*draws, "--seed", "2").stdout not in texts, "another seed, same text")
    with open(f"{TMP}/prompts", "w", encoding="utf-8") as f:
        f.write("Zeile 1\n\nZeile 22: äö\r\n" + "x" * 200 + "\nZeile 4")
    batches = [generate("--prompts", f"{TMP}/prompts", "--json", "--max-tokens", "70",
                        "--batch", n) for n in ("1", "2", "8")]
    check(len({b.stdout for b in batches}) == 1, "texts differ with the batch")
    found = lines_of(batches[0])
    check([x["prompt"] for x in found] == ["Zeile 1", "Zeile 22: äö", "x" * 200, "Zeile 4"],
          "prompts in their order")
    check(all(x["tokens"] == 70 and x["end"] == "length" for x in found), "70 tokens each")
    check(found[2]["prompt_tokens"] == 200, "tokens of a prompt")
    alone = lines_of(generate("--prompt", "Zeile 1", "--json", "--max-tokens", "70"))
    check(alone == found[:1], "the first of many is the same alone")
    plain = generate("--prompts", f"{TMP}/prompts", "--max-tokens", "5").stdout
    check(plain.count(b"\n---\n") == 3 and plain.startswith(b"Zeile 1"), "plain: separated")


def test_jsonl():
    with open(f"{TMP}/p.jsonl", "w", encoding="utf-8") as f:
        for prompt in ("Zeile 3:", 'a "quoted"\nline', "ä"):
            f.write(json.dumps({"prompt": prompt, "id": 7}) + "\n")
    found = lines_of(generate("--prompts", f"{TMP}/p.jsonl", "--json", "--max-tokens", "3"))
    check([x["prompt"] for x in found] == ["Zeile 3:", 'a "quoted"\nline', "ä"], "jsonl")
    for name, content, needle in (("bad.jsonl", '{"prompt": "a"}\n{"prompt": 3}\n', ":2"),
                                  ("cut.jsonl", '{"prompt": "a"', ":1"),
                                  ("none.jsonl", "\n\n", "no prompt")):
        with open(f"{TMP}/{name}", "w", encoding="utf-8") as f:
            f.write(content)
        error("--prompts", f"{TMP}/{name}", code=1, needles=(name, needle))


def test_stream():
    """Streaming writes the same bytes, and never a part of a character."""
    args = ["--prompt", "Zeile 5: ä", "--max-tokens", "120", "--temperature", "0.3"]
    whole = generate(*args).stdout
    with subprocess.Popen([WEFT, "generate", "--model", f"{TMP}/run", *args, "--stream"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as p:
        pieces = []
        while piece := os.read(p.stdout.fileno(), 1 << 16):
            pieces.append(piece)
    check(b"".join(pieces) == whole, "streamed bytes differ")
    check("\N{EURO SIGN}" in whole.decode(errors="replace"), "the model writes characters")
    for piece in pieces[:-1]:
        try:
            piece.decode()
        except UnicodeDecodeError as e:
            # What is no character at all may pass, a beginning of one may not end a piece.
            check(e.reason != "unexpected end of data", f"a part of a character: {piece}")
    error("--stream", "--prompts", f"{TMP}/prompts", needles=("--stream", "--prompts"))
    error("--stream", "--json", needles=("--stream", "--json"))


def test_stop():
    args = ["--prompt", "Zeile 7", "--max-tokens", "200", "--temperature", "0", "--json"]
    text = lines_of(generate(*args))[0]["text"]
    middle = text[20:26]
    found = lines_of(generate(*args, "--stop", "not there at all", "--stop", middle))[0]
    check(found["text"] == text[:text.index(middle)], f"stopped: {found['text']!r}")
    check(found["end"] == "stop", f"end: {found['end']}")
    check(found["tokens"] < 200, "stopped early")
    error("--stop", "", needles=("--stop",))
    error(*(["--stop", "a"] * 17), needles=("--stop", "16"))


def test_penalty():
    args = ["--prompt", "a", "--max-tokens", "60", "--temperature", "0"]
    plain = generate(*args).stdout[:-1]
    many = generate(*args, "--repetition-penalty", "5").stdout[:-1]
    check(len(set(many)) > 1.1 * len(set(plain)),
          f"{len(set(many))} different bytes with a penalty, {len(set(plain))} without")


def test_rest():
    r = generate("--max-tokens", "0", "--prompt", "abc")
    check(r.stdout == b"abc\n", f"no tokens: {r.stdout}")
    check(b"tokens/s" in r.stderr, "speed is shown")
    check(generate("--quiet", "--max-tokens", "2").stderr == b"", "--quiet")
    with open(f"{TMP}/one", "wb") as f:
        f.write(b"Zeile 1\n\xff\n")
    r = generate("--prompt-file", f"{TMP}/one", "--max-tokens", "1")
    check(r.stdout.startswith(b"Zeile 1\n\xff\n"), "the bytes of a prompt file are kept")
    error("--prompt", "a", "--prompts", "x", needles=("--prompt:", "--prompts"))
    error("--batch", "0", needles=("--batch",))
    error("--repetition-penalty", "0", needles=("--repetition-penalty",))
    error("--prompts", f"{TMP}/nowhere", code=1, needles=("nowhere",))


def main():
    make_run()
    for test in (test_threads_and_batch, test_jsonl, test_stream, test_stop, test_penalty,
                 test_rest):
        test()
    print(f"{len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
