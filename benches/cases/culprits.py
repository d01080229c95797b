"""Planted stalls: how much of the time of a procedure is blamed on the planted cause, at the planted instruction."""

import json
import subprocess

import harness as h

TITLE = "Culprits of planted stalls"
BAR = (
    "bar: >= 95 % of the stall samples have the planted culprit first, at the planted instruction; a twin without the cause is never blamed for it"
)
PAGE = "accuracy.md"

# Program, procedure, cause, key of the instruction's address (none: anywhere), procedure without the cause, its key.
PLANTED = [
    ("chase", "chase", "d-cache", "load_address", None, None),
    ("divl", "divide", "unit", "divide_address", None, None),
    ("mispredict", "unforeseen", "mispredict", "branch_address", "foreseen", "foreseen_address"),
    ("storeburst", "burst", "store-buffer", "store_address", None, None),
    ("fwdfail", "pieces", "forwarding", "load_address", "whole", None),
    ("lockadd", "shared", "synchronisation", "shared_address", None, None),
    ("imiss", "straight0", "i-cache", None, None, None),
    ("depchain", "multiplies", "operand", "multiply_address", None, None),
]


def analysed(recording, procedure):
    done = subprocess.run([h.whither(), "annotate", procedure, recording, "--json"], capture_output=True, text=True)
    if done.returncode:
        return None
    return json.loads(done.stdout).get("analysis")


def first_at(insns, row):
    """The first culprit and the address of the instruction at fault; a static stall where no dynamic one is suspected."""
    if row["culprits"]:
        first = row["culprits"][0]
        return first["cause"], insns[first["at"]]["address"] if first.get("at") is not None else None
    stall = row.get("static_stall")
    return (stall["cause"], row["address"]) if stall else (None, None)


def blamed(analysis, cause, address):
    insns = analysis["insns"]
    total = sum(i["samples"] for i in insns)

    def hit(row):
        found, at = first_at(insns, row)
        return found == cause and (address is None or at == address)

    return sum(i["samples"] for i in insns if hit(i)) / total, total


def suspected(analysis, cause, address):
    insns = analysis["insns"]
    return any(
        c["cause"] == cause and (address is None or c.get("at") is not None and insns[c["at"]]["address"] == address)
        for i in insns
        for c in i["culprits"]
    )


def row(scratch, program, procedure, cause, key, twin, twin_key, seconds):
    recording = scratch / f"{program}.wh"
    command = [h.whither(), "record", "-q", "--rate", 4999, "-o", recording, "--", h.ROOT / "target/workloads" / program, seconds]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    truth = dict(line.split(None, 1) for line in done.stdout.splitlines() if " " in line)
    number = lambda k: int(truth[k], 0) if k else None
    analysis = analysed(recording, procedure)
    if not analysis:
        return [f"`{program}`", cause, "-", "-", "not analysed", "-", "-", "-"]
    share, samples = blamed(analysis, cause, number(key))
    anywhere, _ = blamed(analysis, cause, None)
    innocent = "-"
    if twin and (other := analysed(recording, twin)):
        innocent = "suspected" if suspected(other, cause, number(twin_key)) else "not suspected"
    stalled = stalled_share(truth)
    of_stalled = f"{100 * min(share / stalled, 1):.1f}" if stalled else "-"
    stalled = f"{100 * stalled:.1f}" if stalled else "-"
    return [f"`{program}`", cause, f"{samples:,.0f}", f"{100 * share:.1f}", f"{100 * anywhere:.1f}", stalled, of_stalled, innocent]


def stalled_share(truth):
    """What the program takes longer than its twin, the same code without the cause, as a share of its time."""
    guilty, innocent = (float(truth.get(key, 0)) for key in ("guilty_ns", "innocent_ns"))
    return 1 - innocent / guilty if innocent < guilty else None


def run(options):
    h.build_workloads()
    seconds = 4 if options.quick else 10
    with h.Scratch() as scratch:
        rows = [row(scratch, *planted, seconds) for planted in PLANTED]
    head = ["", "planted cause", "samples", "blamed first, at the instruction, %", "anywhere, %", "stalled, %", "at the instruction, % of what stalled", "its twin"]
    text = h.table(head, rows)
    return (
        f"{text}\n\nShare of the samples of the procedure the stall was planted in. `operand`: a chain of operations that wait for each other, "
        f"which the processor model explains without a culprit. {seconds} s each. What stalled: the time beyond what the same code takes "
        f"without the cause, by the program's own clock; the rest of the samples is work, which may be blamed beside it."
    )
