-- Views over a recording or a database. Set the directory first:
--   SET VARIABLE store = '/var/lib/whither';
CREATE OR REPLACE VIEW samples AS
  SELECT * FROM read_parquet(getvariable('store') || '/**/samples.parquet', union_by_name = true, hive_partitioning = true);

-- The same image is described in every segment it has samples in.
CREATE OR REPLACE VIEW images AS
  SELECT image_id, any_value(kind) AS kind, min(path) AS path
  FROM read_parquet(getvariable('store') || '/**/images.parquet', union_by_name = true)
  GROUP BY image_id;

CREATE OR REPLACE VIEW processes AS
  SELECT DISTINCT process, pid, comm, exe, cgroup
  FROM read_parquet(getvariable('store') || '/**/processes.parquet', union_by_name = true);

-- Of recordings with --threads, and only names that are not the command's:
--   SELECT DISTINCT process, tid, name FROM read_parquet(getvariable('store') || '/**/threads.parquet', union_by_name = true);

CREATE OR REPLACE VIEW funcs AS
  SELECT DISTINCT ON (image_id, start) image_id, start, size, name
  FROM read_parquet(getvariable('store') || '/**/symbols/funcs.parquet', union_by_name = true);
