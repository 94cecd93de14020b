-- Every statement of the records, by name.

-- name: schema
CREATE TABLE namespace (
  name TEXT PRIMARY KEY, org TEXT, created_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE token (
  id TEXT PRIMARY KEY, ns TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, prefix TEXT NOT NULL,
  scope TEXT NOT NULL, worker TEXT, created_at REAL NOT NULL, last_used_at REAL, revoked_at REAL,
  UNIQUE (ns, name)
) WITHOUT ROWID;
CREATE TABLE worker (
  ns TEXT NOT NULL, id TEXT NOT NULL, machine_id TEXT NOT NULL, label TEXT NOT NULL, lanes TEXT NOT NULL,
  info TEXT NOT NULL, hello_at REAL NOT NULL, PRIMARY KEY (ns, id)
) WITHOUT ROWID;
CREATE TABLE audit (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, actor TEXT NOT NULL, ns TEXT NOT NULL, action TEXT NOT NULL,
  subject TEXT NOT NULL
);

CREATE TABLE schedule (
  ns TEXT NOT NULL, name TEXT NOT NULL, queue TEXT NOT NULL, every REAL, cron TEXT, tz TEXT, catch_up TEXT NOT NULL,
  overlap TEXT NOT NULL, envelope BLOB NOT NULL, created_at REAL NOT NULL, since REAL NOT NULL, paused INTEGER NOT NULL,
  last_at REAL, last_id TEXT, skipped INTEGER NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;

-- name: namespaces
SELECT name, org, created_at FROM namespace ORDER BY name

-- name: add_namespace
INSERT INTO namespace (name, org, created_at) VALUES (:name, :org, :now) ON CONFLICT DO NOTHING

-- name: set_org
UPDATE namespace SET org = :org WHERE name = :name

-- name: drop_namespace
DELETE FROM namespace WHERE name = :name

-- name: tokens
SELECT id, ns, name, hash, prefix, scope, worker, created_at, last_used_at, revoked_at FROM token ORDER BY id

-- name: add_token
INSERT INTO token (id, ns, name, hash, prefix, scope, worker, created_at)
VALUES (:id, :ns, :name, :hash, :prefix, :scope, :worker, :now)
ON CONFLICT DO NOTHING

-- name: revoke_token
UPDATE token SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL

-- name: drop_tokens_of
DELETE FROM token WHERE ns = :ns

-- name: touch_token
UPDATE token SET last_used_at = :at WHERE id = :id AND (last_used_at IS NULL OR last_used_at < :at)

-- name: workers
SELECT ns, id, machine_id, label, lanes, info, hello_at FROM worker

-- name: put_worker
INSERT INTO worker (ns, id, machine_id, label, lanes, info, hello_at)
VALUES (:ns, :id, :machine_id, :label, :lanes, :info, :now)
ON CONFLICT (ns, id) DO UPDATE
SET machine_id = :machine_id, label = :label, lanes = :lanes, info = :info, hello_at = :now

-- name: drop_workers_of
DELETE FROM worker WHERE ns = :ns

-- name: schedules
SELECT ns, name, queue, every, cron, tz, catch_up, overlap, envelope, created_at, since, paused, last_at, last_id,
       skipped
FROM schedule

-- name: add_schedule
INSERT INTO schedule (ns, name, queue, every, cron, tz, catch_up, overlap, envelope, created_at, since, paused,
                      last_at, last_id, skipped)
VALUES (:ns, :name, :queue, :every, :cron, :tz, :catch_up, :overlap, :envelope, :created_at, :since, :paused, :last_at,
        :last_id, :skipped)

-- name: change_schedule
UPDATE schedule SET since = :since, paused = :paused, last_at = :last_at, last_id = :last_id, skipped = :skipped
WHERE ns = :ns AND name = :name AND created_at = :created_at

-- name: drop_schedule
DELETE FROM schedule WHERE ns = :ns AND name = :name

-- name: drop_schedules_of
DELETE FROM schedule WHERE ns = :ns

-- name: note
INSERT INTO audit (at, actor, ns, action, subject) VALUES (:now, :actor, :ns, :action, :subject)
