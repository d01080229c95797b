"""The load the benchmarks sample: a compiler, a database and an interpreter from packages, by turns.

usage: mix.py SECONDS. Everything it needs is generated; the same sequence in every run.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

SQL = """
CREATE TABLE t(a INTEGER, b TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
INSERT INTO t SELECT (i * 7919) % 60000, hex(i) || 'x' FROM n;
CREATE INDEX ix ON t(a);
SELECT sum(length(x.b) + y.a) FROM t x JOIN t y ON x.a = y.rowid;
SELECT count(*) FROM (SELECT b, count(*) FROM t GROUP BY substr(b, 2) ORDER BY 2);
"""

PYTHON = """
import json, re, collections
words = [f"w{i * 7919 % 3001}" for i in range(60000)]
counts = collections.Counter(words)
text = json.dumps({w: [c, w * 3] for w, c in counts.items()})
sum(len(m) for m in re.findall(r'"w\\d+"', text)) + len(json.loads(text))
sorted(words, key=lambda w: (w[-1], w))
"""


def c_source(functions=120):
    """A translation unit that keeps the optimiser busy."""
    parts = ["struct s { int a[16]; double d; struct s *next; };"]
    for i in range(functions):
        parts.append(
            f"int f{i}(struct s *p, int n) {{ int x = {i}; for (int j = 0; j < n; j++) {{"
            f" x += p->a[(j * {i % 13 + 3}) & 15] ^ (x >> {i % 7}); switch (x & 7) {{"
            f" case 0: p->d *= x; break; case 3: x -= n; break; case {4 + i % 3}: p = p->next; break;"
            f" default: x ^= {i * 31}; }} }} return x{f' + f{i - 1}(p, n - 1)' if i else ''}; }}"
        )
    return "\n".join(parts)


def run(seconds):
    with tempfile.TemporaryDirectory(prefix="whither-mix-") as folder:
        source = Path(folder) / "unit.c"
        source.write_text(c_source())
        jobs = [
            (["gcc", "-O2", "-g", "-c", str(source), "-o", f"{folder}/unit.o"], None),
            (["sqlite3", ":memory:"], SQL),
            ([sys.executable, "-c", PYTHON], None),
        ]
        end = time.monotonic() + seconds
        rounds = 0
        while time.monotonic() < end:
            for command, text in jobs:
                subprocess.run(command, input=text, text=True, stdout=subprocess.DEVNULL, check=True)
            rounds += 1
        print(f"rounds {rounds}")


if __name__ == "__main__":
    run(float(sys.argv[1]))
