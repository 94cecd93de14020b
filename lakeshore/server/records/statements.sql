-- Every statement of the records, by name.

-- name: schema
CREATE TABLE namespace (
  name TEXT PRIMARY KEY, org TEXT, created_at REAL NOT NULL, target_version TEXT
) WITHOUT ROWID;
CREATE TABLE token (
  id TEXT PRIMARY KEY, ns TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, prefix TEXT NOT NULL,
  scope TEXT NOT NULL, worker TEXT, created_at REAL NOT NULL, last_used_at REAL, revoked_at REAL,
  expires_at REAL, UNIQUE (ns, name)
) WITHOUT ROWID;
CREATE TABLE worker (
  ns TEXT NOT NULL, id TEXT NOT NULL, machine_id TEXT NOT NULL, label TEXT NOT NULL, lanes TEXT NOT NULL,
  info TEXT NOT NULL, hello_at REAL NOT NULL, state TEXT NOT NULL DEFAULT 'joining', seen_at REAL, queues TEXT,
  hibernate_until REAL, provider TEXT, host_status TEXT, compose_project TEXT, created_at REAL, PRIMARY KEY (ns, id)
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
CREATE TABLE worker_order (
  seq INTEGER PRIMARY KEY, ns TEXT NOT NULL, worker TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
  body BLOB NOT NULL, at REAL NOT NULL, delivered_at REAL, UNIQUE (ns, worker, id)
);
CREATE TABLE machine (
  ns TEXT NOT NULL, worker TEXT NOT NULL, provider_ns TEXT NOT NULL, provider TEXT NOT NULL, launcher TEXT NOT NULL,
  capacity TEXT NOT NULL, keep_alive_s INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
  state TEXT NOT NULL, instance TEXT, PRIMARY KEY (ns, worker)
) WITHOUT ROWID;
CREATE TABLE removed_worker (ns TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (ns, id)) WITHOUT ROWID;
CREATE TABLE event (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, ns TEXT NOT NULL, kind TEXT NOT NULL, type TEXT, worker TEXT, queue TEXT,
  invocation TEXT, ref TEXT, at REAL NOT NULL, payload BLOB NOT NULL
);
CREATE INDEX event_of_ns ON event (ns, seq);
CREATE INDEX event_of_worker ON event (ns, worker, seq);
CREATE UNIQUE INDEX event_once ON event (ns, worker, type, ref) WHERE ref IS NOT NULL;
CREATE TABLE secret (
  ns TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, description TEXT NOT NULL, created_at REAL NOT NULL,
  updated_at REAL NOT NULL, algorithm TEXT NOT NULL, key TEXT NOT NULL, nonce BLOB NOT NULL, ciphertext BLOB NOT NULL,
  tag BLOB NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
CREATE TABLE provider (
  ns TEXT NOT NULL, name TEXT NOT NULL, launcher TEXT NOT NULL, kwargs TEXT NOT NULL, dispatch TEXT,
  hidden INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL, deleted_at REAL, tunnel TEXT,
  PRIMARY KEY (ns, name)
) WITHOUT ROWID;
CREATE TABLE elasticity_event (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, ns TEXT NOT NULL, queue TEXT NOT NULL, action TEXT NOT NULL,
  reason TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX elasticity_event_of_queue ON elasticity_event (ns, queue, seq);
CREATE INDEX elasticity_event_done ON elasticity_event (ns, seq) WHERE action <> 'tick_noop';
CREATE UNIQUE INDEX provider_in_use ON provider (ns, name) WHERE deleted_at IS NULL;
CREATE TABLE mode (
  ns TEXT NOT NULL, name TEXT NOT NULL, config TEXT NOT NULL, revision INTEGER NOT NULL, created_at REAL NOT NULL,
  updated_at REAL NOT NULL, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
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

CREATE TABLE mark (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

-- name: namespaces
SELECT name, org, created_at, target_version FROM namespace ORDER BY name

-- name: add_namespace
INSERT INTO namespace (name, org, created_at) VALUES (:name, :org, :now) ON CONFLICT DO NOTHING

-- name: set_org
UPDATE namespace SET org = :org WHERE name = :name

-- name: set_target_version
UPDATE namespace SET target_version = :version WHERE name = :name

-- name: drop_namespace
DELETE FROM namespace WHERE name = :name

-- name: tokens
SELECT id, ns, name, hash, prefix, scope, worker, created_at, last_used_at, revoked_at, expires_at
FROM token ORDER BY id

-- name: add_token
INSERT INTO token (id, ns, name, hash, prefix, scope, worker, created_at, expires_at)
VALUES (:id, :ns, :name, :hash, :prefix, :scope, :worker, :now, :expires)
ON CONFLICT DO NOTHING

-- name: revoke_token
UPDATE token SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL

-- name: drop_token
DELETE FROM token WHERE id = :id

-- name: drop_tokens_of
DELETE FROM token WHERE ns = :ns

-- name: bind_token
UPDATE token SET worker = :worker WHERE id = :id AND worker IS NULL

-- name: touch_token
UPDATE token SET last_used_at = :at WHERE id = :id AND (last_used_at IS NULL OR last_used_at < :at)

-- name: workers
SELECT ns, id, machine_id, label, lanes, info, hello_at, created_at, state, seen_at, queues, hibernate_until, provider,
       host_status, compose_project
FROM worker

-- name: put_worker
INSERT INTO worker (ns, id, machine_id, label, lanes, info, hello_at, created_at, state, seen_at, queues,
                    hibernate_until, provider, host_status, compose_project)
VALUES (:ns, :id, :machine_id, :label, :lanes, :info, :hello_at, :created_at, :state, :seen_at, :queues,
        :hibernate_until, :provider, :host_status, :compose_project)
ON CONFLICT (ns, id) DO UPDATE
SET machine_id = :machine_id, label = :label, lanes = :lanes, info = :info, hello_at = :hello_at, state = :state,
    seen_at = :seen_at, queues = :queues, hibernate_until = :hibernate_until

-- name: change_worker
UPDATE worker SET info = :info, queues = :queues, state = :state, host_status = :host_status
WHERE ns = :ns AND id = :id

-- name: note_worker
UPDATE worker SET state = :state, hibernate_until = :until, seen_at = :at WHERE ns = :ns AND id = :id

-- name: drop_worker
DELETE FROM worker WHERE ns = :ns AND id = :id

-- name: machines
SELECT ns, worker, provider_ns, provider, launcher, capacity, keep_alive_s, created_at, updated_at, state, instance
FROM machine ORDER BY created_at

-- name: add_machine
INSERT INTO machine (ns, worker, provider_ns, provider, launcher, capacity, keep_alive_s, created_at, updated_at, state,
                     instance)
VALUES (:ns, :worker, :provider_ns, :provider, :launcher, :capacity, :keep_alive_s, :created_at, :updated_at, :state,
        :instance)

-- name: change_machine
UPDATE machine SET state = :state, instance = :instance, updated_at = :updated_at WHERE ns = :ns AND worker = :worker

-- name: drop_machine
DELETE FROM machine WHERE ns = :ns AND worker = :worker

-- name: drop_machines_of
DELETE FROM machine WHERE ns = :ns

-- name: removed_workers
SELECT ns, id, at FROM removed_worker

-- name: add_removed_worker
INSERT INTO removed_worker (ns, id, at) VALUES (:ns, :id, :at) ON CONFLICT (ns, id) DO UPDATE SET at = :at

-- name: forget_removed_worker
DELETE FROM removed_worker WHERE ns = :ns AND id = :id

-- name: drop_removed_workers_of
DELETE FROM removed_worker WHERE ns = :ns

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

-- name: enroll_tokens
SELECT id, ns, label, hash, prefix, created_at, expires_at, consumed_at, consumed_by FROM enroll_token

-- name: add_enroll_token
INSERT INTO enroll_token (id, ns, label, hash, prefix, created_at, expires_at)
VALUES (:id, :ns, :label, :hash, :prefix, :created_at, :expires_at)

-- name: spend_enroll_token
UPDATE enroll_token SET consumed_at = :now, consumed_by = :worker WHERE id = :id AND consumed_at IS NULL

-- name: drop_enroll_tokens_of
DELETE FROM enroll_token WHERE ns = :ns

-- name: daemon_keys
SELECT ns, worker_id, key_id, public_key, status, created_at, expires_at, retiring_at, revoked_at FROM daemon_key

-- name: put_daemon_key
INSERT INTO daemon_key (ns, worker_id, key_id, public_key, status, created_at, expires_at, retiring_at, revoked_at)
VALUES (:ns, :worker_id, :key_id, :public_key, :status, :created_at, :expires_at, :retiring_at, :revoked_at)
ON CONFLICT (worker_id, key_id) DO UPDATE
SET status = :status, created_at = :created_at, expires_at = :expires_at, retiring_at = :retiring_at, revoked_at = :revoked_at

-- name: drop_daemon_keys_of
DELETE FROM daemon_key WHERE ns = :ns

-- name: nonces
SELECT id, until FROM nonce WHERE until >= :now ORDER BY until

-- name: take_nonce
INSERT INTO nonce (id, until) VALUES (:id, :until) ON CONFLICT (id) DO UPDATE SET until = :until

-- name: drop_nonces
DELETE FROM nonce WHERE until < :now

-- name: releases
SELECT sha256, label, target, version, bytes, created_at FROM nymph_release

-- name: put_release
INSERT INTO nymph_release (sha256, label, target, version, bytes, created_at)
VALUES (:sha256, :label, :target, :version, :bytes, :created_at)
ON CONFLICT (sha256) DO UPDATE SET label = :label, target = :target, version = :version

-- name: orders
SELECT ns, worker, id, kind, body, at, delivered_at FROM worker_order ORDER BY seq

-- name: add_order
INSERT INTO worker_order (ns, worker, id, kind, body, at)
SELECT :ns, :worker, :id, :kind, :body, :at WHERE EXISTS (SELECT 1 FROM namespace WHERE name = :ns)
ON CONFLICT DO NOTHING

-- name: deliver_order
UPDATE worker_order SET delivered_at = :at WHERE ns = :ns AND worker = :worker AND id = :id

-- name: drop_order
DELETE FROM worker_order WHERE ns = :ns AND worker = :worker AND id = :id

-- name: drop_orders_of_worker
DELETE FROM worker_order WHERE ns = :ns AND worker = :worker

-- name: drop_orders_of
DELETE FROM worker_order WHERE ns = :ns

-- name: add_event
INSERT INTO event (ns, kind, type, worker, queue, invocation, ref, at, payload)
SELECT :ns, :kind, :type, :worker, :queue, :invocation, :ref, :at, :payload
WHERE EXISTS (SELECT 1 FROM namespace WHERE name = :ns)
ON CONFLICT DO NOTHING

-- name: events
SELECT seq, ns, kind, type, worker, queue, invocation, ref, at, payload FROM event
WHERE ns = :ns AND (:before IS NULL OR seq < :before) AND (:kind IS NULL OR kind = :kind)
  AND (:family IS NULL OR substr(kind, 1, length(:family)) = :family)
  AND (:type IS NULL OR type = :type) AND (:worker IS NULL OR worker = :worker) AND (:queue IS NULL OR queue = :queue)
  AND (:invocation IS NULL OR invocation = :invocation)
ORDER BY seq DESC LIMIT :limit

-- name: events_after
SELECT seq, ns, kind, type, worker, queue, invocation, ref, at, payload FROM event
WHERE ns = :ns AND seq > :after AND (:before IS NULL OR seq < :before) AND (:kind IS NULL OR kind = :kind)
  AND (:family IS NULL OR substr(kind, 1, length(:family)) = :family)
  AND (:type IS NULL OR type = :type) AND (:worker IS NULL OR worker = :worker) AND (:queue IS NULL OR queue = :queue)
  AND (:invocation IS NULL OR invocation = :invocation)
ORDER BY seq LIMIT :limit

-- name: namespaces_with_events
SELECT DISTINCT ns FROM event

-- name: drop_events_before
DELETE FROM event WHERE at < :at

-- name: drop_events_over
DELETE FROM event WHERE ns = :ns AND seq <= (
  SELECT seq FROM event WHERE ns = :ns ORDER BY seq DESC LIMIT 1 OFFSET :most)

-- name: drop_events_of
DELETE FROM event WHERE ns = :ns

-- name: modes
SELECT ns, name, config, revision, created_at, updated_at FROM mode

-- name: put_mode
INSERT INTO mode (ns, name, config, revision, created_at, updated_at)
VALUES (:ns, :name, :config, :revision, :created_at, :updated_at)
ON CONFLICT (ns, name) DO UPDATE SET config = excluded.config, revision = excluded.revision,
                                     updated_at = excluded.updated_at

-- name: drop_mode
DELETE FROM mode WHERE ns = :ns AND name = :name

-- name: drop_modes_of
DELETE FROM mode WHERE ns = :ns

-- name: tunnels
SELECT ns, name, kind, config, revision, created_at, updated_at FROM tunnel

-- name: put_tunnel
INSERT INTO tunnel (ns, name, kind, config, revision, created_at, updated_at)
VALUES (:ns, :name, :kind, :config, :revision, :created_at, :updated_at)
ON CONFLICT (ns, name) DO UPDATE SET config = excluded.config, revision = excluded.revision,
                                     updated_at = excluded.updated_at

-- name: drop_tunnel
DELETE FROM tunnel WHERE ns = :ns AND name = :name

-- name: drop_tunnels_of
DELETE FROM tunnel WHERE ns = :ns

-- name: mounts
SELECT ns, name, kind, config, revision, created_at, updated_at FROM mount

-- name: put_mount
INSERT INTO mount (ns, name, kind, config, revision, created_at, updated_at)
VALUES (:ns, :name, :kind, :config, :revision, :created_at, :updated_at)
ON CONFLICT (ns, name) DO UPDATE SET config = excluded.config, revision = excluded.revision,
                                     updated_at = excluded.updated_at

-- name: drop_mount
DELETE FROM mount WHERE ns = :ns AND name = :name

-- name: drop_mounts_of
DELETE FROM mount WHERE ns = :ns

-- name: storages
SELECT ns, name, kind, description, config, bucket, prefix, endpoint, revision, created_at, updated_at, deleted_at
FROM storage

-- name: add_storage
INSERT INTO storage (ns, name, kind, description, config, bucket, prefix, endpoint, revision, created_at, updated_at,
                     deleted_at)
VALUES (:ns, :name, :kind, :description, :config, :bucket, :prefix, :endpoint, :revision, :created_at, :updated_at,
        :deleted_at)

-- name: change_storage
UPDATE storage SET name = :name, description = :description, config = :config, revision = :revision,
                   updated_at = :updated_at, deleted_at = :deleted_at
WHERE ns = :ns AND name = :before

-- name: drop_storages_of
DELETE FROM storage WHERE ns = :ns

-- name: code_repos
SELECT ns, id, remote, commit_hash, ref, archive_key, storage, created_at FROM code_repo

-- name: add_code_repo
INSERT INTO code_repo (ns, id, remote, commit_hash, ref, archive_key, storage, created_at)
VALUES (:ns, :id, :remote, :commit_hash, :ref, :archive_key, :storage, :created_at)

-- name: drop_code_repo
DELETE FROM code_repo WHERE ns = :ns AND id = :id

-- name: drop_code_repos_of
DELETE FROM code_repo WHERE ns = :ns

-- name: note
INSERT INTO audit (at, actor, ns, action, subject) VALUES (:now, :actor, :ns, :action, :subject)

-- name: secrets
SELECT ns, name, kind, description, created_at, updated_at, algorithm, key, nonce, ciphertext, tag FROM secret

-- name: add_secret
INSERT INTO secret (ns, name, kind, description, created_at, updated_at, algorithm, key, nonce, ciphertext, tag)
VALUES (:ns, :name, :kind, :description, :created_at, :updated_at, :algorithm, :key, :nonce, :ciphertext, :tag)

-- name: reseal_secret
UPDATE secret SET updated_at = :updated_at, algorithm = :algorithm, key = :key, nonce = :nonce,
                  ciphertext = :ciphertext, tag = :tag
WHERE ns = :ns AND name = :name

-- name: drop_secret
DELETE FROM secret WHERE ns = :ns AND name = :name

-- name: drop_secrets_of
DELETE FROM secret WHERE ns = :ns

-- name: providers
SELECT ns, name, launcher, kwargs, dispatch, hidden, created_at, updated_at, deleted_at, tunnel FROM provider

-- name: add_provider
INSERT INTO provider (ns, name, launcher, kwargs, dispatch, hidden, created_at, updated_at, deleted_at, tunnel)
VALUES (:ns, :name, :launcher, :kwargs, :dispatch, :hidden, :created_at, :updated_at, :deleted_at, :tunnel)

-- name: change_provider
UPDATE provider SET name = :name, kwargs = :kwargs, dispatch = :dispatch, hidden = :hidden, updated_at = :updated_at,
                    deleted_at = :deleted_at, tunnel = :tunnel
WHERE ns = :ns AND name = :before

-- name: elasticity_events
SELECT seq, ns, queue, action, reason, before, after, at FROM elasticity_event
WHERE ns = :ns AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
  AND (:noops OR action <> 'tick_noop') AND (:before IS NULL OR seq < :before)
ORDER BY seq DESC LIMIT :limit

-- name: add_elasticity_event
INSERT INTO elasticity_event (ns, queue, action, reason, before, after, at)
VALUES (:ns, :queue, :action, :reason, :before, :after, :at)

-- name: freshen_elasticity_event
UPDATE elasticity_event SET after = :after, at = :at
WHERE seq = (SELECT MAX(seq) FROM elasticity_event WHERE ns = :ns AND queue = :queue)
  AND at = :was AND action = 'tick_noop'

-- name: drop_elasticity_events_before
DELETE FROM elasticity_event WHERE at < :before OR (action = 'tick_noop' AND at < :noops_before)

-- name: drop_elasticity_events_of
DELETE FROM elasticity_event WHERE ns = :ns

-- name: drop_providers_of
DELETE FROM provider WHERE ns = :ns

-- name: marks
SELECT name, value FROM mark

-- name: raise_mark
INSERT INTO mark (name, value) VALUES (:mark, :value) ON CONFLICT (name) DO UPDATE SET value = MAX(value, :value)
