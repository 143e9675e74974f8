#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weft tokenize as a person uses it: options, folders, errors, and what is left on the disk.

Needs WEFT (the program) and WEFT_TMP (a scratch folder). Works with --bytes and --char; what
needs GPT-2's merge table is left out with a note where it is not found (WEFT_VOCAB, or
vocab/vocab.bpe of the source).
"""
import fcntl
import gzip
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest
from pathlib import Path

WEFT = os.environ["WEFT"]
TMP = Path(os.environ["WEFT_TMP"])
VOCAB = Path(os.environ.get("WEFT_VOCAB") or
             Path(__file__).resolve().parents[2] / "vocab" / "vocab.bpe")


def weft(*args, code=0, limit=None):
    """Runs weft tokenize; returns the log. limit: bytes a file may have at most."""
    def tighten():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run([WEFT, "tokenize", *map(str, args)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120,
                          preexec_fn=tighten if limit else None, check=False)
    log = done.stderr.decode()
    if done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}, needs {code}: {log}")
    if done.stdout:
        raise AssertionError(f"stdout is for results: {done.stdout!r}")
    return log


def read_shard(path):
    data = path.read_bytes()
    magic, version, count = struct.unpack_from("<3i", data)
    size, letter = {(20240520, 1): (2, "H"), (20240801, 7): (4, "I")}[magic, version]
    assert len(data) == 1024 + size * count, path
    assert not any(data[12:1024]), path
    return list(struct.unpack_from(f"<{count}{letter}", data, 1024))


def read_split(folder, split, stem="text"):
    return [t for p in sorted(folder.glob(f"{stem}_{split}_*.bin")) for t in read_shard(p)]


def names(folder):
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def english(n, seed=1):
    rng = random.Random(seed)
    words = ["the", "of", "and", "light", "day", "was", "good,", "it's", "Gen1:1", "naïve", "—",
             "in", "  ", "\n", "waters.\n\n", "2024", "😀"]
    text = []
    size = 0
    while size < n:
        text.append(rng.choice(words))
        size += len(text[-1].encode()) + 1
    return " ".join(text).encode()


def zstd(data):
    """One frame of blocks that are not compressed: no program is needed to make it."""
    out = struct.pack("<IBB", 0xFD2FB528, 0, 0x38)  # window of 128 KiB
    blocks = [data[i:i + 100_000] for i in range(0, len(data), 100_000)] or [b""]
    for i, block in enumerate(blocks):
        out += struct.pack("<I", (len(block) << 3) | (i == len(blocks) - 1))[:3] + block
    return out


class Tokenize(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(TMP, ignore_errors=True)
        TMP.mkdir(parents=True)
        self.out = TMP / "out"

    def tearDown(self):
        shutil.rmtree(TMP, ignore_errors=True)

    def file(self, name, data):
        path = TMP / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def meta(self):
        return json.loads((self.out / "tokens.json").read_text())

    def fails(self, code, pattern, *args, **kwargs):
        log = weft(*args, code=code, **kwargs)
        lines = [line for line in log.splitlines() if "error:" in line]
        self.assertEqual(len(lines), 1, log)
        self.assertRegex(lines[0], pattern)
        return log

    # Options ------------------------------------------------------------------------

    def test_usage(self):
        text = self.file("a.txt", b"some text\n")
        for pattern, args in [
                ("needs text files", ["--bytes", "--out", self.out]),
                ("needs --out", ["--bytes", text]),
                ("found 0 of --vocab", ["--out", self.out, text]),
                ("found 2 of --vocab", ["--bytes", "--char", "--out", self.out, text]),
                ("--val-fraction: found 1,", ["--bytes", "--val-fraction", "1", "--out", self.out, text]),
                ("--val-fraction: found -0.1,", ["--bytes", "--val-fraction=-0.1", "--out", self.out, text]),
                ("val-fraction: found 'x'", ["--bytes", "--val-fraction", "x", "--out", self.out, text]),
                ("--shard-tokens: found 0", ["--bytes", "--shard-tokens", "0", "--out", self.out, text]),
                ("--shard-tokens", ["--bytes", "--shard-tokens", "4G", "--out", self.out, text]),
                ("--threads", ["--bytes", "--threads", "100000", "--out", self.out, text]),
                ("--name", ["--bytes", "--name", "a/b", "--out", self.out, text]),
                ("--name", ["--bytes", "--name", "x_train_y", "--out", self.out, text]),
                ("--name", ["--bytes", "--name", "", "--out", self.out, text]),
                ("did you mean '--bytes'", ["--byte5", "--out", self.out, text])]:
            with self.subTest(pattern):
                self.fails(2, pattern, *args)
        self.assertEqual(names(self.out), [])

    def test_help(self):
        done = subprocess.run([WEFT, "tokenize", "--help"], stdout=subprocess.PIPE, check=True)
        for option in ["--vocab", "--char", "--bytes", "--val-fraction", "--shard-tokens", "--threads",
                       "--field", "--allow-special", "--name", "--force", "--quiet", "--out"]:
            self.assertIn(option, done.stdout.decode())

    def test_quiet(self):
        text = self.file("a.txt", b"some text\n")
        self.assertEqual(weft("--bytes", "--quiet", "--out", self.out, text), "")

    # Documents ----------------------------------------------------------------------

    def test_bytes_of_one_file(self):
        data = english(5000)
        weft("--bytes", "--val-fraction", "0", "--out", self.out, self.file("a.txt", data))
        self.assertEqual(names(self.out), ["text_train_000001.bin", "tokens.json"])
        self.assertEqual(bytes(read_split(self.out, "train")), data)
        self.assertTrue((self.out / "tokens.json").read_text().endswith("}\n"))
        meta = self.meta()
        self.assertEqual([meta[k] for k in ("format", "version", "kind", "vocab", "end_of_text",
                                            "train_tokens", "val_tokens", "documents", "text_bytes")],
                         ["weft-tokens", 1, "bytes", 257, 256, len(data), 0, 1, len(data)])
        self.assertRegex(meta["text_xxh3"], "^[0-9a-f]{16}$")

    def test_folders_in_order_of_names(self):
        self.file("in/b.txt", b"second")
        self.file("in/a/z.txt", b"first")
        self.file("in/c/d/e.txt", b"third")
        self.file("in/.hidden", b"no")
        last = self.file("0.txt", b"last")
        weft("--bytes", "--val-fraction", "0", "--out", self.out, TMP / "in", last)
        want = [*b"first", 256, *b"second", 256, *b"third", 256, *b"last"]
        self.assertEqual(read_split(self.out, "train"), want)
        self.assertEqual(self.meta()["documents"], 4)

    def test_empty_files_are_left_out(self):
        files = [self.file(f"{i}.txt", b"" if i in (0, 2, 4) else b"x%d" % i) for i in range(5)]
        log = weft("--bytes", "--val-fraction", "0", "--out", self.out, *files)
        self.assertIn("warning: 3 empty files left out: %s, %s, %s\n" % tuple(files[::2]), log)
        self.assertEqual(read_split(self.out, "train"), [*b"x1", 256, *b"x3"])
        more = [self.file(f"more{i}.txt", b"") for i in range(2)]
        log = weft("--bytes", "--force", "--out", self.out, *files, *more)
        self.assertIn("5 empty files left out: %s, %s, %s and 2 more\n" % tuple(files[::2]), log)

    def test_links_below_a_folder(self):
        self.file("in/a.txt", b"first")
        (TMP / "in" / "b.txt").symlink_to("a.txt")
        (TMP / "in" / "nothing").symlink_to("nowhere")
        (TMP / "in" / "circle").symlink_to(".")
        log = weft("--bytes", "--val-fraction", "0", "--out", self.out, f"{TMP}/in/")
        self.assertEqual(read_split(self.out, "train"), [*b"first", 256, *b"first"])
        self.assertIn(f"{TMP}/in/nothing: left out, a link that leads nowhere", log)
        self.assertIn(f"{TMP}/in/circle: left out, a link to a folder", log)
        self.assertEqual(log.count("left out"), 2)

    def test_no_text_at_all(self):
        (TMP / "folder").mkdir()
        self.fails(1, "empty.txt: found no text in 1 file", "--bytes", "--out", self.out,
                   self.file("empty.txt", b""))
        self.fails(1, "folder: found no text in 0 files", "--bytes", "--out", self.out, TMP / "folder")
        self.assertEqual(names(self.out), [])

    def test_every_byte_survives(self):
        data = bytes(range(256)) * 3 + b"one\r\ntwo\r\n\0"
        weft("--bytes", "--val-fraction", "0", "--out", self.out, self.file("a.bin", data))
        self.assertEqual(bytes(read_split(self.out, "train")), data)

    # Validation ---------------------------------------------------------------------

    def test_the_last_part_is_for_validation(self):
        data = english(50000)
        weft("--bytes", "--val-fraction", "0.2", "--out", self.out, self.file("a.txt", data))
        train, val = bytes(read_split(self.out, "train")), bytes(read_split(self.out, "val"))
        self.assertEqual(train + val, data)
        self.assertLessEqual(len(val), 10000)
        self.assertGreater(len(val), 9900)
        self.assertIn(val[:1], b" \n")
        self.assertEqual(names(self.out), ["text_train_000001.bin", "text_val_000000.bin", "tokens.json"])
        self.assertEqual(self.meta()["val_tokens"], len(val))

    def test_validation_over_documents(self):
        files = [self.file(f"{i}.txt", b"%d23 567 90" % i) for i in range(4)]  # 40 bytes in all
        for fraction, train, val in [
                ("0.5", [0, 1], [2, 3]),          # between two documents
                ("0.25", [0, 1, 2], [3])]:
            weft("--bytes", "--val-fraction", fraction, "--force", "--out", self.out, *files)
            for split, documents in (("train", train), ("val", val)):
                want = []
                for i in documents:
                    want += ([256] if want else []) + [*b"%d23 567 90" % i]
                self.assertEqual(read_split(self.out, split), want)
        # The last 27 bytes begin at byte 3 of document 1, which is a good place.
        weft("--bytes", "--val-fraction", "0.68", "--force", "--out", self.out, *files)
        self.assertEqual(read_split(self.out, "train"), [*b"023 567 90", 256, *b"123"])
        self.assertEqual(read_split(self.out, "val"), [*b" 567 90", 256, *b"223 567 90", 256, *b"323 567 90"])

    def test_no_place_to_cut(self):
        log = weft("--bytes", "--out", self.out, self.file("a.txt", b"x" * 5000))
        self.assertIn("warning: no validation shard", log)
        self.assertEqual(names(self.out), ["text_train_000001.bin", "tokens.json"])

    def test_a_long_word_around_the_cut(self):
        data = b"a b " + b"x" * 50000 + b" c d"
        weft("--bytes", "--val-fraction", "0.5", "--out", self.out, self.file("a.txt", data))
        self.assertEqual(bytes(read_split(self.out, "val")), b" c d")

    # Packed files and lines ---------------------------------------------------------

    def test_packed_files(self):
        a, b = english(1_500_000), english(300_000, 2)
        weft("--bytes", "--out", self.out, self.file("plain/a.txt", a), self.file("plain/b.txt", b))
        needed = {p.name: p.read_bytes() for p in self.out.glob("*.bin")}
        meta = self.meta()
        self.file("packed/a.txt.gz", gzip.compress(a[:700_000]) + gzip.compress(a[700_000:]))
        self.file("packed/b.txt.zst", zstd(b[:1000]) + zstd(b[1000:]))
        weft("--bytes", "--force", "--out", self.out, TMP / "packed")
        self.assertEqual({p.name: p.read_bytes() for p in self.out.glob("*.bin")}, needed)
        self.assertEqual(self.meta(), meta)

    def test_damaged_packed_files(self):
        text = english(300_000)
        for name, data in (("a.gz", gzip.compress(text)), ("a.zst", zstd(text))):
            spoilt = data[:100] + b"x" * 50 + data[150:] if name == "a.gz" else data[:7] + data[8:]
            for bad in (data[:-1], data[:len(data) // 2], data[:20], spoilt):
                with self.subTest(f"{name} {len(bad)}"):
                    self.fails(1, rf"{name}: near byte \d+: cannot be decompressed", "--bytes", "--out",
                               self.out, self.file(name, bad))
                    self.assertEqual(names(self.out), [])

    def lines(self, name, *rows):
        return self.file(name, b"".join(json.dumps(r, ensure_ascii=len(r) % 2 == 0).encode() + b"\n"
                                        for r in rows))

    def test_lines(self):
        documents = ["one two", "", "d\u00e9j\u00e0 \U0001f917 \0 vu", "x" * 3_000_000, "\n", "last"]
        rows = [{"id": i, "text": d, "more": {"text": "no"}} for i, d in enumerate(documents)]
        path = self.lines("in/a.jsonl", *rows)
        path.write_bytes(path.read_bytes() + b"\n  \n" + b'{"text": "no line break"}')
        self.file("in/b.txt", b"a file")
        weft("--bytes", "--val-fraction", "0", "--out", self.out, TMP / "in")
        kept = [d for d in documents if d] + ["no line break", "a file"]
        needed = []
        for d in kept:
            needed += [256] * bool(needed) + list(d.encode())
        self.assertEqual(read_split(self.out, "train"), needed)
        meta = self.meta()
        self.assertEqual(meta["documents"], len(kept))
        self.assertEqual(meta["text_bytes"], sum(len(d.encode()) for d in kept))

    def test_lines_of_many_small_documents(self):
        rows = [{"body": f"document {i} é"} for i in range(20_000)]
        path = self.lines("a.jsonl", *rows)
        for name, data in (("b.jsonl.gz", gzip.compress(path.read_bytes())),
                           ("c.jsonl.zst", zstd(path.read_bytes()))):
            weft("--bytes", "--field", "body", "--force", "--threads", "3", "--out", self.out,
                 self.file(name, data))
            train, val = read_split(self.out, "train"), read_split(self.out, "val")
            found = bytes(0 if t == 256 else t for t in train + [256] + val).split(b"\0")
            self.assertEqual(found, [r["body"].encode() for r in rows])
            self.assertAlmostEqual(len(val) / (len(val) + len(train)), 0.1, delta=0.01)

    def test_bad_lines(self):
        good = b'{"text": "fine"}\n'
        for line, pattern in [(b'{"text": 7}', r"line 2: found no text in field \"text\""),
                              (b'{"txt": "x"}', r"line 2: found no field \"text\""),
                              (b'["x"]', r"line 2: found no object"),
                              (b'{"text": "x"', r"line 2: byte \d+: "),
                              (b'{"text": "\xff"}', r"line 2: byte \d+: "),
                              (b'{"text": "\\ud800"}', r"line 2: byte \d+: "),
                              (b'{"text": "a", "text": "b"}', r"line 2: byte \d+: duplicate"),
                              (b'{"a":' * 5000, r"line 2: byte \d+: maximum parsing depth"),
                              (b'{"text": "a"} {}', r"line 2: byte \d+: ")]:
            with self.subTest(pattern):
                self.fails(1, r"a\.jsonl: " + pattern, "--bytes", "--out", self.out,
                           self.file("a.jsonl", good + line + b"\n"))
                self.assertEqual(names(self.out), [])
        self.fails(1, r"line 1: found more than 67108864 bytes", "--bytes", "--out", self.out,
                   self.file("a.jsonl", b'{"text": "' + b"a " * (33 << 20) + b'"}'))
        self.fails(1, r"a\.jsonl: line 2: found 0x.*UTF-8|line 2: byte", "--char", "--out", self.out,
                   self.file("a.jsonl", good + b'{"text": "\xc3"}\n'))

    # Going on -----------------------------------------------------------------------

    def unfinished(self, *args):
        """Kills a run behind its first note of progress."""
        done = 0
        command = [WEFT, "tokenize", *map(str, args), "--out", str(self.out)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
            while running.poll() is None and done < 1:
                done += len(list(self.out.glob(".*.progress")))
                time.sleep(0.01)
            running.kill()
        if running.returncode == 0:
            self.skipTest("this machine was done before it could be killed")
        self.assertEqual([n for n in names(self.out) if n.endswith(".bin")], [])

    def test_goes_on_after_it_was_killed(self):
        text = english(300_000)
        a = self.lines("a.jsonl", *[{"text": (text * 40).decode(), "n": i} for i in range(6)])
        b = self.file("b.txt.gz", gzip.compress(text * 40, 1))
        kind = ["--vocab", VOCAB] if VOCAB.exists() else ["--char"]
        args = [*kind, "--threads", "1", "--shard-tokens", "3000000", a, b]
        weft(*args, "--out", TMP / "whole")
        needed = {p.name: p.read_bytes() for p in (TMP / "whole").iterdir()}
        self.unfinished(*args)
        log = weft(*args, "--out", self.out)
        self.assertRegex(log, r"goes on behind the \d+ tokens of a run that was not finished")
        self.assertEqual({p.name: p.read_bytes() for p in self.out.iterdir()}, needed)

        # Another text or other options: from the beginning, and nothing is left of before.
        shutil.rmtree(self.out)
        self.unfinished(*args)
        b.write_bytes(gzip.compress(b"a few words"))
        small = [*kind, "--threads", "1", "--shard-tokens", "3000000", b]
        self.assertNotIn("goes on", weft(*small, "--out", self.out))
        self.assertEqual([n for n in names(self.out) if ".tmp" in n or n.startswith(".")], [])

    # Shards -------------------------------------------------------------------------

    def test_last_shard_is_shorter(self):
        data = english(40000)[:25000]
        log = weft("--bytes", "--val-fraction", "0", "--shard-tokens", "10000", "--out", self.out,
                   self.file("a.txt", data))
        self.assertEqual([len(read_shard(p)) for p in sorted(self.out.glob("*.bin"))], [10000, 10000, 5000])
        self.assertIn("done: 3 shards, last one 5,000 tokens", log.splitlines()[-1])
        self.assertIn("(100 %)", log)

    def test_name(self):
        weft("--bytes", "--name", "kjv", "--out", self.out, self.file("a.txt", english(3000)))
        self.assertEqual(names(self.out), ["kjv_train_000001.bin", "kjv_val_000000.bin", "tokens.json"])

    def test_threads_change_nothing(self):
        files = [self.file("a.txt", english(3_500_000)), self.file("b.txt", english(700_000, 2)),
                 self.file("c.txt", b"w" * 2_500_000), self.file("d.txt", english(100_000, 3))]
        kinds = [["--bytes"], ["--char"]] + ([["--vocab", VOCAB]] if VOCAB.exists() else [])
        for kind in kinds:
            results = []
            for threads in ("1", "2", "7"):
                weft(*kind, "--threads", threads, "--shard-tokens", "1000000", "--force", "--out", self.out,
                     *files)
                results.append({p.name: p.read_bytes() for p in self.out.iterdir()})
            self.assertEqual(results[0], results[1])
            self.assertEqual(results[0], results[2])
            self.assertGreater(len(results[0]), 3)

    # Characters ---------------------------------------------------------------------

    def test_characters(self):
        text = "bäb €\n😀 b"
        weft("--char", "--val-fraction", "0", "--out", self.out,
             self.file("a.txt", text.encode()), self.file("b.txt", b"c"))
        points = sorted(set(map(ord, text + "c")))
        meta = self.meta()
        self.assertEqual(meta["code_points"], points)
        self.assertEqual((meta["kind"], meta["vocab"], meta["end_of_text"]), ("char", len(points), None))
        self.assertEqual([chr(points[t]) for t in read_split(self.out, "train")], list(text + "c"))

    def test_characters_of_validation_have_ids_too(self):
        weft("--char", "--val-fraction", "0.5", "--out", self.out, self.file("a.txt", b"aaa aaa bbb zzz"))
        self.assertEqual(self.meta()["code_points"], [*map(ord, " abz")])

    def test_seventy_thousand_characters_make_32_bit_shards(self):
        text = "".join(chr(0x10000 + i) for i in range(70000))
        weft("--char", "--val-fraction", "0", "--out", self.out, self.file("a.txt", text.encode()))
        path = self.out / "text_train_000001.bin"
        self.assertEqual(struct.unpack_from("<3i", path.read_bytes()), (20240801, 7, 70000))
        self.assertEqual(read_shard(path), list(range(70000)))
        self.assertEqual(self.meta()["vocab"], 70000)
        # The trainer reads them.
        done = subprocess.run([WEFT, "train", "--data", self.out, "--model", "L=1,H=1,C=4,T=64", "--batch", "4",
                               "--steps", "2", "--order", "sequential", "--trace-data", "--threads", "1",
                               "--out", TMP / "run"], capture_output=True, text=True, check=True)
        self.assertIn("V=70000", done.stderr)
        self.assertIn("step 1 rank 0 row 3 first 448", done.stderr)

    def test_characters_need_utf8(self):
        good = self.file("a.txt", b"good " * 300000)
        bad = self.file("b.txt", b"x" * 1_200_000 + b"\xff")
        self.fails(1, r"b\.txt: byte 1200000: found 0xFF, --char needs UTF-8", "--char", "--out", self.out,
                   good, bad)
        self.assertEqual(names(self.out), [])

    # GPT-2 --------------------------------------------------------------------------

    def test_gpt2(self):
        if not VOCAB.exists():
            self.skipTest(f"no {VOCAB}; scripts/get-vocab fetches it")
        a = self.file("a.txt", b"A<|endoftext|>B")
        b = self.file("b.txt", b"Hello world")
        weft("--vocab", VOCAB, "--val-fraction", "0", "--out", self.out, a, b)
        self.assertEqual(read_split(self.out, "train"),
                         [32, 27, 91, 437, 1659, 5239, 91, 29, 33, 50256, 15496, 995])
        meta = self.meta()
        self.assertEqual((meta["kind"], meta["vocab"], meta["end_of_text"]), ("gpt2", 50257, 50256))
        self.assertEqual(meta["table_path"], str(VOCAB.resolve()))

    def test_special_tokens(self):
        mark = b"<|endoftext|>"
        texts = [b"one  " + mark + b"  two\n" + mark + mark + b"three" + mark, mark, b"<|endoftext|", b"end"]
        files = [self.file(f"{i}.txt", text) for i, text in enumerate(texts)]
        args = ["--bytes", "--val-fraction", "0", "--threads", "2", "--out", self.out, *files]
        weft(*args)
        self.assertEqual(read_split(self.out, "train").count(256), 3)
        weft(*args, "--allow-special", "--force")
        needed = []
        for i, text in enumerate(texts):
            needed += [256] * (i > 0)
            for k, part in enumerate(text.split(mark)):
                needed += [256] * (k > 0) + list(part)
        self.assertEqual(read_split(self.out, "train"), needed)
        # Wherever parts are cut.
        long = (b"a word " + mark + b"\n") * 200_000
        weft("--bytes", "--val-fraction", "0", "--allow-special", "--force", "--out", self.out,
             self.file("long.txt", long))
        self.assertEqual(len(read_split(self.out, "train")), len(long) - 12 * 200_000)
        self.fails(2, "--allow-special: found --char", "--char", "--allow-special", "--out", self.out,
                   files[0])

    def test_gpt2_keeps_every_byte(self):
        if not VOCAB.exists():
            self.skipTest(f"no {VOCAB}; scripts/get-vocab fetches it")
        rng = random.Random(5)
        data = english(300000) + rng.randbytes(300000) + b"cr\r\nlf\r\n\xe2\x82"
        weft("--vocab", VOCAB, "--val-fraction", "0.3", "--out", self.out, self.file("a.txt", data))
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        alphabet = {chr(c): c for c in printable}
        for i, c in enumerate(c for c in range(256) if c not in printable):
            alphabet[chr(256 + i)] = c
        order = [*printable, *(c for c in range(256) if c not in printable)]
        table = [bytes([c]) for c in order]
        for line in VOCAB.read_text(encoding="utf-8").split("\n")[1:50001]:
            table.append(bytes(alphabet[c] for c in line if c != " "))
        tokens = read_split(self.out, "train") + read_split(self.out, "val")
        self.assertEqual(b"".join(table[t] for t in tokens), data)

    def test_damaged_table(self):
        table = self.file("vocab.bpe", b"#version: 0.2\nh e\nhe\n")
        text = self.file("a.txt", b"hello")
        self.fails(1, r"vocab\.bpe:3: needs two tokens", "--vocab", table, "--out", self.out, text)
        self.file("vocab.bpe", b"#version: 0.2\nh e\n")
        self.fails(1, r"vocab\.bpe: found 1 merges, needs 50000", "--vocab", table, "--out", self.out, text)
        self.fails(1, r"none\.bpe: cannot open", "--vocab", TMP / "none.bpe", "--out", self.out, text)
        self.assertEqual(names(self.out), [])

    # What is there already ----------------------------------------------------------

    def test_nothing_is_replaced_unasked(self):
        text = self.file("a.txt", english(3000))
        weft("--bytes", "--shard-tokens", "500", "--out", self.out, text)
        before = {p.name: p.read_bytes() for p in self.out.iterdir()}
        self.assertEqual(len(before), 8)
        self.fails(2, "is there already; --force replaces it", "--bytes", "--out", self.out, text)
        self.assertEqual({p.name: p.read_bytes() for p in self.out.iterdir()}, before)
        # Fewer shards than before: none of the old ones stays.
        weft("--bytes", "--val-fraction", "0", "--force", "--out", self.out, text)
        self.assertEqual(names(self.out), ["text_train_000001.bin", "tokens.json"])

    def test_one_folder_one_text(self):
        text = self.file("a.txt", english(3000))
        weft("--bytes", "--name", "one", "--out", self.out, text)
        before = names(self.out)
        self.fails(2, "one_(train|val)_.*belongs to another text", "--bytes", "--name", "two", "--force",
                   "--out", self.out, text)
        self.assertEqual(names(self.out), before)

    def test_one_writer_at_a_time(self):
        text = self.file("a.txt", english(3000))
        self.out.mkdir()
        with open(self.out / ".lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.fails(2, "out: another weft tokenize is writing here", "--bytes", "--force", "--out",
                       self.out, text)
            self.assertEqual(names(self.out), [".lock"])
        # What a killed program left behind locks nobody out, and goes.
        weft("--bytes", "--out", self.out, text)
        self.assertEqual(names(self.out), ["text_train_000001.bin", "text_val_000000.bin", "tokens.json"])

    def test_many_writers_one_wins(self):
        texts = [self.file(f"{i}.txt", english(400_000, i)) for i in range(6)]
        running = [subprocess.Popen([WEFT, "tokenize", "--bytes", "--quiet", "--val-fraction", "0",
                                     "--threads", "1", "--out", self.out, text],
                                    stderr=subprocess.PIPE) for text in texts]
        codes = [(p.communicate(timeout=120), p.returncode)[1] for p in running]
        self.assertEqual(sorted(codes), [0, 2, 2, 2, 2, 2])
        won = texts[codes.index(0)]
        self.assertEqual(bytes(read_split(self.out, "train")), won.read_bytes())
        self.assertEqual(names(self.out), ["text_train_000001.bin", "tokens.json"])

    def test_closed_streams_get_no_data_file(self):
        data = english(6_000_000)
        text = self.file("a.txt", data)
        for closed, fd in (("2>&-", 2), ("<&- >&- 2>&-", 1)):
            shutil.rmtree(self.out, ignore_errors=True)
            command = f'exec "$0" tokenize --bytes --threads 1 --val-fraction 0 --out "$1" "$2" {closed}'
            with subprocess.Popen(["sh", "-c", command, WEFT, self.out, text]) as running:
                while running.poll() is None and not (self.out / ".lock").exists():
                    pass
                self.assertEqual(os.readlink(f"/proc/{running.pid}/fd/{fd}"), "/dev/null")
            self.assertEqual(running.returncode, 0)
            self.assertEqual(bytes(read_split(self.out, "train")), data)

    def test_other_files_in_the_folder_stay(self):
        text = self.file("out/input.txt", english(3000))
        self.file("out/notes_train_.bin", b"no shard")
        weft("--bytes", "--out", self.out, text)
        weft("--bytes", "--force", "--out", self.out, text)
        self.assertEqual(names(self.out), ["input.txt", "notes_train_.bin", "text_train_000001.bin",
                                           "text_val_000000.bin", "tokens.json"])

    # Failures -----------------------------------------------------------------------

    def test_unreadable_input(self):
        good = self.file("in/a.txt", english(3000))
        self.fails(1, r"none\.txt: cannot open", "--bytes", "--out", self.out, good, TMP / "none.txt")
        (TMP / "in" / "dangling").symlink_to("nowhere")
        self.fails(1, r"dangling: cannot open", "--bytes", "--out", self.out, TMP / "in" / "dangling")
        os.mkfifo(TMP / "in" / "pipe")
        self.fails(1, r"pipe: not a regular file", "--bytes", "--out", self.out, TMP / "in")
        self.assertEqual(names(self.out), [])

    def test_forbidden_input(self):
        secret = self.file("secret.txt", english(3000))
        secret.chmod(0)
        if os.access(secret, os.R_OK):
            self.skipTest("this user may read everything")
        self.fails(1, r"secret\.txt: cannot open: Permission denied", "--bytes", "--out", self.out, secret)

    def test_shards_are_no_text(self):
        weft("--bytes", "--out", self.out, self.file("a.txt", english(3000)))
        self.fails(1, "found a token shard, needs text", "--bytes", "--out", TMP / "again", self.out)
        self.assertEqual(names(TMP / "again"), [])

    def test_no_space_left(self):
        text = self.file("a.txt", english(2_000_000))
        for tokens in ("100000000", "15000"):
            with self.subTest(tokens):
                self.fails(1, r"text_(train|val)_.*\.tmp: cannot write", "--bytes", "--shard-tokens", tokens,
                           "--out", self.out, text, limit=30000)
                self.assertEqual(names(self.out), [])

    def test_no_space_left_keeps_what_was_there(self):
        weft("--bytes", "--out", self.out, self.file("a.txt", english(3000)))
        before = {p.name: p.read_bytes() for p in self.out.iterdir()}
        self.fails(1, "cannot write", "--bytes", "--force", "--out", self.out,
                   self.file("b.txt", english(2_000_000)), limit=30000)
        self.assertEqual({p.name: p.read_bytes() for p in self.out.iterdir()}, before)

    def test_output_that_cannot_be(self):
        text = self.file("a.txt", english(3000))
        self.fails(1, r"a\.txt.*(Not a directory|File exists)", "--bytes", "--out", text, text)
        self.fails(1, "cannot make folder", "--bytes", "--out", "/proc/none", text)


if __name__ == "__main__":
    if not VOCAB.exists():
        print(f"note: no {VOCAB}; what needs GPT-2's table is left out", file=sys.stderr)
    unittest.main()
