-- Images by time (or by whatever the event counts), with their share of the event.
SELECT event,
       path,
       sum("count")::BIGINT AS samples,
       round(100 * sum("count" * period) / sum(sum("count" * period)) OVER (PARTITION BY event), 2) AS percent
FROM samples JOIN images USING (image_id)
GROUP BY event, path
ORDER BY event, samples DESC, path
LIMIT 20;
