#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes the golden files of this folder: make_golden.py [--check] [FOLDER]

Each case is a small random model with its batch, reference gradients and three AdamW
steps, computed by PyTorch in double precision and rounded to fp32 once, at the end.
With --check nothing is written: the cases are computed afresh and compared with the files
in FOLDER. Exit code 77 where torch cannot be imported.
"""

import hashlib
import json
import os
import sys

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import gpt2_reference as ref

# name, dimensions, batch, sequence length used (<= T), seed
CASES = [
    ("tiny_a", ref.dims_of(L=2, H=3, C=24, V=97, T=12), 3, 12, 101),
    ("tiny_b", ref.dims_of(L=1, H=1, C=5, V=3, T=7), 2, 7, 102),
    ("tiny_c", ref.dims_of(L=3, H=2, C=16, V=130, T=20), 2, 17, 103),
]
OPTIMIZER = {"steps": 3, "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "decay": 0.1}
CLIP = 0.5
SIGMA = 0.2  # ten times GPT-2's: every tensor then matters to the loss


def random_params(dims, rng):
    params = {}
    for name, _, _ in ref.TENSORS:
        values = SIGMA * rng.standard_normal(ref.full_shape(name, dims))
        if name in ("ln1w", "ln2w", "lnfw"):
            values += 1
        if name == "wte":
            values[dims["V"] :] = 0
        params[name] = values.astype(np.float32)
    return params


def random_batch(dims, B, T, rng):
    tokens = rng.integers(0, dims["V"], size=(B, T + 1))
    return tokens[:, :-1], tokens[:, 1:]


def make(name, dims, B, T, seed, folder):
    rng = np.random.default_rng(seed)
    params = random_params(dims, rng)
    x, y = random_batch(dims, B, T, rng)
    exact = ref.reference(dims, params, x, y)
    single = ref.reference(dims, params, x, y, torch.float32)
    after3, losses, norms = ref.adamw(dims, params, x, y, **OPTIMIZER)
    clipped, clip_losses, clip_norms = ref.adamw(dims, params, x, y, clip=CLIP, **OPTIMIZER)

    ref.write_model(f"{folder}/{name}_model.bin", dims, params)
    ref.write_debug_state(f"{folder}/{name}_debug_state.bin", dims, x, y, exact["logits"],
                          exact["loss"], exact["grads"])
    ref.write_model(f"{folder}/{name}_after3.bin", dims, after3)
    ref.write_model(f"{folder}/{name}_clip.bin", dims, clipped)
    about = {
        "shape": dims, "B": B, "T_used": T, "seed": seed,
        "optimizer": OPTIMIZER,
        "loss": exact["loss"],
        "after3": {"losses": losses, "grad_norms": norms},
        "clip": {"limit": CLIP, "losses": clip_losses, "grad_norms": clip_norms},
        # How far the same model in single precision is from the reference: what any
        # fp32 program may be expected to reach.
        "float32_relative_l2": {
            "loss": abs(single["loss"] - exact["loss"]) / exact["loss"],
            "logits": ref.relative_l2(single["logits"], exact["logits"]),
            "grads": {n: ref.relative_l2(single["grads"][n], exact["grads"][n])
                      for n, _, _ in ref.TENSORS},
        },
    }
    with open(f"{folder}/{name}.json", "w", encoding="ascii") as f:
        json.dump(about, f, indent=1)
        f.write("\n")


def file_names():
    ends = ("_model.bin", "_debug_state.bin", "_after3.bin", "_clip.bin", ".json")
    return [name + end for name, *_ in CASES for end in ends]


def write_sums(folder):
    with open(f"{folder}/SHA256SUMS", "w", encoding="ascii") as f:
        for name in file_names():
            with open(f"{folder}/{name}", "rb") as data:
                f.write(f"{hashlib.sha256(data.read()).hexdigest()}  {name}\n")


def check_case(name, dims, stored, fresh):
    """Largest relative L2 distance between the stored files and fresh ones."""
    distances = {}
    for kind in ("model", "after3", "clip"):
        (_, a), (_, b) = (ref.read_model(f"{d}/{name}_{kind}.bin") for d in (stored, fresh))
        for tensor in a:
            distances[f"{kind} {tensor}"] = ref.relative_l2(a[tensor], b[tensor])
    a, b = (ref.read_debug_state(f"{d}/{name}_debug_state.bin", dims) for d in (stored, fresh))
    if not (np.array_equal(a["x"], b["x"]) and np.array_equal(a["y"], b["y"])):
        distances["tokens"] = float("inf")
    distances["logits"] = ref.relative_l2(a["logits"], b["logits"])
    distances["loss"] = ref.relative_l2(a["loss"], b["loss"])
    for tensor in a["grads"]:
        distances[f"gradient {tensor}"] = ref.relative_l2(a["grads"][tensor], b["grads"][tensor])
    worst = max(distances, key=distances.get)
    return worst, distances[worst]


def check(stored, fresh):
    limit = 1e-6  # both are double results rounded to fp32 (6e-8)
    bad = 0
    for name, dims, *_ in CASES:
        worst, distance = check_case(name, dims, stored, fresh)
        good = distance <= limit
        bad += not good
        print(f"{name}: largest distance {distance:.2e} ({worst}), limit {limit:.0e}: "
              f"{'ok' if good else 'DIFFERS'}")
    return 1 if bad else 0


def main():
    args = sys.argv[1:]
    only_check = "--check" in args
    folders = [a for a in args if a != "--check"]
    here = os.path.dirname(os.path.abspath(__file__))
    folder = folders[0] if folders else here
    torch.set_num_threads(1)
    target = folder
    if only_check:
        target = os.path.join(os.environ.get("WEFT_TMP", folder), "fresh")
    os.makedirs(target, exist_ok=True)
    for case in CASES:
        make(*case, target)
    if only_check:
        return check(folder, target)
    write_sums(folder)
    total = sum(os.path.getsize(f"{folder}/{n}") for n in file_names())
    print(f"{len(file_names())} files, {total} bytes in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
