#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several hosts on one machine: MPI programs on a network of known bandwidth and delay.

    hosts.py run --hosts N [--ranks-per-host R] [--rate 1gbit] [--delay 50us] [--queue BYTES]
                 [--mpi openmpi|mpich] [--env NAME=VALUE]... [--timeout SECONDS]
                 -- PROGRAM ARGS...
    hosts.py why-not

`run` exits with the program's code, 124 after a timeout, 128 + n after signal n, 77 (the
reason is printed) where such a network cannot be made; `why-not` says so beforehand. As a
module: why_not() and the context manager Hosts.

Every host is a network namespace with its own host name and its own /dev/shm, so that ranks
of one host see each other's memory and ranks of two hosts do not. Whatever happens to the
program, to this script or to the one that uses it, a guard process removes everything.
docs/TESTBED.md explains the rest.
"""

import argparse
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RATE, DELAY, QUEUE = "1gbit", "50us", 1_000_000  # QUEUE: bytes
SUBNET = "10.77.0"  # inside the namespaces only
MAX_HOSTS = 64
SEGMENT = 72000  # one segment of 64 KiB with the headers of its packets
LATE_SECONDS = 200e-6  # no wake-up of a queue is later
WIRE = 1538 / 1514  # bytes on a wire for those that a queue counts, in full packets
STOP_SECONDS = 10.0  # what a program has to end after a signal
ORPHAN_SECONDS = 0.5  # what a tool needs that was still making something
TIMED_OUT = 124
SKIPPED = 77

# What ip netns and the remote shell do.
PROBE = """mount -t sysfs weft /sys && mount -t tmpfs tmpfs /dev/shm && hostname weft &&
mkdir -p /run/netns && mount --bind /run/netns /run/netns &&
{ test -w /etc || { echo "/etc is read-only" >&2; exit 1; }; }"""

numbers = itertools.count()

# A remote shell as mpirun wants one: HOST COMMAND..., the command's words for a shell as
# those of ssh, after options of ssh that mean nothing here.
REMOTE_SHELL = """#!/bin/sh
while :; do
    case $1 in
    -*) shift ;;
    *) break ;;
    esac
done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c '
    hostname "$1" && mount -t tmpfs tmpfs /dev/shm && shift && eval "$*"' sh "$host" "$@"
"""


# ---- numbers with units ------------------------------------------------------------------

def parse_number(text, units, what):
    """The number in front of one of the units, in the order of the table, times its factor."""
    for unit, factor in units.items():
        if text.endswith(unit):
            try:
                return float(text[:len(text) - len(unit)]) * factor
            except ValueError:
                break
    raise ValueError(f"{what} '{text}': must be a number and one of {' '.join(units)}")


def parse_rate(text):
    """Bits a second of "1gbit", "100mbit", "500kbit"."""
    value = parse_number(text, {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3}, "rate")
    if not 1e5 <= value <= 1e11:
        raise ValueError(f"rate {text}: must be from 100kbit to 100gbit")
    return int(value)


def parse_delay(text):
    """Nanoseconds of "50us", "1.5ms", "0"."""
    value = parse_number("0s" if text == "0" else text, {"us": 1e3, "ms": 1e6, "s": 1e9},
                         "delay")
    if not 0 <= value <= 1e9:
        raise ValueError(f"delay {text}: must be from 0us to 1s")
    return int(value)


# ---- what is needed ----------------------------------------------------------------------

def find_switch():
    """The program built from switch.c: $WEFT_SWITCH, or that of a build folder."""
    builds = [os.environ.get("WEFT_BUILD", ""), os.path.join(ROOT, "build")]
    paths = [os.path.join(build, "tests", "hosts", "weft_switch") for build in builds if build]
    for path in [os.environ.get("WEFT_SWITCH", "")] + paths:
        if os.access(path, os.X_OK):
            return os.path.abspath(path)
    return None


def why_not():
    """Why no hosts can be made here, in one sentence, or None."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "tc", "unshare", "mount", "hostname")
               if not shutil.which(tool)]
    if missing:
        return f"not found: {', '.join(missing)} (Debian: iproute2, util-linux, hostname)"
    probe = subprocess.run(["unshare", "--net", "--mount", "--uts", "sh", "-c", PROBE],
                           capture_output=True, text=True, check=False)
    if probe.returncode:
        return f"namespaces are not allowed here: {probe.stderr.strip()}"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as e:
        return f"no TAP devices: /dev/net/tun: {e.strerror}"
    if not find_switch():
        return ("the switch is not built: cmake --build build --target weft_switch; "
                "WEFT_SWITCH names another one")
    return None


