#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""PyTorch as judge of a model and its gradients.

As a module: compare(model_bin, x, y, found) computes the reference for any llm.c model
file and any batch, and prints the relative L2 distance of what was found, tensor by
tensor. As a program: torch_live.py MODEL.bin DEBUG_STATE.bin judges one debug state;
without arguments the judge itself is tested on the golden files. Exit code 77 where torch
cannot be imported.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
try:
    import torch

    import gpt2_reference as ref
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
LIMIT = 2e-5  # of single precision; PyTorch's own float32 stays below 1e-6 on small models


def compare(model_bin, x, y, found, limit=LIMIT, dtype=torch.float64, out=sys.stdout):
    """Judges results for one batch.

    In       model_bin: path of a version 3 model file; x, y: token ids [B, T];
             found: dict with any of "loss", "logits" [B, T, V] and "grads" (name -> array
             in the shape of the model file)
    Returns  list of (name, distance) above `limit`; empty means all is well
    """
    dims, params = ref.read_model(model_bin)
    expected = ref.reference(dims, params, x, y, dtype)
    rows = []
    if "loss" in found:
        rows.append(("loss", ref.relative_l2(found["loss"], expected["loss"])))
    if "logits" in found:
        rows.append(("logits", ref.relative_l2(found["logits"], expected["logits"])))
    for name, grad in found.get("grads", {}).items():
        rows.append((name, ref.relative_l2(grad, expected["grads"][name])))
    if not rows:
        raise ValueError("nothing to compare")
    print(f"{os.path.basename(model_bin)}: relative L2 distance from PyTorch ({dtype}), "
          f"limit {limit:.0e}", file=out)
    for name, distance in rows:
        # Written so that a NaN counts as bad.
        verdict = "" if distance <= limit else "  TOO FAR"
        print(f"  {name:<10} {distance:.3e}{verdict}", file=out)
    return [(n, d) for n, d in rows if not d <= limit]


def compare_state(model_bin, state_bin, **options):
    """compare() for a debug state file."""
    dims, _ = ref.read_model(model_bin)
    state = ref.read_debug_state(state_bin, dims)
    return compare(model_bin, state["x"], state["y"], state, **options)


def test_judge():
    """The judge accepts the golden states and refuses each single spoilt tensor."""
    bad = 0
    with open(os.devnull, "w", encoding="ascii") as silent:
        for case in ("tiny_a", "tiny_b", "tiny_c"):
            model = f"{GOLDEN}/{case}_model.bin"
            bad += len(compare_state(model, f"{GOLDEN}/{case}_debug_state.bin", limit=1e-6))
            dims, _ = ref.read_model(model)
            state = ref.read_debug_state(f"{GOLDEN}/{case}_debug_state.bin", dims)
            for name, grad in state["grads"].items():
                spoilt = dict(state["grads"])
                spoilt[name] = grad * 1.001
                verdict = compare(model, state["x"], state["y"], {"grads": spoilt}, out=silent)
                if [n for n, _ in verdict] != [name]:
                    print(f"{case}: spoilt {name} gave {verdict}")
                    bad += 1
    return 1 if bad else 0


def main():
    torch.set_num_threads(1)
    if len(sys.argv) == 3:
        return 1 if compare_state(sys.argv[1], sys.argv[2]) else 0
    if len(sys.argv) != 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    return test_judge()


if __name__ == "__main__":
    sys.exit(main())
