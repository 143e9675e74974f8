#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Model files of other programs: read as they come, written as others want them, and refused
with one clear line when they are not what they say."""

import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
SOURCE = os.environ["WEFT_SOURCE"]
sys.path.append(os.path.join(SOURCE, "tests", "support"))
import weight_files as wf  # noqa: E402

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
GOLDEN = os.path.join(SOURCE, "tests", "golden", "tiny_a_model.bin")
D, TENSORS = wf.read_llmc(GOLDEN)


def weft(*args):
    return subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=60)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = os.path.join(TMP, self.id().split(".")[-1])
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir)

    def tearDown(self):
        shutil.rmtree(self.dir)

    def at(self, *parts):
        return os.path.join(self.dir, *parts)

    def good(self, *args):
        r = weft(*args)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def convert(self, source, to, *extra):
        out = self.at(f"out{len(os.listdir(self.dir))}")
        self.good("convert", "--from", source, "--to", to, "--out", out, *extra)
        return out

    def same_weights(self, path, dtype="F32", exact=()):
        """What path holds, written as an llm.c file, are the golden weights."""
        d, found = wf.read_llmc(self.convert(path, "llmc"))
        self.assertEqual(d, D)
        for name, values in found.items():
            kind = wf.kind_of(name)
            self.assertEqual(values, wf.rounded(TENSORS[name], "F32" if kind in exact else dtype),
                             name)

    def refused(self, path, *words, code=1):
        """The fault is named in one line, by info and (each third time) by convert, which
        leaves nothing."""
        out = self.at("refused")
        self.times = getattr(self, "times", 0) + 1
        convert = ("convert", "--from", path, "--to", "llmc", "--out", out)
        for args in (("info", path), convert) if self.times % 3 == 1 else (("info", path),):
            r = weft(*args)
            lines = r.stderr.strip().split("\n")
            what = f"{' '.join(args)}: {r.stderr}"
            self.assertEqual(r.returncode, code, what)
            self.assertEqual(len(lines), 1, what)
            for word in words:
                self.assertIn(word, lines[0])
            self.assertFalse(os.path.exists(out) or os.path.exists(out + ".tmp"), what)


class Safetensors(Case):
    def folder(self, entries=None, config=None, name="hf", **how):
        entries = wf.hf_entries(D, TENSORS) if entries is None else entries
        put(self.at(name, "config.json"), json.dumps(config or wf.config_of(D)).encode())
        wf.write_safetensors(self.at(name, "model.safetensors"), entries, **how)
        return self.at(name)

    def test_folder_and_file(self):
        path = self.folder()
        self.same_weights(path)
        self.same_weights(path + "/")
        self.same_weights(os.path.join(path, "model.safetensors"))

    def test_as_the_hub_has_it(self):
        """No prefix, masks, a head of its own, another order, no metadata."""
        entries = wf.hf_entries(D, TENSORS, prefix="")
        n = D["T"] * D["T"]
        for i in range(D["L"]):
            entries.append([f"h.{i}.attn.bias", "F32", [1, 1, D["T"], D["T"]], b"\0" * 4 * n])
            entries.append([f"h.{i}.attn.masked_bias", "F32", [], b"\0" * 4])
        entries.append(["lm_head.weight", "F32", [D["V"], D["C"]], TENSORS["wte"].tobytes()])
        random.Random(1).shuffle(entries)
        self.same_weights(self.folder(entries, head=wf.safetensors_head(entries, False)))

    def test_half_precision(self):
        for dtype in ("F16", "BF16"):
            self.same_weights(self.folder(wf.hf_entries(D, TENSORS, dtype)), dtype)

    def shards(self):
        entries = wf.hf_entries(D, TENSORS)
        files = {"model-00001-of-00002.safetensors": entries[::2],
                 "model-00002-of-00002.safetensors": entries[1::2]}
        put(self.at("hf", "config.json"), json.dumps(wf.config_of(D)).encode())
        for name, part in files.items():
            wf.write_safetensors(self.at("hf", name), part)
        return {"metadata": {"total_size": sum(len(e[3]) for e in entries)},
                "weight_map": {e[0]: name for name, part in files.items() for e in part}}

    def index(self, index):
        put(self.at("hf", "model.safetensors.index.json"), json.dumps(index).encode())
        return self.at("hf")

    def test_shards(self):
        self.same_weights(self.index(self.shards()))

    def test_bad_shards(self):
        first = "model-00001-of-00002.safetensors"
        for where, words in (("../x.safetensors", ["../x.safetensors", "in this folder"]),
                             ("/etc/passwd", ["in this folder"]), ("", ["in this folder"]),
                             (7, ["in this folder"]), ("none", ["wpe.weight", "the index has it in none"]),
                             (first, ["wpe.weight", "the index has it in " + first])):
            index = self.shards()
            index["weight_map"]["transformer.wpe.weight"] = where
            self.refused(self.index(index), *words)
        index = self.shards()
        del index["weight_map"]["transformer.wpe.weight"]
        self.refused(self.index(index), "wpe.weight", "the index has it nowhere")
        index = self.shards()
        index["weight_map"]["x"] = "none"
        self.refused(self.index(index), "hf/none", "cannot open")
        self.refused(self.index({}), "model.safetensors.index.json", "weight_map")

    def test_sizes(self):
        path = self.folder()
        file = os.path.join(path, "model.safetensors")
        data = get(file)
        n = len(data) - 8 - struct.unpack_from("<Q", data)[0]
        put(file, data[:-1])
        self.refused(path, file, "ln_f.bias", str(n - 1), str(n))
        put(file, data + b"\0")
        self.refused(path, file, f"found {n + 1} bytes of data, needs {n}")
        put(file, b"")
        self.refused(path, file, "found 0 bytes")
        for length in (2**40, 2**63 - 1, 2**63, 2**64 - 1):
            self.folder(length=length)
            self.refused(path, file, str(length))
        self.folder(length=1)
        self.refused(path, file, "head of 1 bytes, needs 2")
        with open(file, "wb") as f:
            f.write(struct.pack("<Q", 50_000_000) + b"{")
            f.truncate(60_000_000)
        self.refused(path, file, "head of 50000000 bytes, needs 2 to 16777216")

    def test_heads(self):
        for text, words in ((b"[" * 100_000, ["begins with byte 0x5b"]),
                            (b'{"a":' * 100_000, ["maximum parsing depth"]),
                            (b'{"a":1', ["head"]), (b"{}" + b" " * 9, ["no tensor wte.weight"]),
                            (b'{"a":1}', ["tensor a", "dtype none"]),
                            (b'{"a":{},"a":{}}', ["duplicate object key"]),
                            (b'{"\xff":{}}', ["unable to decode"])):
            self.refused(self.folder([], text=text), self.at("hf"), *words)

    def test_entries(self):
        def entry(change, *words):
            entries = wf.hf_entries(D, TENSORS)
            head = wf.safetensors_head(entries)
            change(head["transformer.wpe.weight"], head)
            self.refused(self.folder(entries, head=head), "model.safetensors", "tensor", *words)

        def sets(**keys):
            return lambda e, _: e.update(keys)

        def moves(begin, end):
            def change(e, _):
                e["data_offsets"][0] += begin
                e["data_offsets"][1] += end
            return change

        n = D["T"] * D["C"]
        entry(sets(dtype="F12"), "dtype F12")
        entry(sets(dtype=4), "dtype none")
        entry(sets(dtype="I32"), "I32, needs F32, F16 or BF16")
        entry(sets(dtype="F64"), f"found {4 * n} bytes of data, needs {8 * n}")
        entry(sets(shape=[D["C"], D["T"]]), f"found shape [{D['C']}, {D['T']}], needs")
        entry(sets(shape=[n]), f"found shape [{n}], needs")
        entry(sets(shape=[2**62, 4]), "impossible shape")
        entry(sets(shape=[-1, n]), "impossible shape")
        entry(sets(shape=[1.5]), "impossible shape")
        entry(sets(shape=[1] * 9), "at most 4 dimensions")
        entry(sets(shape="x"), "at most 4 dimensions")
        entry(sets(data_offsets=[0]), "data_offsets")
        entry(sets(data_offsets=[-4, 0]), "data_offsets")
        entry(sets(data_offsets=[2**63 - 1, 5]), "data_offsets")
        entry(sets(data_offsets=None), "data_offsets")
        entry(moves(-4, -4), "overlap")
        entry(moves(0, 4), f"found {4 * n + 4} bytes of data, needs {4 * n}")
        entry(moves(2**50, 2**50), "found its data at byte")

    def test_wrong_tensors(self):
        def tensors(change, *words):
            entries = wf.hf_entries(D, TENSORS)
            change(entries)
            self.refused(self.folder(entries), *words)

        tensors(lambda e: e.pop(), "found no tensor ln_f.bias")
        tensors(lambda e: e.append(["x", "F32", [1], b"\0" * 4]), "tensor x", "no tensor of a GPT-2")
        tensors(lambda e: e.append(["wpe.weight", *e[1][1:]]), "wpe.weight twice")
        tensors(lambda e: e.append([f"h.{D['L']}.ln_1.bias", "F32", [D["C"]], b"\0" * 4 * D["C"]]),
                f"h.{D['L']}.ln_1.bias", f"layers below {D['L']}")
        tensors(lambda e: e.append(["h.00.ln_1.bias", "F32", [D["C"]], b"\0" * 4 * D["C"]]),
                "h.00.ln_1.bias", "no tensor of a GPT-2")
        entries = wf.hf_entries(D, TENSORS)
        head = bytearray(TENSORS["wte"].tobytes())
        head[4 * D["C"] + 2] ^= 1
        entries.append(["lm_head.weight", "F32", [D["V"], D["C"]], bytes(head)])
        self.refused(self.folder(entries), "differs from the token embedding in row 1")

    def test_config(self):
        for change, words in (({"n_head": D["C"] + 1}, ["H divides"]), ({"n_layer": 0}, ["n_layer"]),
                              ({"n_layer": 10**9}, ["out of range"]),
                              ({"n_embd": 2**62}, ["out of range"]),
                              ({"n_embd": "absent"}, ["n_embd"]),
                              ({"vocab_size": -5}, ["vocab_size"]),
                              ({"vocab_size": 1.5}, ["vocab_size"]),
                              ({"model_type": "llama"}, ["llama", "gpt2"]),
                              ({"activation_function": "relu"}, ["relu", "gelu_new"]),
                              ({"n_inner": 7}, ["n_inner", "7"]),
                              ({"layer_norm_epsilon": 1e-6}, ["layer_norm_epsilon"]),
                              ({"tie_word_embeddings": False}, ["tie_word_embeddings"]),
                              ({"scale_attn_weights": False}, ["scale_attn_weights"]),
                              ({"scale_attn_by_inverse_layer_idx": True}, ["inverse_layer"]),
                              ({"n_positions": D["T"] + 1}, ["wpe.weight"])):
            self.refused(self.folder(config=wf.config_of(D, **change)), *words)
        path = self.folder()
        put(os.path.join(path, "config.json"), b"{")
        self.refused(path, "config.json", "line 1")
        put(os.path.join(path, "config.json"), b"[]")
        self.refused(path, "config.json", "not a JSON object")
        os.remove(os.path.join(path, "config.json"))
        self.refused(os.path.join(path, "model.safetensors"), "no config.json")
        put(self.at("bare", "config.json"), json.dumps(wf.config_of(D)).encode())
        put(self.at("bare", "pytorch_model.bin"), b"x")
        self.refused(self.at("bare"), "pytorch_model.bin", "needs model.safetensors")

    def test_what_is_written(self):
        for dtype, stored in (("fp32", "F32"), ("fp16", "F16"), ("bf16", "BF16")):
            out = self.convert(GOLDEN, "safetensors", "--dtype", dtype)
            metadata, found = wf.read_safetensors(os.path.join(out, "model.safetensors"))
            self.assertEqual(metadata, {"format": "pt"})
            needed = {e[0]: e[1:] for e in wf.hf_entries(D, TENSORS, stored)}
            self.assertEqual(found, needed)
            config = json.loads(get(os.path.join(out, "config.json")))
            for key, value in wf.config_of(D).items():
                self.assertEqual(config[key], value, key)
            self.assertIs(config["tie_word_embeddings"], True)
            self.assertEqual(config["torch_dtype"],
                             {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[dtype])
            self.assertTrue(os.path.exists(os.path.join(out, "generation_config.json")))
            self.same_weights(out, stored)


class Gguf(Case):
    def file(self, keys=None, entries=None, **how):
        data = wf.gguf_bytes(wf.gguf_keys(D) if keys is None else keys,
                             wf.gguf_entries(D, TENSORS) if entries is None else entries, **how)
        put(self.at("m.gguf"), data)
        return self.at("m.gguf")

    def test_read(self):
        self.same_weights(self.file())
        for dtype in ("F16", "BF16"):
            path = self.file(entries=wf.gguf_entries(D, TENSORS, dtype))
            exact = set(wf.HF) - wf.MATRICES | {"wpe"}
            self.same_weights(path, dtype, exact)
        head = ["output.weight", 0, [D["C"], D["V"]], TENSORS["wte"].tobytes()]
        self.same_weights(self.file(entries=wf.gguf_entries(D, TENSORS) + [head]))
        more = [("general.x", wf.ARRAY, (wf.STRING, ["a", "b"])), ("general.y", wf.U64, 7),
                ("general.alignment", wf.U32, 64)]
        self.same_weights(self.file(wf.gguf_keys(D) + more, align=64))

    def test_sizes(self):
        data = get(self.file())
        for n in (1, len(data) // 2, len(data) - 100, len(data) - 400):
            put(self.at("m.gguf"), data[:-n])
            self.refused(self.at("m.gguf"), "m.gguf", "found")
        put(self.at("m.gguf"), data + b"\0" * 32)
        self.refused(self.at("m.gguf"), "bytes of data, needs")
        for n in range(4, 24):
            put(self.at("m.gguf"), data[:n])
            self.refused(self.at("m.gguf"), "header", f"found {n} bytes")

    def test_heads(self):
        self.refused(self.file(version=2), "version 2, needs 3")
        self.refused(self.file(version=0x3000000), "version 50331648, needs 3")
        self.refused(self.file(magic=b"GGUX"), "no known")
        for n in (2**63, 2**64 - 1, 10**5):
            self.refused(self.file(n_keys=n), f"found {n} keys")
        for n in (2**63, 2**64 - 1, 10**7):
            self.refused(self.file(n_tensors=n), f"found {n} tensors")
        self.refused(self.file(n_tensors=3), "no tensor")
        self.refused(self.file([]), "no general.architecture")

    def test_keys(self):
        def key(name, kind, value, *words):
            self.refused(self.file(wf.gguf_keys(D, **{name: (kind, value)})), "m.gguf", *words)

        key("general.architecture", wf.STRING, "llama", "llama, needs gpt2")
        key("general.architecture", wf.U32, 7, "type 4, needs a text")
        key("general.architecture", wf.STRING, b"gp\0t2", "zero byte")
        key("general.alignment", wf.U32, 3, "found 3, needs a power of two")
        key("general.alignment", wf.U32, 2**31, "needs at most")
        key("gpt2.block_count", wf.U32, 0, "at least 1")
        key("gpt2.block_count", wf.I32, -1, "negative")
        key("gpt2.block_count", wf.U64, 2**63, "needs at most")
        key("gpt2.block_count", wf.U32, D["L"] + 1, "no tensor blk.")
        key("gpt2.embedding_length", wf.U32, 2**31, "out of range")
        key("gpt2.attention.head_count", wf.U32, D["C"] + 1, "H divides")
        key("gpt2.attention.head_count", wf.F32, 2, "whole number")
        key("gpt2.context_length", wf.U32, D["T"] + 1, "position_embd.weight", "found shape")
        key("gpt2.feed_forward_length", wf.U32, 5, "feed_forward_length is 5")
        key("gpt2.attention.layer_norm_epsilon", wf.F32, 1e-6, "layer_norm_epsilon")
        key("x", 99, b"", "value type 99")
        key("x", wf.ARRAY, struct.pack("<IQ", wf.ARRAY, 1), "array of arrays")
        key("x", wf.ARRAY, struct.pack("<IQ", wf.STRING, 2**63), "x", str(2**63))
        key("x", wf.ARRAY, struct.pack("<IQ", wf.U64, 2**61), "x: found")
        key("x", wf.ARRAY, struct.pack("<IQ", 77, 1), "value type 77")
        keys = wf.gguf_keys(D)
        self.refused(self.file(keys + keys[-1:]), keys[-1][0] + " twice")
        long = struct.pack("<Q", 2**63)
        data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + long
        put(self.at("m.gguf"), data)
        self.refused(self.at("m.gguf"), "key", str(2**63))

    def test_tensors(self):
        def tensor(change, *words, **how):
            entries = wf.gguf_entries(D, TENSORS)
            change(entries)
            self.refused(self.file(entries=entries, **how), "m.gguf", *words)

        def sets(i, value):
            def change(entries):
                entries[1][i] = value
            return change

        tensor(sets(1, 8), "position_embd.weight", "ggml type 8", "quantized")
        tensor(sets(2, [D["T"], D["C"]]), "position_embd.weight", "found shape")
        tensor(sets(2, [2**63, 2**63]), "position_embd.weight", "found shape")
        tensor(sets(2, []), "0 dimensions")
        tensor(sets(2, [1] * 9), "9 dimensions")
        tensor(sets(0, "pos_embd"), "pos_embd", "no tensor of a GPT-2")
        tensor(sets(0, "token_embd.weight"), "token_embd.weight twice")
        tensor(lambda e: e.pop(), "no tensor output_norm.bias")
        # Too short, on another's data, past the end, everywhere.
        for offset in (0, 4, 32, 2**40, 2**63, 2**64 - 32):
            tensor(lambda e: None, "tensor ", "found", "needs",
                   offsets={"position_embd.weight": offset})

    def test_what_is_written(self):
        for dtype, stored in (("fp32", "F32"), ("fp16", "F16"), ("bf16", "BF16")):
            out = self.convert(GOLDEN, "gguf", "--dtype", dtype)
            keys, found = wf.read_gguf(out)
            needed = {e[0]: e[1:] for e in wf.gguf_entries(D, TENSORS, stored)}
            self.assertEqual(found, needed)
            for key, _, value in wf.gguf_keys(D):
                self.assertEqual(keys[key], struct.unpack("<f", struct.pack("<f", value))[0]
                                 if isinstance(value, float) else value, key)
            self.assertEqual(keys["tokenizer.ggml.model"], "none")
            tied = self.convert(GOLDEN, "gguf", "--dtype", dtype, "--head")
            self.assertEqual(wf.read_gguf(tied)[1],
                             {**needed, "output.weight": needed["token_embd.weight"]})
            self.same_weights(tied, stored, set(wf.HF) - wf.MATRICES | {"wpe"})


class Llmc(Case):
    def test_cut_long_and_old(self):
        data = get(GOLDEN)
        path = self.at("m.bin")
        for found in (data[:-1], data[:len(data) // 2], data + b"\0"):
            put(path, found)
            self.refused(path, path, str(len(found)), str(len(data)))
        put(path, data[:4] + struct.pack("<i", 1) + data[8:])
        self.refused(path, path, "version 1, needs 3 (fp32) or 5 (bf16)")

    def test_bf16(self):
        out = self.convert(GOLDEN, "llmc", "--dtype", "bf16")
        data = get(out)
        self.assertEqual(struct.unpack_from("<2i", data), (20240326, 5))
        self.assertEqual(len(data) - 1024, (os.path.getsize(GOLDEN) - 1024) // 2)
        self.same_weights(out, "BF16")


class Convert(Case):
    def test_options(self):
        for args, words in ((["--to", "llmc", "--dtype", "fp16"], "llm.c models are"),
                            (["--to", "weft", "--dtype", "bf16"], "checkpoints are fp32"),
                            (["--to", "llmc", "--head"], "--head: needs --to gguf"),
                            (["--to", "gguff"], "gguf"), ([], "--to")):
            r = weft("convert", "--from", GOLDEN, "--out", self.at("o"), *args)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn(words, r.stderr)
            self.assertEqual(os.listdir(self.dir), [])

    def test_too_large_for_half(self):
        data = bytearray(get(GOLDEN))
        struct.pack_into("<f", data, 1024, 70000.0)
        put(self.at("m.bin"), data)
        r = weft("convert", "--from", self.at("m.bin"), "--to", "gguf", "--dtype", "fp16", "--out",
                 self.at("o"))
        self.assertEqual(r.returncode, 3, r.stderr)
        self.assertIn("wte: found 70000, needs less for fp16", r.stderr)
        self.assertEqual(os.listdir(self.dir), ["m.bin"])

    def test_not_finite_is_kept_and_told(self):
        data = bytearray(get(GOLDEN))
        struct.pack_into("<2f", data, len(data) - 8, float("nan"), float("inf"))
        put(self.at("m.bin"), data)
        out = self.convert(self.at("m.bin"), "safetensors")
        report = json.loads(self.good("info", "--json", out).stdout)
        self.assertEqual(report["not_finite"], 2)
        self.assertEqual(report["not_finite_in"], "lnfb")
        back = self.convert(out, "llmc")
        self.assertEqual(get(back), bytes(data))

    def test_full_disk_leaves_nothing(self):
        limit = (20000, 20000)
        for to in ("weft", "llmc", "safetensors", "gguf"):
            r = subprocess.run([WEFT, "convert", "--from", GOLDEN, "--to", to, "--out", self.at("o")],
                               capture_output=True, text=True, timeout=60, restore_signals=False,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
            self.assertEqual(r.returncode, 1, to)
            self.assertIn("cannot write", r.stderr)
            self.assertEqual(os.listdir(self.dir), [], to)

    def test_killed_leaves_no_final_name(self):
        """x05: killed on the way, there is something under another name at most; the same command
        then works."""
        T, V, L, H, C, Vp = 64, 50257, 2, 2, 256, 50304
        elems = (Vp + T + 2) * C + L * (12 * C * C + 13 * C)
        with open(self.at("m.bin"), "wb") as f:
            f.write(struct.pack("<256i", 20240326, 3, T, V, L, H, C, Vp, *[0] * 248))
            f.truncate(1024 + 4 * elems)
        for to in ("weft", "llmc", "safetensors", "gguf"):
            args = ("convert", "--from", self.at("m.bin"), "--to", to, "--out", self.at("o"))
            with subprocess.Popen([WEFT, *args], stderr=subprocess.PIPE) as p:
                while len(os.listdir(self.dir)) == 1 and p.poll() is None:
                    pass
                p.kill()
            if p.returncode == 0:
                self.skipTest("this machine was done before it could be killed")
            self.assertEqual(os.path.exists(self.at("o")), False, to)
            self.good(*args)
            self.good("info", self.at("o"))
            shutil.rmtree(self.at("o")) if os.path.isdir(self.at("o")) else os.remove(self.at("o"))
            self.assertEqual(os.listdir(self.dir), ["m.bin"], to)

    def test_train_from_each(self):
        rng = random.Random(3)
        ids = [rng.randrange(D["V"]) for _ in range(400)]
        data = struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253)
        put(self.at("d_train_000001.bin"), data + struct.pack(f"<{len(ids)}H", *ids))
        losses = set()
        models = [GOLDEN] + [self.convert(GOLDEN, to) for to in ("weft", "safetensors", "gguf")]
        for i, model in enumerate(models):
            run = self.at(f"run{i}")
            r = self.good("train", "--model", model, "--data", self.at("d_train_000001.bin"),
                          "--out", run, "--batch", "2", "--steps", "2", "--threads", "1")
            self.assertIn("moments are zero", r.stderr)
            with open(os.path.join(run, "metrics.jsonl"), encoding="ascii") as f:
                lines = map(json.loads, f)
                losses.add(tuple(line["loss"] for line in lines if "loss" in line))
        self.assertEqual(len(losses), 1, losses)


if __name__ == "__main__":
    unittest.main()