# ---- the guard ---------------------------------------------------------------------------

def processes_inside(names):
    """Processes in any of these network namespaces."""
    inodes = set()
    for name in names:
        try:
            inodes.add(os.stat(f"/run/netns/{name}").st_ino)
        except FileNotFoundError:
            pass
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}/ns/net").st_ino in inodes:
                found.append(int(pid))
        except OSError:
            pass  # it has ended
    return found


def names_of(prefix):
    """Namespaces that exist and belong to one set of hosts."""
    names = set()
    for folder in ("/run/netns", "/etc/netns"):
        if os.path.isdir(folder):
            names |= {name for name in os.listdir(folder) if name.startswith(prefix + "-")}
    return sorted(names)


def kill_inside(names):
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        found = processes_inside(names)
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def take_down(prefix, folder):
    while names := names_of(prefix):
        kill_inside(names)
        for name in names:
            if os.path.exists(f"/run/netns/{name}"):
                subprocess.run(["ip", "netns", "delete", name], check=False)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)
    try:
        os.rmdir("/etc/netns")
    except OSError:
        pass  # others use it
    shutil.rmtree(folder, ignore_errors=True)


def guard(prefix):
    """Makes the scratch folder and names it, waits until its owner sends a byte or ends,
    then removes everything. It leaves the owner's process tree, so that whoever kills that
    tree does not kill the guard."""
    os.setsid()
    if os.fork():
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = tempfile.mkdtemp(prefix=prefix + "-")
    try:
        os.write(1, folder.encode() + b"\n")
        if not os.read(0, 1):
            time.sleep(ORPHAN_SECONDS)
    except BrokenPipeError:
        pass  # the owner has ended before it could make anything
    take_down(prefix, folder)


# ---- hosts -------------------------------------------------------------------------------

def run_tool(words, text=None):
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def make_hosts_file(name, text):
    # Another set of hosts may be removing the empty /etc/netns at this moment.
    for attempt in range(10):
        try:
            os.makedirs(f"/etc/netns/{name}", exist_ok=True)
            break
        except FileNotFoundError:
            if attempt == 9:
                raise
    with open(f"/etc/netns/{name}/hosts", "w", encoding="ascii") as f:
        f.write(text)


