"""Bytes on disk for the same samples' minute: both tools record at once."""

import json
import subprocess
import sys

import harness as h

TITLE = "Size of a recording"
BAR = "bar: <= 2.2 B per distinct (image, event, offset) entry, >= 200 times smaller than perf.data"


def distinct_entries(recording):
    """(samples, distinct places) of a recording. A place is an instruction of an image: perf has no
    such number, because the same library sits at another address in each of its processes."""
    listing = [h.whither(), "prof", recording, "--by", "image,insn", "--all", "--json"]
    answer = json.loads(subprocess.run(listing, capture_output=True, check=True).stdout)
    return answer["provenance"]["events"][0]["samples"], len(answer["rows"])


def segment_bytes(recording):
    """Bytes of the sample tables alone."""
    return sum(f.stat().st_size for f in recording.rglob("*.parquet") if "sample" in f.name)


def run(options):
    seconds = 20 if options.quick else 60
    with h.Scratch() as scratch:
        recordings = []
        for name in h.available(["whither", "perf"], scratch):
            command, env = h.sampler(name, scratch)
            recordings.append((name, h.Running(command, env)))
        h.Running([sys.executable, h.ROOT / "benches" / "mix.py", seconds]).wait(seconds + 60)
        for _, running in recordings:
            running.stop()
        data = h.tree_bytes(scratch / "perf.data")
        rows = [["perf.data", f"{data:,}", "-", "1"]]
        samples = entries = 0
        for recording in scratch.glob("*.wh"):
            samples, entries = distinct_entries(recording)
            for label, size in (
                ("whither, sample tables", segment_bytes(recording)),
                ("whither, whole recording with symbols and code", h.tree_bytes(recording)),
            ):
                rows.append([label, f"{size:,}", f"{size / entries:.2f}", f"{data / size:.0f}"])
    text = h.table(["", "bytes", "B per entry", "times smaller"], rows)
    return f"{text}\n\nOne run of {seconds} s, both tools at once: {samples:,} samples (idle left out) at {entries:,} distinct places."
