-- The steps from each released schema of the records to the next one, under `-- to: <version>` headings. The rules are in
-- migrations.py.

-- to: 2
-- Schedules of periodic jobs.
CREATE TABLE schedule (
  ns TEXT NOT NULL, name TEXT NOT NULL, queue TEXT NOT NULL, every REAL, cron TEXT, tz TEXT, catch_up TEXT NOT NULL,
  overlap TEXT NOT NULL, envelope BLOB NOT NULL, created_at REAL NOT NULL, since REAL NOT NULL, paused INTEGER NOT NULL,
  last_at REAL, last_id TEXT, skipped INTEGER NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
