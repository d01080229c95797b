-- Views over a causal recording: SET VARIABLE store = 'run.wh'; then .read this file.
CREATE OR REPLACE VIEW windows AS SELECT * FROM read_parquet(getvariable('store') || '/causal_windows.parquet');
CREATE OR REPLACE VIEW visits AS SELECT * FROM read_parquet(getvariable('store') || '/causal_visits.parquet');
CREATE OR REPLACE VIEW targets AS SELECT * FROM read_parquet(getvariable('store') || '/causal_targets.parquet');
-- Virtual time between two visits of a point in each window that counts.
CREATE OR REPLACE VIEW periods AS
SELECT w."window", w.target, t.name, t.file, t.line, w.percent, w.stratum, v.point,
       (v.last_virtual_ns - v.first_virtual_ns) / (v.visits - 1) AS period_ns
FROM windows w JOIN visits v USING ("window") JOIN targets t USING (target)
WHERE w.dropped = '' AND v.visits > 1;
