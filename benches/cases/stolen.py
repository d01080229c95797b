"""What one sample steals from the program it interrupts, over an interrupt with an empty handler."""

import json
import subprocess
import sys
import time

import harness as h

TITLE = "Time stolen per sample"
BAR = "bar: whither <= 0.30 us over the floor"
CPU = 1 if h.os.cpu_count() > 1 else 0


def gap(seconds):
    done = subprocess.run([h.compile_helper("gap"), str(CPU), str(seconds)], capture_output=True, check=True)
    return json.loads(done.stdout)


def measure(name, scratch, seconds):
    """One round: waits until the sampler's interrupts arrive, then measures.

    A measurement during which interrupts stayed away (the sampler was starting, the hypervisor took
    the CPU) says nothing about the cost of one, so it is taken again, ten times at most."""
    command, env = h.sampler(name, scratch)
    running = h.Running(command, env)
    try:
        for _ in range(10):
            time.sleep(0.2)
            result = gap(seconds)
            if result["per_s"] >= 0.9 * h.RATE:
                return result
        raise RuntimeError(f"{name} does not interrupt CPU {CPU} {h.RATE} times a second")
    finally:
        running.stop()


def run(options):
    rounds, seconds = (3, 0.5) if options.quick else (10, 1.5)
    with h.Scratch() as scratch:
        names = h.available(["floor", "whither", "bpftrace", "perf", "perf -g"], scratch)
        results = {name: [] for name in names}
        for number in range(rounds):
            for name in names:
                results[name].append(measure(name, scratch, seconds))
                print(f"  round {number + 1} {name}: p50 {results[name][-1]['p50']:.2f} us", file=sys.stderr)
    floor = [r["p50"] for r in results["floor"]]
    rows = []
    for name in names:
        over = h.median(r["p50"] - f for r, f in zip(results[name], floor))
        wins = sum(r["p50"] < p["p50"] for r, p in zip(results[name], results["perf"]))
        rows.append(
            [
                "event without reader (floor)" if name == "floor" else name,
                f"{h.median(r['p50'] for r in results[name]):.2f}",
                "-" if name == "floor" else f"{over:+.2f}",
                f"{100 * h.median(r['stolen'] for r in results[name]):.2f}",
                "-" if name in ("floor", "perf") else f"{wins} of {rounds}",
            ]
        )
    text = h.table(["sampler, 4,999 Hz", "p50 us", "over floor us", "CPU stolen %", "below perf"], rows)
    fifo = "a SCHED_FIFO thread" if results["floor"][0]["fifo"] else "a normal thread (no right to SCHED_FIFO)"
    return f"{text}\n\nGaps > 300 ns in {fifo} that reads the time stamp counter; {rounds} interleaved rounds of {seconds} s; medians."
