"""What causal profiling costs a program that has a fixed amount of work, beside Coz."""

import re
import sys

import harness as h
from cases.causal_accuracy import run_first, truths

TITLE = "Cost of causal profiling"
BAR = "bars: experiments <= 8 % on average, <= 20 % at most (the paper: 17.6 and 65), sampling alone <= 1 %"

# (program, its Coz build, rounds for about four seconds)
PROGRAMS = [
    ("serial", "serial-coz", 400),
    ("twothread", "twothread-coz", 400),
    ("prodcons-mutex", "prodcons-coz", 4000),
    ("lockc-mutex", "lockc-coz", 1300),
    ("sleepy", "sleepy-coz", 400),
]


def commands(program, built, scratch):
    ours = [h.whither(), "causal", "--json", "-n", "1", "--progress", "progress"]
    theirs = [h.tool("coz"), "run", "-o", scratch / "overhead.coz"]
    plain = h.WORKLOADS / f"causal-{program}"
    coz = h.WORKLOADS / f"causal-{built}"
    return {
        "plain": [plain],
        "whither, sampling": [*ours, "--fixed-speedup", "0", "--", plain],
        "whither": [*ours, "--", plain],
        "plain for Coz": [coz],
        "Coz, sampling": [*theirs, "--fixed-speedup", "0", "---", coz],
        "Coz": [*theirs, "---", coz],
    }


def seconds_of(command, arguments, scratch, first):
    """Length of the work itself by the program's own clock: from its first visit to its last."""
    out, errors, _ = run_first([*command, *arguments], scratch, first, 120)
    found = dict(re.findall(r"^(visits|period_ns) (\d+)$", out, re.M))
    if len(found) != 2:
        raise h.Missing(f"{command[0]}: no figure: {errors[-300:]}")
    return int(found["visits"]) * int(found["period_ns"]) / 1e9


def run(options):
    h.build_workloads("causal-coz")
    truth = truths()
    rows = []
    with h.Scratch() as scratch:
        for program, built, rounds in PROGRAMS:
            which = commands(program, built, scratch)
            per_ms = re.search(r"per_ms (\d+)", run_first([which["plain"][0], "--seconds", "0.1"], scratch, truth.first, 30)[0])[1]
            arguments = ["--rounds", rounds // (4 if options.quick else 1), "--per-ms", per_ms]
            times = {label: [] for label in which}
            for _ in range(2 if options.quick else 5):
                for label, command in which.items():
                    try:
                        times[label].append(seconds_of(command, arguments, scratch, truth.first))
                    except h.Missing as why:
                        print(f"  {label}: {why}", file=sys.stderr)
            rows.append([f"`{program}`", *columns(times)])
            print("  ".join(rows[-1]), file=sys.stderr)
    table = h.table(["", "whither, sampling %", "whither %", "Coz 0.2.2, sampling %", "Coz 0.2.2 %"], rows)
    return (
        f"{table}\n\nA fixed number of rounds, measured by the program from its first visit to its last; best of interleaved runs, over the best plain "
        "run of the same build. `sampling`: no delays (amount 0 only). Delays are part of the cost: they are what the method inserts."
    )


def columns(times):
    for label, base in [("whither, sampling", "plain"), ("whither", "plain"), ("Coz, sampling", "plain for Coz"), ("Coz", "plain for Coz")]:
        good = times[label] and times[base]
        yield f"{100 * (min(times[label]) / min(times[base]) - 1):+.1f}" if good else "-"
