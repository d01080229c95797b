"""Bytes on disk for the same samples' minute: both tools record at once."""

import json
import os
import subprocess
import sys

import harness as h

TITLE = "Size of a recording"
BAR = "bar: <= 2.2 B per distinct (image, event, offset) entry, >= 200 times smaller than perf.data"


def sample_bytes(store):
    """Bytes of the sample tables alone."""
    return sum(f.stat().st_size for f in store.rglob("samples.parquet"))


def rows_of(db):
    """Rows of the sample tables, as the database counts them."""
    listing = [h.whither(), "epochs", "list", "--db", db, "--json"]
    answer = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
    return sum(epoch["rows"] for epoch in answer["epochs"])


def samples_of(recording):
    listing = [h.whither(), "prof", recording, "-n", "1", "--json"]
    answer = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
    return answer["provenance"]["events"][0]["samples"]


def record_all(scratch, seconds, mixes):
    """A recording, a database and perf.data of the same load at the same time: so many mixes side by side."""
    running = [h.Running(*h.sampler(name, scratch)) for name in ("whither", "perf")]
    # One segment of one slice, as nine of ten minutes are by default: an entry is an (image, event, offset), as in the paper.
    daemon = [h.whither(), "daemon", "run", "--db", scratch / "db", "--rate", h.RATE, "--seal", "1h", "-q"]
    running.append(h.Running(daemon))
    load = [h.Running([sys.executable, h.ROOT / "benches" / "mix.py", seconds]) for _ in range(mixes)]
    for mix in load:
        mix.wait(seconds + 60)
    for sampler in running:
        sampler.stop()


def measured(seconds, mixes):
    """Rows of the table for one load."""
    with h.Scratch() as scratch:
        record_all(scratch, seconds, mixes)
        perf, db = h.tree_bytes(scratch / "perf.data"), scratch / "db"
        recording = h.tree_bytes(next(scratch.glob("*.wh")))
        sealed, sealed_rows = sample_bytes(db), rows_of(db)
        name = f"{mixes} at once: {samples_of(db):,} samples (idle left out), {sealed_rows:,} entries"
    return [
        [name, "", "", ""],
        ["perf.data", f"{perf:,}", "-", "1"],
        ["database, sample tables as sealed", f"{sealed:,}", f"{sealed / sealed_rows:.2f}", f"{perf / sealed:.0f}"],
        ["recording (with slices, processes, names, code of hot functions)", f"{recording:,}", "-", f"{perf / recording:.1f}"],
    ]


def run(options):
    seconds = 20 if options.quick else 60
    h.whither()
    rows = [row for mixes in sorted({1, os.cpu_count()}) for row in measured(seconds, mixes)]
    text = h.table(["mixes", "bytes", "B per entry", "times smaller"], rows)
    return f"{text}\n\nEach load for {seconds} s, all samplers at once. One mix keeps one CPU busy; perf.data holds idle samples too."
