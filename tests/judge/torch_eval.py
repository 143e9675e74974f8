#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""PyTorch as judge of weft eval and weft generate: loss and perplexity of a token file, the
answers to multiple-choice questions, and 60 greedy tokens of random models. Exit code 77
where torch cannot be imported.
"""

import json
import math
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "golden")]
try:
    import numpy as np
    import torch

    import gpt2_reference as ref
    from torch_live import random_params, write_shard
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TMP = os.environ["WEFT_TMP"]
LIMIT = 1e-4  # the contract, for the perplexity; what is measured is 1e-6 and less


def weft(*args):
    r = subprocess.run([os.environ["WEFT"], *args], check=True, stdout=subprocess.PIPE)
    return json.loads(r.stdout)


class Judge:
    """A model in double precision."""

    def __init__(self, dims, params):
        self.dims = dims
        self.p = ref.leaves(params, torch.float64)

    def losses(self, ids):
        """-log p of ids[1:], each from all before it."""
        with torch.no_grad():
            logits = ref.forward(self.p, self.dims, torch.tensor([ids[:-1]]))[0]
            return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]),
                                                     reduction="none").tolist()

    def next(self, ids):
        with torch.no_grad():
            return int(ref.forward(self.p, self.dims, torch.tensor([ids]))[0, -1].argmax())

    def file_loss(self, ids, stride):
        T, total, k = self.dims["T"], 0.0, 0
        while k == 0 or k * stride + T - stride + 1 < len(ids):
            found = self.losses(ids[k * stride:k * stride + T + 1])
            total += sum(found if k == 0 else found[T - stride:])
            k += 1
        return total / (len(ids) - 1)


def judge_model(name, dims):
    folder = f"{TMP}/{name}"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    rng = np.random.default_rng(11)
    params = random_params(dims, rng)
    judge = Judge(dims, params)
    model, bad = f"{folder}/model.bin", 0
    ref.write_model(model, dims, params)
    ids = [int(i) for i in rng.integers(0, dims["V"], size=5 * dims["T"] + 7)]
    write_shard(f"{folder}/some_val_000000.bin", ids)
    for stride in (dims["T"], dims["T"] // 3):
        found = weft("eval", "--model", model, "--data", f"{folder}/some_val_000000.bin",
                     "--stride", str(stride), "--json", "--quiet")["data"]
        right = judge.file_loss(ids, stride)
        off = abs(found["perplexity"] / math.exp(right) - 1)
        print(f"{name}: stride {stride}: loss {found['loss']:.9f}, PyTorch {right:.9f}, "
              f"perplexity off by {off:.1e}")
        bad += not off <= LIMIT or found["tokens"] != len(ids) - 1
    return bad + judge_choices(name, folder, judge, rng) + judge_text(name, folder, judge)


def judge_choices(name, folder, judge, rng):
    words, right, right_normalised, count = [], 0, 0, 40
    for i in range(count):
        context = [int(t) for t in rng.integers(0, judge.dims["V"], size=1 + i % 9)]
        endings = [[int(t) for t in rng.integers(0, judge.dims["V"], size=1 + (i + 3 * k) % 5)]
                   for k in range(4)]
        label = int(rng.integers(0, 4))
        sums = [sum(judge.losses(context + e)[-len(e):]) for e in endings]
        means = [s / len(e) for s, e in zip(sums, endings)]
        right += sums.index(min(sums)) == label
        right_normalised += means.index(min(means)) == label
        example = [65535, 0, i, label, 4, len(context), *context]
        for e in endings:
            example += [len(e), *e]
        example[1] = 2 * len(example)
        words += example
    head = np.zeros(256, dtype="<i4")
    head[:3] = [20240522, 1, count]
    with open(f"{folder}/q.bin", "wb") as f:
        f.write(head.tobytes() + np.asarray(words).astype("<u2").tobytes())
    found = weft("eval", "--model", f"{folder}/model.bin", "--multiple-choice",
                 f"{folder}/q.bin", "--json", "--quiet")["multiple_choice"]
    print(f"{name}: questions: {found['accuracy']} and {found['accuracy_normalised']}, "
          f"PyTorch {right / count} and {right_normalised / count}")
    return int(abs(found["accuracy"] - right / count) > 1e-9 or
               abs(found["accuracy_normalised"] - right_normalised / count) > 1e-9)


def judge_text(name, folder, judge):
    """Greedy text within the context, of a model with ids for bytes."""
    if judge.dims["V"] != 257:
        return 0
    with open(f"{folder}/text", "w", encoding="ascii") as f:
        f.write("words, words\n" * 40)
    subprocess.run([os.environ["WEFT"], "tokenize", "--bytes", "--quiet", "--out",
                    f"{folder}/bytes", f"{folder}/text"], check=True)
    shutil.copy(f"{folder}/bytes/tokens.json", folder)
    prompt = "in the beginning"
    r = subprocess.run([os.environ["WEFT"], "generate", "--model", f"{folder}/model.bin",
                        "--prompt", prompt, "--temperature", "0", "--max-tokens", "60",
                        "--quiet"], check=True, stdout=subprocess.PIPE)
    ids = list(prompt.encode())
    while len(ids) < len(prompt) + 60:
        token = judge.next(ids)
        if token == 256:
            break
        ids.append(token)
    same = r.stdout == bytes(ids) + b"\n"
    print(f"{name}: {len(ids) - len(prompt)} greedy tokens: {'same' if same else 'differ'}")
    if not same:
        print(r.stdout, bytes(ids))
    return int(not same)


def main():
    torch.set_num_threads(1)
    bad = judge_model("bytes", ref.dims_of(L=3, H=4, C=64, T=96, V=257))
    bad += judge_model("odd", ref.dims_of(L=2, H=3, C=33, T=17, V=1009))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
