-- Plain means: by how much the time per visit shrinks at each virtual speed-up, in percent, against the
-- windows of 0 % of the same target. `whither causal report` adds strata, trimming, intervals and fits.
WITH zero AS (SELECT target, point, avg(period_ns) AS period_ns FROM periods WHERE percent = 0 GROUP BY ALL)
SELECT p.name, p.line, p.point, p.percent, count(*) AS windows,
       round(100 * (1 - avg(p.period_ns) / any_value(z.period_ns)), 1) AS shorter
FROM periods p JOIN zero z USING (target, point)
GROUP BY p.name, p.line, p.point, p.percent
ORDER BY p.name, p.line, p.point, p.percent;
