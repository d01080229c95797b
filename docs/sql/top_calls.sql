-- Functions with the functions that call them directly: calls and wall time. A caller without a name is `?`.
SELECT p.epoch,
       p.name,
       coalesce(any_value(n.function), '?') AS caller,
       sum(c.calls)::BIGINT AS calls,
       sum(c.wall_ns)::HUGEINT AS wall_ns
FROM call_paths c
JOIN call_points p ON p.epoch = c.epoch AND p.point = c.point
LEFT JOIN call_frames f ON f.epoch = c.epoch AND f.frame = c.frame
LEFT JOIN call_modules m ON m.epoch = f.epoch AND m.module = f.module
LEFT JOIN (SELECT DISTINCT module, address, function FROM call_names) n ON n.module = m.path AND n.address = f."offset" - 1
GROUP BY p.epoch, p.point, p.name, n.function
ORDER BY p.epoch, wall_ns DESC, p.name, caller
LIMIT 100;
