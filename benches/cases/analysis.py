"""How long the analysis of frequencies, cycles and culprits takes: everything that a compiler run executed."""

import json
import subprocess

import harness as h

TITLE = "Latency of the analysis"
BAR = "bar: a suite of 26 MB of executables < 3 s (DCPI: 3 minutes); `annotate` of any procedure < 0.5 s warm"


def unit(functions):
    """A translation unit that keeps all of a compiler's passes busy."""
    return "".join(
        f"int f{i}(int *p, int n) {{ int s = {i}; for (int j = 0; j < n; j++) {{ if (p[j] > s) s += p[j] * {i % 7 + 1};"
        f" else if (p[j] & 1) s ^= p[(j + {i}) % n]; switch (s & 7) {{ case 0: s++; break; case 1: s -= j; break;"
        f" case 3: s *= 3; break; case 5: s /= (j | 1); break; default: s <<= 1; }} }} return s; }}\n"
        for i in range(functions)
    )


def run(options):
    with h.Scratch() as scratch:
        source, recording = scratch / "unit.c", scratch / "gcc.wh"
        source.write_text(unit(400 if options.quick else 1200))
        h.timed([h.whither(), "record", "-q", "--rate", 9999, "-o", recording, "--", h.tool("gcc"), "-O2", "-c", "-o", scratch / "unit.o", source])
        images = json.loads(subprocess.run([h.whither(), "prof", "--by", "image", "--json", recording], capture_output=True, text=True).stdout)
        procedures = json.loads(subprocess.run([h.whither(), "prof", "--by", "proc", "--json", "-n", "100000", recording], capture_output=True, text=True).stdout)
        rows = [listing_row(scratch, recording)]
        hot = [r["labels"][0] for r in procedures["rows"] if r["labels"][1].endswith("cc1")]
        names = hot[:12]
        times = [h.timed([h.whither(), "annotate", "--image", "*cc1", name, recording]) for name in names for _ in range(2)]
        if times:
            rows.append([f"`whither annotate`, the {len(names)} hottest procedures of cc1", f"{h.median(times):.2f} (slowest {max(times):.2f})"])
    text = h.table(["", "seconds"], rows)
    return f"{text}\n\nRecording of `gcc -O2` on a long file: {len(images['rows'])} images, {len(procedures['rows']):,} procedures with samples; cc1 has 27 MB."


def listing_row(scratch, recording):
    seconds = h.median(h.timed([h.whither(), "summary", "all", recording]) for _ in range(3))
    return ["`whither summary all`", f"{seconds:.2f}"]
