"""What one probed call costs, beside the tools a user would take instead."""

import os
import re
import subprocess
import sys

import harness as h

TITLE = "Cost of a probed call"
BAR = (
    "bars, net of the bare program: count by path <= 8 ns, wall by path <= 25, with CPU time <= 30, with histogram <= 35, "
    "256 random paths <= 50 (wall); >= 4x cheaper than uftrace, >= 40x than uprobe + uretprobe histograms, "
    ">= 80x than bpftrace time by stack"
)
ONE = ["-n", "{n}", "-r", "{r}"]
# A repetition lasts so long: shorter than a time slice, so that on a busy machine some are not interrupted.
REPETITION_NS = 3e5


def build_wrapper():
    """Compiles the LD_PRELOAD wrapper."""
    h.BUILD.mkdir(parents=True, exist_ok=True)
    library = h.BUILD / "wrap.so"
    source = h.ROOT / "benches" / "wrap.c"
    subprocess.run([h.tool("gcc"), "-O2", "-Wall", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)


def program(name="callcost"):
    return str(h.WORKLOADS / f"calls-{name}")


def ours(*arguments):
    return lambda scratch: [h.whither(), "calls", "-f", "target", *arguments, "--"]


def bpftrace(text, binary="callcost"):
    script = text.replace("BIN", program(binary))
    return lambda scratch: [h.tool("bpftrace"), "-q", "-e", script, "-c"]


def uftrace(*arguments):
    return lambda scratch: [h.tool("uftrace"), "record", "--no-pager", "-d", str(scratch / "uftrace"), *arguments]


TIMED = "uprobe:BIN:target {{ @s[tid] = nsecs; }} uretprobe:BIN:target /@s[tid]/ {{ {what}; delete(@s[tid]); }}"
# (label, how, program, arguments, expected ns, environment)
VARIANTS = [
    ("bare program", None, "callcost", ONE, 5, {}),
    ("**whither**: count by path, entries only", ours("--entry-only", "-m", "count"), "callcost", ONE, 15, {}),
    ("**whither**: wall by path", ours("-m", "count,wall"), "callcost", ONE, 30, {}),
    ("**whither**: wall and CPU by path", ours("-m", "count,wall,cpu"), "callcost", ONE, 30, {}),
    ("**whither**: wall, CPU, histogram by path", ours("-m", "count,wall,cpu,hist"), "callcost", ONE, 35, {}),
    ("**whither**: wall by path, 2 threads", ours("-m", "count,wall"), "callcost", [*ONE, "-t", "2"], 30, {}),
    ("bare program, 256 random paths", None, "callcost", [*ONE, "--random"], 40, {}),
    ("**whither**: wall by path, 256 random paths", ours("-m", "count,wall"), "callcost", [*ONE, "--random"], 100, {}),
    ("LD_PRELOAD wrapper, count", None, "callcost-lib", ONE, 6, {"WRAP": "0"}),
    ("LD_PRELOAD wrapper, 2 x rdtsc", None, "callcost-lib", ONE, 20, {"WRAP": "1"}),
    ("LD_PRELOAD wrapper, 2 x clock_gettime", None, "callcost-lib", ONE, 50, {"WRAP": "2"}),
    ("uftrace -pg, one function", uftrace("-F", "target", "--no-libcall"), "callcost-pg", ONE, 100, {}),
    ("uftrace full dynamic, one function", uftrace("-P", "target", "--no-libcall"), "callcost", ONE, 110, {}),
    ("uftrace nop-mcount, one function", uftrace("-P", "target", "--no-libcall"), "callcost-nop", ONE, 100, {}),
    ("bpftrace uprobe count", bpftrace("uprobe:BIN:target { @ = count(); }"), "callcost", ONE, 11000, {}),
    ("bpftrace uprobe count, nop5 entry", bpftrace("uprobe:BIN:target { @ = count(); }", "callcost-nop"), "callcost-nop", ONE, 500, {}),
    (
        "bpftrace uprobe + uretprobe histogram, nop5 entry",
        bpftrace(TIMED.format(what="@ = hist(nsecs - @s[tid])"), "callcost-nop"), "callcost-nop", ONE, 1600, {},
    ),
    (
        "bpftrace time by ustack, nop5 entry",
        bpftrace(TIMED.format(what="@[ustack] = sum(nsecs - @s[tid])"), "callcost-nop"), "callcost-nop", ONE, 2700, {},
    ),
    ("ltrace -e target", lambda scratch: [h.tool("ltrace"), "-o", "/dev/null", "-e", "target"], "callcost-lib", ONE, 90000, {}),
]


def measure(variant, scratch, wrapper, quick):
    """ns per call of one run."""
    label, how, name, arguments, expected, environment = variant
    calls = max(int(REPETITION_NS / expected), 192)
    repetitions = max(int((1e8 if quick else 3e8) / expected / calls), 3)
    command = [program(name), *(a.format(n=calls, r=repetitions) for a in arguments)]
    if how:
        prefix = how(scratch)
        command = [*prefix, " ".join(command)] if prefix[-1] == "-c" else [*prefix, *command]
    extra = {"LD_PRELOAD": wrapper, **environment} if environment else {}
    subprocess.run(["rm", "-rf", scratch / "uftrace"], check=True)
    done = subprocess.run(
        command, env={**os.environ, **extra}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd=scratch
    )
    found = re.search(r"ns_per_call ([0-9.]+)", done.stdout)
    if not found:
        raise h.Missing(f"{label}: no figure (status {done.returncode}): {done.stderr[-300:]}")
    return float(found[1])


def run(options):
    h.build_workloads()
    wrapper = build_wrapper()
    best, absent = {}, {}
    with h.Scratch() as scratch:
        for _ in range(2 if options.quick else 7):
            for variant in VARIANTS:
                label = variant[0]
                if label in absent:
                    continue
                try:
                    best[label] = min(best.get(label, 1e18), measure(variant, scratch, wrapper, options.quick))
                except (h.Missing, subprocess.TimeoutExpired) as why:
                    absent[label] = str(why)
                    print(f"  leaving out {label}: {why}", file=sys.stderr)
    if not any(label.startswith("**whither") for label in best):
        raise h.Missing(next(iter(absent.values()), "nothing was measured"))
    return report(best)


def report(best):
    """The table, and the ratios that the bars name."""
    bare, bare_random = best["bare program"], best["bare program, 256 random paths"]
    net = {label: ns - (bare_random if "random" in label else bare) for label, ns in best.items()}
    path = net.get("**whither**: wall by path")
    rows = []
    for label, _, *_ in VARIANTS:
        if label in best:
            times = f"{net[label] / path:.1f}" if path and net[label] > 0.05 and "random" not in label else "-"
            rows.append([label, f"{best[label]:.1f}", f"{net[label]:.1f}", times])
    table = h.table(["", "ns per call", "net", "times wall by path"], rows)
    return (
        f"{table}\n\n`target` does 4 ns of work and is reached by 3 paths of 11 frames, without frame pointers; the path changes every 64 "
        "calls. Each figure is the best of all repetitions; net = less the bare program's. `-pg` and `nop-mcount` are builds made for uftrace "
        "and for cheap uprobes; whither and the wrapper see the function as any compiler leaves it. bpftrace at an entry without nop5 is "
        "single-stepped by the kernel."
    )
