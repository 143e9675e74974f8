#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""PyTorch as judge of a model and its gradients.

As a module: compare(model_bin, x, y, found) computes the reference for any llm.c model
file and any batch, and prints the relative L2 distance of what was found, tensor by
tensor. As a program: torch_live.py MODEL.bin DEBUG_STATE.bin judges one debug state;
without arguments the judge itself is tested on the golden files, then random models are
made and trained for a few steps by the program ($WEFT) and by PyTorch, side by side. Exit
code 77 where torch cannot be imported.
"""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "golden"), os.path.join(HERE, "..", "support")]
try:
    import numpy as np
    import torch

    import gpt2_reference as ref
    from native_checkpoint import read_metrics, read_native
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

GOLDEN = os.path.join(HERE, "..", "golden")
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


# ---- training side by side --------------------------------------------------------------

STEPS = 3
TRAINING = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "decay": 0.1, "clip": 0.2}
WEIGHT_LIMIT, NUMBER_LIMIT = 1e-5, 1e-5  # weights after STEPS steps; losses and norms

# name, dimensions, sequences a micro-batch, micro-batches a step
MODELS = [
    ("moderate", ref.dims_of(L=4, H=4, C=128, T=64, V=300), 4, 1),
    # Several tiles of rows, of chunks and of the vocabulary, the last ones cut short.
    ("many_tiles", ref.dims_of(L=2, H=3, C=24, T=50, V=4200), 13, 2),
]


def random_params(dims, rng):
    params = {}
    for name, _, _ in ref.TENSORS:
        values = 0.1 * rng.standard_normal(ref.full_shape(name, dims))
        if name in ("ln1w", "ln2w", "lnfw"):
            values += 1
        if name == "wte":
            values[dims["V"]:] = 0
        params[name] = values.astype(np.float32)
    return params


def write_shard(path, tokens):
    head = np.zeros(256, dtype="<i4")
    head[:3] = [20240520, 1, len(tokens)]
    with open(path, "wb") as f:
        f.write(head.tobytes() + np.asarray(tokens).astype("<u2").tobytes())


def train_with_weft(model, data, run, batch, accum):
    t = TRAINING
    command = [os.environ["WEFT"], "train", "--model", model, "--data", data, "--out", run,
               "--batch", batch, "--accum", accum, "--steps", STEPS, "--order", "sequential",
               "--schedule", "constant", "--warmup", 0, "--lr", t["lr"], "--beta1",
               t["betas"][0], "--beta2", t["betas"][1], "--eps", t["eps"], "--weight-decay",
               t["decay"], "--clip", t["clip"], "--resume", "none", "--threads", 2]
    subprocess.run([str(word) for word in command], check=True)
    steps = read_metrics(run)
    manifest, (weights, _, _) = read_native(f"{run}/checkpoints/step-{STEPS:06d}")
    tensors = {}
    for t in manifest["tensors"]:
        shape = (t["layers"], t["rows"], t["cols"])
        count = shape[0] * shape[1] * shape[2]
        tensors[t["name"]] = np.asarray(weights[t["begin"]:t["begin"] + count]).reshape(shape)
    return tensors, [s["loss"] for s in steps], [s["grad_norm"] for s in steps]


def train_with_torch(dims, params, tokens, sequences):
    """The same in double precision: step k takes the next `sequences` windows."""
    p = ref.leaves(params, torch.float64)
    groups = [{"params": [p[n] for n in p if (n in ref.MATRICES) == decays],
               "weight_decay": TRAINING["decay"] if decays else 0.0} for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=TRAINING["lr"], betas=TRAINING["betas"],
                                  eps=TRAINING["eps"])
    losses, norms = [], []
    for step in range(STEPS):
        begin, n = step * sequences * dims["T"], sequences * dims["T"]
        x = torch.tensor(tokens[begin:begin + n]).reshape(sequences, -1)
        y = torch.tensor(tokens[begin + 1:begin + n + 1]).reshape(sequences, -1)
        optimizer.zero_grad()
        loss = ref.loss_of(ref.forward(p, dims, x), y)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(p.values(), TRAINING["clip"])))
        losses.append(float(loss))
        optimizer.step()
    return {n: t.detach().numpy() for n, t in p.items()}, losses, norms


def weight_rows(found, expected, layers, C):
    """Relative L2 distance of each tensor of each layer. The key bias is left out: its true
    gradient is 0, and AdamW makes full steps of the rounding noise."""
    for name, per_layer, _ in ref.TENSORS:
        for layer in range(layers if per_layer else 1):
            a = found[name][layer].ravel()
            b = (expected[name][layer] if per_layer else expected[name]).ravel()
            if name == "qkvb":
                a, b = np.delete(a, slice(C, 2 * C)), np.delete(b, slice(C, 2 * C))
            yield (f"{name}[{layer}]" if per_layer else name), ref.relative_l2(a, b)


def judge_training(name, dims, batch, accum):
    folder = os.path.join(os.environ.get("WEFT_TMP", "torch-live"), name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(f"{folder}/tokens")
    rng = np.random.default_rng(7)
    params = random_params(dims, rng)
    sequences = batch * accum
    tokens = rng.integers(0, dims["V"], size=STEPS * sequences * dims["T"] + 1)
    ref.write_model(f"{folder}/model.bin", dims, params)
    write_shard(f"{folder}/tokens/live_train_000000.bin", tokens)
    found, losses, norms = train_with_weft(f"{folder}/model.bin", f"{folder}/tokens",
                                           f"{folder}/run", batch, accum)
    expected, right_losses, right_norms = train_with_torch(dims, params, tokens, sequences)
    rows = list(weight_rows(found, expected, dims["L"], dims["C"]))
    numbers = [(f"{what} of step {k + 1}", abs(a - b) / b)
               for what, pair in (("loss", (losses, right_losses)), ("norm", (norms, right_norms)))
               for k, (a, b) in enumerate(zip(*pair))]
    if len(numbers) != 2 * STEPS or min(right_norms) <= TRAINING["clip"]:
        print(f"{name}: {len(numbers)} numbers, norms {right_norms}: not what was to be tested")
        return 1
    bad = [r for r in rows if not r[1] <= WEIGHT_LIMIT]
    bad += [r for r in numbers if not r[1] <= NUMBER_LIMIT]
    for what, limit, all_rows in (("weights", WEIGHT_LIMIT, rows),
                                  ("losses and norms", NUMBER_LIMIT, numbers)):
        worst = max(all_rows, key=lambda r: r[1])
        print(f"{name}: {what} after {STEPS} steps: largest distance from PyTorch "
              f"{worst[1]:.2e} ({worst[0]}), limit {limit:.0e}")
    for row in bad:
        print(f"{name}: {row[0]}: {row[1]:.3e}  TOO FAR")
    return len(bad)


def main():
    torch.set_num_threads(1)
    if len(sys.argv) == 3:
        return 1 if compare_state(sys.argv[1], sys.argv[2]) else 0
    if len(sys.argv) != 1:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    bad = test_judge()
    if "WEFT" in os.environ:
        bad += sum(judge_training(*model) for model in MODELS)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
