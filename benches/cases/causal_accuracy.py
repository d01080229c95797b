"""How right a causal profile is: predicted gains on programs whose gain is known, beside Coz."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import harness as h

TITLE = "Accuracy of predicted gains"
BAR = "bars: mean error <= 2 points, largest <= 5, bias <= 1 on 60 s; >= 5 experiments per second"
PAGE = "accuracy.md"

SOURCES = h.ROOT / "workloads" / "causal"
# (name of workloads/causal/truth, part, program, its Coz build, source)
PARTS = [
    ("K1", "f", "serial", "serial-coz", "serial.c"),
    ("K1", "g", "serial", "serial-coz", "serial.c"),
    ("K2", "a", "twothread", "twothread-coz", "twothread.cpp"),
    ("K2", "b", "twothread", "twothread-coz", "twothread.cpp"),
    ("K3-mutex", "produce", "prodcons-mutex", "prodcons-coz", "prodcons.cpp"),
    ("K3-mutex", "consume", "prodcons-mutex", "prodcons-coz", "prodcons.cpp"),
    ("K4-mutex", "critical", "lockc-mutex", "lockc-coz", "lockc.cpp"),
    ("K4-mutex", "apart", "lockc-mutex", "lockc-coz", "lockc.cpp"),
    ("K5", "cpu", "sleepy", "sleepy-coz", "sleepy.c"),
]


def truths():
    """The curves of EXPECTED.md, as the script that checks them has them."""
    loader = SourceFileLoader("whither_truth", str(SOURCES / "truth"))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def line_of(source, part):
    """The line on which a part is written."""
    lines = (SOURCES / source).read_text().splitlines()
    return next(n for n, text in enumerate(lines, 1) if text.startswith(f"PART({part},"))


def run_first(command, scratch, first, timeout):
    """Runs a command before everything else on the machine; returns its stdout."""
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=timeout, cwd=scratch, preexec_fn=first, stdin=subprocess.DEVNULL
    )
    return done.stdout, done.stderr, done.returncode


def whither(part, program, seconds, scratch, first):
    """({percent: y in points}, windows per second, half-width of the interval at 30 % in points)."""
    command = [h.whither(), "causal", "--json", "--progress", "progress", "--unit", "function", "--target", part, "--"]
    command += [h.WORKLOADS / f"causal-{program}", "--seconds", seconds]
    out, errors, _ = run_first(command, scratch, first, seconds + 60)
    start = re.search(r"^\{", out, re.M)
    if not start:
        raise h.Missing(f"whither causal on {program} gave no answer: {errors[-300:]}")
    answer, _ = json.JSONDecoder().raw_decode(out[start.start():])
    row = next((t for t in answer["targets"] if t["name"] == part), None)
    if not row:
        return {}, answer["windows"]["per_second"], None
    gain = row["local"] or row["gain"]
    half = 50 * (gain["high"] - gain["low"]) if gain else None
    return {p["percent"]: 100 * p["y"] for p in row["curve"] if p["percent"]}, answer["windows"]["per_second"], half


def coz(part, program, source, seconds, scratch, first):
    """The same from Debian's Coz; its last experiment of a run, which holds dead time, is left out in its favour."""
    profile = Path(scratch) / f"{program}-{part}.coz"
    profile.unlink(missing_ok=True)
    place = f"{source}:{line_of(source, part)}"
    command = [h.tool("coz"), "run", "-o", profile, "--fixed-line", place, "---"]
    command += [h.WORKLOADS / f"causal-{program}", "--seconds", seconds]
    _, errors, _ = run_first(command, scratch, first, seconds + 60)
    if not profile.exists():
        raise h.Missing(f"coz on {program} left no profile: {errors[-300:]}")
    pairs = re.findall(r"^experiment\t.*?speedup=([0-9.]+)\tduration=(\d+).*\nthroughput-point\t.*?delta=(\d+)", profile.read_text(), re.M)
    sums = defaultdict(lambda: [0, 0])
    for speedup, duration, delta in pairs[:-1]:
        total = sums[round(100 * float(speedup))]
        total[0] += int(duration)
        total[1] += int(delta)
    period = {percent: duration / visits for percent, (duration, visits) in sums.items() if visits}
    base = period.pop(0, None)
    return {percent: 100 * (1 - p / base) for percent, p in period.items()} if base else {}, len(pairs) / seconds, None


def error(curve, truth):
    """Mean and largest absolute error, and mean error, over the amounts of a curve."""
    apart = [y - 100 * truth(percent / 100) for percent, y in curve.items()]
    if not apart:
        return "no data"
    absolute = [abs(a) for a in apart]
    return f"{sum(absolute) / len(apart):.1f} / {max(absolute):.1f} ({sum(apart) / len(apart):+.1f})"


def run(options):
    h.build_workloads("causal-coz")
    truth = truths()
    seconds = 15 if options.quick else 40
    rows = []
    with h.Scratch() as scratch:
        for name, part, program, built, source in PARTS:
            curve = truth.PROGRAMS[name][1][part]
            ours, our_rate, half = whither(part, program, seconds, scratch, truth.first)
            try:
                theirs, their_rate, _ = coz(part, built, source, seconds, scratch, truth.first)
                their = [error(theirs, curve), f"{their_rate:.1f}"]
            except h.Missing as why:
                print(f"  {program} {part}: {why}", file=sys.stderr)
                their = ["no data", "-"]
            width = f"{half:.1f}" if half is not None else "-"
            rows.append([f"{name.split('-')[0]} `{program}` {part}", error(ours, curve), width, f"{our_rate:.1f}", *their])
            print("  ".join(rows[-1]), file=sys.stderr)
    table = h.table(["", "whither: error", "half-width at 30 %", "experiments/s", "Coz 0.2.2: error", "experiments/s"], rows)
    return (
        f"{table}\n\nPercentage points of time per visit: mean / largest absolute error over the amounts measured (bias in brackets), {seconds} s "
        "of experiments with one part each, against the exact curves of `workloads/causal/EXPECTED.md`. `PROGRAM` is "
        "`target/workloads/causal-PROGRAM`, unchanged for whither; Coz has builds with its own progress points and DWARF 3, which is what "
        "Debian's version reads, and its last experiment of each run is left out in its favour. The half-width is that of whither's own "
        "95 % interval."
    )
