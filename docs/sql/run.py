"""Runs one of these queries with DuckDB and prints its rows, tab-separated.

usage: run.py STORE QUERY.sql      (pip install duckdb)
"""

import sys
from pathlib import Path

import duckdb

if len(sys.argv) != 3:
    sys.exit(__doc__.strip())
store, query = sys.argv[1:]
here = Path(__file__).parent
# A query of one's own by its path, one of these by its name.
text = Path(query) if Path(query).is_file() else here / query
if not text.is_file():
    sys.exit(f"there is no query {query}; there are " + ", ".join(sorted(p.name for p in here.glob("*.sql"))))
connection = duckdb.connect()
connection.execute("SET VARIABLE store = ?".replace("?", "'" + store.replace("'", "''") + "'"))
kinds = {"calls.json": "call_views.sql", "causal.json": "causal_views.sql"}
of_kind = [sql for description, sql in kinds.items() if (Path(store) / description).exists()]
views = (here / (of_kind or ["views.sql"])[0]).read_text()
if not of_kind and not list(Path(store).rglob("funcs.parquet")):
    views = views[: views.index("CREATE OR REPLACE VIEW funcs")]
connection.execute(views)
for row in connection.execute(text.read_text()).fetchall():
    print(*row, sep="\t")
