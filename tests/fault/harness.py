"""What the fault tests share: input files, starting the program on some ranks, and the
rules that every failure has to keep.

The program is $WEFT, the scratch folder $WEFT_TMP; with WEFT_COMM=serial there is one rank
only. Standard library only.
"""
import hashlib
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import threading
import time
from array import array
from concurrent.futures import ThreadPoolExecutor

WEFT = os.path.abspath(os.environ.get("WEFT", "weft"))
TMP = os.path.abspath(os.environ.get("WEFT_TMP", "fault.tmp"))
SERIAL = os.environ.get("WEFT_COMM") == "serial"
MPIRUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "mpirun")
SECONDS = 5.0  # a refusal may take no longer, beyond what starting takes here and now
HANG = 40.0
WORKERS = max(4, min(8, os.cpu_count() or 1))  # most of a case is waiting


class Patience:
    """Waits so many seconds in which the tests run: time in which they were all stopped,
    as on a machine that was suspended, counts for nobody. To be asked twice a second."""

    def __init__(self, seconds):
        self.seconds, self.spent, self.at = seconds, 0.0, time.monotonic()

    def over(self):
        now = time.monotonic()
        self.spent += min(now - self.at, 1.0)
        self.at = now
        return self.spent >= self.seconds


# Each rank's own exit code goes to a file; a rank stays until all have left theirs, since
# the launcher ends those that run on when the first one fails.
WRAPPER = r"""
"$@"
code=$?
echo $code >"$CODES/code.$$"
i=0
while [ "$(ls "$CODES" | grep -c code)" -lt "$RANKS" ] && [ $i -lt 80 ]; do
    sleep 0.1
    i=$((i + 1))
done
exit $code
"""


class Result:
    def __init__(self, code, codes, out, err, seconds):
        self.code, self.codes, self.out, self.err = code, codes, out, err
        self.seconds = seconds

    def errors(self):
        return [line for line in self.err.splitlines()
                if line.startswith("weft:") and "error:" in line]

    def warnings(self):
        return [line for line in self.err.splitlines()
                if line.startswith("weft:") and "warning:" in line]


def allow_cores():
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))


def command(ranks, args):
    if ranks == 1:
        return [WEFT] + args
    return ["sh", MPIRUN, str(ranks), "sh", "-c", WRAPPER, "sh", WEFT] + args


def environment(ranks, codes, extra=None):
    env = dict(os.environ, CODES=codes, RANKS=str(ranks), OMP_NUM_THREADS="1")
    env.update(extra or {})
    return env


def run(ranks, args, folder, env=None, stdin=b""):
    """Runs the program to its end in `folder`."""
    codes = os.path.join(folder, "codes")
    shutil.rmtree(codes, ignore_errors=True)
    os.makedirs(codes)
    patience = Patience(HANG)
    p = subprocess.Popen(command(ranks, args), cwd=folder, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=environment(ranks, codes, env), preexec_fn=allow_cores)
    out = None
    while out is None:
        try:
            out, err = p.communicate(stdin, timeout=0.5)
        except subprocess.TimeoutExpired:
            stdin = None  # it is on its way
            if patience.over():
                p.terminate()
                out, err = p.communicate()
                err += b"\n(ended by the test: it hung)\n"
    patience.over()
    left = [open(os.path.join(codes, name)).read().strip() for name in os.listdir(codes)]
    return Result(p.returncode, [int(c) for c in left if c] if ranks > 1 else [p.returncode],
                  out.decode("utf-8", "replace"), err.decode("utf-8", "replace"),
                  patience.spent)


_starting = {}
_starting_lock = threading.Lock()


def starting_time(ranks):
    """What a start alone takes on this machine now, in seconds."""
    folder = os.path.join(TMP, "start%d" % ranks)
    with _starting_lock:
        os.makedirs(folder, exist_ok=True)
        _starting[ranks] = max(_starting.get(ranks, 0),
                               run(ranks, ["--version"], folder).seconds)
        return _starting[ranks]


# ---- files ----

def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    return path


def shard(path, ids, magic=20240520, version=1, count=None, extra=b"", cut=0):
    """A token shard; `cut` bytes are taken off its end."""
    data = struct.pack("<256i", magic, version, len(ids) if count is None else count,
                       *([0] * 253))
    data += array("H" if magic != 20240801 else "I", ids).tobytes() + extra
    return write(path, data[:len(data) - cut])


