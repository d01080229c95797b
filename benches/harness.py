"""What the benchmarks share: starting and stopping samplers, what they cost, medians, tables.

Every comparison is interleaved (A B C, A B C, ...) in one invocation and reported as medians and
ratios, because the machine is shared and its speed wanders.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "target" / "benches"
WORKLOADS = ROOT / "target" / "workloads"
RATE = 4999


class Missing(Exception):
    """A tool or a right this benchmark needs is not there; the text says which."""


def whither():
    """Path of the release binary (or $WHITHER)."""
    path = Path(os.environ.get("WHITHER", ROOT / "target" / "release" / "whither"))
    if not path.exists():
        raise Missing(f"{path} is not built (cargo build --release)")
    return str(path)


def tool(name):
    path = shutil.which(name)
    if not path:
        raise Missing(f"{name} is not installed")
    return path


def compile_helper(name):
    """Compiles benches/NAME.c once; returns the binary's path."""
    BUILD.mkdir(parents=True, exist_ok=True)
    source, binary = ROOT / "benches" / f"{name}.c", BUILD / name
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([tool("gcc"), "-O2", "-Wall", "-o", binary, source], check=True)
    return str(binary)


def build_workloads(*more):
    """Builds the workloads, and what only some benchmark wants of them."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "workloads")], check=True)
    for target in more:
        subprocess.run(["make", "-s", "-C", str(ROOT / "workloads"), target], check=True)


class Scratch:
    """A directory for recordings that is empty at the start and gone at the end."""

    def __enter__(self):
        self.path = BUILD / f"scratch-{os.getpid()}"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


class Running:
    """A process we started; `stop` ends it by SIGINT as a user would and returns its CPU seconds."""

    def __init__(self, command, env=None, errors=None):
        self.command = [str(c) for c in command]
        self.errors = errors or subprocess.DEVNULL
        self.child = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self.usage = None

    def wait(self, timeout=120):
        """Waits for the end; returns rusage of the process and its reaped children."""
        deadline = time.monotonic() + timeout
        while self.usage is None:
            pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
            if pid:
                self.child.returncode = os.waitstatus_to_exitcode(status)
                self.usage = usage
            elif time.monotonic() > deadline:
                os.kill(self.child.pid, signal.SIGKILL)
                deadline = float("inf")
            else:
                time.sleep(0.005)
        return self.usage

    def stop(self, signal_number=signal.SIGINT):
        if self.usage is None:
            os.kill(self.child.pid, signal_number)
        usage = self.wait()
        return usage.ru_utime + usage.ru_stime

    def rss_kib(self):
        """(resident now, peak) in KiB."""
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        )
        return int(fields["VmRSS"].split()[0]), int(fields["VmHWM"].split()[0])


def sampler(name, scratch, rate=RATE):
    """Command and environment of a whole-system sampler at `rate`, writing below `scratch`."""
    if name == "floor":
        return [compile_helper("floor"), rate], {}
    if name == "whither":
        out = scratch / f"{time.monotonic_ns()}.wh"
        return [whither(), "record", "-a", "--rate", rate, "-o", out, "-q"], {}
    if name == "perf":
        return [tool("perf"), "record", "-q", "-a", "-F", rate, "-o", scratch / "perf.data"], {}
    if name == "perf -g":
        return [tool("perf"), "record", "-q", "-a", "-g", "-F", rate, "-o", scratch / "perf.data"], {}
    if name == "bpftrace":
        program = f'profile:hz:{rate} {{ @[pid, reg("ip")] = count(); }}'
        keys = {"BPFTRACE_MAP_KEYS_MAX": "1000000", "BPFTRACE_MAX_MAP_KEYS": "1000000"}
        return [tool("bpftrace"), "-q", "-e", program], keys
    raise ValueError(name)


def available(names, scratch):
    """Those of the samplers that exist here; says on stderr which do not."""
    present = []
    for name in names:
        try:
            sampler(name, scratch)
            present.append(name)
        except Missing as why:
            print(f"  leaving out {name}: {why}", file=sys.stderr)
    return present


def timed(command, **kwargs):
    """Wall seconds of a command that must succeed."""
    start = time.monotonic()
    done = subprocess.run(
        [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **kwargs
    )
    took = time.monotonic() - start
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-400:]!r}")
    return took


def tree_bytes(path):
    """Bytes of a file, or of all files below a directory."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


median = statistics.median


def table(header, rows):
    """A Markdown table; the first column is text, the others numbers."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def machine():
    """One line: CPU, CPUs, kernel, virtual or not."""
    model = next(
        (l.split(":", 1)[1].strip() for l in Path("/proc/cpuinfo").read_text().splitlines() if l.startswith("model name")),
        "unknown CPU",
    )
    virtual = "virtual machine" if "hypervisor" in Path("/proc/cpuinfo").read_text() else "bare metal"
    return f"{model}, {os.cpu_count()} CPUs, Linux {os.uname().release}, {virtual}"
