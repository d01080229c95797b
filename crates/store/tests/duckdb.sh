#!/bin/sh
# Runs the DuckDB test with a Python that has DuckDB, in a virtual environment below target/ made at
# the first run (the only step that needs the network; without it the test tells that it is skipped).
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
venv=$root/target/duckdb-venv
if ! "$venv/bin/python" -c 'import duckdb' 2>/dev/null; then
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check duckdb; }; then
    echo "duckdb.sh: DuckDB could not be installed into $venv: the test will be skipped" >&2
  fi
fi
cd "$root"
WHITHER_DUCKDB_PYTHON=$venv/bin/python exec cargo test -p whither-store --test store duckdb -- --nocapture
