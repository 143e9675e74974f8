#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""weft eval: one number whatever computes it, texts and shards, questions, errors."""

import array
import json
import math
import os
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from token_shard import read_tokens  # noqa: E402

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
MPIRUN = os.path.join(os.environ["WEFT_SOURCE"], "tests/support/mpirun")
HAS_MPI = os.environ.get("WEFT_COMM") != "serial"
bad = []


def check(right, what):
    if not right:
        bad.append(what)
        print("FAILED:", what)


def weft(*args, ranks=1, code=0):
    start = [MPIRUN, str(ranks)] if ranks > 1 else []
    r = subprocess.run([*start, WEFT, *args], capture_output=True, check=False)
    check(r.returncode == code, f"weft {' '.join(args)} on {ranks}: exit code {r.returncode}, "
                                f"needs {code}: {r.stderr.decode(errors='replace')}")
    return r


def evaluate(*args, ranks=1):
    r = weft("eval", "--model", f"{TMP}/run", "--json", "--quiet", *args, ranks=ranks)
    # Workers that share cores are warned of.
    check(b"eval " not in r.stderr and b"error" not in r.stderr, f"{args}: {r.stderr}")
    return json.loads(r.stdout)


def error(*args, code, needles, ranks=1, absent=None):
    r = weft("eval", *args, ranks=ranks, code=code)
    lines = [line for line in r.stderr.decode().splitlines() if "error" in line]
    check(len(lines) == 1, f"{args}: {len(lines)} error lines: {lines}")
    for needle in needles:
        check(needle in lines[0], f"{args}: no '{needle}' in {lines[0]}")
    check(not absent or absent not in lines[0], f"{args}: '{absent}' in {lines[0]}")
    check(r.stdout == b"", f"{args}: output {r.stdout}")


def write(name, content):
    with open(f"{TMP}/{name}", "wb") as f:
        f.write(content)
    return f"{TMP}/{name}"


def write_shard(name, ids):
    head = array.array("i", [20240520, 1, len(ids)] + [0] * 253)
    return write(name, head.tobytes() + array.array("H", list(ids)).tobytes())


def make_run():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(TMP)
    text = "".join(f"{i} times {i + 3} is {i * (i + 3)}.\n" for i in range(1500))
    write("text", text.encode())
    weft("tokenize", "--bytes", "--quiet", "--out", f"{TMP}/tokens", f"{TMP}/text")
    weft("train", "--quiet", "--data", f"{TMP}/tokens", "--model", "L=2,H=2,C=32,T=48",
         "--batch", "8", "--steps", "100", "--lr", "1e-2", "--threads", "2", "--out",
         f"{TMP}/run")


def test_one_number():
    """The same to the last digit for any ranks, batch and threads."""
    for args in ([], ["--stride", "11"], ["--seq", "31"]):
        seen = []
        for ranks, batch, threads in ((1, 8, 2), (1, 1, 1), (1, 5, 3), (2, 3, 1), (4, 2, 1)):
            if ranks > 1 and not HAS_MPI:
                continue
            found = evaluate("--data", f"{TMP}/tokens", "--batch", str(batch), "--threads",
                             str(threads), *args, ranks=ranks)["data"]
            del found["tokens_per_s"]
            seen.append(found)
        check(all(s == seen[0] for s in seen), f"{args}: {seen}")
        check(abs(math.log(seen[0]["perplexity"]) - seen[0]["loss"]) < 1e-9, "perplexity")


def test_streams():
    """Every token of every file but its first, ends of no full context too; a text is what
    its tokens are."""
    with open(f"{TMP}/text", "rb") as f:
        text = f.read()[:700]
    from_text = evaluate("--data", write("part.txt", text))["data"]
    from_ids = evaluate("--data", write_shard("part.bin", text))["data"]
    check(from_text["tokens"] == len(text) - 1, f"tokens: {from_text}")
    check(from_text["loss"] == from_ids["loss"], "a text is what its tokens are")
    os.makedirs(f"{TMP}/several")
    pieces = [text[:100], text[100:101], text[101:350], text[350:]]
    for i, piece in enumerate(pieces):
        write_shard(f"several/p_val_{i:06d}.bin", piece)
    several = evaluate("--data", f"{TMP}/several")["data"]
    apart = [evaluate("--data", f"{TMP}/several/p_val_{i:06d}.bin")["data"]
             for i in (0, 2, 3)]
    check(several["tokens"] == sum(a["tokens"] for a in apart) == len(text) - 4, "tokens")
    mean = sum(a["loss"] * a["tokens"] for a in apart) / several["tokens"]
    check(abs(several["loss"] - mean) < 1e-9, f"{several['loss']} of all, {mean} of each")
    tail = read_tokens(f"{TMP}/several/p_val_000003.bin")
    check(bytes(tail.tolist()) == pieces[3], "the shard of the test itself")


def ids_of(example):
    words = [65535, 0, 0, example["label"], len(example["endings"]), len(example["ctx"]),
             *example["ctx"].encode()]
    for ending in example["endings"]:
        words += [len(ending) + 1, *(" " + ending).encode()]
    words[1] = 2 * len(words)
    return words


def llmc_file(examples):
    head = array.array("i", [20240522, 1, len(examples), 0] + [0] * 252)
    words = array.array("H", [w for e in examples for w in ids_of(e)])
    return head.tobytes() + words.tobytes()


