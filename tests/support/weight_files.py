# SPDX-License-Identifier: MIT
"""Reads and writes llm.c models, safetensors and GGUF files without the program under test.

A model is a dict of dimensions (L H C T V Vp) and a dict name -> array("f") in the order of
the llm.c file, where a name is that of one layer's tensor: "wte", "qkvw.3". Writers take any
list of tensors, right or wrong, so that damaged files can be made.
"""

import array
import json
import struct

PER_LAYER = ("ln1w", "ln1b", "qkvw", "qkvb", "attprojw", "attprojb", "ln2w", "ln2b", "fcw", "fcb",
             "fcprojw", "fcprojb")
MATRICES = {"wte", "wpe", "qkvw", "attprojw", "fcw", "fcprojw"}
TRANSPOSED = {"qkvw", "attprojw", "fcw", "fcprojw"}  # in Hugging Face's files

HF = {"wte": "wte.weight", "wpe": "wpe.weight", "ln1w": "ln_1.weight", "ln1b": "ln_1.bias",
      "qkvw": "attn.c_attn.weight", "qkvb": "attn.c_attn.bias", "attprojw": "attn.c_proj.weight",
      "attprojb": "attn.c_proj.bias", "ln2w": "ln_2.weight", "ln2b": "ln_2.bias",
      "fcw": "mlp.c_fc.weight", "fcb": "mlp.c_fc.bias", "fcprojw": "mlp.c_proj.weight",
      "fcprojb": "mlp.c_proj.bias", "lnfw": "ln_f.weight", "lnfb": "ln_f.bias"}
GGUF = {"wte": "token_embd.weight", "wpe": "position_embd.weight", "ln1w": "attn_norm.weight",
        "ln1b": "attn_norm.bias", "qkvw": "attn_qkv.weight", "qkvb": "attn_qkv.bias",
        "attprojw": "attn_output.weight", "attprojb": "attn_output.bias", "ln2w": "ffn_norm.weight",
        "ln2b": "ffn_norm.bias", "fcw": "ffn_up.weight", "fcb": "ffn_up.bias",
        "fcprojw": "ffn_down.weight", "fcprojb": "ffn_down.bias", "lnfw": "output_norm.weight",
        "lnfb": "output_norm.bias"}


def dims_of(L, H, C, T, V):
    return {"L": L, "H": H, "C": C, "T": T, "V": V, "Vp": (V + 127) // 128 * 128}


def shape_of(kind, d):
    C = d["C"]
    return {"wte": (d["V"], C), "wpe": (d["T"], C), "qkvw": (3 * C, C), "qkvb": (3 * C,),
            "attprojw": (C, C), "fcw": (4 * C, C), "fcb": (4 * C,),
            "fcprojw": (C, 4 * C)}.get(kind, (C,))


def names_of(d):
    """All names, kind by kind as in the llm.c file."""
    out = ["wte", "wpe"]
    for kind in PER_LAYER:
        out += [f"{kind}.{i}" for i in range(d["L"])]
    return out + ["lnfw", "lnfb"]


def kind_of(name):
    return name.split(".")[0]


def their_name(name, table, layer_prefix):
    kind, _, layer = name.partition(".")
    return f"{layer_prefix}{layer}.{table[kind]}" if layer else table[kind]


def count(shape):
    n = 1
    for x in shape:
        n *= x
    return n


def transpose(values, rows, cols):
    out = array.array("f", bytes(4 * rows * cols))
    for r in range(rows):
        out[r::rows] = values[r * cols:(r + 1) * cols]
    return out


# ---- llm.c ------------------------------------------------------------------------------


def read_llmc(path):
    """Returns dimensions and tensors; wte without its padding rows."""
    with open(path, "rb") as f:
        data = f.read()
    head = struct.unpack_from("<8i", data)
    d = dict(zip(("T", "V", "L", "H", "C", "Vp"), head[2:]))
    out, at = {}, 1024
    for name in names_of(d):
        n = count(shape_of(kind_of(name), d))
        out[name] = array.array("f", data[at:at + 4 * n])
        at += 4 * (d["Vp"] * d["C"] if name == "wte" else n)
    assert head[:2] == (20240326, 3) and at == len(data), path
    return d, out


# ---- numbers ----------------------------------------------------------------------------


def as_bytes(values, dtype):
    if dtype == "F32":
        return values.tobytes()
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    bits = array.array("I", values.tobytes())
    return array.array("H", [(b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits]).tobytes()


def rounded(values, dtype):
    """What is left of the values."""
    data = as_bytes(values, dtype)
    if dtype == "F32":
        return values
    if dtype == "F16":
        return array.array("f", struct.unpack(f"<{len(values)}e", data))
    return array.array("f", array.array("I", [h << 16 for h in array.array("H", data)]).tobytes())


# ---- safetensors ------------------------------------------------------------------------


def hf_entries(d, tensors, dtype="F32", prefix="transformer."):
    """[name, dtype, shape, bytes] of each tensor, as they should be."""
    out = []
    for name in names_of(d):
        shape, values = shape_of(kind_of(name), d), tensors[name]
        if kind_of(name) in TRANSPOSED:
            values, shape = transpose(values, *shape), shape[::-1]
        out.append([prefix + their_name(name, HF, "h."), dtype, list(shape),
                    as_bytes(values, dtype)])
    return out


def safetensors_head(entries, metadata=True):
    head, at = ({"__metadata__": {"format": "pt"}} if metadata else {}), 0
    for name, dtype, shape, data in entries:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return head


def write_safetensors(path, entries, head=None, length=None, text=None):
    """head, text: in place of what belongs to the entries; length: in place of the text's."""
    if text is None:
        text = json.dumps(safetensors_head(entries) if head is None else head).encode()
        text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text) if length is None else length) + text)
        for entry in entries:
            f.write(entry[3])


