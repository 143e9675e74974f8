# SPDX-License-Identifier: MIT
"""A plain GPT-2 in PyTorch, and the llm.c files it is exchanged through.

The model is written for reading, not for speed: whole T x T attention, no dropout, the
head tied to the token embedding. Gradients come from autograd, so nothing here repeats
the arithmetic of the C backward pass. Needs only torch and NumPy.
"""

import math

import numpy as np
import torch

MODEL_MAGIC, MODEL_VERSION = 20240326, 3
DEBUG_MAGIC, DEBUG_VERSION = 20240327, 2
HEADER_WORDS = 256
LN_EPS = 1e-5

# Storage order of the model file: name, has one copy a layer, shape as a function of the
# dimensions. Matrices are [out, in].
TENSORS = [
    ("wte", False, lambda d: (d["Vp"], d["C"])),
    ("wpe", False, lambda d: (d["T"], d["C"])),
    ("ln1w", True, lambda d: (d["C"],)),
    ("ln1b", True, lambda d: (d["C"],)),
    ("qkvw", True, lambda d: (3 * d["C"], d["C"])),
    ("qkvb", True, lambda d: (3 * d["C"],)),
    ("attprojw", True, lambda d: (d["C"], d["C"])),
    ("attprojb", True, lambda d: (d["C"],)),
    ("ln2w", True, lambda d: (d["C"],)),
    ("ln2b", True, lambda d: (d["C"],)),
    ("fcw", True, lambda d: (4 * d["C"], d["C"])),
    ("fcb", True, lambda d: (4 * d["C"],)),
    ("fcprojw", True, lambda d: (d["C"], 4 * d["C"])),
    ("fcprojb", True, lambda d: (d["C"],)),
    ("lnfw", False, lambda d: (d["C"],)),
    ("lnfb", False, lambda d: (d["C"],)),
]
MATRICES = {"wte", "wpe", "qkvw", "attprojw", "fcw", "fcprojw"}  # what weight decay acts on


def dims_of(L, H, C, T, V):
    return {"L": L, "H": H, "C": C, "T": T, "V": V, "Vp": (V + 127) // 128 * 128}


def full_shape(name, dims):
    for n, per_layer, shape in TENSORS:
        if n == name:
            return ((dims["L"],) if per_layer else ()) + shape(dims)
    raise KeyError(name)


# ---- files ------------------------------------------------------------------------------


def write_model(path, dims, params):
    """params: name -> array of full_shape (all layers in one); written as fp32."""
    head = np.zeros(HEADER_WORDS, dtype="<i4")
    head[:8] = [MODEL_MAGIC, MODEL_VERSION] + [dims[k] for k in ("T", "V", "L", "H", "C", "Vp")]
    with open(path, "wb") as f:
        f.write(head.tobytes())
        for name, _, _ in TENSORS:
            array = np.asarray(params[name])
            if array.shape != full_shape(name, dims):
                raise ValueError(f"{name}: found {array.shape}, needs {full_shape(name, dims)}")
            f.write(array.astype("<f4").tobytes())


def _take_tensors(data, at, dims):
    out = {}
    for name, _, _ in TENSORS:
        shape = full_shape(name, dims)
        count = math.prod(shape)
        out[name] = np.frombuffer(data, "<f4", count, at).reshape(shape).copy()
        at += 4 * count
    if at != len(data):
        raise ValueError(f"{len(data)} bytes found, {at} needed")
    return out


def read_model(path):
    with open(path, "rb") as f:
        data = f.read()
    head = np.frombuffer(data, "<i4", HEADER_WORDS)
    if head[0] != MODEL_MAGIC or head[1] != MODEL_VERSION:
        raise ValueError(f"{path}: magic {head[0]} version {head[1]}, needs "
                         f"{MODEL_MAGIC} version {MODEL_VERSION}")
    dims = dict(zip(("T", "V", "L", "H", "C", "Vp"), (int(x) for x in head[2:8])))
    return dims, _take_tensors(data, 4 * HEADER_WORDS, dims)


def write_debug_state(path, dims, x, y, logits, loss, grads):
    B, T = x.shape
    head = np.zeros(HEADER_WORDS, dtype="<i4")
    head[:4] = [DEBUG_MAGIC, DEBUG_VERSION, B, T]
    with open(path, "wb") as f:
        f.write(head.tobytes())
        f.write(np.asarray(x).astype("<i4").tobytes())
        f.write(np.asarray(y).astype("<i4").tobytes())
        f.write(np.asarray(logits).astype("<f4").tobytes())
        f.write(np.array([loss], dtype="<f4").tobytes())
        for name, _, _ in TENSORS:
            f.write(np.asarray(grads[name]).astype("<f4").tobytes())


def read_debug_state(path, dims):
    """dims: of the model the state belongs to (the file itself holds B and T only)."""
    with open(path, "rb") as f:
        data = f.read()
    head = np.frombuffer(data, "<i4", HEADER_WORDS)
    if head[0] != DEBUG_MAGIC or head[1] != DEBUG_VERSION:
        raise ValueError(f"{path}: magic {head[0]} version {head[1]}, needs "
                         f"{DEBUG_MAGIC} version {DEBUG_VERSION}")
    B, T = int(head[2]), int(head[3])
    at = 4 * HEADER_WORDS
    x = np.frombuffer(data, "<i4", B * T, at).reshape(B, T)
    y = np.frombuffer(data, "<i4", B * T, at + 4 * B * T).reshape(B, T)
    at += 8 * B * T
    logits = np.frombuffer(data, "<f4", B * T * dims["V"], at).reshape(B, T, dims["V"])
    at += 4 * logits.size
    loss = float(np.frombuffer(data, "<f4", 1, at)[0])
    return {"x": x, "y": y, "logits": logits, "loss": loss,
            "grads": _take_tensors(data, at + 4, dims)}


# ---- the model --------------------------------------------------------------------------


def leaves(params, dtype):
    """Parameters as autograd leaves of one dtype."""
    return {n: torch.tensor(np.asarray(p), dtype=dtype).requires_grad_() for n, p in params.items()}


def _layer_norm(x, w, b):
    mean = x.mean(-1, keepdim=True)
    var = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + LN_EPS) * w + b


