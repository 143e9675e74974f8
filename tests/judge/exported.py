#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Judges of what `weft convert` writes: NumPy, PyTorch and llama.cpp.

Small models are trained for a moment, with GPT-2's vocabulary, with bytes and with characters,
and exported. The safetensors folder is read by a reader of its own and run by a GPT-2 in NumPy
and by one in PyTorch; both must give the logits that PyTorch in double precision computes from
the native checkpoint, and the loss that weft itself prints for the same tokens. llama.cpp must
load the GGUF file and give weft's ids for the prompt, weft's twenty greedy tokens, and the same
probabilities.

Exit code 77 where torch cannot be imported; the part of llama.cpp is left out, with the reason
said, where node, npm or the network are missing.
"""

import json
import math
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "golden"), os.path.join(HERE, "..", "support")]
sys.dont_write_bytecode = True
try:
    import numpy as np
    import torch

    import gpt2_reference as ref
    import weight_files as wf
    from native_checkpoint import read_metrics, read_native
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

WEFT, TMP, SOURCE = (os.environ[k] for k in ("WEFT", "WEFT_TMP", "WEFT_SOURCE"))
LLAMA = os.path.join(os.environ["WEFT_BUILD"], "judge-llama")
PACKAGES = ["node-llama-cpp@3.21.1", "@node-llama-cpp/linux-x64@3.21.1"]
LOGIT_LIMIT, PROBABILITY_LIMIT = 1e-4, 1e-3
GREEDY = 20


def run(*command, **how):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True, **how)
    if r.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {r.returncode}\n{r.stderr}")
    return r.stdout


# ---- safetensors: a reader and two models ----------------------------------------------


def read_weights(folder):
    """{name without prefix: float32 array} and config.json."""
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    _, entries = wf.read_safetensors(f"{folder}/model.safetensors")
    out = {}
    for name, (dtype, shape, data) in entries.items():
        assert dtype == "F32" and name.startswith("transformer.")
        out[name[len("transformer."):]] = np.frombuffer(data, "<f4").reshape(shape)
    return config, out


def numpy_logits(config, w, x):
    """Logits [T, V] of one sequence, as transformers' GPT2LMHeadModel computes them."""
    def norm(h, name):
        mean = h.mean(-1, keepdims=True)
        var = ((h - mean) ** 2).mean(-1, keepdims=True)
        return (h - mean) / np.sqrt(var + config["layer_norm_epsilon"]) * w[name + ".weight"] \
            + w[name + ".bias"]

    def linear(h, name):  # Conv1D: the weight is [in, out]
        return h @ w[name + ".weight"] + w[name + ".bias"]

    T, C, H = len(x), config["n_embd"], config["n_head"]
    h = w["wte.weight"][x] + w["wpe.weight"][:T]
    for i in range(config["n_layer"]):
        p = f"h.{i}."
        q, k, v = np.split(linear(norm(h, p + "ln_1"), p + "attn.c_attn"), 3, axis=-1)
        q, k, v = (t.reshape(T, H, C // H).transpose(1, 0, 2) for t in (q, k, v))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(C // H)
        scores[:, np.triu(np.ones((T, T), dtype=bool), 1)] = -np.inf
        e = np.exp(scores - scores.max(-1, keepdims=True))
        y = ((e / e.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(T, C)
        h = h + linear(y, p + "attn.c_proj")
        a = linear(norm(h, p + "ln_2"), p + "mlp.c_fc")
        a = 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))
        h = h + linear(a, p + "mlp.c_proj")
    return norm(h, "ln_f") @ w["wte.weight"].T


class TorchGPT2(torch.nn.Module):
    """GPT2LMHeadModel of torch.nn modules, loaded by name."""

    def __init__(self, config, w):
        super().__init__()
        self.w, self.config = {n: torch.tensor(a) for n, a in w.items()}, config
        C = config["n_embd"]
        self.blocks = torch.nn.ModuleList()
        for i in range(config["n_layer"]):
            block = torch.nn.TransformerEncoderLayer(
                C, config["n_head"], 4 * C, dropout=0.0, batch_first=True, norm_first=True,
                activation=lambda x: 0.5 * x * (1 + torch.tanh(
                    math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
            ours = {"self_attn.in_proj_weight": "attn.c_attn.weight",
                    "self_attn.in_proj_bias": "attn.c_attn.bias",
                    "self_attn.out_proj.weight": "attn.c_proj.weight",
                    "self_attn.out_proj.bias": "attn.c_proj.bias",
                    "linear1.weight": "mlp.c_fc.weight", "linear1.bias": "mlp.c_fc.bias",
                    "linear2.weight": "mlp.c_proj.weight", "linear2.bias": "mlp.c_proj.bias",
                    "norm1.weight": "ln_1.weight", "norm1.bias": "ln_1.bias",
                    "norm2.weight": "ln_2.weight", "norm2.bias": "ln_2.bias"}
            state = {}
            for theirs, name in ours.items():
                t = self.w[f"h.{i}.{name}"]
                state[theirs] = t.T if t.ndim == 2 else t
            block.load_state_dict(state)
            self.blocks.append(block)

    def forward(self, x):
        T = len(x)
        mask = torch.ones(T, T, dtype=torch.bool).triu(1)
        h = (self.w["wte.weight"][x] + self.w["wpe.weight"][:T])[None]
        for block in self.blocks:
            h = block(h, src_mask=mask)
        h = torch.nn.functional.layer_norm(h, h.shape[-1:], self.w["ln_f.weight"],
                                           self.w["ln_f.bias"])
        return (h @ self.w["wte.weight"].T)[0]


def native_logits(checkpoint, x):
    """In double precision, from the program's own checkpoint."""
    manifest, (weights, _, _) = read_native(checkpoint)
    d = manifest["shape"]
    p = {}
    for t in manifest["tensors"]:
        shape = (t["layers"],) * (t["name"] not in ("wte", "wpe", "lnfw", "lnfb")) + (
            (t["rows"],) * (t["name"] in ref.MATRICES)) + (t["cols"],)
        n = t["layers"] * t["rows"] * t["cols"]
        p[t["name"]] = torch.tensor(np.asarray(weights[t["begin"]:t["begin"] + n],
                                               dtype=np.float64).reshape(shape))
    return ref.forward(p, d, torch.tensor(x)[None]).detach().numpy()[0]


# ---- the models -------------------------------------------------------------------------


def prepare(name, vocabulary, spec, text, prompt):
    folder = os.path.join(TMP, name)
    os.makedirs(folder)
    for file, content in (("text.txt", text), ("prompt.txt", prompt)):
        with open(f"{folder}/{file}", "w", encoding="utf-8") as f:
            f.write(content)
    run(WEFT, "tokenize", *vocabulary, "--quiet", "--out", f"{folder}/tokens", f"{folder}/text.txt")
    run(WEFT, "train", "--quiet", "--data", f"{folder}/tokens", "--model", spec, "--batch", 4,
        "--steps", 40, "--lr", "3e-3", "--threads", 2, "--out", f"{folder}/run")
    return folder


def ids_of(folder, count):
    """The first ids of the training text."""
    files = [f for f in sorted(os.listdir(f"{folder}/tokens")) if "_train_" in f]
    data = np.fromfile(f"{folder}/tokens/{files[0]}", "<u2", offset=1024)
    return data[:count].astype(np.int64)


def own_loss(folder, x):
    """The loss weft prints for this one sequence, from the exported folder."""
    head = np.zeros(256, dtype="<i4")
    head[:3] = [20240520, 1, len(x)]
    with open(f"{folder}/one_train_000001.bin", "wb") as f:
        f.write(head.tobytes() + x.astype("<u2").tobytes())
    shutil.rmtree(f"{folder}/once", ignore_errors=True)
    run(WEFT, "train", "--quiet", "--model", f"{folder}/hf", "--data",
        f"{folder}/one_train_000001.bin", "--batch", 1, "--seq", len(x) - 1, "--steps", 1,
        "--threads", 2, "--out", f"{folder}/once")
    return read_metrics(f"{folder}/once")[0]["loss"]


def judge_safetensors(name, folder, limit=LOGIT_LIMIT):
    run(WEFT, "convert", "--from", f"{folder}/run", "--to", "safetensors", "--out", f"{folder}/hf")
    config, w = read_weights(f"{folder}/hf")
    x = ids_of(folder, config["n_positions"] + 1)
    newest = sorted(os.listdir(f"{folder}/run/checkpoints"))[-1]
    right = native_logits(f"{folder}/run/checkpoints/{newest}", x[:-1])
    rows = [("NumPy", np.abs(numpy_logits(config, w, x[:-1]) - right).max()),
            ("PyTorch", np.abs(TorchGPT2(config, w)(torch.tensor(x[:-1])).detach().numpy()
                               - right).max())]
    loss = float(torch.nn.functional.cross_entropy(torch.tensor(right), torch.tensor(x[1:])))
    rows.append(("weft's loss", abs(own_loss(folder, x) - loss)))
    for who, distance in rows:
        print(f"{name}: safetensors: {who}: largest distance {distance:.2e}, limit {limit:.0e}"
              f"{'' if distance <= limit else '  TOO FAR'}")
    return sum(not d <= limit for _, d in rows), right.argmax(-1)


# ---- llama.cpp --------------------------------------------------------------------------


def install_llama():
    """None, or why there is no llama.cpp."""
    for program in ("node", "npm"):
        if not shutil.which(program):
            return f"needs {program}"
    if os.path.exists(f"{LLAMA}/node_modules/node-llama-cpp/package.json"):
        return None
    os.makedirs(LLAMA, exist_ok=True)
    r = subprocess.run(["npm", "install", "--prefix", LLAMA, "-E", "--omit=optional", "--no-audit",
                        "--no-fund", "--ignore-scripts", "--loglevel", "error", *PACKAGES],
                       capture_output=True, text=True)
    return f"npm cannot fetch {' '.join(PACKAGES)}" if r.returncode else None


def judge_gguf(name, folder, prompt_ids):
    bad = 0
    text = run(WEFT, "generate", "--model", f"{folder}/run", "--prompt-file", f"{folder}/prompt.txt",
               "--max-tokens", GREEDY, "--temperature", 0, "--threads", 2)
    newest = sorted(os.listdir(f"{folder}/run/checkpoints"))[-1]
    for dtype, limit in (("fp32", PROBABILITY_LIMIT), ("bf16", 0.05), ("fp16", 0.01)):
        gguf = f"{folder}/{dtype}.gguf"
        run(WEFT, "convert", "--from", f"{folder}/run", "--to", "gguf", "--dtype", dtype, "--out",
            gguf)
        run("node", f"{HERE}/llama.mjs", gguf, f"{folder}/prompt.txt",
            GREEDY if dtype == "fp32" else 1, f"{folder}/found.json",
            env={**os.environ, "LLAMA": LLAMA})
        with open(f"{folder}/found.json", encoding="utf-8") as f:
            found = json.load(f)
        x = np.array(found["prompt"] + found["greedy"])
        logits = native_logits(f"{folder}/run/checkpoints/{newest}", x)
        start = len(found["prompt"]) - 1
        p = torch.softmax(torch.tensor(logits), -1).numpy()[start:start + len(found["greedy"])]
        distance = np.abs(np.array(found["probabilities"], dtype=np.float64) - p).max()
        verdicts = [("probabilities", distance <= limit)]
        if dtype == "fp32":
            prompt = open(f"{folder}/prompt.txt", encoding="utf-8").read()
            verdicts += [("ids of the prompt", found["prompt"] == list(prompt_ids)),
                         ("greedy tokens", found["greedy"] == list(p.argmax(-1))),
                         ("weft's text", text.rstrip("\n") ==
                          (prompt + found["text"]).rstrip("\n"))]
        print(f"{name}: llama.cpp {dtype}: largest distance of a probability {distance:.2e}, "
              f"limit {limit:.0e}")
        for what, right in verdicts:
            if not right:
                print(f"{name}: llama.cpp {dtype}: {what}: NOT THE SAME")
                bad += 1
        if bad:
            print(f"  weft      {text!r}\n  llama.cpp {found['text']!r}")
    return bad


def token_ids(folder, vocabulary):
    """weft's ids of the prompt. Characters get their ids from the training text."""
    with open(f"{folder}/prompt.txt", encoding="utf-8") as f:
        prompt = f.read()
    if vocabulary == ["--char"]:
        with open(f"{folder}/tokens/tokens.json", encoding="utf-8") as f:
            table = json.load(f)["code_points"]
        return [table.index(ord(c)) for c in prompt]
    run(WEFT, "tokenize", *vocabulary, "--quiet", "--val-fraction", 0, "--out", f"{folder}/p",
        f"{folder}/prompt.txt")
    return np.fromfile(f"{folder}/p/text_train_000001.bin", "<u2", offset=1024).tolist()


def main():
    torch.set_num_threads(1)
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(TMP)
    with open(os.path.join(SOURCE, "docs", "ARCHITECTURE.md"), encoding="utf-8") as f:
        text = f.read() * 3 + "Überall “Text” – naïve 中文 🤗, the end.\n"
    vocab = os.environ.get("WEFT_VOCAB", os.path.join(SOURCE, "vocab", "vocab.bpe"))
    models = [("bytes", ["--bytes"], "L=2,H=2,C=32,T=64"),
              ("characters", ["--char"], "L=1,H=3,C=48,T=64")]
    if os.path.exists(vocab):
        models.append(("gpt2", ["--vocab", vocab], "L=2,H=2,C=16,T=64"))
    reason = install_llama()
    bad = 0
    for name, vocabulary, spec in models:
        folder = prepare(name, vocabulary, spec, text, "The ranks “agree”")
        bad += judge_safetensors(name, folder)[0]
        if not reason:
            bad += judge_gguf(name, folder, token_ids(folder, vocabulary))
    if reason:
        print(f"llama.cpp: skipped: {reason}")
    shutil.rmtree(TMP)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