def shape_elems(L, C, T, Vp):
    return (Vp + T) * C + L * (12 * C * C + 13 * C) + 2 * C


def model(path, L=1, H=2, C=16, T=16, V=64, magic=20240326, version=3, Vp=None, header=None,
          extra=b"", cut=0, bad=None):
    """An llm.c model file; bad = (element, value) puts a value among the weights."""
    Vp = Vp or -(-V // 128) * 128
    rng = random.Random(1)
    weights = array("f", (rng.uniform(-0.05, 0.05) for _ in range(shape_elems(L, C, T, Vp))))
    if bad:
        weights[bad[0]] = bad[1]
    words = header or [magic, version, T, V, L, H, C, Vp]
    data = struct.pack("<256i", *words, *([0] * (256 - len(words))))
    data += weights.tobytes() + extra
    return write(path, data[:len(data) - cut])


def tree(folder):
    """Every file below a folder with its checksum."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = hashlib.sha1(f.read()).hexdigest()
    return found


def checkpoints(run_folder):
    folder = os.path.join(run_folder, "checkpoints")
    if not os.path.isdir(folder):
        return []
    return sorted(n for n in os.listdir(folder) if re.fullmatch(r"step-\d+", n))


def whole(run_folder):
    """None when every checkpoint of a run is whole, or what is wrong."""
    for name in checkpoints(run_folder):
        folder = os.path.join(run_folder, "checkpoints", name)
        p = subprocess.run([WEFT, "info", folder], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
        if p.returncode != 0:
            return "%s: %s" % (name, p.stdout.decode("utf-8", "replace"))
    return None


def metrics(run_folder):
    with open(os.path.join(run_folder, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


# ---- the rules ----

def broken_rules(r, ranks, folder, code, needles, absent=()):
    """What a failing run did against the rules; an empty list when it kept them."""
    bad = []
    if "ended by the test" in r.err:
        bad.append("hung")
    if r.code != code:
        bad.append("exit code %s, needs %d" % (r.code, code))
    if len(r.codes) != ranks or any(c != code for c in r.codes):
        bad.append("exit codes of the ranks %s, needs %d of each" % (r.codes, code))
    lines = r.errors()
    if len(lines) != 1:
        bad.append("%d error lines, needs one" % len(lines))
    for needle in needles:
        if not any(needle in line for line in lines):
            bad.append("no '%s' in the error line" % needle)
    for needle in absent:
        if needle in r.err or needle in r.out:
            bad.append("'%s' was printed" % needle)
    for line in r.err.splitlines():
        if re.search(r"signal \d|Segmentation|core dumped|ERROR: .*Sanitizer|bug at", line):
            bad.append("crash: " + line)
    for base, _, names in os.walk(folder):
        for name in names:
            if name == "core" or name.startswith("core."):
                bad.append("core dump " + os.path.join(base, name))
    return bad


def leftovers(folder):
    found = []
    for base, folders, names in os.walk(folder):
        found += [os.path.join(base, n) for n in folders + names if n.endswith(".tmp")]
    return found


# ---- running many ----

def run_cases(jobs):
    """jobs: (name, function returning a list of complaints, or a skip reason as text).
    Prints a line each and returns the exit code of the test."""
    chosen = sys.argv[1:]
    jobs = [j for j in jobs if not chosen or any(c in j[0] for c in chosen)]
    failed = skipped = 0
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        waiting = [(name, pool.submit(fn)) for name, fn in jobs]
        for name, future in waiting:
            try:
                bad = future.result()
            except Exception as e:  # a broken test is a failure, with its name
                bad = ["test: %s: %s" % (type(e).__name__, e)]
            if isinstance(bad, str):
                skipped += 1
                print("skip %s: %s" % (name, bad), flush=True)
            elif bad:
                failed += 1
                print("FAIL %s" % name)
                for line in bad:
                    print("     " + line.replace("\n", "\n       "), flush=True)
            else:
                print("ok %s" % name, flush=True)
    print("%d cases: %d failed, %d skipped" % (len(jobs), failed, skipped))
    return 1 if failed or not jobs else 0
