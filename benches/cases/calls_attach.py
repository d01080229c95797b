"""How long it takes to get into a process that maps a very large library, and what that needs."""

import glob
import os
import subprocess
import sys
import time
from pathlib import Path

import harness as h

TITLE = "Attaching to a process with a large library"
BAR = "bars: ready < 1.5 s cold, < 0.2 s with the tables cached; controller below 300 MB"
TARGET = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
while sys.stdin.readline():
    pass
"""


def library():
    """The largest shared library of the Rust toolchains: 100 MB or more."""
    found = glob.glob(os.path.expanduser("~/.rustup/toolchains/*/lib/lib*.so*"))
    found = sorted((p for p in found if Path(p).stat().st_size > 100e6), key=lambda p: Path(p).stat().st_size)
    if not found:
        raise h.Missing("no library of 100 MB or more below ~/.rustup/toolchains")
    return found[-1]


class Target:
    """A Python process that has loaded the library and waits."""

    def __init__(self, path):
        self.child = subprocess.Popen(
            [sys.executable, "-c", TARGET, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self.child.stdout.readline() != "ready\n":
            raise h.Missing(f"{path} cannot be loaded")

    def __enter__(self):
        return self.child.pid

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait()


def visit(command, cache):
    """(seconds, peak MB) of a command."""
    start = time.monotonic()
    child = subprocess.Popen(
        [str(c) for c in command], env={**os.environ, "XDG_CACHE_HOME": str(cache)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise h.Missing(f"{command[0]} ended with {child.returncode}: {said[-300:]!r}")
    return time.monotonic() - start, usage.ru_maxrss / 1024


def run(options):
    path = library()
    rows = []
    with h.Scratch() as scratch, Target(path) as pid:
        measure = [h.whither(), "calls", "-p", pid, "-f", "PyObject_Malloc", "-d", "1ms"]
        cold, warm = [], []
        for turn in range(2 if options.quick else 7):
            cache = scratch / f"cache{turn}"
            cold.append(visit(measure, cache))
            warm.append(visit(measure, cache))
        for label, visits in (("whither calls, first time", cold), ("whither calls, tables cached", warm)):
            rows.append([label, f"{h.median(v[0] for v in visits):.2f}", f"{h.median(v[1] for v in visits):.0f}"])
        try:
            peer = [visit([h.tool("gdb"), "-p", pid, "-batch", "-ex", "break PyObject_Malloc"], scratch) for _ in range(2)]
            rows.append(["gdb, a breakpoint", f"{min(p[0] for p in peer):.2f}", f"{min(p[1] for p in peer):.0f}"])
        except h.Missing as why:
            print(f"  leaving out gdb: {why}", file=sys.stderr)
    table = h.table(["", "seconds", "peak MB"], rows)
    return f"{table}\n\nFrom the start of the command to its end: attach, probe a function of python3, measure 1 ms, detach, print. The process maps `{Path(path).name}` ({Path(path).stat().st_size / 1e6:.0f} MB). Medians."
