"""CPU time of the sampler's own process while the mix runs; start and end of the recording are told
apart, because they are paid once. A minute holds one segment of a recording, and one of a daemon that is
told to write ten times as many as it does by default."""

import sys
import time
from pathlib import Path

import harness as h

TITLE = "CPU time of the collecting process"
BAR = "bar: whither <= 0.2 % of one CPU"


DAEMON, OFTEN = "whither daemon", "whither daemon --seal 1m"


def sampler(name, scratch):
    """Command and environment of one sampler."""
    if name not in (DAEMON, OFTEN):
        return h.sampler(name, scratch)
    db = scratch / f"{time.monotonic_ns()}.db"
    command = [h.whither(), "daemon", "run", "--db", db, "--rate", h.RATE, "-q"]
    return command + (["--seal", "1m"] if name == OFTEN else []), {}


def spent_so_far(pid):
    """CPU seconds of all threads of a running process."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(t.read_text().split()[0]) for t in threads) / 1e9


def measure(name, scratch, seconds):
    """(% of one CPU while it samples, CPU seconds for start and end)."""
    command, env = sampler(name, scratch)
    running = h.Running(command, env)
    load = h.Running([sys.executable, h.ROOT / "benches" / "mix.py", seconds + 3])
    # Everything is up after 3 s; what it spends from here on is the price of sampling.
    time.sleep(3)
    begin, at = spent_so_far(running.child.pid), time.monotonic()
    load.wait(seconds + 60)
    steady, length = spent_so_far(running.child.pid) - begin, time.monotonic() - at
    return 100 * steady / length, running.stop() - steady


def run(options):
    rounds, seconds = (1, 6) if options.quick else (1, 60)
    with h.Scratch() as scratch:
        names = [DAEMON, OFTEN, *h.available(["whither", "bpftrace", "perf"], scratch)]
        results = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                results[name].append(measure(name, scratch, seconds))
                print(f"  {name}: {results[name][-1][0]:.2f} % steady", file=sys.stderr)
    rows = []
    for name in names:
        steady, ends = ([one[i] for one in results[name]] for i in (0, 1))
        shown = "whither record" if name == "whither" else name
        rows.append([shown, f"{h.median(steady):.2f}", f"{h.median(ends):.2f}"])
    text = h.table(["sampler, 4,999 Hz, all CPUs", "% of one CPU, sampling", "CPU s for start and end"], rows)
    return f"{text}\n\nThe mix for {seconds} s; {rounds} interleaved rounds; medians."
