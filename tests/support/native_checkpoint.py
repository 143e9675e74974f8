# SPDX-License-Identifier: MIT
"""Reads a native checkpoint folder without the program that wrote it: the manifest, and
parameters and moments as vectors in the order of the model file."""

import array
import json
import os


def read_native(folder):
    """Returns the manifest and [parameters, m, v], each an array of manifest["elems"]."""
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    vectors = [array.array("f", bytes(4 * manifest["elems"])) for _ in range(3)]
    covered = 0
    for file in manifest["files"]:
        values = array.array("f")
        with open(os.path.join(folder, file["name"]), "rb") as f:
            values.frombytes(f.read())
        ranges = list(zip(file["ranges"][::2], file["ranges"][1::2]))
        at = 0
        for vector in vectors:
            for begin, elems in ranges:
                vector[begin:begin + elems] = values[at:at + elems]
                at += elems
        covered += sum(elems for _, elems in ranges)
        if at != len(values):
            raise ValueError(f"{file['name']}: {len(values)} numbers found, {at} needed")
    if covered != manifest["elems"]:
        raise ValueError(f"{folder}: ranges of {covered} elements, {manifest['elems']} needed")
    return manifest, vectors


def read_metrics(run):
    """The training lines of a run's metrics.jsonl."""
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [line for line in lines if "loss" in line]
