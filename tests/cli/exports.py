#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""train --tensorboard and --prometheus: the same numbers as metrics.jsonl, in forms that
their own readers take. Event files are decoded by protoc where it is."""

import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys

SOURCE = os.environ["WEFT_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from token_shard import write_tokens  # noqa: E402

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
PROTO = """syntax = "proto3";
message Value { string tag = 1; float simple_value = 2; }
message Summary { repeated Value value = 1; }
message Event {
  double wall_time = 1;
  int64 step = 2;
  oneof what { string file_version = 3; Summary summary = 5; }
}
"""
failures = []


def check(condition, text):
    if not condition:
        failures.append(text)
        print(f"FAILED: {text}")


def train(steps, *args):
    done = subprocess.run([WEFT, "train", "--data", "tokens", "--model",
                           "L=1,H=2,C=32,T=32,V=384", "--batch", "2", "--threads", "1",
                           "--eval-every", "4", "--eval-batches", "2", "--out", "run",
                           "--steps", str(steps), *args],
                          capture_output=True, text=True, timeout=120, cwd=TMP, check=False)
    check(done.returncode == 0, f"train {args}: {done.stderr}")
    return done.stderr


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        head = data[at:at + 8]
        length, = struct.unpack("<Q", head)
        check(struct.unpack("<I", data[at + 8:at + 12])[0] == masked(head), "sum of a length")
        event = data[at + 12:at + 12 + length]
        check(struct.unpack("<I", data[at + 12 + length:at + 16 + length])[0] == masked(event),
              "sum of an event")
        yield event
        at += 16 + length


def decode(event):
    done = subprocess.run(["protoc", "--decode=Event", "-I", TMP, "event.proto"], input=event,
                          capture_output=True, timeout=60, check=False)
    check(done.returncode == 0, f"protoc: {done.stderr}")
    return done.stdout.decode()


def event_files():
    files = sorted(glob.glob(os.path.join(TMP, "run/tensorboard/*")))
    check(len(files) == 2, f"{files}: needs one a process")
    check(crc32c(b"123456789") == 0xE3069283, "the checksum of this test")
    found = {}
    for path in files:
        check(re.fullmatch(r"events\.out\.tfevents\.\d{10}\..+\.\d+\.\d+", os.path.basename(path)),
              f"name {path}")
        with open(path, "rb") as f:
            check(f.read(13) == bytes.fromhex("1800000000000000a37f4b2209"), "first record")
        events = list(records(path))
        check(b"brain.Event:2" in events[0], "file version")
        if not shutil.which("protoc"):
            continue
        for event in events[1:]:
            text = decode(event)
            check(not re.search(r"^\s*\d+:", text, re.M), f"a field nobody knows: {text}")
            step = int(re.search(r"^step: (\d+)", text, re.M).group(1))
            for tag, value in re.findall(r'tag: "([^"]+)"\s+simple_value: (\S+)', text):
                found[tag, step] = float(value)
    return found


def same_numbers(found):
    with open(os.path.join(TMP, "run/metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    for m in lines:
        for key, tag in (("loss", "train/loss"), ("lr", "train/learning_rate"),
                         ("tokens_per_s", "speed/tokens_per_second"),
                         ("val_loss", "validation/loss")):
            if key in m:
                value = found.get((tag, m["step"]), float("nan"))
                check(abs(value - m[key]) <= 1e-5 * abs(m[key]), f"{tag} of step {m['step']}: "
                                                                 f"{value}, needs {m[key]}")
    return lines


def prometheus(lines):
    with open(os.path.join(TMP, "node/weft.prom"), encoding="utf-8") as f:
        text = f.read()
    for line in text.splitlines():
        check(re.fullmatch(r'# HELP weft_\w+ .+|# TYPE weft_\w+ (gauge|counter)|'
                           r'weft_\w+\{run="run"\} \S+', line), f"line '{line}'")
    values = {name: float(v) for name, v in re.findall(r"^(weft_\w+)\{.*\} (\S+)$", text, re.M)}
    last = [m for m in lines if "loss" in m][-1]
    check(values["weft_step"] == 12 and abs(values["weft_loss"] - last["loss"]) < 1e-6 and
          values["weft_tokens_total"] == last["tokens"], f"values {values}")
    check("weft_validation_loss" in values, f"values {values}")
    check(os.listdir(os.path.join(TMP, "node")) == ["weft.prom"], "something is left over")


def main():
    shutil.rmtree(TMP, ignore_errors=True)
    os.makedirs(os.path.join(TMP, "tokens"))
    os.makedirs(os.path.join(TMP, "node"))
    write_tokens(os.path.join(TMP, "tokens/x_train_000001.bin"), 5000, 384)
    write_tokens(os.path.join(TMP, "tokens/x_val_000001.bin"), 1000, 384)
    with open(os.path.join(TMP, "event.proto"), "w", encoding="utf-8") as f:
        f.write(PROTO)
    train(8, "--tensorboard", "--lr", "1e-3")
    train(12, "--tensorboard", "--lr", "1e-3", "--prometheus", "node/weft.prom")
    found = event_files()
    with open(os.path.join(TMP, "run/metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    if shutil.which("protoc"):
        same_numbers(found)
    prometheus(lines)
    said = train(14, "--lr", "1e-3", "--prometheus", "no/such/folder/x.prom")
    check(said.count("warning: --prometheus") == 1, f"a folder that is not there: {said}")
    print(f"{len(failures)} failures")
    if failures:
        return 1
    if not shutil.which("protoc"):
        print("no protoc here: event files were not decoded")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
