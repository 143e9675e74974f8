#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""weft plan: every option, both forms of the answer, and what is refused."""

import json
import os
import subprocess
import sys

WEFT = os.environ["WEFT"]
TMP = os.environ["WEFT_TMP"]
SMALL = ["--model", "L=4,H=4,C=128,T=128,V=2000", "--threads", "2", "--compute", "0.1"]
NETWORK = {
    "format": "weft-network", "version": 1, "library": "Open MPI v4.1.4", "ranks": 4,
    "hosts": 4, "latency_s": 6e-5, "bandwidth_Bps": 1.1e8,
    "congested_bandwidth_Bps": 0.9e8, "host_bandwidth_Bps": None, "sum_Bps": 6e9,
    "message_s": 1e-5,
}
failures = []


def run(*args):
    done = subprocess.run([WEFT, "plan", *args], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def check(condition, text):
    if not condition:
        failures.append(text)
        print(f"FAILED: {text}")


def plan(*args):
    """The answer as JSON, of a small model on four ranks unless args say otherwise."""
    given = list(args)
    if "--ranks" not in given:
        given += ["--ranks", "4"]
    if "--model" not in given:
        given = SMALL + given
    code, out, err = run(*given, "--json")
    check(code == 0, f"plan {' '.join(given)}: exit code {code}: {err.strip()}")
    return json.loads(out) if code == 0 else None


def refuses(words, *args, code=2):
    found, out, err = run(*args)
    line = err.strip()
    check(found == code, f"plan {' '.join(args)}: exit code {found}, needs {code}")
    check(words in line and "\n" not in line,
          f"plan {' '.join(args)}: needs one line with '{words}', found '{line}'")
    check(out == "", f"plan {' '.join(args)}: writes results: {out[:60]}")


def write(name, content):
    path = os.path.join(TMP, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(content if isinstance(content, str) else json.dumps(content))
    return path


def check_answer():
    a = plan()
    p = a["prediction"]
    check(a["job"]["ranks"] == 4 and a["job"]["hosts"] == 4, "ranks and hosts as asked")
    check(a["job"]["tokens"] == 4 * 8 * 128, "tokens: ranks x batch x seq x accum")
    check(p["compute_s"] == 0.1, "compute as given")
    check(p["step_s"] >= 0.1 and p["step_s"] >= p["wire_bound_s"], "no step beats a bound")
    check(abs(p["tokens_per_s"] * p["step_s"] - a["job"]["tokens"]) < 1, "tokens a second")
    check(0 <= p["exposed_s"] <= p["most_exposed_s"] <= p["step_s"], "exposed within the step")
    memory = a["memory_bytes"]
    check(memory["total"] == sum(v for k, v in memory.items() if k != "total"),
          "memory adds up")
    check(memory["moments"] < 0.6 * memory["parameters"], "moments are sharded")
    # The choice is the row that the tables mark, and no row is much better.
    for table, key in (("strategies", "strategy"), ("block_sizes", "block_bytes")):
        rows = a[table]
        best = [r for r in rows if r["best"]]
        check(len(best) == 1, f"{table}: one row is the best")
        check(best[0][key] == a["exchange"][key], f"{table}: the best is chosen")
        check(best[0]["step_s"] == p["step_s"], f"{table}: the best is predicted")
        least = min(r["step_s"] for r in rows)
        check(best[0]["step_s"] <= 1.011 * least, f"{table}: no row beats the best")
    check(len(a["strategies"]) == 4 and len(a["block_sizes"]) == 10, "whole tables")
    brief = plan("--brief")
    check("strategies" not in brief and "block_sizes" not in brief, "--brief: no tables")
    check(brief["prediction"] == p, "--brief: the same prediction")


def check_options():
    base = plan("--brief", "--strategy", "reduce-broadcast", "--block-bytes", "256k")
    step = base["prediction"]["step_s"]

    def other(*args):
        return plan("--brief", "--strategy", "reduce-broadcast", "--block-bytes", "256k", *args)

    check(base["exchange"]["block_bytes"] == 256 << 10, "--block-bytes")
    for strategy in ("central", "reduce-broadcast", "reduce-scatter", "allreduce"):
        found = plan("--brief", "--strategy", strategy)
        check(found["exchange"]["strategy"] == strategy, f"--strategy {strategy}")
    central = plan("--brief", "--strategy", "central")
    check(central["exchange"]["imbalance"] > 3.9, "central: one rank owns all")
    check(plan("--brief", "--strategy", "allreduce")["memory_bytes"]["moments"] >
          3 * base["memory_bytes"]["moments"], "allreduce: moments on all ranks")
    check(other("--one-root")["prediction"]["wire_bound_s"] >
          1.8 * base["prediction"]["wire_bound_s"], "--one-root: one link carries all")
    check(other("--roots", "2")["prediction"]["messages"] >
          base["prediction"]["messages"], "--roots: more messages")
    check(other("--overlap", "off")["prediction"]["step_s"] > step, "--overlap off")
    check(other("--wire", "bf16")["exchange"]["reduce_bytes"] * 2 ==
          base["exchange"]["reduce_bytes"], "--wire bf16: half the bytes")
    check(other("--split-embedding", "off")["prediction"]["sent_bytes"] <
          base["prediction"]["sent_bytes"], "--split-embedding off: no rows")
    check(other("--layout", "storage")["prediction"]["messages"] >
          base["prediction"]["messages"], "--layout storage: more pieces")
    check(other("--ranks", "12", "--rounds", "flat")["exchange"]["rounds"] == 1,
          "--rounds flat")
    check(other("--ranks", "12", "--rounds", "recursive")["exchange"]["rounds"] == 3,
          "--rounds recursive")
    check(other("--block-bytes", "one")["exchange"]["blocks"] == 1, "--block-bytes one")
    kept = [other("--recompute", r)["memory_bytes"]["activations"] for r in ("none", "mlp", "all")]
    check(kept[0] == base["memory_bytes"]["activations"] and kept[0] - kept[1] ==
          3 * 4 * 128 * 8 * 128 * 4 and kept[2] < kept[1], f"--recompute: {kept}")
    hosts = other("--hosts", "2")
    check(hosts["job"]["hosts"] == 2 and
          hosts["memory_bytes"]["parameters"] * 2 == base["memory_bytes"]["parameters"],
          "--hosts: one copy of the parameters a host")
    check(other("--hosts", "2", "--host-memory", "off")["memory_bytes"]["parameters"] ==
          base["memory_bytes"]["parameters"], "--host-memory off")
    check(other("--batch", "2", "--seq", "64", "--accum", "3")["job"]["tokens"] ==
          4 * 2 * 64 * 3, "--batch, --seq, --accum")
    check(other("--threads", "7")["job"]["threads"] == 7, "--threads")
    texts = other("--sample-every", "50")["memory_bytes"]
    check(base["memory_bytes"]["texts"] == 0 and texts["texts"] > 0 and
          texts["total"] - texts["program"] == base["memory_bytes"]["total"] -
          base["memory_bytes"]["program"] + texts["texts"], "--sample-every")
    rate = plan("--brief", "--model", "gpt2", "--ranks", "1", "--threads", "1",
                "--flops-per-second", "1e12", "--batch", "1")
    # 6 x 124.4M x 1024 tokens and attention: 0.88 TF.
    check(0.7 < rate["prediction"]["compute_s"] < 1.0, "--flops-per-second")
    again = plan("--brief", "--model", "gpt2", "--ranks", "1", "--threads", "1",
                 "--flops-per-second", "1e12", "--batch", "1", "--recompute", "mlp")
    # 8 C^2 a token in eleven layers
    check(abs(again["prediction"]["compute_s"] - rate["prediction"]["compute_s"] -
              8 * 768 ** 2 * 1024 * 11e-12) < 1e-3, "--recompute takes time")
    check(rate["prediction"]["messages"] == 0 and rate["prediction"]["exposed_s"] == 0,
          "one rank has nobody to wait for")
    machine = plan("--brief", "--model", "d4", "--ranks", "2")
    check(machine["compute_source"] == "this machine" and
          machine["flops_per_second"] > 1e8, "compute of this machine when none is given")


def check_network():
    path = write("network.json", NETWORK)
    slow = plan("--brief", "--network", path)
    fast = plan("--brief")
    check(slow["network"]["library"] == "Open MPI v4.1.4" and
          slow["network"]["bandwidth_Bps"] == 1.1e8, "--network: figures of the file")
    check(fast["network"]["file"] is None, "no file: assumed")
    check(slow["prediction"]["step_s"] > fast["prediction"]["step_s"], "a slow network is slow")
    code, out, _ = run(*SMALL, "--ranks", "4")
    check(code == 0 and "ASSUMED" in out and "best" in out and "tokens/s" in out,
          f"assumed figures are said to be: {out}")
    code, out, _ = run(*SMALL, "--ranks", "4", "--network", path)
    check(code == 0 and "ASSUMED" not in out and path in out, "measured figures are named")
    code, out, _ = run(*SMALL, "--ranks", "4", "--sample-every", "9")
    check(code == 0 and " + texts " in out, f"memory for texts: {out}")
    refuses("cannot open", *SMALL, "--ranks", "2", "--network", path + ".not", code=1)
    broken = dict(NETWORK, sum_Bps="fast")
    refuses("sum_Bps: found \"fast\", needs a number", *SMALL, "--ranks", "2", "--network",
            write("broken.json", broken), code=1)


def check_refusals():
    refuses("needs --model", "--ranks", "2")
    refuses("--model gpt9: needs gpt2", "--model", "gpt9", "--ranks", "2")
    refuses("needs a C that H divides", "--model", "L=2,H=5,C=64", "--ranks", "2")
    refuses("needs --ranks", *SMALL)
    refuses("--ranks: found 0", *SMALL, "--ranks", "0")
    refuses("--ranks: found 5000", *SMALL, "--ranks", "5000")
    refuses("--hosts: found 3", *SMALL, "--ranks", "2", "--hosts", "3")
    refuses("--seq: found 129", *SMALL, "--ranks", "2", "--seq", "129")
    refuses("both need 1", *SMALL, "--ranks", "2", "--batch", "0")
    refuses("needs at most 4096", *SMALL, "--ranks", "2", "--threads", "5000")
    refuses("--roots: found 3, needs 1 to 2", *SMALL, "--ranks", "2", "--roots", "3")
    refuses("needs --strategy reduce-broadcast", *SMALL, "--ranks", "2", "--roots", "2")
    refuses("needs --strategy reduce-broadcast", *SMALL, "--ranks", "2", "--one-root")
    refuses("needs at least 64", *SMALL, "--ranks", "2", "--block-bytes", "63")
    refuses("--block-bytes", *SMALL, "--ranks", "2", "--block-bytes", "some")
    refuses("needs one of them", *SMALL, "--ranks", "2", "--flops-per-second", "1e12")
    refuses("--compute: found -1", "--model", "d4", "--ranks", "2", "--compute=-1")
    refuses("--flops-per-second: found 3", "--model", "d4", "--ranks", "2",
            "--flops-per-second", "3")
    refuses("--strategy", *SMALL, "--ranks", "2", "--strategy", "best")
    refuses("needs options only", *SMALL, "--ranks", "2", "more")
    refuses("blocks x ranks", "--model", "gpt2", "--ranks", "4000", "--compute", "1",
            "--block-bytes", "64", "--brief")


def main():
    os.makedirs(TMP, exist_ok=True)
    check_answer()
    check_options()
    check_network()
    check_refusals()
    print(f"plan: {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
