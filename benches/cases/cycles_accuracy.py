"""How right estimated executions are: programs from Debian, their samples compared with callgrind's exact counts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import harness as h

TITLE = "Accuracy of execution counts"
BAR = (
    "bars: with branch evidence >= 65 % of the sample weight within 15 % (goal 80 %), >= 85 % within a factor of two, overlap >= 0.80; "
    "nine tenths of what is called high within 15 %; mean error of branch probabilities <= 0.03"
)
PAGE = "accuracy.md"

PYTHON = """
import json, re, random, sys
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def job():
    random.seed(1)
    d = {}
    for i in range(20000):
        k = random.randrange(997)
        d[k] = d.get(k, 0) + i
    e = json.loads(json.dumps(d))
    w = re.findall(r'[a-z]+', 'the quick brown fox jumps ' * 2000)
    print(fib(17), len(e), len(w), sum(sorted(x * x % 1013 for x in range(20000))[:100]))
for _ in range(int(sys.argv[1])): job()
"""

LUA = """
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local function job()
  local t, s, n = {}, {}, 0
  for i = 1, 20000 do local k = (i * 7919) % 997 t[k] = (t[k] or 0) + i end
  for i = 1, 3000 do s[i] = string.format("%d-%s", (i * 31) % 997, "x" .. i % 13) end
  table.sort(s)
  for w in (string.rep("the quick brown fox ", 300)):gmatch("%a+") do n = n + #w end
  return fib(17) + n + #table.concat(s)
end
for _ = 1, tonumber(arg[1]) do job() end
"""

PERL = r"""
sub job {
  my (%d, $s, $n);
  $d{$_ * 7919 % 997} += $_ for 1 .. 8000;
  $s += $d{$_} for sort keys %d;
  my $t = "the quick brown fox jumps over " x 200;
  $n++ while $t =~ /\b([a-z]+)o[xw]\b/g;
  my @a = sort { $a <=> $b } map { $_ * $_ % 1013 } 1 .. 3000;
  return $s + $n + $a[5];
}
job() for 1 .. $ARGV[0];
"""

# Each file begins with no words known: else all but the first, which alone is counted, would find them all there.
AWK = """
FNR == 1 { delete n }
{ for (i = 1; i <= NF; i++) { n[$i]++; s += length($i) } }
/fn [a-z_]+/ { f++; gsub(/[aeiou]/, "x"); t += length($0) }
END { for (w in n) if (n[w] > 3) c++; print c, s, f, t }
"""

SQL = """
create table t(a integer primary key, b int, c text);
with recursive n(i) as (select 1 union all select i+1 from n where i<20000) insert into t select i, (i*7919)%10007, 'row'||((i*31)%997) from n;
create index tb on t(b);
select count(*), sum(b) from t where c like '%9%';
select c, count(*), avg(b) from t group by c order by 2 desc, 1 limit 5;
select count(*) from t x join t y on x.b=y.b+1 where x.a<5000;
select max(length(c)||b) from t order by c;
drop table t;
"""

# Name, image to compare, repeats of the job in one process while recording (and with --quick), and while counting: beginning
# and end of an interpreter are a third of one job's work, and nothing of a recording's.
PROGRAMS = [
    ("bzip2", "libbz2", 240, 60, 1),
    ("gzip", "gzip", 480, 120, 1),
    ("xz", "liblzma", 100, 25, 1),
    ("sqlite3", "libsqlite3", 700, 160, 5),
    ("python3", "python3", 1800, 450, 20),
    # Not looked at while the estimator was written.
    ("lua", "lua5.4", 2400, 600, 20),
    ("perl", "/perl", 2800, 700, 20),
    ("gawk", "gawk", 160, 40, 1),
    ("zstd", "zstd", 200, 50, 1),
]

# Started again and again for a tenth of a second or less, at the rate that the default budget buys. Not looked at either.
SHORT = [
    ("perl", "/perl", ["perl", "job.pl", "5"], 120),
    ("bash", "bash", ["bash", "job.sh"], 300),
    ("as", "as", ["as", "-o", "/dev/null", "job.s"], 500),
    ("sort", "sort", ["sort", "words"], 300),
]

BASH = """
for ((i = 0; i < 1500; i++)); do
  s="x$i"
  case $s in *7*) a[i]=$s ;; *) b=${s/x/y} ;; esac
  n=$((n + i % 13))
  [[ $s =~ ^x1.*5$ ]] && k=$((k + 1))