class Hosts:
    """`n` hosts on a switch: `rate` in each direction of each link, `delay` one way between
    any two, `queue` bytes that may wait in the switch for each host before packets are lost.
    A context manager; close() does the same as leaving it.

    Raises RuntimeError where why_not() has a reason, ValueError for impossible numbers.

    names       host names, also the names of the network namespaces
    addresses   their addresses
    folder      a scratch folder that goes with the hosts
    """

    def __init__(self, n, rate=RATE, delay=DELAY, queue=QUEUE):
        if not 1 <= n <= MAX_HOSTS:
            raise ValueError(f"{n} hosts: must be from 1 to {MAX_HOSTS}")
        reason = why_not()
        if reason:
            raise RuntimeError(reason)
        self.rate, self.delay, self.queue = parse_rate(rate), parse_delay(delay), queue
        self.prefix = f"weft{os.getpid()}x{next(numbers)}"
        self.names = [f"{self.prefix}-{i}" for i in range(n)]
        self.addresses = [f"{SUBNET}.{i + 1}" for i in range(n)]
        self.guard = self.switch = None
        try:
            self.folder = self._start_guard()
            self.shell = os.path.join(self.folder, "remote-shell")
            self._make()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.guard:
            try:
                self.guard.stdin.write(b"x")
                self.guard.stdin.close()
            except BrokenPipeError:
                pass  # it has not started
            self.guard.stdout.read()  # ends with the guard
            self.guard.stdout.close()
            self.guard = None
        if self.switch:
            self.switch.stdout.close()
            self.switch.wait()  # the guard has killed it
            self.switch = None

    def command(self, host, command):
        """Words that run `command` (words) on host number `host`, as the process that is
        started: a signal to it reaches the command."""
        return [self.shell, self.names[host],
                "exec " + shlex.join(str(word) for word in command)]

    def mpi_command(self, command, ranks_per_host=1, env=None, mpi=None):
        """Words that run `command` on all hosts, host by host in rank order, to be started
        with environment()."""
        if ranks_per_host < 1:
            raise ValueError(f"{ranks_per_host} ranks per host: must be at least 1")
        command = [str(word) for word in command]
        mpi = mpi or ("mpich" if uses_mpich(command) else "openmpi")
        launch = {"openmpi": self._openmpi, "mpich": self._mpich}[mpi]
        return self.command(0, launch(ranks_per_host, env or {}) + command)

    def mpirun(self, command, ranks_per_host=1, env=None, mpi=None, timeout=None,
               capture=False):
        """Runs mpi_command() with what it needs; a result and a TimeoutExpired as those of
        subprocess.run. `capture` keeps what it prints, as text."""
        words = self.mpi_command(command, ranks_per_host, env, mpi)
        pipe = subprocess.PIPE if capture else None
        options = {"stdout": pipe, "stderr": pipe, "text": capture}
        with subprocess.Popen(words, env=self.environment(), **options) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                stop(process)
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def environment(self):
        """What a launcher needs in its environment."""
        return dict(os.environ, TMPDIR=self.folder, OMPI_ALLOW_RUN_AS_ROOT="1",
                    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def _openmpi(self, ranks, env):
        btl = "tcp,self" if ranks == 1 else "tcp,vader,self"
        mca = {"plm": "rsh", "plm_rsh_agent": self.shell, "plm_rsh_no_tree_spawn": "1",
               "oob_tcp_if_include": "eth0", "btl_tcp_if_include": "eth0", "pml": "ob1",
               "btl": btl, "btl_vader_single_copy_mechanism": "none"}
        words = ["mpirun.openmpi" if shutil.which("mpirun.openmpi") else "mpirun", "-q",
                 "--oversubscribe", "--bind-to", "none"]
        for key, value in mca.items():
            words += ["--mca", key, value]
        for key, value in env.items():
            words += ["-x", f"{key}={value}"]
        return words + ["--host", self._slots(ranks), "-n", str(ranks * len(self.names))]

    def _mpich(self, ranks, env):
        words = ["mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", self.shell, "-iface",
                 "eth0", "-bind-to", "none"]
        for key, value in {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0", **env}.items():
            words += ["-genv", key, value]
        return words + ["-hosts", self._slots(ranks), "-n", str(ranks * len(self.names))]

    def _slots(self, ranks):
        return ",".join(f"{name}:{ranks}" for name in self.names)

    def _start_guard(self):
        self.guard = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "guard", self.prefix],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        folder = self.guard.stdout.readline().decode().strip()
        self.guard.wait()
        if not folder:
            raise RuntimeError("the process that would remove the hosts did not start")
        return folder

    def _make(self):
        with open(self.shell, "w", encoding="ascii") as f:
            f.write(REMOTE_SHELL)
        os.chmod(self.shell, 0o755)
        table = "127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for address, name in zip(self.addresses, self.names))
        for name in self.names:
            make_hosts_file(name, table)
            run_tool(["ip", "netns", "add", name])
        self._start_switch()
        for i in range(len(self.names)):
            self._set_up_interface(i)

    def _start_switch(self):
        """It stands in a namespace of its own, where the guard finds it."""
        home = f"{self.prefix}-switch"
        run_tool(["ip", "netns", "add", home])
        words = ["ip", "netns", "exec", home, find_switch(), self.rate, self.delay, self.queue]
        self.switch = subprocess.Popen([str(word) for word in words + self.names],
                                       stdout=subprocess.PIPE, start_new_session=True)
        if self.switch.stdout.readline() != b"ready\n":
            raise RuntimeError("the switch did not start")

    def _set_up_interface(self, i):
        name, address = self.names[i], self.addresses[i]
        lines = [f"link set eth0 address {mac(i)}", "link set lo up", "link set eth0 up",
                 f"addr add {address}/24 dev eth0",
                 f"route change {SUBNET}.0/24 dev eth0 src {address} congctl cubic"]
        lines += [f"neigh add {other} lladdr {mac(j)} dev eth0 nud permanent"
                  for j, other in enumerate(self.addresses) if j != i]
        run_tool(["ip", "netns", "exec", name, "sh", "-c",
                  "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; "
                  "echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save; ip -batch -"],
                 "\n".join(lines) + "\n")
        # The switch keeps the time. This queue makes a sender wait, as that of a network
        # card does: a TAP device would take whatever TCP has, and lose it.
        burst = SEGMENT + self.rate / 8 * LATE_SECONDS
        run_tool(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                  f"{self.rate / WIRE:.0f}bit", "burst", f"{burst:.0f}b", "limit", "16mb"])


