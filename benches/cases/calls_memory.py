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
# (name, functions, command, what it is told to do before it waits for more): real programs.
PYTHON = """
import json, re, sys
words = [str(i) * (i % 7) for i in range(3000)]
for i in range(20):
    json.loads(json.dumps({w: [w, {"n": i}] for w in words}, indent=1))
    re.sub(r"(1+)(2*)", r"\\2\\1", " ".join(words))
    sorted(words, key=lambda w: (len(w), w))
"""
SQL = """
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000) insert into t select i, 'x' || i % 977, i / 7.0 from n;
create index tb on t(b);
select b, count(*), sum(c) from t group by b order by 3 desc limit 5;
select count(*) from t x join t y on x.b = y.b and x.a < y.a;
update t set c = c + 1 where b like 'x1%';
delete from t where a % 3 = 0;
"""
PROGRAMS = [
    ("python3", "PyObject_Malloc|PyDict_SetItem|memcpy", ["/usr/bin/python3", "-i", "-q", "-S"], PYTHON),
    ("sqlite3", "malloc|memcpy|read|write|pread64|pwrite64", ["sqlite3"], SQL),
    ("bash", "malloc|xmalloc|hash_search|strlen", ["bash", "--norc"], "for i in {1..3000}; do a[$i]=${i//1/x}; [[ $i == *7* ]] && b+=$i; done; f() { (( $1 )) && f $(( $1 - 1 )); }; f 50\n"),
]
# Words of the header (`include/whither_agent.h`): units of frames, paths and sites in use.
NEXT_FRAME, NEXT_PATH, NEXT_SITE = 88, 92, 252


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


class Used:
    """What the tables of paths hold: units of frames, paths, sites."""

    def __init__(self, frames, paths, sites):
        self.frames, self.paths, self.sites = frames, paths, sites

    def __sub__(self, other):
        return Used(self.frames - other.frames, self.paths - other.paths, self.sites - other.sites)

    def __eq__(self, other):
        return other is not None and vars(self) == vars(other)

    def entries(self):
        """Bytes of the entries."""
        return self.frames * 2 + self.paths * 10 + self.sites * 16

    def heads(self):
        """Bytes of the heads of their chains (`wh_head`): they grow with the frames, from 10 KiB on."""
        grown = 1 << max(self.frames // 32, 1).bit_length() - 1
        return 2048 * 4 + 2 * 4 * max(256, grown)

    def per_path(self):
        return (self.entries() + self.heads()) / self.paths


def counts(pid):
    """What is in use."""
    for line in os.listdir(f"/proc/{pid}/map_files"):
        link = f"/proc/{pid}/map_files/{line}"
        if "whither-segment" in os.readlink(link):
            with open(link, "rb") as segment:
                head = segment.read(320)
            return Used(*(struct.unpack_from("<I", head, at)[0] for at in (NEXT_FRAME, NEXT_PATH, NEXT_SITE)))
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
    """What the calls have put into the tables, and the bytes of all pages that they touched."""
    target = Target(threads, random)
    pid = target.child.pid
    running = h.Running([h.whither(), "calls", "-p", pid, "-f", "target"])
    try:
        until_probed(pid, running)
        before, used = segment_bytes(pid), counts(pid)
        target.go()
        target.wait()
        return counts(pid) - used, segment_bytes(pid) - before
    finally:
        running.stop()
        target.end()


def holders():
    """Processes that map such tables."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield int(pid), counts(pid)
        except (OSError, h.Missing):
            continue


def real(functions, command, told):
    """What a program's tables hold when it has done what it was told."""
    child = subprocess.Popen(
        [h.whither(), "calls", "-q", "-f", functions, "--", *command],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
    )
    child.stdin.write(told + "\n")
    child.stdin.flush()
    last, same, deadline = None, 0, time.monotonic() + 60
    while same < 10 and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.2)
        now = max((found for _, found in holders()), default=None, key=lambda used: used.paths)
        same = same + 1 if now and now == last else 0
        last = now
    child.stdin.close()
    child.wait()
    if not last or not last.paths:
        raise h.Missing(f"{command[0]} was not measured")
    return last


def programs():
    rows = []
    for name, functions, command, told in PROGRAMS:
        try:
            used = real(functions, command, told)
        except (h.Missing, OSError) as why:
            print(f"SKIP: {name}: {why}")
            continue
        shown = f"`{functions.replace('|', ', ')}`"
        rows.append(
            [name, shown, f"{used.paths:,}", f"{used.sites:,}", f"{used.frames / used.paths:.1f}", f"{used.entries() / used.paths:.0f}", f"{used.per_path():.0f}"]
        )
    return h.table(["program", "functions", "paths", "call sites", "units per path", "B per path", "with heads"], rows)


def run(options):
    h.build_workloads()
    rows = []
    for threads, random in SHAPES:
        used, taken = measure(threads, random)
        entries = used.entries()
        rows.append(
            [
                str(threads),
                str(used.paths),
                str(used.sites),
                f"{used.frames / used.paths:.1f}",
                f"{entries / used.paths:.0f}",
                f"{taken / 1024:.0f}",
                f"{max(taken - entries, 0) / used.paths / threads:.0f}",
            ]
        )
    table = h.table(
        ["threads", "paths", "call sites", "units per path", "B per path", "KiB in all", "other B per path and thread"], rows
    )
    return (
        f"{table}\n\nA path takes 10 B, and 2 B (4 B behind the first 2,048 call sites) for each frame that no other path has between the same outer ones, with 8 B for all of these "
        "together; a call site takes 16 B, once for all paths through it. The heads of the chains by which they are found begin at 10 KiB and grow with "
        f"the frames:\n\n{programs()}\n\nA thread has a block of 64 B for each path that it has called, in pages of 64 blocks, and some "
        "pages of its own (directory, calls in progress), which are most of it while paths are few. Pages that were touched, as the kernel counts them."
    )
