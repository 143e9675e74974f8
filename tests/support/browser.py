# SPDX-License-Identifier: MIT
"""A page in a real browser without a window: Debian's chromium."""

import os
import re
import shutil
import subprocess


def find():
    """The browser's path, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def _run(page, folder, width, height, *options):
    profile = os.path.join(folder, "profile")
    done = subprocess.run(
        [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--hide-scrollbars", "--enable-logging=stderr",
         f"--user-data-dir={profile}", f"--window-size={width},{height}",
         *options, "file://" + os.path.abspath(page)],
        capture_output=True, text=True, timeout=300, check=False)
    console = re.findall(r"CONSOLE[^\]]*\] (.*)", done.stderr)
    return done.stdout, console


def document(page, folder, width=1280, height=900):
    """What the page has become when its scripts have run, and its console's lines."""
    return _run(page, folder, width, height, "--virtual-time-budget=3000", "--dump-dom")


def screenshot(page, folder, image, width, height, dark=False):
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    return _run(page, folder, width, height, f"--screenshot={image}", *scheme)[1]