def mac(i):
    return f"02:00:00:00:00:{i + 1:02x}"


def uses_mpich(command):
    """Whether a program among these words is linked to MPICH."""
    for word in command:
        if os.path.isfile(word) and os.access(word, os.X_OK):
            found = subprocess.run(["ldd", word], capture_output=True, text=True, check=False)
            if "libmpich" in found.stdout:
                return True
    return False


def stop(process):
    """Lets the launcher end its ranks; what it does not end ends with the hosts."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


# ---- command line ------------------------------------------------------------------------

class Signalled(Exception):
    def __init__(self, number):
        super().__init__(f"signal {number}")
        self.number = number


def raise_signalled(number, _):
    signal.signal(number, signal.SIG_IGN)  # once is enough
    raise Signalled(number)


def command_run(options):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, raise_signalled)
    try:
        with Hosts(options.hosts, options.rate, options.delay, options.queue) as hosts:
            return hosts.mpirun(options.program, options.ranks_per_host, dict(options.env),
                                options.mpi, options.timeout).returncode
    except subprocess.TimeoutExpired:
        print(f"hosts: not done after {options.timeout} s", file=sys.stderr)
        return TIMED_OUT
    except Signalled as e:
        return 128 + e.number


def checked(parse):
    """For argparse: the text, once it can be parsed."""
    def check(text):
        try:
            parse(text)
        except ValueError as e:
            raise argparse.ArgumentTypeError(str(e)) from None
        return text
    return check


def whole(least, most):
    def parse(text):
        if text.isdecimal() and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"'{text}': must be a number from {least} to {most}")
    return parse


def name_and_value(text):
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}': must be NAME=VALUE")
    return name, value


def parse(words):
    parser = argparse.ArgumentParser(prog="hosts.py")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("why-not")
    run = commands.add_parser("run")
    run.add_argument("--hosts", type=whole(1, MAX_HOSTS), required=True)
    run.add_argument("--ranks-per-host", type=whole(1, 1024), default=1)
    run.add_argument("--rate", type=checked(parse_rate), default=RATE)
    run.add_argument("--delay", type=checked(parse_delay), default=DELAY)
    run.add_argument("--queue", type=whole(1, 1 << 30), default=QUEUE, metavar="BYTES")
    run.add_argument("--mpi", choices=("openmpi", "mpich"))
    run.add_argument("--env", type=name_and_value, action="append", default=[],
                     metavar="NAME=VALUE")
    run.add_argument("--timeout", type=whole(1, 1000000), metavar="SECONDS")
    run.add_argument("program", nargs="+")
    return parser.parse_args(words)


def main(words):
    if words[:1] == ["guard"]:
        return guard(*words[1:])
    options = parse(words)
    reason = why_not()
    if options.command == "why-not":
        print(reason or "several hosts can be made here")
        return SKIPPED if reason else 0
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    return command_run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