def test_questions():
    examples = []
    for i in range(23):
        right = f"is {7 * i}."
        wrong = ["q{}[Zq", "@@@@@@@@@@ @@@ ~~~", "~^~^"]
        examples.append({"ctx": f"7 times {i}", "label": i % 4,
                         "endings": wrong[:i % 4] + [right] + wrong[i % 4:]})
    examples.append({"ctx": "x" * 90, "endings": ["is 1.", "~~~"], "label": 0})
    lines = write("q.jsonl", "".join(json.dumps(e) + "\n" for e in examples).encode())
    found = evaluate("--multiple-choice", lines)["multiple_choice"]
    check(found["examples"] == 24 and found["contexts_cut"] == 1, f"{found}")
    check(found["accuracy_normalised"] > 0.9, f"a question that is easy: {found}")
    short = [{"ctx": "7 times 8", "endings": ["~", "is 56."], "label": "1"}]
    other = evaluate("--multiple-choice", write("s.jsonl", json.dumps(short[0]).encode()))
    check(other["multiple_choice"]["accuracy_normalised"] == 1, f"normalised: {other}")
    binary = write("q.bin", llmc_file(examples))
    for ranks, batch in ((1, 8), (1, 1), (2, 3)):
        if ranks > 1 and not HAS_MPI:
            continue
        again = evaluate("--multiple-choice", binary, "--batch", str(batch), ranks=ranks)
        again = again["multiple_choice"]
        again["path"] = lines
        check(again == found, f"llm.c's file, {ranks} ranks, batch {batch}: {again} {found}")
    text = weft("eval", "--model", f"{TMP}/run", "--multiple-choice", lines, "--data",
                f"{TMP}/tokens").stdout.decode()
    for word in ("loss", "perplexity", "accuracy", "normalised accuracy", "examples"):
        check(f"\n{word} " in text, f"no {word} in the table")


def test_names():
    """Files may be called anything; JSON is UTF-8 all the same."""
    model = os.fsdecode(os.fsencode(TMP) + b"/l\xe4ufe")
    os.symlink(f"{TMP}/run", model)
    text = write(os.fsdecode(b"t\xffxt"), b"7 times 8 is 56.")
    found = json.loads(weft("eval", "--json", "--model", model, "--data", text).stdout)
    check("/l\ufffdufe" in found["model"] and found["data"]["path"].endswith("/t\ufffdxt"),
          f"names in {found}")


def test_bad_questions():
    good = {"ctx": "ab", "endings": ["c", "d"], "label": 1}
    run = ["--model", f"{TMP}/run", "--multiple-choice"]
    for name, change, *needles in (("label", {"label": 2}, "label 2", "0 to 1"),
                                   ("word", {"label": "x"}, 'label "x"', "0 to 1"),
                                   ("tail", {"label": "1x"}, 'label "1x"', "0 to 1"),
                                   ("minus", {"label": -1}, "label -1", "0 to 1"),
                                   ("huge", {"label": 2**63 - 1}, f"label {2**63 - 1}", "0 to 1"),
                                   ("null", {"label": None}, "label null", "0 to 1"),
                                   ("text", {"ctx": 3}, "ctx"),
                                   ("none", {"endings": []}, "0 endings", "2 to 16"),
                                   ("most", {"endings": ["a"] * 17}, "2 to 16"),
                                   ("kinds", {"endings": ["a", 1]}, "endings"),
                                   ("empty", {"ctx": ""}, "without tokens")):
        path = write(f"{name}.jsonl", "\n\n".join(json.dumps(e) for e in
                                                  (good, {**good, **change})).encode())
        error(*run, path, code=1, needles=(path, "line 3", *needles),
              ranks=2 if HAS_MPI and name == "label" else 1)
    path = write("long.jsonl", json.dumps({**good, "endings": ["a", "b" * 99]}).encode())
    error(*run, path, code=1, needles=(path, "example 1", "100 tokens"))
    whole = llmc_file([good, good])
    for name, data, needle in (("cut.bin", whole[:-2], "ends within example 2"),
                               ("more.bin", whole + b"\0\0", "behind the last"),
                               ("head.bin", whole[:1000], "1000 bytes"),
                               ("bytes.bin", whole[:1026] + b"\1" + whole[1027:], "says"),
                               ("many.bin", whole[:1032] + b"\x11" + whole[1033:], "17"),
                               ("begins.bin", whole[:1024] + b"\0" + whole[1025:], "begins"),
                               ("label.bin", whole[:1030] + b"\2" + whole[1031:],
                                "example 1: found label 2, needs 0 to 1"),
                               ("count.bin", whole[:8] + b"\3" + whole[9:], "example 3"),
                               ("id.bin", whole[:1036] + b"\1\1" + whole[1038:], "id 257"),
                               ("empty.jsonl", b"\n", "no example"),
                               ("broken.jsonl", b"{", "not JSON")):
        path = write(name, data)
        error(*run, path, code=1, needles=(path, needle))


def test_errors():
    run = ["--model", f"{TMP}/run"]
    error(*run, code=2, needles=("--data", "--multiple-choice"), absent="--model")
    error(*run, "--data", f"{TMP}/nowhere", code=1, needles=("nowhere",))
    error(*run, "--data", write("one.txt", b"a"), code=1, needles=("one.txt", "two tokens"))
    error(*run, "--data", write_shard("id.bin", [1, 2, 257]), code=1, needles=("257",))
    error(*run, "--data", f"{TMP}/tokens", "--seq", "49", code=2, needles=("--seq: found 49", "48"),
          absent="--stride")
    error(*run, "--data", f"{TMP}/tokens", "--seq", "9", "--stride", "10", code=2,
          needles=("--stride: found 10", "9"), absent="--seq")
    error(*run, "--data", f"{TMP}/tokens", "--batch", "0", code=2, needles=("--batch",),
          absent="--threads")
    error("--model", f"{TMP}/none", "--data", f"{TMP}/tokens", code=1, needles=("none",),
          ranks=2 if HAS_MPI else 1)


def main():
    make_run()
    for test in (test_one_number, test_streams, test_questions, test_names, test_bad_questions,
                 test_errors):
        test()
    print(f"{len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
