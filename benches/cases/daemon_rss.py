"""Memory of the daemon while short-lived processes come and go."""

import subprocess
import sys
import time

import harness as h

TITLE = "Memory of the daemon under process churn"
BAR = "bar: peak <= 64 MB, flat"


def run(options):
    seconds = 20 if options.quick else 300
    h.build_workloads()
    with h.Scratch() as scratch:
        daemon = h.Running(
            [h.whither(), "daemon", "run", "--db", scratch / "db", "--rate", h.RATE, "--drain", "2s", "--seal", "10s", "-q"]
        )
        time.sleep(1)
        churn = h.Running([h.WORKLOADS / "life", seconds])
        forks = -forks_so_far()
        series = []
        while churn.child.poll() is None:
            time.sleep(max(0.5, seconds / 40))
            series.append(daemon.rss_kib())
            print(f"  {series[-1][0] / 1024:.1f} MiB", file=sys.stderr)
        forks += forks_so_far()
        cpu = daemon.stop()
        size = h.tree_bytes(scratch / "db")
    quarter = len(series) // 4
    early, late = h.median(r for r, _ in series[quarter : 2 * quarter]), h.median(r for r, _ in series[3 * quarter :])
    rows = [
        [
            f"{seconds} s, {forks:,} processes",
            f"{series[-1][1] / 1024:.1f}",
            f"{early / 1024:.1f}",
            f"{late / 1024:.1f}",
            f"{100 * cpu / seconds:.2f}",
            f"{size:,}",
        ]
    ]
    header = ["load", "peak MiB", "second quarter MiB", "last quarter MiB", "% of one CPU", "bytes on disk"]
    return h.table(header, rows)


def forks_so_far():
    """Processes and threads started since boot."""
    stat = subprocess.run(["cat", "/proc/stat"], capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[1]) for line in stat.splitlines() if line.startswith("processes"))
