-- Shares of the images in the oldest and the newest epoch of a database, largest change first. (For a
-- verdict with its confidence use `whither diff`.)
WITH shares AS (
  SELECT epoch, image_id, sum("count" * period) / sum(sum("count" * period)) OVER (PARTITION BY epoch) AS share
  FROM samples
  WHERE event = (SELECT min(event) FROM samples)
  GROUP BY epoch, image_id
), ends AS (SELECT min(epoch) AS a, max(epoch) AS b FROM samples)
SELECT path,
       round(100 * coalesce(max(share) FILTER (epoch = a), 0), 2) AS before,
       round(100 * coalesce(max(share) FILTER (epoch = b), 0), 2) AS after
FROM shares JOIN images USING (image_id), ends
WHERE epoch IN (a, b)
GROUP BY path
ORDER BY abs(after - before) DESC, path
LIMIT 20;
