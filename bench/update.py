#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the network and the update phase over it, and writes tables and JSON.

    bench/update.py --weft build/weft --out DIR [--quick] [--only NAME]...
                    [--hosts 4] [--ranks-per-host 1] [--rate 1gbit] [--delay 50us]
    bench/update.py --weft build/weft --out DIR --hostfile FILE --ranks N [--launch "..."]

Without --hostfile the hosts are namespaces of this machine (docs/TESTBED.md; root, Linux), whose
cores cannot compute for all of them: compute is simulated. With --hostfile the ranks are
started by mpirun on a real cluster and compute; --launch gives mpirun's other options, e.g.
"--map-by ppr:1:node:PE=16 --bind-to core", and --threads the workers of a rank.

DIR gets network.json, a JSON file for each part, and tables.md. Parts:
  strategies  strategies x layouts x block sizes x overlap
  roots       one root against roots that take turns, both engines
  upstream    the setting this design began with (B=4, T=64 a rank, blocks of 1.9M
              parameters, MPI's reductions and broadcasts) beside ours, and what lies between
--quick takes a smaller model, few sizes and one round: a minute or two, for a first look.
"""
import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]
import hosts as bed
import tables

# Of a model whose gradients take about as long on the wire of 4 hosts at 1 Gbit/s as its
# compute is said to take.
MODEL, COMPUTE = "L=6,H=6,C=384,T=128,V=12000", 0.9
QUICK_MODEL, QUICK_COMPUTE = "L=3,H=4,C=256,T=64,V=4000", 0.2
# The seed's: GPT-2 124M; a core of today takes about a second for 256 tokens.
UPSTREAM_MODEL, UPSTREAM_COMPUTE = "gpt2", 1.1
UPSTREAM_BLOCK = 4 * 1_900_000


class Bed:
    """Hosts of this machine."""

    def __init__(self, args):
        os.environ.setdefault("WEFT_BUILD", str(Path(args.weft).parent))
        reason = bed.why_not()
        if reason:
            sys.exit(f"update.py: no hosts can be made here: {reason}")
        self.args = args
        self.simulated = True
        self.text = (f"{args.hosts} hosts of one machine ({os.cpu_count()} cores), links of "
                     f"{args.rate}, {args.delay} one way")

    def __enter__(self):
        self.hosts = bed.Hosts(self.args.hosts, self.args.rate, self.args.delay)
        return self

    def __exit__(self, *_):
        self.hosts.close()

    def run(self, words):
        env = dict(pair.split("=", 1) for pair in self.args.env)
        return self.hosts.mpirun(words, self.args.ranks_per_host, env).returncode


class Cluster:
    """Machines of a host file."""

    def __init__(self, args):
        self.args = args
        self.simulated = False
        self.text = f"{args.ranks} ranks on the hosts of {args.hostfile}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, words):
        args = self.args
        launch = [args.mpirun, "--hostfile", args.hostfile, "-n", str(args.ranks)]
        for pair in args.env:
            launch += ["-x", pair]
        return subprocess.run([*launch, *shlex.split(args.launch), *words],
                              check=False).returncode


def lists_of(part, quick):
    """The lists of `weft bench update` for one part."""
    if part == "strategies":
        return {"strategies": "1,2,3,4", "layouts": "production,storage",
                "overlap": "on,off",
                "block-bytes": "256k,4M" if quick else "64k,256k,1M,4M,16M,32M"}
    if part == "roots":
        return {"strategies": "reduce-broadcast", "one-root": None,
                "engines": "direct,collective", "block-bytes": "auto"}
    return {"strategies": "reduce-broadcast", "engines": "collective,direct",
            "split-embedding": "off,on", "block-bytes": f"{UPSTREAM_BLOCK},auto"}


def shape_of(part, args, simulated):
    """Model, batch and compute of one part."""
    if part == "upstream":
        model, compute = UPSTREAM_MODEL, UPSTREAM_COMPUTE
        words = {"batch": 4, "seq": 64}
        if args.quick:
            model, compute = "L=4,H=6,C=384,T=64", 0.3
    else:
        model, compute = (QUICK_MODEL, QUICK_COMPUTE) if args.quick else (MODEL, COMPUTE)
        words = {"batch": args.batch}
    if args.seq:
        words["seq"] = args.seq
    words["model"] = args.model or model
    if simulated:
        words["compute"] = args.compute or compute
        words["threads"] = args.threads or 1
    elif args.threads:
        words["threads"] = args.threads
    return words


def update_words(part, args, simulated):
    options = {**shape_of(part, args, simulated), **lists_of(part, args.quick),
               "steps": args.steps or (2 if args.quick else 3), "warmup": 1,
               "rounds": args.rounds or (1 if args.quick else 2),
               "network": args.out / "network.json", "json": args.out / f"{part}.json"}
    words = [args.weft, "bench", "update"]
    for name, value in options.items():
        words += [f"--{name}"] if value is None else [f"--{name}", str(value)]
    return words


def network_words(args):
    words = [args.weft, "bench", "network", "--json", str(args.out / "network.json")]
    return words + (["--bytes", "64,16k,256k,1M,4M", "--repeat", "3"] if args.quick else [])


TITLES = {
    "strategies": "Strategies, layouts, block sizes, overlap",
    "roots": "One root against roots that take turns",
    "upstream": "The setting this design began with, beside ours",
}


def network_text(path):
    n = json.loads(path.read_text())
    rows = [["latency", f"{1e6 * n['latency_s']:.3g} us"],
            ["a link, both ways, each direction", f"{n['bandwidth_Bps'] / 1e6:.4g} MB/s"],
            ["a link, one way", f"{n['one_way_bandwidth_Bps'] / 1e6:.4g} MB/s"],
            ["all to one root, into its link", f"{n['congested_bandwidth_Bps'] / 1e6:.4g} MB/s"],
            ["all to roots in turn, into a link",
             f"{n['rotating_bandwidth_Bps'] / 1e6:.4g} MB/s"],
            ["time with one root / with roots in turn", f"{n['congestion']:.3g}"],
            ["CPU time of a message", f"{1e6 * n['message_s']:.3g} us"],
            ["agreement", f"{1e6 * n['agreement_s']:.4g} us"]]
    return f"{n['library']}, {n['ranks']} ranks on {n['hosts']} hosts.\n\n" + \
        tables.markdown(["figure", "median"], rows)


def write_tables(args, place, parts, load):
    text = [f"# Update phase\n\n{place.text}; load average {load[0]:.1f} before, "
            f"{os.getloadavg()[0]:.1f} after; {time.strftime('%Y-%m-%d')}. Step: median "
            "[least, most]. Bound: the larger of compute and the wire bound (bytes through "
            "the busiest link in one direction / its bandwidth). Other times in seconds, "
            f"means over ranks.\n\n    {' '.join(map(shlex.quote, sys.argv))}\n",
            "## Network\n\n" + network_text(args.out / "network.json")]
    for part in parts:
        rows = json.loads((args.out / f"{part}.json").read_text())["rows"]
        text.append(f"## {TITLES[part]}\n\n" + tables.update_table(rows))
    temporary = args.out / "tables.md.tmp"
    temporary.write_text("\n".join(text))
    temporary.rename(args.out / "tables.md")


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", required=True, help="the program")
    p.add_argument("--out", required=True, type=Path, help="folder for the results")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", action="append", choices=list(TITLES), metavar="NAME",
                   help="this part alone; may be repeated")
    p.add_argument("--model", help="instead of each part's own")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--seq", type=int, help="tokens a sequence, instead of each part's")
    p.add_argument("--compute", type=float, help="simulated seconds, instead of each part's")
    p.add_argument("--threads", type=int, help="workers a rank")
    p.add_argument("--steps", type=int, help="timed steps a visit")
    p.add_argument("--rounds", type=int, help="visits of each row")
    p.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                   help="for the ranks; may be repeated")
    p.add_argument("--hosts", type=int, default=4)
    p.add_argument("--ranks-per-host", type=int, default=1)
    p.add_argument("--rate", default="1gbit")
    p.add_argument("--delay", default="50us")
    p.add_argument("--hostfile", help="real machines, instead of hosts of this one")
    p.add_argument("--ranks", type=int, help="with --hostfile")
    p.add_argument("--mpirun", default="mpirun", help="with --hostfile")
    p.add_argument("--launch", default="", help="with --hostfile: more options of mpirun")
    args = p.parse_args()
    if bool(args.hostfile) != bool(args.ranks):
        p.error("--hostfile and --ranks go together")
    args.weft = os.path.abspath(args.weft)
    args.out = args.out.absolute()
    return args


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    place = Cluster(args) if args.hostfile else Bed(args)
    parts = args.only or list(TITLES)
    load = os.getloadavg()
    done = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(place)
        commands = [network_words(args)]
        commands += [update_words(part, args, place.simulated) for part in parts]
        for part, words in zip([None, *parts], commands):
            print(f"+ {' '.join(words)}", file=sys.stderr, flush=True)
            code = place.run(words)
            if code:
                sys.exit(f"update.py: exit code {code}: {' '.join(words)}")
            if part:
                done.append(part)
                write_tables(args, place, done, load)  # what there is, if a later part fails
    print(f"update.py: wrote {args.out}/tables.md", file=sys.stderr)


if __name__ == "__main__":
    main()
