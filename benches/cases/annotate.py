"""How long annotating one procedure of a big binary with debug information takes."""

import subprocess
import sys

import harness as h

TITLE = "Latency of an annotation"
BAR = "bar: < 1 s on a 100 MB binary with debug information"
FILES, COPIES, FUNCTIONS = 8, 7, 4000


def unit(number):
    """A translation unit of many small functions, each with debug information of its own."""
    body = "".join(
        f"struct t{number}_{i} {{ int a, b; struct t{number}_{i} *n; }};\n"
        f"int g{number}_{i}(struct t{number}_{i} *p, int x) {{ int y = x * {i}; for (int j = 0; j < x; j++)"
        f" {{ int z = p->a ^ j; y += z * p->b; if (z & 1) p = p->n; }} return y; }}\n"
        for i in range(FUNCTIONS)
    )
    return body


MAIN = """
#include <stdlib.h>
#include <time.h>
__attribute__((noinline)) unsigned long hottest(unsigned long n) {
    unsigned long x = 1;
    for (unsigned long i = 0; i < n; i++) { x = x * 31 + i; __asm__ volatile("" : "+r"(x)); }
    return x;
}
int main(int argc, char **argv) {
    clock_t end = clock() + (clock_t)(atof(argv[argc - 1]) * CLOCKS_PER_SEC);
    unsigned long x = 0;
    while (clock() < end) x ^= hottest(1000000);
    return x == 1;
}
"""


def big_binary():
    """Builds (once) and returns the binary."""
    folder = h.BUILD / "big"
    binary = folder / "big"
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    objects = []
    for number in range(FILES):
        source = folder / f"u{number}.c"
        source.write_text(unit(number))
        original = source.with_suffix(".o")
        subprocess.run(["gcc", "-O0", "-g3", "-c", source, "-o", original], check=True)
        objects.append(original)
        # Copies under other names are as good as compiled ones, and made in no time.
        for copy in range(1, COPIES):
            objects.append(folder / f"u{number}-{copy}.o")
            subprocess.run(["objcopy", f"--prefix-symbols=c{copy}_", original, objects[-1]], check=True)
    (folder / "main.c").write_text(MAIN)
    subprocess.run(["gcc", "-O2", "-g", folder / "main.c", *objects, "-o", binary], check=True)
    for path in objects:
        path.unlink()
    return binary


def run(options):
    binary = big_binary()
    times = {}
    with h.Scratch() as scratch:
        data = scratch / "perf.data"
        h.timed([h.tool("perf"), "record", "-q", "-F", "999", "-o", data, binary, 2])
        commands = {"perf annotate --stdio": [h.tool("perf"), "annotate", "--stdio", "-i", data, "-s", "hottest"]}
        try:
            recording = scratch / "big.wh"
            h.timed([h.whither(), "record", "--rate", 999, "-o", recording, "-q", "--", binary, 2])
            commands["whither annotate"] = [h.whither(), "annotate", "hottest", recording]
        except h.Missing as why:
            print(f"  leaving out whither: {why}", file=sys.stderr)
        for label, command in commands.items():
            first = h.timed(command)
            warm = h.median(h.timed(command) for _ in range(1 if options.quick else 3))
            times[label] = (first, warm)
    rows = [[label, f"{first:.2f}", f"{warm:.2f}"] for label, (first, warm) in times.items()]
    size = binary.stat().st_size / 1e6
    text = h.table(["", "first, s", "again, s"], rows)
    return f"{text}\n\nOne procedure of a binary of {size:.0f} MB with {FILES * COPIES * FUNCTIONS:,} functions and their debug information."
