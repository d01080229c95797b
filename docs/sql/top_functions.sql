-- Functions by samples: the last function that starts at or before the sampled position, if it
-- reaches that far. Names are as in the symbol table, not demangled.
SELECT i.path,
       CASE WHEN s."offset" < f.start + f.size THEN f.name ELSE '?' END AS function,
       sum(s."count")::BIGINT AS samples
FROM samples s
JOIN images i USING (image_id)
ASOF LEFT JOIN funcs f ON s.image_id = f.image_id AND s."offset" >= f.start
WHERE s.event = (SELECT min(event) FROM samples)
GROUP BY ALL
ORDER BY samples DESC, i.path, function
LIMIT 20;
