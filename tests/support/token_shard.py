# SPDX-License-Identifier: MIT
"""Writes a token shard of text-like tokens, the same ones each time, and reads it."""

import array


def write_tokens(path, count, vocab):
    """`count` ids below `vocab`: few are frequent, and most follow from the one before."""
    state, tokens = 12345, [1]
    while len(tokens) < count:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        rare = int(vocab * ((state >> 33) / 2**31) ** 3)
        tokens.append((2 * tokens[-1] + 1) % 23 if state >> 24 & 3 else rare)
    head = array.array("i", [20240520, 1, count] + [0] * 253)
    with open(path, "wb") as f:
        f.write(head.tobytes() + array.array("H", tokens).tobytes())


def read_tokens(path):
    with open(path, "rb") as f:
        data = f.read()
    return array.array("H", data[1024:])
