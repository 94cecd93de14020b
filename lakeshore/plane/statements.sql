-- Every statement of the plane, by name. One guarded UPDATE per transition: the guard is in its WHERE.

-- name: schema
CREATE TABLE invocation (
  seq              INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT    NOT NULL,
  ns               TEXT    NOT NULL,
  queue            TEXT    NOT NULL,
  state            TEXT    NOT NULL,
  priority         REAL    NOT NULL,
  key              TEXT,
  hash             BLOB    NOT NULL,
  function         BLOB    NOT NULL,
  run_config       BLOB    NOT NULL,
  code             BLOB    NOT NULL,
  prefix           TEXT,
  parent           TEXT,
  root             TEXT    NOT NULL,
  max_attempts     INTEGER NOT NULL,
  claim            INTEGER NOT NULL DEFAULT 0,
  attempt          INTEGER NOT NULL DEFAULT 0,
  free_losses      INTEGER NOT NULL DEFAULT 0,
  started          INTEGER NOT NULL DEFAULT 0,
  worker           TEXT,
  session          TEXT,
  claim_n          INTEGER NOT NULL DEFAULT 0,
  last_frame       INTEGER NOT NULL DEFAULT -1,
  settled_claim    INTEGER,
  settled_as       TEXT,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  cancel_deadline  REAL,
  retry_nonce      TEXT,
  error            BLOB,
  submitted_at     REAL    NOT NULL,
  claimed_at       REAL,
  started_at       REAL,
  finished_at      REAL,
  due              REAL,
  needs            TEXT
);
CREATE UNIQUE INDEX invocation_id ON invocation (id);
CREATE UNIQUE INDEX invocation_key ON invocation (ns, queue, key) WHERE key IS NOT NULL;
CREATE INDEX invocation_queued ON invocation (ns, queue, needs, priority DESC, seq) WHERE state = 'queued';
CREATE INDEX invocation_due ON invocation (due) WHERE state = 'delayed';
CREATE INDEX invocation_due_of_queue ON invocation (ns, queue, due) WHERE state = 'delayed';
CREATE INDEX invocation_delayed ON invocation (ns, queue) WHERE state = 'delayed';
CREATE INDEX invocation_delayed_needs ON invocation (ns, queue, needs) WHERE state = 'delayed' AND needs IS NOT NULL;
CREATE INDEX invocation_running ON invocation (ns, worker, session) WHERE state = 'running';
CREATE INDEX invocation_finished ON invocation (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX invocation_ended ON invocation (ns, state) WHERE finished_at IS NOT NULL;
CREATE INDEX invocation_ended_queue ON invocation (ns, queue, state) WHERE finished_at IS NOT NULL;
CREATE INDEX invocation_ended_worker ON invocation (ns, worker) WHERE finished_at IS NOT NULL;
CREATE TABLE args (seq INTEGER PRIMARY KEY, data BLOB, blob TEXT, size INTEGER NOT NULL, sha256 TEXT);
CREATE TABLE result (seq INTEGER PRIMARY KEY, data BLOB, blob TEXT, size INTEGER NOT NULL, sha256 TEXT);
CREATE INDEX args_blob ON args (blob, size) WHERE blob IS NOT NULL;
CREATE INDEX result_blob ON result (blob, size) WHERE blob IS NOT NULL;
CREATE TABLE frame (
  channel INTEGER NOT NULL, seq INTEGER NOT NULL, claim INTEGER NOT NULL,
  segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, final INTEGER NOT NULL,
  PRIMARY KEY (channel, seq)
) WITHOUT ROWID;
CREATE TABLE topic (
  channel INTEGER PRIMARY KEY AUTOINCREMENT, ns TEXT NOT NULL, queue TEXT NOT NULL, name TEXT NOT NULL,
  last INTEGER NOT NULL DEFAULT -1, final INTEGER NOT NULL DEFAULT 0, posted_at REAL NOT NULL
);
CREATE UNIQUE INDEX topic_name ON topic (ns, queue, name);
CREATE TABLE queue (
  ns TEXT NOT NULL, name TEXT NOT NULL, kind TEXT, temperature REAL, state TEXT NOT NULL DEFAULT 'active',
  max_depth INTEGER, created_at REAL NOT NULL, on_full TEXT, cutoff_s REAL, rate_limit REAL, rate_at REAL,
  guarded INTEGER NOT NULL DEFAULT 0, spec BLOB, PRIMARY KEY (ns, name)
) WITHOUT ROWID;
CREATE TABLE tally (
  ns TEXT NOT NULL, queue TEXT NOT NULL, state TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (ns, queue, state)
) WITHOUT ROWID;
CREATE TABLE worker (
  ns TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL, n INTEGER NOT NULL DEFAULT 0,
  registered_at REAL NOT NULL, info BLOB, PRIMARY KEY (ns, id)
) WITHOUT ROWID;
CREATE TABLE tombstone (id TEXT PRIMARY KEY, ns TEXT NOT NULL, hash BLOB NOT NULL, purged_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX tombstone_purged ON tombstone (purged_at);

-- name: submit
INSERT INTO invocation (id, ns, queue, state, priority, key, hash, function, run_config, code, prefix, parent, root,
                        max_attempts, retry_nonce, submitted_at, due, needs)
VALUES (:id, :ns, :queue, :state, :priority, :key, :hash, :function, :run_config, :code, :prefix, :parent,
        COALESCE((SELECT root FROM invocation WHERE id = :parent AND ns = :ns), :parent, :id), :max_attempts,
        :retry_nonce, :now, :due, :needs)
ON CONFLICT DO NOTHING
RETURNING seq

-- name: submit_if_plain
INSERT INTO invocation (id, ns, queue, state, priority, key, hash, function, run_config, code, prefix, parent, root,
                        max_attempts, retry_nonce, submitted_at, needs)
SELECT :id, :ns, :queue, 'queued', :priority, :key, :hash, :function, :run_config, :code, :prefix, :parent,
       COALESCE((SELECT root FROM invocation WHERE id = :parent AND ns = :ns), :parent, :id), :max_attempts,
       :retry_nonce, :now, :needs
WHERE EXISTS (SELECT 1 FROM queue WHERE ns = :ns AND name = :queue AND state IN ('active', 'paused')
                                    AND max_depth IS NULL AND guarded = 0)
  AND NOT EXISTS (SELECT 1 FROM tombstone WHERE id = :id)
ON CONFLICT DO NOTHING
RETURNING seq

-- name: last_seq
SELECT seq FROM sqlite_sequence WHERE name = 'invocation'

-- name: plain_queue
SELECT 1 FROM queue WHERE ns = :ns AND name = :queue AND state IN ('active', 'paused') AND max_depth IS NULL AND guarded = 0

-- name: tombstone_between
SELECT 1 FROM tombstone WHERE id BETWEEN :first AND :last LIMIT 1

-- name: submit_at
INSERT INTO invocation (seq, id, ns, queue, state, priority, key, hash, function, run_config, code, prefix, parent, root,
                        max_attempts, retry_nonce, submitted_at, needs)
VALUES (:seq, :id, :ns, :queue, 'queued', :priority, :key, :hash, :function, :run_config, :code, :prefix, :parent,
        COALESCE((SELECT root FROM invocation WHERE id = :parent AND ns = :ns), :parent, :id), :max_attempts,
        :retry_nonce, :now, :needs)
ON CONFLICT DO NOTHING

-- name: submitted_after
SELECT seq FROM invocation WHERE seq > :seq

-- name: row_for_resubmit
SELECT seq, id, ns, queue, key, hash, state, claim, retry_nonce, due, needs FROM invocation WHERE id = :id

-- name: row_by_key
SELECT seq, id, ns, queue, key, hash, state, claim, retry_nonce, due, needs FROM invocation
WHERE ns = :ns AND queue = :queue AND key = :key

-- name: tombstone
SELECT ns, hash FROM tombstone WHERE id = :id

-- name: queue_of
SELECT kind, temperature, state, rate_limit, rate_at FROM queue WHERE ns = :ns AND name = :name

-- name: admission_of
SELECT state, max_depth, on_full, cutoff_s, guarded, kind, spec FROM queue WHERE ns = :ns AND name = :name

-- name: spend_rate
UPDATE queue SET rate_at = :at WHERE ns = :ns AND name = :name

-- name: queue_row
SELECT ns, name, kind, temperature, state, max_depth, created_at, on_full, cutoff_s, rate_limit, spec FROM queue
WHERE ns = :ns AND name = :name

-- name: queue_rows
SELECT ns, name, kind, temperature, state, max_depth, created_at, on_full, cutoff_s, rate_limit, spec FROM queue
WHERE ns = :ns AND name > :after ORDER BY name LIMIT :limit

-- name: queues_that_hold
SELECT ns, name, state, rate_limit FROM queue WHERE state IN ('paused', 'archived') OR rate_limit IS NOT NULL

-- name: add_queue
INSERT INTO queue (ns, name, kind, temperature, state, max_depth, created_at, on_full, cutoff_s, rate_limit, guarded,
                   spec)
VALUES (:ns, :name, :kind, :temperature, :state, :max_depth, :created_at, :on_full, :cutoff_s, :rate_limit, :guarded,
        :spec)
ON CONFLICT DO NOTHING

-- name: change_queue
UPDATE queue
SET kind = :kind, temperature = :temperature, state = :state, max_depth = :max_depth, on_full = :on_full,
    cutoff_s = :cutoff_s, rate_limit = :rate_limit, guarded = :guarded, spec = :spec
WHERE ns = :ns AND name = :name

-- name: drop_queue
DELETE FROM queue WHERE ns = :ns AND name = :name

-- name: waiting_since
SELECT MAX(submitted_at, COALESCE(due, 0)) FROM invocation
WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs IS :needs AND priority = :priority ORDER BY seq LIMIT 1

-- name: ensure_queue
INSERT INTO queue (ns, name, created_at) VALUES (:ns, :name, :now) ON CONFLICT DO NOTHING

-- name: queues
SELECT name, kind, temperature, state, max_depth FROM queue WHERE ns = :ns ORDER BY name

-- name: queues_by_prefix
SELECT name FROM queue WHERE ns = :ns AND name >= :low AND name < :high ORDER BY name

-- name: put_args
INSERT OR REPLACE INTO args (seq, data, blob, size, sha256) VALUES (:seq, :data, :blob, :size, :sha256)

-- name: args
SELECT data, blob, size, sha256 FROM args WHERE seq = :seq

-- name: put_result
INSERT OR REPLACE INTO result (seq, data, blob, size, sha256) VALUES (:seq, :data, :blob, :size, :sha256)

-- name: sizes
SELECT (SELECT size FROM args WHERE seq = :seq), (SELECT size FROM result WHERE seq = :seq)

-- name: next_oldest
SELECT seq, priority FROM invocation
WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs IS :needs ORDER BY priority DESC, seq ASC LIMIT :limit

-- name: next_needs
SELECT MIN(needs) FROM invocation WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs > :after

-- name: next_ask
SELECT MIN(needs) FROM (
  SELECT MIN(needs) AS needs FROM invocation
  WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs > :after
  UNION ALL
  SELECT MIN(needs) FROM invocation WHERE ns = :ns AND queue = :queue AND state = 'delayed' AND needs > :after
)

-- name: ask_there
SELECT 1 WHERE EXISTS (
  SELECT 1 FROM invocation WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs = :needs
) OR EXISTS (
  SELECT 1 FROM invocation WHERE ns = :ns AND queue = :queue AND state = 'delayed' AND needs = :needs
)

-- name: any_queued
SELECT 1 FROM invocation WHERE ns = :ns AND queue = :queue AND state = 'queued' LIMIT 1

-- name: next_priority
SELECT MAX(priority) FROM invocation WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs IS :needs AND priority < :below

-- name: newest_at
SELECT seq, priority FROM invocation
WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs IS :needs AND priority = :priority ORDER BY seq DESC LIMIT :limit

-- name: oldest_at
SELECT seq, priority FROM invocation
WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs IS :needs AND priority = :priority ORDER BY seq ASC LIMIT :limit

-- name: priority_levels
SELECT priority, COUNT(*) FROM invocation
WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs IS :needs GROUP BY priority ORDER BY priority DESC

-- name: claim_oldest
UPDATE invocation
SET state = 'running', claim = claim + 1, worker = :worker, session = :session, claim_n = :n, claimed_at = :now,
    started = :start, attempt = attempt + :start, started_at = CASE WHEN :start THEN :now ELSE NULL END
WHERE seq IN (SELECT seq FROM invocation
              WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs IS NULL ORDER BY priority DESC, seq ASC LIMIT :limit)
  AND EXISTS (SELECT 1 FROM queue WHERE ns = :ns AND name = :queue AND state IN ('active', 'draining')
                                    AND COALESCE(kind, :kind) IN ('fifo', 'priority') AND rate_limit IS NULL)
  AND NOT EXISTS (SELECT 1 FROM invocation WHERE ns = :ns AND queue = :queue AND state = 'queued' AND needs > '')
RETURNING priority, seq, id, ns, queue, claim, attempt, started, last_frame, function, run_config, prefix, parent, root,
          (SELECT data FROM args WHERE args.seq = invocation.seq)

-- name: next_due
SELECT due FROM invocation INDEXED BY invocation_due WHERE state = 'delayed' AND due > 0 ORDER BY due LIMIT 1

-- name: next_due_of_queue
SELECT due FROM invocation INDEXED BY invocation_due_of_queue
WHERE ns = :ns AND queue = :queue AND state = 'delayed' ORDER BY due LIMIT 1

-- name: promote_due
UPDATE invocation SET state = 'queued'
WHERE state = 'delayed' AND seq IN (SELECT seq FROM invocation INDEXED BY invocation_due
                                    WHERE state = 'delayed' AND due <= :now ORDER BY due LIMIT :limit)
RETURNING ns, queue, seq

-- name: promote_due_of_queue
UPDATE invocation SET state = 'queued'
WHERE state = 'delayed' AND seq IN (SELECT seq FROM invocation INDEXED BY invocation_due_of_queue
                                    WHERE ns = :ns AND queue = :queue AND state = 'delayed' AND due <= :now
                                    ORDER BY due LIMIT :limit)
RETURNING ns, queue, seq

-- name: claim_if_queued
UPDATE invocation
SET state = 'running', claim = claim + 1, worker = :worker, session = :session, claim_n = :n, claimed_at = :now,
    started = :start, attempt = attempt + :start, started_at = CASE WHEN :start THEN :now ELSE NULL END
WHERE seq = :seq AND state = 'queued'
RETURNING seq, id, ns, queue, claim, attempt, started, last_frame, function, run_config, prefix, parent, root

-- name: start_if_claimed
UPDATE invocation SET started = 1, attempt = attempt + 1, started_at = :now
WHERE id = :id AND ns = :ns AND claim = :claim AND state = 'running' AND started = 0

-- name: row_for_report
SELECT seq, ns, queue, state, claim, started, attempt, max_attempts, free_losses, cancel_requested, last_frame,
       settled_claim, settled_as, worker, session, claim_n, started_at
FROM invocation WHERE id = :id

-- name: settle_if_claimed
UPDATE invocation
SET state = :state, attempt = :attempt, started = 1, started_at = COALESCE(started_at, :now), finished_at = :now,
    error = :error, last_frame = :last_frame, settled_claim = :claim, settled_as = :settled_as, session = NULL
WHERE seq = :seq AND state = 'running' AND claim = :claim

-- name: succeed_if_claimed
UPDATE invocation
SET state = 'succeeded', attempt = attempt + (started = 0), started = 1, started_at = COALESCE(started_at, :now),
    finished_at = :now, error = NULL, settled_claim = :claim, settled_as = 'succeeded', session = NULL
WHERE id = :id AND ns = :ns AND state = 'running' AND claim = :claim AND last_frame = -1
RETURNING seq, queue, attempt

-- name: claimed_without_frames
SELECT id, claim, seq, ns, queue, attempt + (started = 0) FROM invocation WHERE id IN (:those) AND state = 'running' AND last_frame = -1

-- name: succeed_at_if_claimed
UPDATE invocation
SET state = 'succeeded', attempt = attempt + (started = 0), started = 1, started_at = COALESCE(started_at, :now),
    finished_at = :now, error = NULL, settled_claim = :claim, settled_as = 'succeeded', session = NULL
WHERE seq = :seq AND state = 'running' AND claim = :claim

-- name: requeue_if_claimed
UPDATE invocation
SET state = 'queued', attempt = :attempt, free_losses = :free_losses, started = 0, started_at = NULL, claimed_at = NULL,
    error = COALESCE(:error, error), settled_claim = COALESCE(:settled_claim, settled_claim),
    settled_as = COALESCE(:settled_as, settled_as), worker = NULL, session = NULL
WHERE seq = :seq AND state = 'running' AND claim = :claim

-- name: end_if_claimed
UPDATE invocation
SET state = :state, attempt = :attempt, free_losses = :free_losses, finished_at = :now, error = :error,
    last_frame = :last_frame, session = NULL
WHERE seq = :seq AND state = 'running' AND claim = :claim

-- name: kill_if_queued
UPDATE invocation SET state = 'killed', finished_at = :now, error = :error, last_frame = :last_frame
WHERE seq = :seq AND state IN ('queued', 'delayed')

-- name: newest_seq
SELECT MAX(seq) FROM invocation

-- name: delayed_until
SELECT seq, id, queue, last_frame, state FROM invocation INDEXED BY invocation_delayed
WHERE ns = :ns AND state = 'delayed' AND seq <= :until LIMIT :limit

-- name: delayed_of_queue_until
SELECT seq, id, queue, last_frame, state FROM invocation INDEXED BY invocation_delayed
WHERE ns = :ns AND queue = :queue AND state = 'delayed' AND seq <= :until LIMIT :limit

-- name: queued_until
SELECT seq, id, queue, last_frame, state FROM invocation INDEXED BY invocation_queued
WHERE ns = :ns AND state = 'queued' AND seq <= :until LIMIT :limit

-- name: queued_of_queue_until
SELECT seq, id, queue, last_frame, state FROM invocation INDEXED BY invocation_queued
WHERE ns = :ns AND queue = :queue AND state = 'queued' AND seq <= :until LIMIT :limit

-- name: request_cancel_if_running
UPDATE invocation SET cancel_requested = 1, cancel_deadline = COALESCE(cancel_deadline, :deadline)
WHERE seq = :seq AND state = 'running' AND claim = :claim

-- name: retry_if_ended
UPDATE invocation
SET state = 'queued', claim = claim + 1, attempt = 0, free_losses = 0, started = 0, worker = NULL, session = NULL,
    cancel_requested = 0, cancel_deadline = NULL, error = NULL, settled_claim = NULL, settled_as = NULL,
    claimed_at = NULL, started_at = NULL, finished_at = NULL, retry_nonce = :nonces
WHERE seq = :seq AND claim = :claim AND state IN ('failed', 'killed', 'timeout')

-- name: drop_result
DELETE FROM result WHERE seq = :seq RETURNING blob

-- name: running_of_session
SELECT id, claim, claim_n, queue FROM invocation
WHERE ns = :ns AND worker = :worker AND session = :session AND state = 'running'

-- name: running
SELECT id, ns, claim, worker, session, cancel_requested, cancel_deadline FROM invocation WHERE state = 'running'

-- name: holders
SELECT DISTINCT session FROM invocation WHERE state = 'running'

-- name: running_of_holder
SELECT ns, id, claim FROM invocation WHERE state = 'running' AND session = :session

-- name: rehome_if_claimed
UPDATE invocation SET session = :session, claim_n = 0
WHERE id = :id AND ns = :ns AND worker = :worker AND claim = :claim AND state = 'running'

-- name: worker_of
SELECT session, n FROM worker WHERE ns = :ns AND id = :id

-- name: register_worker
INSERT INTO worker (ns, id, session, n, registered_at, info) VALUES (:ns, :id, :session, 0, :now, :info)
ON CONFLICT (ns, id) DO UPDATE
SET session = :session, n = 0, registered_at = :now, info = COALESCE(:info, info) WHERE session < :session

-- name: number_poll
UPDATE worker SET n = :n WHERE ns = :ns AND id = :id AND session = :session AND n < :n

-- name: append_if_next
UPDATE invocation
SET last_frame = :last, attempt = attempt + (started = 0), started_at = COALESCE(started_at, :now), started = 1
WHERE id = :id AND ns = :ns AND state = 'running' AND claim = :claim AND last_frame = :first - 1
RETURNING seq

-- name: log_owner
SELECT seq, state, claim, attempt FROM invocation WHERE id = :id AND ns = :ns

-- name: claim_holder
SELECT claim, worker FROM invocation WHERE id = :id AND ns = :ns

-- name: rows_between
SELECT seq FROM invocation WHERE seq >= :first AND seq < :after

-- name: put_frame
INSERT INTO frame (channel, seq, claim, segment, offset, length, final)
VALUES (:channel, :seq, :claim, :segment, :offset, :length, :final)

-- name: put_frames
INSERT INTO frame (channel, seq, claim, segment, offset, length, final) VALUES (?, ?, ?, ?, ?, ?, 0)

-- name: frame_claim
SELECT claim FROM frame WHERE channel = :channel AND seq = :seq

-- name: frames_since
SELECT seq, claim, segment, offset, length, final FROM frame WHERE channel = :channel AND seq > :since
ORDER BY seq LIMIT :limit

-- name: trim_frames
DELETE FROM frame WHERE channel = :channel AND seq <= :upto

-- name: reopen_frames
DELETE FROM frame WHERE channel = :channel AND final = 1

-- name: segments_in_use
SELECT DISTINCT segment FROM frame

-- name: post_if_open
INSERT INTO topic (ns, queue, name, last, final, posted_at) VALUES (:ns, :queue, :name, 0, :final, :now)
ON CONFLICT (ns, queue, name) DO UPDATE SET last = last + 1, final = :final, posted_at = :now WHERE final = 0
RETURNING channel, last

-- name: posted_as
SELECT seq, claim, segment, offset, length, final FROM frame
WHERE channel = :channel AND seq > :after AND claim = :nonce ORDER BY seq DESC LIMIT 1

-- name: topic_of
SELECT channel, last FROM topic WHERE ns = :ns AND queue = :queue AND name = :name

-- name: row
SELECT seq, id, ns, queue, state, priority, key, hash, function, run_config, code, prefix, parent, root, max_attempts,
       claim, attempt, started, worker, last_frame, cancel_requested, error, submitted_at, claimed_at, started_at,
       finished_at, due
FROM invocation WHERE id = :id AND ns = :ns

-- name: channel_of
SELECT seq, ns, state FROM invocation WHERE id = :id

-- name: ended
SELECT i.id, i.ns, i.state, i.attempt, i.error, r.data, r.blob, r.size, r.sha256
FROM invocation AS i LEFT JOIN result AS r ON r.seq = i.seq AND i.state = 'succeeded' WHERE i.id IN (:those)

-- name: finished_since
SELECT id, finished_at FROM invocation WHERE finished_at IS NOT NULL AND finished_at > :since

-- name: listed
SELECT seq, id, ns, queue, state, priority, key, hash, function, run_config, code, prefix, parent, root, max_attempts,
       claim, attempt, started, worker, last_frame, cancel_requested, error, submitted_at, claimed_at, started_at,
       finished_at, due
FROM invocation

-- name: listed_names
SELECT seq, id FROM invocation

-- name: ids_beginning
SELECT seq FROM (SELECT seq, ns FROM invocation WHERE id >= :from AND id < :behind LIMIT :most)
WHERE ns = :ns ORDER BY seq DESC LIMIT :limit

-- name: list_queued
SELECT seq FROM invocation INDEXED BY invocation_queued WHERE ns = :ns AND state = 'queued' AND seq < :before

-- name: list_queued_of_queue
SELECT seq FROM invocation INDEXED BY invocation_queued
WHERE ns = :ns AND state = 'queued' AND queue = :queue AND seq < :before

-- name: list_queued_at
SELECT seq FROM invocation INDEXED BY invocation_queued
WHERE ns = :ns AND state = 'queued' AND needs IS :needs AND queue = :queue AND priority = :priority AND seq < :before

-- name: queues_in_state
SELECT queue FROM tally WHERE ns = :ns AND state = :state AND n > 0

-- name: list_delayed
SELECT seq FROM invocation INDEXED BY invocation_delayed WHERE ns = :ns AND state = 'delayed' AND seq < :before

-- name: list_delayed_of_queue
SELECT seq FROM invocation INDEXED BY invocation_delayed
WHERE ns = :ns AND state = 'delayed' AND queue = :queue AND seq < :before

-- name: list_running
SELECT seq FROM invocation INDEXED BY invocation_running
WHERE ns = :ns AND state = 'running' AND (:queue IS NULL OR queue = :queue) AND (:worker IS NULL OR worker = :worker)
  AND seq < :before

-- name: list_ended
SELECT seq FROM invocation INDEXED BY invocation_ended
WHERE ns = :ns AND state = :state AND finished_at IS NOT NULL AND seq < :before

-- name: list_ended_of_queue
SELECT seq FROM invocation INDEXED BY invocation_ended_queue
WHERE ns = :ns AND queue = :queue AND state = :state AND finished_at IS NOT NULL AND seq < :before

-- name: list_ended_of_worker
SELECT seq FROM invocation INDEXED BY invocation_ended_worker
WHERE ns = :ns AND worker = :worker AND finished_at IS NOT NULL AND seq < :before
  AND (:queue IS NULL OR queue = :queue) AND instr(:states, ',' || state || ',') > 0

-- name: count
SELECT n FROM tally WHERE ns = :ns AND queue = :queue AND state = :state

-- name: queued_counts
SELECT ns, queue, COUNT(*) FROM invocation WHERE state = 'queued' GROUP BY ns, queue

-- name: tallies
SELECT ns, queue, state, n FROM tally WHERE n != 0

-- name: move_tally
INSERT INTO tally (ns, queue, state, n) VALUES (:ns, :queue, :state, :n)
ON CONFLICT (ns, queue, state) DO UPDATE SET n = n + :n

-- name: expired_rows
SELECT seq, id, ns, queue, state, hash FROM invocation WHERE finished_at IS NOT NULL AND finished_at < :before
ORDER BY finished_at LIMIT :limit

-- name: expired_row
SELECT seq, id, ns, queue, state, hash FROM invocation
WHERE seq = :seq AND finished_at IS NOT NULL AND finished_at < :before

-- name: ended_after
SELECT seq, ns, queue, state, finished_at FROM invocation INDEXED BY invocation_finished
WHERE finished_at IS NOT NULL AND finished_at < :before AND (finished_at, seq) > (:after, :after_seq)
ORDER BY finished_at, seq LIMIT :limit

-- name: bury
INSERT OR REPLACE INTO tombstone (id, ns, hash, purged_at) VALUES (:id, :ns, :hash, :now)

-- name: drop_row
DELETE FROM invocation WHERE seq = :seq

-- name: drop_args
DELETE FROM args WHERE seq = :seq RETURNING blob

-- name: drop_some_frames
DELETE FROM frame WHERE channel = :channel AND seq <= (
  SELECT MAX(seq) FROM (SELECT seq FROM frame WHERE channel = :channel ORDER BY seq LIMIT :limit)
)

-- name: drop_old_tombstones
DELETE FROM tombstone WHERE id IN (
  SELECT id FROM tombstone WHERE purged_at < :before ORDER BY purged_at LIMIT :limit
)

-- name: topics_after
SELECT channel, posted_at FROM topic WHERE channel > :after ORDER BY channel LIMIT :limit

-- name: topic_is_old
SELECT 1 FROM topic WHERE channel = :channel AND posted_at < :before

-- name: topics_of
SELECT channel FROM topic WHERE ns = :ns

-- name: drop_queues_of
DELETE FROM queue WHERE ns = :ns AND NOT EXISTS (SELECT 1 FROM tally WHERE ns = :ns AND queue = queue.name AND n != 0)

-- name: drop_tallies_of
DELETE FROM tally WHERE ns = :ns AND n = 0

-- name: drop_topic
DELETE FROM topic WHERE channel = :channel

-- name: blob_bytes
SELECT (SELECT TOTAL(size) FROM args WHERE blob IS NOT NULL) + (SELECT TOTAL(size) FROM result WHERE blob IS NOT NULL)

-- name: blob_in_use
SELECT EXISTS (SELECT 1 FROM args WHERE blob = :key) OR EXISTS (SELECT 1 FROM result WHERE blob = :key)
