-- Runs by walks or by the CPU's branch records: from where a branch had led to where the next one was taken, everything in between was
-- executed. Whatever jumps a run holds fell through; how often a run was seen, and where it mostly went on.
SELECT i.path,
       e.pc AS from_position,
       e.branch AS to_position,
       sum(e."count")::BIGINT AS seen,
       arg_max(CASE WHEN e.way = 'to' THEN e.target END, e."count") AS went_to
FROM (FROM read_parquet(getvariable('store') || '/**/edges.parquet', union_by_name = true)
      UNION ALL BY NAME SELECT NULL::VARCHAR AS source WHERE false) e
JOIN images i USING (image_id)
WHERE e.source IN ('walks', 'records', 'even-records')
GROUP BY ALL
ORDER BY seen DESC, i.path, from_position, to_position
LIMIT 20;
