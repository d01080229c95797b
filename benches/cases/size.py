"""Bytes on disk for the same samples' minute: both tools record at once."""

import json
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


def record_all(scratch, seconds):
    """A recording, a database and perf.data of the same mix at the same time."""
    running = [h.Running(*h.sampler(name, scratch)) for name in ("whither", "perf")]
    daemon = [h.whither(), "daemon", "run", "--db", scratch / "db", "--rate", h.RATE, "--seal", f"{seconds + 60}s", "-q"]
    # A slice as long as the run: an entry is then an (image, event, offset), as in the paper.
    running.append(h.Running([*daemon, "--slice", f"{2 * seconds}s"]))
    h.Running([sys.executable, h.ROOT / "benches" / "mix.py", seconds]).wait(seconds + 60)
    for sampler in running:
        sampler.stop()


def run(options):
    seconds = 20 if options.quick else 60
    h.whither()
    with h.Scratch() as scratch:
        record_all(scratch, seconds)
        perf, db = h.tree_bytes(scratch / "perf.data"), scratch / "db"
        recording = next(scratch.glob("*.wh"))
        sealed, rows = sample_bytes(db), rows_of(db)
        h.timed([h.whither(), "db", "compact", db])
        merged, merged_rows = sample_bytes(db), rows_of(db)
        table = [
            ["perf.data", f"{perf:,}", "-", "1"],
            ["database, sample tables as sealed", f"{sealed:,}", f"{sealed / rows:.2f}", f"{perf / sealed:.0f}"],
            ["database, sample tables compacted", f"{merged:,}", f"{merged / merged_rows:.2f}", f"{perf / merged:.0f}"],
            ["recording (with slices, processes, names, code of hot functions)", f"{h.tree_bytes(recording):,}", "-", f"{perf / h.tree_bytes(recording):.1f}"],
        ]
        samples = samples_of(db)
    text = h.table(["", "bytes", "B per entry", "times smaller"], table)
    return f"{text}\n\nOne run of {seconds} s, all at once: {samples:,} samples (idle left out), {merged_rows:,} distinct entries."
