-- Views over a call-path recording (`whither calls -o`); the variable `store` names its directory.
CREATE OR REPLACE VIEW call_points AS SELECT * FROM read_parquet(getvariable('store') || '/call_points.parquet');
CREATE OR REPLACE VIEW call_paths AS SELECT * FROM read_parquet(getvariable('store') || '/call_paths.parquet');
CREATE OR REPLACE VIEW call_frames AS SELECT * FROM read_parquet(getvariable('store') || '/call_frames.parquet');
CREATE OR REPLACE VIEW call_names AS SELECT * FROM read_parquet(getvariable('store') || '/call_names.parquet');
-- Modules by their index in an epoch.
CREATE OR REPLACE VIEW call_modules AS
SELECT epoch - 1 AS epoch, i - 1 AS module, epochs[epoch].modules[i].path AS path
FROM (SELECT epochs, epoch, unnest(range(1, len(epochs[epoch].modules) + 1)) AS i
      FROM (SELECT epochs, unnest(range(1, len(epochs) + 1)) AS epoch
            FROM read_json(getvariable('store') || '/calls.json')));