def _gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _attention(x, p, layer, heads):
    B, T, C = x.shape
    qkv = x @ p["qkvw"][layer].T + p["qkvb"][layer]
    q, k, v = (t.reshape(B, T, heads, C // heads).transpose(1, 2) for t in qkv.split(C, dim=-1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(C // heads)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    y = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1) @ v
    y = y.transpose(1, 2).reshape(B, T, C)
    return y @ p["attprojw"][layer].T + p["attprojb"][layer]


def forward(p, dims, x):
    """Logits [B, T, V]; the padding rows of wte take no part."""
    B, T = x.shape
    wte = p["wte"][: dims["V"]]
    h = wte[x] + p["wpe"][:T]
    for i in range(dims["L"]):
        h = h + _attention(_layer_norm(h, p["ln1w"][i], p["ln1b"][i]), p, i, dims["H"])
        a = _layer_norm(h, p["ln2w"][i], p["ln2b"][i]) @ p["fcw"][i].T + p["fcb"][i]
        h = h + _gelu(a) @ p["fcprojw"][i].T + p["fcprojb"][i]
    return _layer_norm(h, p["lnfw"], p["lnfb"]) @ wte.T


def loss_of(logits, y):
    """Mean cross-entropy over all tokens of the batch."""
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def reference(dims, params, x, y, dtype=torch.float64):
    """Loss, logits and every gradient of one batch, as NumPy arrays."""
    p = leaves(params, dtype)
    x, y = torch.tensor(np.asarray(x)).long(), torch.tensor(np.asarray(y)).long()
    logits = forward(p, dims, x)
    loss = loss_of(logits, y)
    loss.backward()
    return {"loss": float(loss), "logits": logits.detach().numpy(),
            "grads": {n: t.grad.numpy() for n, t in p.items()}}


def adamw(dims, params, x, y, steps, lr, betas, eps, decay, clip=None, dtype=torch.float64):
    """`steps` of torch.optim.AdamW on one batch: final parameters, losses (each before its
    step) and gradient norms (before clipping)."""
    p = leaves(params, dtype)
    x, y = torch.tensor(np.asarray(x)).long(), torch.tensor(np.asarray(y)).long()
    optimizer = torch.optim.AdamW(
        [{"params": [p[n] for n in p if n in MATRICES], "weight_decay": decay},
         {"params": [p[n] for n in p if n not in MATRICES], "weight_decay": 0.0}],
        lr=lr, betas=betas, eps=eps)
    losses, norms = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(forward(p, dims, x), y)
        loss.backward()
        limit = math.inf if clip is None else clip
        norm = torch.nn.utils.clip_grad_norm_(p.values(), limit)
        losses.append(float(loss))
        norms.append(float(norm))
        optimizer.step()
    return {n: t.detach().numpy() for n, t in p.items()}, losses, norms


def relative_l2(found, expected):
    """Norm of the difference over the norm of `expected` (plain norm where that is 0)."""
    found = np.asarray(found, dtype=np.float64)
    expected = np.asarray(expected, dtype=np.float64)
    scale = np.linalg.norm(expected)
    return float(np.linalg.norm(found - expected) / (scale if scale > 0 else 1.0))
