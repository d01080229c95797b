-- Executions per second that breakpoints counted, of the instructions that ran rarely enough for time to tell: what hits took
-- is left out of the time. Several sets may hold one instruction; each is a row.
SELECT i.path,
       e."offset",
       e.hits,
       round(e.hits * 1e9 / (e.enabled_ns - e.hits_ns), 1) AS per_second
FROM read_parquet(getvariable('store') || '/**/exact.parquet', union_by_name = true) e
JOIN images i USING (image_id)
WHERE e.hits > 0 AND e.crowded * 20 < e.hits AND e.hits_ns < e.enabled_ns
ORDER BY per_second DESC, i.path, e."offset"
LIMIT 20;
