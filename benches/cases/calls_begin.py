"""How long threads that begin together are held at their first probed call."""

import os
import re
import subprocess

import harness as h

TITLE = "Threads that begin together"
BAR = "no bar: none may be held so long that it shows beside what it waits for a CPU"
THREADS = (4, 16, 64, 200)


def held(command):
    """Microseconds: mean and longest."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    told = dict(re.findall(r"^held_us_(\w+) ([0-9.]+)$", done.stdout, re.M))
    if len(told) != 2:
        raise h.Missing(f"{command[0]}: status {done.returncode}: {done.stderr[-300:]}")
    return float(told["mean"]), float(told["longest"])


def ways(threads, scratch):
    program = [str(threads), "500"]
    plain, entries = h.WORKLOADS / "calls-together", h.WORKLOADS / "calls-together-pg"
    return {
        "alone": [plain, *program],
        "**whither**": [h.whither(), "calls", "-q", "-f", "begun", "--", plain, *program],
        "**whither**, entries only": [h.whither(), "calls", "-q", "-m", "count", "-f", "begun", "--", plain, *program],
        "uftrace -pg": [h.tool("uftrace"), "record", "-d", scratch / "uftrace", "-F", "begun", entries, *program],
    }


def run(options):
    h.build_workloads()
    rows = []
    with h.Scratch() as scratch:
        for threads in THREADS:
            got = {}
            for _ in range(3 if options.quick else 15):
                for label, command in ways(threads, scratch).items():
                    got.setdefault(label, []).append(held(command))
            for label, all_held in got.items():
                means, longest = zip(*all_held)
                rows.append([
                    f"{threads} threads, {label}", f"{h.median(means) / 1e3:.2f}", f"{h.median(longest) / 1e3:.2f}",
                    f"{max(longest) / 1e3:.2f}",
                ])
    table = h.table(["", "held on average, ms", "the longest one, ms", "in the worst run, ms"], rows)
    return (
        f"{table}\n\nThreads that are made one after the other on {os.cpu_count()} CPUs and work for half a second each: how long the first probed call of "
        "each takes to begin, by the program's own clock. Medians of runs by turns. Whoever has to wait there for a lock waits for as many turns of all threads."
    )
