"""How long 64 running threads stand still when probes come and go, and what the tables take."""

import os
import re
import subprocess
import time

import harness as h

TITLE = "Pause for adding probes"
BAR = "bars: one function of a process of 64 threads <= 1 ms, 1,000 functions <= 5 ms"


class Target:
    """manythreads: a line makes it print the longest gap since the last line."""

    def __init__(self):
        self.child = subprocess.Popen(
            [h.WORKLOADS / "calls-manythreads", "64"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.child.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.wait()

    def gap(self):
        """Microseconds in which no thread ran, since the last time."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline().split()[1])


def verb(*arguments):
    done = subprocess.run(
        [h.whither(), "calls", *(str(a) for a in arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise h.Missing(f"whither calls {arguments[0]}: status {done.returncode}: {done.stderr[-300:]}")
    said = re.findall(r"(?:ran for|more than) ([0-9.]+) (ns|us|ms|s)", done.stdout)
    return [float(number) * {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[unit] for number, unit in said]


def session(pid):
    """A session that measures one function; returns when it answers."""
    child = h.Running([h.whither(), "calls", "-p", pid, "-f", "many_1023"])
    deadline = time.monotonic() + 20
    while True:
        try:
            verb("list", "-p", pid)
            return child
        except h.Missing:
            if time.monotonic() > deadline or child.child.poll() is not None:
                raise
            time.sleep(0.05)


def segment_bytes(pid):
    """Memory of the shared segment of a process, as the kernel accounts it."""
    for line in os.listdir(f"/proc/{pid}/map_files"):
        link = f"/proc/{pid}/map_files/{line}"
        try:
            if "whither-segment" in os.readlink(link):
                return os.stat(link).st_blocks * 512
        except OSError:
            continue
    return 0


def run(options):
    h.build_workloads()
    told = {}
    gaps = {"nothing": [], "add 1": [], "remove 1": [], "add 1000": [], "remove 1000": []}
    rounds = 3 if options.quick else 15
    with Target() as target:
        pid = target.child.pid
        running = session(pid)
        many = r"many_0\d\d\d"
        for _ in range(rounds):
            for label, arguments in (
                ("add 1", ("add", "-p", pid, "many_1000")), ("remove 1", ("remove", "-p", pid, "many_1000")),
                ("add 1000", ("add", "-p", pid, many)), ("remove 1000", ("remove", "-p", pid, many)),
            ):
                target.gap()
                time.sleep(0.2)
                gaps["nothing"].append(target.gap())
                told.setdefault(label, []).append(verb(*arguments))
                gaps[label].append(target.gap())
        before = segment_bytes(pid)
        verb("add", "-p", pid, many)
        time.sleep(1.0)
        after = segment_bytes(pid)
        running.stop()
    rows = []
    for label, values in gaps.items():
        columns = [list(column) for column in zip(*told.get(label, []))] + [values]
        cells = [f"{f(column) / 1000:.2f}" for column in columns for f in (min, h.median)] + [f"{max(values) / 1000:.2f}"]
        rows.append([label, *["-"] * (7 - len(cells)), *cells])
    head = [f"{what}, {how} ms" for what in ("no thread ran", "one held at most", "measured gap") for how in ("least", "median")]
    head.append("longest ms")
    table = h.table(["functions", *head], rows)
    return (
        f"{table}\n\nA process of 64 spinning threads on {os.cpu_count()} CPUs. First what whither tells: the time in which none of them ran, from "
        "the moment the last one was asked to stop until the first one was let go, and what one of them was held at most, from the first question "
        "until the last one was let go (until each has a CPU again is the scheduler's matter: with 32 threads to a CPU, a tenth of a second with or "
        "without us). Then the longest time in which none of them ran by their own clocks, around the whole command; `nothing` is the same without "
        "one: the scheduler's and the other programs' part. The 62 threads that wait for a CPU must each get one before they can stop, so the pause "
        "grows with what else wants to run. "
        f"1,000 functions called by 64 threads take {(after - before) / 64e3:.0f} B per function and thread in the shared tables."
    )
