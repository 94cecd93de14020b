-- The steps from each released schema of the records to the next one, under `-- to: <version>` headings. The rules are in
-- migrations.py.

-- to: 2
-- Schedules of periodic jobs.
CREATE TABLE schedule (
  ns TEXT NOT NULL, name TEXT NOT NULL, queue TEXT NOT NULL, every REAL, cron TEXT, tz TEXT, catch_up TEXT NOT NULL,
  overlap TEXT NOT NULL, envelope BLOB NOT NULL, created_at REAL NOT NULL, since REAL NOT NULL, paused INTEGER NOT NULL,
  last_at REAL, last_id TEXT, skipped INTEGER NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;

-- to: 3
-- Identities of daemons: enroll tokens, keys, nonces; releases to update to, and each namespace's target version.
ALTER TABLE namespace ADD COLUMN target_version TEXT;
CREATE TABLE enroll_token (
  id TEXT PRIMARY KEY, ns TEXT NOT NULL, label TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, prefix TEXT NOT NULL,
  created_at REAL NOT NULL, expires_at REAL NOT NULL, consumed_at REAL, consumed_by TEXT
) WITHOUT ROWID;
CREATE TABLE daemon_key (
  ns TEXT NOT NULL, worker_id TEXT NOT NULL, key_id TEXT NOT NULL, public_key BLOB NOT NULL, status TEXT NOT NULL,
  created_at REAL NOT NULL, expires_at REAL NOT NULL, retiring_at REAL, revoked_at REAL,
  PRIMARY KEY (worker_id, key_id)
) WITHOUT ROWID;
CREATE TABLE nonce (id BLOB PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX nonce_until ON nonce (until);
CREATE TABLE nymph_release (
  sha256 TEXT PRIMARY KEY, label TEXT NOT NULL, target TEXT NOT NULL, version TEXT, bytes INTEGER NOT NULL,
  created_at REAL NOT NULL
) WITHOUT ROWID;
-- Workers: their state, what waits for their next poll, the ids of those that were removed, and events.
ALTER TABLE worker ADD COLUMN state TEXT NOT NULL DEFAULT 'joining';
ALTER TABLE worker ADD COLUMN seen_at REAL;
ALTER TABLE worker ADD COLUMN queues TEXT;
ALTER TABLE worker ADD COLUMN hibernate_until REAL;
ALTER TABLE worker ADD COLUMN provider TEXT;
ALTER TABLE worker ADD COLUMN host_status TEXT;
ALTER TABLE worker ADD COLUMN compose_project TEXT;
ALTER TABLE worker ADD COLUMN created_at REAL;
CREATE TABLE worker_order (
  seq INTEGER PRIMARY KEY, ns TEXT NOT NULL, worker TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
  body BLOB NOT NULL, at REAL NOT NULL, delivered_at REAL, UNIQUE (ns, worker, id)
);
CREATE TABLE removed_worker (ns TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (ns, id)) WITHOUT ROWID;
CREATE TABLE event (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, ns TEXT NOT NULL, kind TEXT NOT NULL, type TEXT, worker TEXT, queue TEXT,
  invocation TEXT, ref TEXT, at REAL NOT NULL, payload BLOB NOT NULL
);
CREATE INDEX event_of_ns ON event (ns, seq);
CREATE INDEX event_of_worker ON event (ns, worker, seq);
CREATE UNIQUE INDEX event_once ON event (ns, worker, type, ref) WHERE ref IS NOT NULL;
-- Secrets, sealed; providers of machines.
CREATE TABLE secret (
  ns TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, description TEXT NOT NULL, created_at REAL NOT NULL,
  updated_at REAL NOT NULL, algorithm TEXT NOT NULL, key TEXT NOT NULL, nonce BLOB NOT NULL, ciphertext BLOB NOT NULL,
  tag BLOB NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
CREATE TABLE provider (
  ns TEXT NOT NULL, name TEXT NOT NULL, launcher TEXT NOT NULL, kwargs TEXT NOT NULL, dispatch TEXT,
  hidden INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL, deleted_at REAL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
-- Modes: named run configs.
CREATE TABLE mode (
  ns TEXT NOT NULL, name TEXT NOT NULL, config TEXT NOT NULL, revision INTEGER NOT NULL, created_at REAL NOT NULL,
  updated_at REAL NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;

-- to: 4
-- Not released yet: what comes before it is goes into this step, and into the schema of statements.sql.
-- Tokens that expire.
ALTER TABLE token ADD COLUMN expires_at REAL;
-- Tunnels, mounts, storages and archives of code; a provider's tunnel.
ALTER TABLE provider ADD COLUMN tunnel TEXT;
CREATE TABLE tunnel (
  ns TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, config TEXT NOT NULL, revision INTEGER NOT NULL,
  created_at REAL NOT NULL, updated_at REAL NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
CREATE TABLE mount (
  ns TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, config TEXT NOT NULL, revision INTEGER NOT NULL,
  created_at REAL NOT NULL, updated_at REAL NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
CREATE TABLE storage (
  ns TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, description TEXT NOT NULL, config TEXT NOT NULL,
  bucket TEXT NOT NULL, prefix TEXT NOT NULL, endpoint TEXT NOT NULL, revision INTEGER NOT NULL,
  created_at REAL NOT NULL, updated_at REAL NOT NULL, deleted_at REAL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
CREATE UNIQUE INDEX storage_target ON storage (ns, bucket, prefix, endpoint) WHERE deleted_at IS NULL;
CREATE TABLE code_repo (
  ns TEXT NOT NULL, id TEXT NOT NULL, remote TEXT NOT NULL, commit_hash TEXT NOT NULL, ref TEXT,
  archive_key TEXT NOT NULL, storage TEXT NOT NULL, created_at REAL NOT NULL, PRIMARY KEY (ns, id),
  UNIQUE (ns, remote, commit_hash)
) WITHOUT ROWID;
-- What the elasticity controller decided.
CREATE TABLE elasticity_event (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, ns TEXT NOT NULL, queue TEXT NOT NULL, action TEXT NOT NULL,
  reason TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX elasticity_event_of_queue ON elasticity_event (ns, queue, seq);
CREATE INDEX elasticity_event_done ON elasticity_event (ns, seq) WHERE action <> 'tick_noop';
CREATE UNIQUE INDEX provider_in_use ON provider (ns, name) WHERE deleted_at IS NULL;
-- Numbers that only rise, as far as they may have been given out.
CREATE TABLE mark (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
-- Machines that launches asked for.
CREATE TABLE machine (
  ns TEXT NOT NULL, worker TEXT NOT NULL, provider_ns TEXT NOT NULL, provider TEXT NOT NULL, launcher TEXT NOT NULL,
  capacity TEXT NOT NULL, keep_alive_s INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
  state TEXT NOT NULL, instance TEXT, PRIMARY KEY (ns, worker)
) WITHOUT ROWID;
