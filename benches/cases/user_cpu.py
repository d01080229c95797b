"""CPU time of the sampler's own process while the mix runs, start and end of the recording left out."""

import sys

import harness as h

TITLE = "CPU time of the collecting process"
BAR = "bar: whither <= 0.2 % of one CPU"


def spent(name, scratch, seconds):
    """CPU seconds of a whole recording of the mix, `seconds` long."""
    command, env = h.sampler(name, scratch)
    running = h.Running(command, env)
    load = h.Running([sys.executable, h.ROOT / "benches" / "mix.py", seconds])
    load.wait(seconds + 60)
    return running.stop()


def run(options):
    rounds, short, long = (1, 2, 8) if options.quick else (3, 5, 20)
    with h.Scratch() as scratch:
        names = h.available(["whither", "bpftrace", "perf"], scratch)
        costs = {name: [] for name in names}
        wholes = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                brief, whole = spent(name, scratch, short), spent(name, scratch, long)
                costs[name].append(100 * (whole - brief) / (long - short))
                wholes[name].append(whole)
                print(f"  {name}: {brief:.2f} s of {short} s, {whole:.2f} s of {long} s", file=sys.stderr)
    rows = [[n, f"{h.median(costs[n]):.2f}", f"{h.median(wholes[n]):.2f}"] for n in names]
    text = h.table(["sampler, 4,999 Hz, all CPUs", "% of one CPU, steady", f"CPU s of a {long} s recording"], rows)
    return f"{text}\n\nSteady: recordings of {long} s minus recordings of {short} s; {rounds} interleaved rounds; medians."
