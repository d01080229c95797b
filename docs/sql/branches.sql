-- Conditional branches by evidence of interpreted registers: how often each was seen, and how often taken. Positions are as
-- stored, and counts are as seen: `whither annotate` also weighs which position was sampled. What the CPU's own branch
-- records say of a branch needs the code between two of them (runs.sql lists those); older files know registers only.
SELECT i.path,
       e.branch,
       sum(e."count")::BIGINT AS seen,
       round(sum(CASE WHEN e.way = 'taken' THEN e."count" ELSE 0 END) / sum(e."count"), 3) AS taken
FROM (FROM read_parquet(getvariable('store') || '/**/edges.parquet', union_by_name = true)
      UNION ALL BY NAME SELECT NULL::VARCHAR AS source WHERE false) e
JOIN images i USING (image_id)
WHERE e.way IN ('fall', 'taken') AND coalesce(e.source, 'registers') = 'registers'
GROUP BY ALL
ORDER BY seen DESC, i.path, e.branch
LIMIT 20;
