"""What exact counts add to estimated executions: programs recorded with and without --exact, judged by callgrind."""

import subprocess
import sys
from pathlib import Path

import harness as h
from cases import cycles_accuracy as c

TITLE = "Accuracy of execution counts with --exact"
BAR = (
    "bars: with --exact 73 / 87 / 92 % of the sample weight within 5 / 10 / 15 %; without >= 65 % within 15 % (goal 80 %); nine tenths of "
    "what is called high and eight tenths of what is called medium within 15 %; mean error of branch probabilities <= 0.03"
)
PAGE = "accuracy.md"

JOBS = h.ROOT / "benches" / "jobs"

# Name, image to compare, repeats of the job in one process while recording (some five seconds; with --quick half of it), and while
# counting (some seconds under callgrind).
LOOKED_AT = [
    ("bzip2", "libbz2", 36, 1),
    ("lz4", "lz4", 80, 2),
    ("sqlite3", "libsqlite3", 120, 5),
    ("python3", "python3", 300, 20),
    ("C++", "containers", 850, 4),
]
# Not looked at while estimator and counting were written.
HELD_OUT = [
    ("xz", "liblzma", 24, 1),
    ("zstd", "zstd", 125, 1),
    ("lua", "lua5.4", 1300, 20),
    ("perl", "/perl", 2600, 20),
    ("gawk", "gawk", 70, 1),
    ("Rust", "maps", 1280, 6),
]


def inputs(scratch):
    c.inputs(scratch)
    subprocess.run([h.tool("g++"), "-O2", "-std=c++17", "-o", Path(scratch) / "containers", JOBS / "containers.cc"], check=True)
    subprocess.run([h.tool("rustc"), "-O", "--edition=2021", "-o", Path(scratch) / "maps", JOBS / "maps.rs"], check=True)


def command(name, repeats, scratch):
    if name == "C++":
        return [Path(scratch) / "containers", repeats], ""
    if name == "Rust":
        return [Path(scratch) / "maps", repeats], ""
    if name == "lz4":
        # It writes one file's frame after the other.
        return [h.tool("lz4"), "-9", "-c", "-q", *([Path(scratch) / "text"] if repeats == 1 else ["-m", *[Path(scratch) / "text"] * repeats])], ""
    return c.command(name, repeats, scratch)


def run_with(prefix, name, repeats, scratch):
    c.run_words(prefix, *command(name, repeats, scratch), scratch)


def count(name, counted, scratch):
    exact = Path(scratch) / f"{name}.exact"
    run_with(c.counting(exact), name, counted, scratch)
    return exact


def record(name, repeats, flags, scratch):
    recording = Path(scratch) / f"{name}{'-exact' if flags else ''}.wh"
    run_with([h.whither(), "record", "-q", *flags, "-o", recording, "--"], name, repeats, scratch)
    return recording


def told(answer, called):
    """Of what is called so, the part that is right, and how much it is."""
    share, errors = next(((s, e) for name, s, e in answer["confidence"] if name == called), (0, None))
    return f"{c.percent(errors['within'][2])} of {c.percent(share)}" if share > 0.0005 else "-"


def row(name, a):
    return [
        name,
        f"{a['instructions']['weight']:,.0f}",
        " / ".join(c.percent(w) for w in a["instructions"]["within"]),
        f"{a['overlap']:.2f}",
        " / ".join(c.percent(w) for w in a["edges"]["within"]),
        f"{a['branches']['mean_by_executions']:.3f}",
        told(a, "high"),
        told(a, "medium"),
        f"{100 * (a['provenance']['own_cost'] or 0):.1f}",
    ]


def one(program, scratch, quick, star=""):
    """Rows of a program: without and with exact counts; None for what could not be had."""
    name, image, repeats, counted = program
    exact, answers = count(name, counted, scratch), []
    for mode, flags in [("", []), ("`--exact`", ["--exact", ".*"])]:
        recording = record(name, repeats // 2 if quick else repeats, flags, scratch)
        answers.append((row(f"{name}{star}, {mode}" if mode else f"{name}{star}", a := c.accuracy(name, image, exact, recording)), a))
        print("  ".join(answers[-1][0]), file=sys.stderr)
    return answers


def mean(label, answers):
    """Programs count alike."""
    within = [sum(a["instructions"]["within"][i] for a in answers) / len(answers) for i in range(3)]
    branches = sum(a["branches"]["mean_by_executions"] for a in answers) / len(answers)

    def right(called):
        of = [(s, e["within"][2]) for a in answers for name, s, e in a["confidence"] if name == called]
        share = sum(s for s, _ in of)
        return f"{c.percent(sum(s * w for s, w in of) / share)} of {c.percent(share / len(answers))}" if share else "-"

    cost = sum(a["provenance"]["own_cost"] or 0 for a in answers) / len(answers)
    return [label, "", " / ".join(c.percent(w) for w in within), "", "", f"{branches:.3f}", right("high"), right("medium"), f"{100 * cost:.1f}"]


def run(options):
    rows, found = [], []
    with h.Scratch() as scratch:
        inputs(scratch)
        for program in [*LOOKED_AT, *HELD_OUT]:
            held = program in HELD_OUT
            try:
                answers = one(program, scratch, options.quick, "" if held else " *")
            except h.Missing as why:
                rows.append([program[0], str(why), *[""] * 7])
                continue
            rows += [r for r, _ in answers]
            found.append((held, [a for _, a in answers]))
    for held, label in [(False, "looked at *"), (True, "held out")]:
        of = [answers for h_, answers in found if h_ == held]
        for mode, which in [("", 0), (", `--exact`", 1)]:
            if of:
                rows.append(mean(f"**mean, {label}{mode}**", [answers[which] for answers in of]))
    columns = ["", "samples", "within 5 / 10 / 15 %", "overlap", "edges", "branch error", "high: right of share", "medium: right of share", "own cost %"]
    return (
        f"{h.table(columns, rows)}\n\nOne recording of some five seconds each at the default budget, with `--exact '.*'` and without. Figures as "
        "above; *own cost* with `--exact` holds all the time that breakpoints stood. \\*: looked at while the estimator was written."
    )
