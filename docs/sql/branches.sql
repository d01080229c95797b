-- Conditional branches by evidence: how often each was seen, and how often taken. Positions are as stored, and counts
-- are as seen: `whither annotate` also weighs which position was sampled.
SELECT i.path,
       e.branch,
       sum(e."count")::BIGINT AS seen,
       round(sum(CASE WHEN e.way = 'taken' THEN e."count" ELSE 0 END) / sum(e."count"), 3) AS taken
FROM read_parquet(getvariable('store') || '/**/edges.parquet', union_by_name = true) e
JOIN images i USING (image_id)
WHERE e.way IN ('fall', 'taken')
GROUP BY ALL
ORDER BY seen DESC, i.path, e.branch
LIMIT 20;
