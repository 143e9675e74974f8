# SPDX-License-Identifier: MIT
"""A program on a terminal of a given size, and what it wrote there."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time


def resize(fd, columns, rows=24):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def run(command, columns, env=None, cwd=None, resize_to=None, limit_s=120):
    """Runs the command with stdout and stderr on the terminal, resized when the line has been
    redrawn ten times if so asked; returns its exit code and the bytes in two parts, before and after."""
    master, slave = pty.openpty()
    resize(master, columns)
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd,
                               env=dict(os.environ, TERM="xterm", **(env or {})))
    os.close(slave)
    parts = [b"", b""]
    start = time.monotonic()
    while time.monotonic() - start < limit_s:
        if resize_to and parts[0].count(b"\r\x1b[K") >= 10:
            resize(master, resize_to)
            resize_to, parts[1] = None, b"\n"
        if not select.select([master], [], [], 0.1)[0]:
            if process.poll() is not None:
                break
            continue
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        parts[1 if parts[1] else 0] += chunk
    os.close(master)
    return process.wait(timeout=60), parts