done
echo $n $k ${#a[@]} $b
"""


def inputs(scratch):
    """Writes what the programs read: the same bytes for every run of this benchmark on one commit."""
    sources = sorted((h.ROOT / "crates").glob("*/src/*.rs"))
    text = b"".join(s.read_bytes() for s in sources)
    (Path(scratch) / "text").write_bytes((text * (1 + 1_500_000 // len(text)))[:1_500_000])
    for name, job in [("job.py", PYTHON), ("job.lua", LUA), ("job.pl", PERL), ("job.sh", BASH)]:
        (Path(scratch) / name).write_text(job)
    words = text[:300_000].split()
    (Path(scratch) / "words").write_bytes(b"\n".join(words) + b"\n")
    source = h.ROOT / "workloads" / "nasty" / "args.c"
    subprocess.run(["cc", "-O2", "-g", "-S", "-o", str(Path(scratch) / "job.s"), str(source)], check=True)


def command(name, repeats, scratch):
    """The job `repeats` times in one process, and what it reads."""
    text = [Path(scratch) / "text"] * repeats
    if name == "sqlite3":
        return [h.tool("sqlite3"), "-init", "/dev/null", ":memory:"], SQL * repeats
    if name == "python3":
        return ["/usr/bin/python3", "-E", "-s", "-S", Path(scratch) / "job.py", repeats], ""
    if name == "lua":
        return [h.tool("lua5.4"), Path(scratch) / "job.lua", repeats], ""
    if name == "perl":
        return [h.tool("perl"), Path(scratch) / "job.pl", repeats], ""
    if name == "gawk":
        return [h.tool("gawk"), AWK, *text], ""
    flags = {
        "bzip2": ["-9", "-c"],
        "gzip": ["-6", "-c"],
        "xz": ["-2", "-T1", "-c"],
        "zstd": ["-q", "-9", "-c", "--single-thread"],
    }[name]
    return [h.tool(name), *flags, *text], ""


def run_with(prefix, name, repeats, scratch):
    run_words(prefix, *command(name, repeats, scratch), scratch)


def run_words(prefix, words, stdin, scratch):
    # One hash seed: dictionaries are laid out alike in both runs.
    done = subprocess.run(
        [str(w) for w in [*prefix, *words]], input=stdin.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        timeout=900, cwd=scratch, env={**os.environ, "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "LC_ALL": "C"},
    )
    if done.returncode:
        raise h.Missing(f"{words[0]} failed: {done.stderr.decode(errors='replace')[-300:]}")


def compare(name, image, repeats, counted, scratch):
    exact, recording = Path(scratch) / f"{name}.exact", Path(scratch) / f"{name}.wh"
    run_with(counting(exact), name, counted, scratch)
    run_with([h.whither(), "record", "--rate", 10_000, "-o", recording, "--"], name, repeats, scratch)
    return accuracy(name, image, exact, recording)


def compare_short(name, image, words, times, scratch):
    exact, recording = Path(scratch) / f"{name}-short.exact", Path(scratch) / f"{name}-short.wh"
    run_words(counting(exact), [h.tool(words[0]), *words[1:]], "", scratch)
    again = ["sh", "-c", f'k=0; while [ $k -lt {times} ]; do "$@" >/dev/null || exit; k=$((k+1)); done', "sh", *words]
    run_words([h.whither(), "record", "-o", recording, "--"], again, "", scratch)
    return accuracy(name, image, exact, recording)


def counting(exact):
    return [h.tool("valgrind"), "--tool=callgrind", "--dump-instr=yes", "--collect-jumps=yes", "--skip-plt=no", f"--callgrind-out-file={exact}"]


def accuracy(name, image, exact, recording):
    answer = [h.whither(), "accuracy", "--exact", exact, "--json", "--image", image, recording]
    out = subprocess.run([str(a) for a in answer], capture_output=True, text=True, timeout=300)
    if out.returncode:
        raise h.Missing(f"whither accuracy on {name}: {out.stderr[-300:]}")
    return json.loads(out.stdout)


def percent(share):
    return f"{100 * share:.0f}"


def row(name, a):
    within = " / ".join(percent(w) for w in a["instructions"]["within"])
    high = next((c for c in a["confidence"] if c[0] == "high"), None)
    told = f"{percent(high[2]['within'][2])} of {percent(high[1])}" if high and high[1] > 0 else "none"
    decided = [(p["decided"], p["errors"]["weight"]) for p in a["procedures"]]
    weight = sum(w for _, w in decided) or 1
    return [
        name,
        f"{a['instructions']['weight']:,.0f}",
        percent(sum(d * w for d, w in decided) / weight),
        within,
        percent(a["instructions"]["within_double"]),
        f"{a['overlap']:.2f}",
        " / ".join(percent(w) for w in a["edges"]["within"]),
        f"{a['branches']['mean_by_executions']:.3f}, {a['branches']['mean_seen']:.3f}",
        told,
        percent(a["baseline"]["within"][2]),
    ]


def tried(name, one):
    try:
        found = row(name, one())
    except h.Missing as why:
        found = [name, str(why), *[""] * 8]
    print("  ".join(found), file=sys.stderr)
    return found


def run(options):
    rows = []
    with h.Scratch() as scratch:
        inputs(scratch)
        for name, image, repeats, quick, counted in PROGRAMS:
            one = lambda: compare(name, image, quick if options.quick else repeats, counted, scratch)
            rows.append(tried(f"`{name}`", one))
        for name, image, words, times in SHORT:
            one = lambda: compare_short(name, image, words, times, scratch)
            rows.append(tried(f"`{name}`, started again and again *", one))
    columns = ["", "samples", "decided %", "within 5 / 10 / 15 %", "within 2x", "overlap", "edges", "branch error", "high: right of share", "paper's"]
    return (
        f"{h.table(columns, rows)}\n\nShare of the samples (percent) whose instruction's estimated executions are that near to callgrind's exact count of "
        "the same program with the same input; the scale of each procedure is given (its total of executed instructions), so this is about the "
        "shape inside procedures. *decided*: samples with registers that decided a branch. *edges*: weighted by exact executions. *branch error*: "
        "mean absolute error of the probability, by executions, of all branches, and of those seen at least 100 times. *high*: of what is called high, the share within 15 %, "
        "and how much is called so. *: at the default budget instead of 10 kHz, for about ten seconds. *paper's*: DCPI's own estimator on the same samples, within 15 %. Unmodified binaries of Debian, stripped, sampled at "
        "10 kHz by timer; no hardware counters."
    )
