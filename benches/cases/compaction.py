"""How fast segments of a database are merged."""

import json
import shutil
import subprocess
import sys

import harness as h

TITLE = "Compaction"
BAR = "bar: >= 5 M entries/s"


def entries(db):
    """Rows of sample tables, as the database itself counts them."""
    answer = subprocess.run([h.whither(), "epochs", "list", "--db", db, "--json"], capture_output=True, check=True).stdout
    return sum(epoch["rows"] for epoch in json.loads(answer)["epochs"])


def run(options):
    seconds, copies = (15, 20) if options.quick else (60, 50)
    with h.Scratch() as scratch:
        db = scratch / "db"
        daemon = h.Running([h.whither(), "daemon", "run", "--db", db, "--rate", h.RATE, "--drain", "1s", "--seal", "5s", "-q"])
        h.Running([sys.executable, h.ROOT / "benches" / "mix.py", seconds]).wait(seconds + 60)
        daemon.stop()
        segments = multiply(db, copies)
        before, rows = h.tree_bytes(db), entries(db)
        took = h.timed([h.whither(), "db", "compact", db])
        after = h.tree_bytes(db)
    text = h.table(
        ["segments", "entries", "seconds", "M entries/s", "bytes before", "bytes after"],
        [[segments, f"{rows:,}", f"{took:.2f}", f"{rows / took / 1e6:.2f}", f"{before:,}", f"{after:,}"]],
    )
    return f"{text}\n\nSegments of {seconds} s of the mix, each present {copies} times."


def multiply(db, copies):
    """Copies every sealed segment under new numbers, so that merging takes long enough to time; returns
    how many there are now."""
    segments = sorted(p for p in db.rglob("seg-*") if p.is_dir())
    number = len(segments)
    for _ in range(1, copies):
        for path in segments:
            number += 1
            shutil.copytree(path, path.parent / f"seg-{number:06}-{number:06}")
    return number