def read_safetensors(path):
    """Returns metadata and {name: [dtype, shape, bytes]}; checks that there are no holes."""
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    assert n % 8 == 0, n
    head = json.loads(data[8:8 + n])
    metadata = head.pop("__metadata__")
    out, at = {}, 0
    for name, entry in sorted(head.items(), key=lambda e: e[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == at, (name, begin, at)
        out[name] = [entry["dtype"], entry["shape"], data[8 + n + begin:8 + n + end]]
        at = end
    assert at == len(data) - 8 - n
    return metadata, out


def config_of(d, **changes):
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
              "activation_function": "gelu_new", "n_embd": d["C"], "n_layer": d["L"],
              "n_head": d["H"], "n_positions": d["T"], "n_ctx": d["T"], "vocab_size": d["V"],
              "layer_norm_epsilon": 1e-5}
    config.update(changes)
    return {k: v for k, v in config.items() if v != "absent"}


# ---- GGUF -------------------------------------------------------------------------------

GGUF_TYPES = {"F32": 0, "F16": 1, "BF16": 30}
U32, F32, BOOL, STRING, ARRAY, I32, U64 = 4, 6, 7, 8, 9, 5, 10


def gguf_text(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == ARRAY:
        item, values = value
        return struct.pack("<IQ", item, len(values)) + b"".join(gguf_value(item, v) for v in values)
    if kind == STRING:
        return gguf_text(value)
    return struct.pack({U32: "<I", F32: "<f", BOOL: "<?", I32: "<i", U64: "<Q"}[kind], value)


def gguf_keys(d, **changes):
    keys = {"general.architecture": (STRING, "gpt2"), "gpt2.block_count": (U32, d["L"]),
            "gpt2.context_length": (U32, d["T"]), "gpt2.embedding_length": (U32, d["C"]),
            "gpt2.feed_forward_length": (U32, 4 * d["C"]),
            "gpt2.attention.head_count": (U32, d["H"]),
            "gpt2.attention.layer_norm_epsilon": (F32, 1e-5)}
    keys.update(changes)
    return [(k, *v) for k, v in keys.items() if v]


def gguf_entries(d, tensors, dtype="F32"):
    """[name, type, dims (fastest first), bytes]"""
    out = []
    for name in names_of(d):
        kind = kind_of(name)
        t = dtype if kind in MATRICES and kind != "wpe" else "F32"
        out.append([their_name(name, GGUF, "blk."), GGUF_TYPES[t],
                    list(shape_of(kind, d))[::-1], as_bytes(tensors[name], t)])
    return out


def gguf_bytes(keys, entries, version=3, magic=b"GGUF", n_keys=None, n_tensors=None,
               offsets=None, align=32):
    """offsets: {tensor name: offset} in place of the right ones."""
    out = magic + struct.pack("<IQQ", version, len(entries) if n_tensors is None else n_tensors,
                              len(keys) if n_keys is None else n_keys)
    for key, kind, value in keys:
        out += gguf_text(key) + struct.pack("<I", kind)
        out += value if isinstance(value, bytes) and kind != STRING else gguf_value(kind, value)
    at, body = 0, b""
    for name, kind, dims, data in entries:
        out += gguf_text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        out += struct.pack("<IQ", kind, (offsets or {}).get(name, at))
        body += data + b"\0" * (-len(data) % align)
        at = len(body)
    return out + b"\0" * (-len(out) % align) + body


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == ARRAY:
            item, n = self.take("IQ")
            return [self.value(item) for _ in range(n)]
        if kind == STRING:
            return self.text()
        return self.take({U32: "I", F32: "f", BOOL: "?", I32: "i", U64: "Q"}[kind])


def read_gguf(path):
    """Returns {key: value} and {name: [type, dims, bytes]}; checks places and sizes."""
    with open(path, "rb") as f:
        r = _Reader(f.read())
    assert r.data[:4] == b"GGUF"
    r.at = 4
    version, n_tensors, n_keys = r.take("IQQ")
    assert version == 3
    keys, infos = {}, []
    for _ in range(n_keys):
        key = r.text()
        keys[key] = r.value(r.take("I"))
    for _ in range(n_tensors):
        name, n = r.text(), r.take("I")
        dims = [r.take("Q") for _ in range(n)]
        infos.append((name, dims) + r.take("IQ"))
    start, at, out = (r.at + 31) // 32 * 32, 0, {}
    for name, dims, kind, offset in infos:
        assert offset == at, (name, offset, at)
        size = count(dims) * {0: 4, 1: 2, 30: 2}[kind]
        out[name] = [kind, dims, r.data[start + offset:start + offset + size]]
        assert len(out[name][2]) == size, name
        at = (offset + size + 31) // 32 * 32
    assert start + at == len(r.data)
    return keys, out
