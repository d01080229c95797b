"""What call paths and threads take in the tables that a probed program shares with whither."""

import os
import struct
import subprocess
import time

import harness as h
from cases.calls_pause import segment_bytes

TITLE = "Memory of call paths"
BAR = "bars: 32 B per path, and 64 B per path and thread"
# (threads, at random over 256 paths of depth 11)
SHAPES = [(1, False), (1, True), (8, True), (32, True)]
# Words of the header (`include/whither_agent.h`): nodes and paths in use.
NEXT_NODE, NEXT_PATH = 88, 92


class Target:
    """callcost, which waits before it calls anything, and again when it has made all its calls."""

    def __init__(self, threads, random):
        command = [h.WORKLOADS / "calls-callcost", "-n", "57600", "-r", "1", "-t", str(threads), "--gate"]
        self.child = subprocess.Popen(
            command + (["--random"] if random else []), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.wait()

    def wait(self):
        while line := self.child.stdout.readline():
            if line.strip() == "ready":
                return
        raise h.Missing("callcost ended")

    def go(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def counts(pid):
    """(nodes, paths) in use."""
    for line in os.listdir(f"/proc/{pid}/map_files"):
        link = f"/proc/{pid}/map_files/{line}"
        if "whither-segment" in os.readlink(link):
            with open(link, "rb") as segment:
                head = segment.read(256)
            return struct.unpack_from("<I", head, NEXT_NODE)[0], struct.unpack_from("<I", head, NEXT_PATH)[0]
    raise h.Missing("no segment in the target")


def until_probed(pid, running):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and running.child.poll() is None:
        try:
            counts(pid)
            done = subprocess.run([h.whither(), "calls", "list", "-p", str(pid)], capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                return
        except (h.Missing, OSError):
            pass
        time.sleep(0.05)
    raise h.Missing("the session did not begin")


def measure(threads, random):
    """(nodes, paths, bytes) that the calls have taken."""
    target = Target(threads, random)
    pid = target.child.pid
    running = h.Running([h.whither(), "calls", "-p", pid, "-f", "target"])
    try:
        until_probed(pid, running)
        before, (nodes, paths) = segment_bytes(pid), counts(pid)
        target.go()
        target.wait()
        now = counts(pid)
        return now[0] - nodes, now[1] - paths, segment_bytes(pid) - before
    finally:
        running.stop()
        target.end()


def run(options):
    h.build_workloads()
    rows = []
    for threads, random in SHAPES:
        nodes, paths, taken = measure(threads, random)
        tables = nodes * 32 + paths * 16
        rows.append(
            [str(threads), str(paths), str(nodes), f"{tables / paths:.0f}", f"{taken / 1024:.0f}", f"{max(taken - tables, 0) / paths / threads:.0f}"]
        )
    table = h.table(
        ["threads", "paths", "frames kept", "B per path for its frames", "KiB in all", "other B per path and thread"], rows
    )
    return (
        f"{table}\n\nA path takes 16 B, and 32 B for each frame that it shares with no other. Frames are shared from the probed function "
        "outwards: an outer end that all paths have in common is kept once for each. So 32 B per path are not held. A thread has a block of 64 B for each path that it has called, in pages of 64 blocks, and some "
        "pages of its own (directory, calls in progress), which are most of it while paths are few. Pages that were touched, as the kernel counts them."
    )
