#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nothing is left of the hosts, however a run ends, and the run says how it ended.

A bed is named after the process that made it, so what it leaves can be found by that name,
whatever else runs on the machine.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS = os.path.join(HERE, "..", "support", "hosts.py")
sys.path.insert(0, os.path.dirname(HOSTS))
import hosts

# Ignores what it can and leaves a child behind on each host.
STUBBORN = "trap '' TERM INT HUP; (trap '' TERM INT HUP; sleep 300) & echo started; wait"


def processes_named(word):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(f"process {pid}: {line}")
    return found


def leftovers(pid):
    """All that a bed of this process has made and that is still there."""
    prefix = f"weft{pid}x"
    found = processes_named(prefix)
    for folder in ("/run/netns", "/etc/netns", "/dev/shm", tempfile.gettempdir()):
        if os.path.isdir(folder):
            found += [os.path.join(folder, name) for name in os.listdir(folder)
                      if prefix in name]
    return found


def wait_until_gone(pid, seconds=20):
    deadline = time.monotonic() + seconds
    while leftovers(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return leftovers(pid)


def start(*words, options=()):
    return subprocess.Popen(
        [sys.executable, HOSTS, "run", "--hosts", "2", "--ranks-per-host", "2", *options, "--",
         *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def judge(process, code, at_once=True):
    """After a normal end nothing may be left; after SIGKILL it may take a moment."""
    _, err = process.communicate(timeout=60)
    found = leftovers(process.pid) if at_once else wait_until_gone(process.pid)
    complaints = [f"left: {thing}" for thing in found]
    if process.returncode != code:
        complaints.append(f"exit code {process.returncode}, needs {code}\n{err}")
    return complaints


def ends(code):
    return judge(start("sh", "-c", f"exit {code}"), code)


def cannot_start():
    process = start("/no/such/program")
    complaints = judge(process, process.wait(60))
    return complaints + (["exit code 0"] if process.returncode == 0 else [])


def times_out():
    return judge(start("sh", "-c", STUBBORN, options=("--timeout", "2")), hosts.TIMED_OUT)


def has_started(process):
    """Whether both hosts run, which also shows that leftovers() finds something."""
    for _ in range(4):
        if process.stdout.readline() != "started\n":
            return False
    return any("/run/netns" in thing for thing in leftovers(process.pid))


def signalled(number):
    process = start("sh", "-c", STUBBORN)
    if not has_started(process):
        process.kill()
        return ["did not start"]
    process.send_signal(number)
    if number == signal.SIGKILL:
        return judge(process, -number, at_once=False)
    return judge(process, 128 + number)


def signalled_early(number):
    """While the hosts are being made, at different moments."""
    complaints = []
    for i in range(6):
        process = start("sh", "-c", STUBBORN)
        time.sleep(0.05 + 0.07 * i)
        process.send_signal(number)
        # Before the handler stands the signal ends it, after that the code says so.
        process.wait(60)
        if number == signal.SIGKILL:
            time.sleep(1)  # a guard that did not wait for the last tool would be done by now
        complaints += judge(process, process.returncode, at_once=False)
        if process.returncode not in (-number, 128 + number):
            complaints.append(f"exit code {process.returncode}")
    return complaints


def owner_forgets():
    """A script that makes hosts and ends without closing them."""
    script = "import hosts; bed = hosts.Hosts(2); print(bed.names[0]); import os; os._exit(0)"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=os.path.dirname(HOSTS),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return judge(process, 0, at_once=False)


def refuses():
    """Impossible numbers are named before anything is made."""
    complaints = []
    for words in (("--hosts", "0"), ("--hosts", "100"), ("--rate", "fast"), ("--rate", "1kbit"),
                  ("--delay", "-1us"), ("--delay", "50"), ("--env", "NAME"),
                  ("--ranks-per-host", "0"), ("--mpi", "other"), ("--timeout", "soon")):
        process = start("true", options=words)
        complaints += judge(process, 2)
    return complaints


CASES = {
    "success": lambda: ends(0),
    "failure": lambda: ends(3),
    "a program that does not exist": cannot_start,
    "timeout": times_out,
    "SIGTERM": lambda: signalled(signal.SIGTERM),
    "SIGINT": lambda: signalled(signal.SIGINT),
    "SIGKILL": lambda: signalled(signal.SIGKILL),
    "SIGTERM while the hosts are made": lambda: signalled_early(signal.SIGTERM),
    "SIGKILL while the hosts are made": lambda: signalled_early(signal.SIGKILL),
    "an owner that forgets": owner_forgets,
    "impossible options": refuses,
}


def main():
    reason = hosts.why_not()
    if reason:
        print(f"skipped: {reason}")
        return hosts.SKIPPED
    failed = 0
    for name, case in CASES.items():
        begin = time.monotonic()
        complaints = case()
        failed += bool(complaints)
        print(f"{'BAD' if complaints else 'ok '} {name} ({time.monotonic() - begin:.1f} s)"
              + "".join(f"\n    {text}" for text in complaints), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
