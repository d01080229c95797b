"""How long the first answer takes: `whither prof` and `perf report` on recordings of the same load."""

import sys

import harness as h

TITLE = "Latency of a listing"
BAR = "bar: `whither prof` on 1.5 M samples < 0.3 s warm"


def record(name, scratch, rate, seconds):
    command, env = h.sampler(name, scratch, rate)
    running = h.Running(command, env)
    h.Running([sys.executable, h.ROOT / "benches" / "mix.py", seconds]).wait(seconds + 60)
    running.stop()


def run(options):
    # 1.5 M samples of two CPUs; the quick run has a tenth of them.
    rate, samples = 19999, 150_000 if options.quick else 1_500_000
    seconds = max(3, samples / rate)
    with h.Scratch() as scratch:
        names = h.available(["whither", "perf"], scratch)
        for name in names:
            record(name, scratch, rate, seconds)
        commands = {"perf report --stdio": [h.tool("perf"), "report", "--stdio", "-q", "-i", scratch / "perf.data"]}
        for recording in scratch.glob("*.wh"):
            for by in ("proc", "image"):
                commands[f"whither prof --by {by}"] = [h.whither(), "prof", recording, "--by", by, "--json"]
        times = {label: [] for label in commands}
        for label, command in commands.items():
            h.timed(command)
        for _ in range(3):
            for label, command in commands.items():
                times[label].append(h.timed(command))
    base = h.median(times["perf report --stdio"])
    rows = [[label, f"{h.median(t):.3f}", f"{base / h.median(t):.1f}"] for label, t in times.items()]
    text = h.table(["", "seconds, warm", "times faster"], rows)
    return f"{text}\n\nEach tool's own recording of the mix at {rate} Hz for {seconds:.0f} s, about {samples:,} samples; median of 3."
