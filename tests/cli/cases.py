#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What went wrong for people with programs like this one, one test a case: data (D), text (T),
pathological text (P05). The case's letter and number stand in the test's name. D01 is in
tests/unit/data/test_shards.c, D10 and D14 are in tokenize_texts.py, T02 is in
tests/unit/data/test_tokenizer.c, test_text_out.c and generate.py, export (X) in formats.py and
../judge/exported.py.

Needs WEFT and WEFT_TMP; what needs GPT-2's table is skipped where there is none, and what needs
several ranks where the program has no MPI.
"""

import json
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import time
import unittest
from array import array

sys.dont_write_bytecode = True
WEFT, TMP, SOURCE = (os.environ[k] for k in ("WEFT", "WEFT_TMP", "WEFT_SOURCE"))
MPI = os.environ.get("WEFT_COMM") != "serial"
MPIRUN = os.path.join(SOURCE, "tests", "support", "mpirun")
VOCAB = os.environ.get("WEFT_VOCAB") or os.path.join(SOURCE, "vocab", "vocab.bpe")
TINY = "L=1,H=1,C=4,T=8"


def shard(path, ids):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253) + array("H", ids).tobytes())


def read_shard(path):
    with open(path, "rb") as f:
        data = f.read()
    return array("H", data[1024:]).tolist()


class Case(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(TMP, ignore_errors=True)
        os.makedirs(TMP)

    def tearDown(self):
        shutil.rmtree(TMP)

    def at(self, *parts):
        return os.path.join(TMP, *parts)

    def weft(self, *args, ranks=1, code=0, **how):
        if ranks > 1 and not MPI:
            self.skipTest("this program has no MPI")
        command = [MPIRUN, str(ranks), WEFT] if ranks > 1 else [WEFT]
        start = time.monotonic()
        r = subprocess.run([*command, *map(str, args)], capture_output=True, text=True, timeout=120,
                           **how)
        self.seconds = time.monotonic() - start
        self.assertEqual(r.returncode, code, r.stderr)
        return r

    def train(self, data, *args, out="run", model=TINY, **how):
        return self.weft("train", "--data", data, "--model", model, "--out", self.at(out), "--threads",
                         1, *args, **how)

    def losses(self, run):
        with open(self.at(run, "metrics.jsonl"), encoding="ascii") as f:
            return [m["loss"] for m in map(json.loads, f) if "loss" in m]

    def windows(self, log):
        """{step: sorted first tokens of all rows}"""
        out = {}
        for step, first in re.findall(r"trace-data step (\d+) rank \d+ row \d+ first (\d+)", log):
            out.setdefault(int(step), []).append(int(first))
        return {k: sorted(v) for k, v in sorted(out.items())}


class Data(Case):
    def test_d02_all_windows_once_an_epoch(self):
        shard(self.at("d", "x_train_000001.bin"), [i // 8 for i in range(193)])
        args = (self.at("d"), "--batch", 2, "--steps", 6, "--trace-data", "--seed", 1)
        model = TINY + ",V=64"
        logs = [self.windows(self.train(*args, out=f"r{k}", model=model, ranks=4).stderr)
                for k in range(2)]
        self.assertEqual(logs[0], logs[1])
        steps = list(logs[0].values())
        self.assertEqual(len(steps), 6)
        for epoch in (steps[:3], steps[3:]):
            self.assertEqual(sorted(x for s in epoch for x in s), list(range(24)))
        self.assertNotEqual(steps[:3], steps[3:])

    def test_d08_a_resume_does_not_repeat(self):
        shard(self.at("d", "x_train_000001.bin"), [i // 8 for i in range(193)])
        model = TINY + ",V=64"
        common = (self.at("d"), "--batch", 2, "--trace-data", "--seed", 1)
        whole = self.windows(self.train(*common, "--steps", 9, out="w", model=model, ranks=4).stderr)
        pieces = {}
        for steps in (3, 6, 9):
            part = self.windows(self.train(*common, "--steps", steps, out="p", model=model,
                                           ranks=4).stderr)
            self.assertEqual(len(part), 3)
            pieces.update(part)
        self.assertEqual(pieces, whole)

    def test_d03_d15_ends_of_shards_and_epochs(self):
        for n, steps in ((100, 1), (65, 1), (64, 0)):
            shard(self.at(f"d{n}", "x_train_000001.bin"), list(range(n)))
            args = (self.at(f"d{n}"), "--batch", 2, "--epochs", 1, "--order", "sequential")
            model = TINY + ",V=128"
            if steps == 0:
                r = self.train(*args, out=f"r{n}", model=model, ranks=4, code=1)
                self.assertRegex(r.stderr, r"64 tokens.* 65")
                continue
            r = self.train(*args, "--trace-data", out=f"r{n}", model=model, ranks=4)
            self.assertEqual(len(self.losses(f"r{n}")), steps)
            self.assertTrue(os.path.exists(self.at(f"r{n}", "checkpoints", "step-000001")))
            # Token i is i: the last of the rows reads up to token 64.
            self.assertEqual(self.windows(r.stderr), {0: list(range(0, 64, 8))})

    def test_d03_two_shards(self):
        """Twelve windows of the first shard, eight of the second; none reaches over the border, and
        all ranks go on to the second in the same step."""
        shard(self.at("d", "x_train_000001.bin"), list(range(100)))
        shard(self.at("d", "x_train_000002.bin"), list(range(65)))
        r = self.train(self.at("d"), "--batch", 2, "--epochs", 1, "--order", "sequential", "--trace-data",
                       model=TINY + ",V=128", ranks=4)
        self.assertEqual(self.windows(r.stderr),
                         {0: list(range(0, 64, 8)),
                          1: sorted([*range(64, 96, 8), *range(0, 32, 8)])})

    def test_d15_many_epochs(self):
        shard(self.at("d", "x_train_000001.bin"), list(range(65)))
        r = self.train(self.at("d"), "--batch", 2, "--steps", 10, model=TINY + ",V=128", ranks=4)
        self.assertEqual(len(self.losses("run")), 10)
        self.assertIn("10 steps = 10.00 epochs", r.stderr)
        self.assertEqual(len(re.findall(r"epoch \d+", r.stderr)), 9, r.stderr)

    def test_d04_fewer_questions_than_ranks(self):
        shard(self.at("d", "x_train_000001.bin"), list(range(200)))
        self.train(self.at("d"), "--batch", 2, "--steps", 1, model=TINY + ",V=256")
        words = array("H")
        for i in range(5):
            example = [i % 4, 4, 3, 11, 12, 13]
            for e in range(4):
                example += [2, 100 + e, 200 + e + i]
            words.extend([65535, 2 * (len(example) + 3), i] + example)
        with open(self.at("eval5.bin"), "wb") as f:
            f.write(struct.pack("<256i", 20240522, 1, 5, 42, *[0] * 252) + words.tobytes())
        found = [self.weft("eval", "--model", self.at("run"), "--multiple-choice", self.at("eval5.bin"),
                           "--threads", 1, "--json", "--quiet", ranks=ranks).stdout
                 for ranks in ((1, 4, 8) if MPI else (1,))]
        self.assertEqual(json.loads(found[0])["multiple_choice"]["examples"], 5)
        report = json.loads(self.weft("info", "--json", self.at("eval5.bin")).stdout)
        self.assertEqual((report["examples"], report["tokens"]), (5, 5 * 11))
        self.assertEqual(set(found), {found[0]})

    def test_d06_a_few_lines_of_text(self):
        tiny = self.at("d", "tiny50.bin")
        large = self.at("l", "x_train_000001.bin")
        shard(tiny, list(range(50)))
        shard(large, [i % 64 for i in range(2000)])
        model = "L=1,H=1,C=4,T=64,V=64"
        r = self.train(tiny, "--batch", 4, model=model, ranks=2, code=1)
        for word in (tiny, "50 tokens", "513", "--batch", "--seq"):
            self.assertIn(word, r.stderr)
        self.assertEqual(r.stderr.count("tiny50.bin"), 1)
        self.assertLess(self.seconds, 5)
        # For validation.
        r = self.train(large, "--val", tiny, "--batch", 4, "--eval-every", 1, "--steps", 1, model=model,
                       ranks=2, code=1)
        for word in (tiny, "50 tokens", "65", "--seq"):
            self.assertIn(word, r.stderr)
        self.assertEqual(r.stderr.count("tiny50.bin"), 1)
        # As the second of two.
        shutil.copy(tiny, self.at("l", "x_train_000002.bin"))
        r = self.train(self.at("l"), "--batch", 4, "--steps", 2, out="two", model=model, ranks=2)
        self.assertEqual(r.stderr.count("x_train_000002.bin"), 1)
        self.assertRegex(r.stderr, r"warning: .*x_train_000002\.bin")

    def test_d11_ids_outside_the_vocabulary(self):
        for bad in (50257, 50303, 65535):
            ids = [i % 5000 for i in range(2000)]
            ids[777] = bad
            path = self.at("d", f"vocab_{bad}.bin")
            shard(path, ids)
            r = self.train(path, "--batch", 2, "--order", "sequential", "--steps", 200, out=f"r{bad}",
                           model=TINY + ",V=50257", code=1)
            for word in (path, "token 777", str(bad), "50257"):
                self.assertIn(word, r.stderr)

    def test_nanogpt_files(self):
        """Headerless ids, with the character table as JSON, train and generate."""
        text = "".join(chr(97 + i * i % 7) for i in range(500)) + "\n"
        chars = sorted(set(text))
        ids = [chars.index(c) for c in text]
        meta = {"vocab_size": len(chars), "itos": {str(i): c for i, c in enumerate(chars)},
                "stoi": {c: i for i, c in enumerate(chars)}}
        os.makedirs(self.at("d"))
        for name, part in (("train", ids[:400]), ("val", ids[400:])):
            with open(self.at("d", name + ".bin"), "wb") as f:
                f.write(array("H", part).tobytes())
        with open(self.at("d", "meta.json"), "w", encoding="utf-8") as f:
            json.dump(meta, f)
        r = self.train(self.at("d"), "--batch", 2, "--steps", 3, "--eval-every", 2)
        self.assertIn(f"V={len(chars)},", r.stderr)
        self.assertIn("validation loss", r.stderr)
        report = json.loads(self.weft("info", "--json", self.at("d", "train.bin")).stdout)
        self.assertEqual((report["tokens"], report["bits"], report["vocab"]), (400, 16, len(chars)))
        report = json.loads(self.weft("info", "--json", self.at("d", "meta.json")).stdout)
        self.assertEqual((report["vocab_size"], report["itos"]), (len(chars), len(chars)))
        out = self.weft("generate", "--model", self.at("run"), "--prompt", "ab", "--max-tokens", 5).stdout
        self.assertTrue(set(out) <= set(text), out)
        # The same ids as a shard of llm.c give the same run.
        shard(self.at("s", "x_train_000001.bin"), ids[:400])
        self.train(self.at("s"), "--batch", 2, "--steps", 3, out="other",
                   model=f"{TINY},V={len(chars)}")
        self.assertEqual(self.losses("run"), self.losses("other"))

    def test_nanogpt_faults(self):
        os.makedirs(self.at("d"))
        for data, word in ((b"abc", "found 3 bytes, needs 16-bit ids"), (b"", "found 0 bytes")):
            with open(self.at("d", "train.bin"), "wb") as f:
                f.write(data)
            self.assertIn(word, self.train(self.at("d"), model=TINY + ",V=8", code=1).stderr)
        with open(self.at("d", "other.bin"), "wb") as f:
            f.write(b"ab" * 600)
        self.assertIn("train.bin and val.bin",
                      self.train(self.at("d", "other.bin"), model=TINY + ",V=8", code=1).stderr)
        with open(self.at("d", "train.bin"), "wb") as f:
            f.write(b"\1\0" * 600)
        for meta, word in ((b"{", "line 1"), (b'{"vocab_size":0,"itos":{}}', "vocab_size"),
                           (b'{"vocab_size":"x","stoi":{}}', "format")):
            with open(self.at("d", "meta.json"), "wb") as f:
                f.write(meta)
            self.assertIn(word, self.train(self.at("d"), code=1).stderr)
        # As the tokenizer of a model.
        shutil.copy(os.path.join(SOURCE, "tests", "golden", "tiny_a_model.bin"), self.at("m.bin"))
        for meta, word in (({"vocab_size": 2, "itos": {"0": "ab", "1": "c"}}, "one character"),
                           ({"vocab_size": 2, "itos": ["b", "a"]}, "ascending"),
                           ({"vocab_size": 3, "stoi": {"a": 0, "b": 1}}, "same number"),
                           ({"vocab_size": 2, "stoi": {"a": 0, "b": 0}}, "one character")):
            with open(self.at("tokens.json"), "w", encoding="ascii") as f:
                json.dump(meta, f)
            r = self.weft("generate", "--model", self.at("m.bin"), "--prompt", "a", code=1)
            self.assertIn(word, r.stderr)


@unittest.skipUnless(os.path.exists(VOCAB), f"no {VOCAB}; scripts/get-vocab fetches it")
class Text(Case):
    def ids(self, *texts, options=(), **how):
        names = [self.at(f"text{i}.txt") for i in range(len(texts))]
        for name, data in zip(names, texts):
            with open(name, "wb") as f:
                f.write(data)
        self.weft("tokenize", "--vocab", VOCAB, "--val-fraction", 0, "--threads", 1, "--force", "--out",
                  self.at("t"), *options, *names, **how)
        return read_shard(self.at("t", "text_train_000001.bin"))

    def test_info(self):
        report = json.loads(self.weft("info", "--json", VOCAB).stdout)
        self.assertEqual((report["vocab"], report["end_of_text"]), (50257, 50256))

    def test_t01_special_tokens(self):
        text = b"A<|endoftext|>B"
        plain = [32, 27, 91, 437, 1659, 5239, 91, 29, 33]
        self.assertEqual(self.ids(text), plain)
        self.assertEqual(self.ids(text, text), [*plain, 50256, *plain])
        special = ["--allow-special"]
        self.assertEqual(self.ids(text, options=special), [32, 50256, 33])
        self.assertEqual(self.ids(text, text, options=special), [32, 50256, 33, 50256, 32, 50256, 33])

    def test_p05_long_runs(self):
        def small_stack():
            resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, 8 << 20))

        for data, needed in ((b"^" * 1_000_000, [39397] * 250_000), (b"a" * 100_000, [24794] * 25_000),
                             (b" " * 100_000, [220] * 100_000)):
            start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            self.assertEqual(self.ids(data, preexec_fn=small_stack), needed)
            self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start, 2)

    def test_p05_time_is_linear(self):
        """A word of 20 MB in no more than 8 times the time of one of 5 MB."""
        seconds = []
        for n in (5_000_000, 20_000_000):
            word = bytes(97 + i * i * 31 % 997 % 26 for i in range(997))
            start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            self.assertGreater(len(self.ids((word * (n // 997 + 1))[:n])), n // 8)
            seconds.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start)
        self.assertLess(seconds[1], 8 * seconds[0], seconds)

    def test_p05_a_word_has_a_limit(self):
        with open(self.at("text.txt"), "wb") as f:
            f.write(b"x" * (40 << 20))
        r = self.weft("tokenize", "--vocab", VOCAB, "--out", self.at("t"), self.at("text.txt"), code=1)
        self.assertRegex(r.stderr, r"text\.txt: byte \d+: found no white space in \d+ bytes, needs words "
                                   r"of at most 33554432")


if __name__ == "__main__":
    unittest.main()
