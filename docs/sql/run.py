"""Runs one of these queries with DuckDB and prints its rows, tab-separated.

usage: run.py STORE QUERY.sql      (pip install duckdb)
"""

import sys
from pathlib import Path

import duckdb

store, query = sys.argv[1:]
here = Path(__file__).parent
connection = duckdb.connect()
connection.execute("SET VARIABLE store = ?".replace("?", "'" + store.replace("'", "''") + "'"))
kinds = {"calls.json": "call_views.sql", "causal.json": "causal_views.sql"}
of_kind = [sql for description, sql in kinds.items() if (Path(store) / description).exists()]
views = (here / (of_kind or ["views.sql"])[0]).read_text()
if not of_kind and not list(Path(store).rglob("funcs.parquet")):
    views = views[: views.index("CREATE OR REPLACE VIEW funcs")]
connection.execute(views)
for row in connection.execute((here / query).read_text()).fetchall():
    print(*row, sep="\t")
