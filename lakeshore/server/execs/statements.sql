-- Every statement of the commands (exec jobs), by name.

-- name: schema
-- What says how it is to be run (env, stdin, payload) goes when it has ended.
CREATE TABLE exec (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, ns TEXT NOT NULL, worker TEXT NOT NULL, queue TEXT,
  command TEXT NOT NULL, env BLOB, stdin_b64 TEXT, workdir TEXT, timeout_s REAL, log INTEGER NOT NULL,
  payload_inline BLOB, payload_ref BLOB, state TEXT NOT NULL, session TEXT, n INTEGER, cancelled_at REAL,
  exit_code INTEGER, stdout BLOB, stderr BLOB, duration_ms INTEGER, error TEXT, result_inline BLOB, result_ref BLOB,
  created_at REAL NOT NULL, started_at REAL, finished_at REAL
);
CREATE INDEX exec_of ON exec (ns, seq);
CREATE INDEX exec_open ON exec (seq) WHERE finished_at IS NULL;
CREATE INDEX exec_ended ON exec (finished_at, seq) WHERE finished_at IS NOT NULL;

-- name: add
INSERT INTO exec (id, ns, worker, queue, command, env, stdin_b64, workdir, timeout_s, log, payload_inline, payload_ref,
                  state, session, created_at, started_at)
VALUES (:id, :ns, :worker, :queue, :command, :env, :stdin_b64, :workdir, :timeout_s, :log, :payload_inline,
        :payload_ref, iif(:session IS NULL, 'pending', 'running'), :session, :now, iif(:session IS NULL, NULL, :now))
RETURNING seq

-- name: hand_out
UPDATE exec SET state = 'running', session = :session, n = :n, started_at = :now
WHERE seq = :seq AND state = 'pending'

-- name: put_back
UPDATE exec SET state = 'pending', session = NULL, n = NULL, started_at = NULL
WHERE seq = :seq AND state = 'running'

-- name: body
SELECT id, command, env, stdin_b64, workdir, timeout_s, log, payload_inline, payload_ref FROM exec WHERE seq = :seq

-- name: cancel
UPDATE exec SET cancelled_at = :now WHERE seq = :seq AND state = 'running' AND cancelled_at IS NULL

-- name: finish
UPDATE exec
SET state = :state, exit_code = :exit_code, stdout = :stdout, stderr = :stderr, duration_ms = :duration_ms,
    error = :error, finished_at = :now,
    result_inline = iif(result_inline IS NULL AND result_ref IS NULL, :result_inline, result_inline),
    result_ref = iif(result_inline IS NULL AND result_ref IS NULL, :result_ref, result_ref),
    env = NULL, stdin_b64 = NULL, payload_inline = NULL
WHERE seq = :seq AND finished_at IS NULL

-- name: publish
UPDATE exec SET result_inline = :result_inline, result_ref = :result_ref
WHERE seq = :seq AND result_inline IS NULL AND result_ref IS NULL

-- name: open
SELECT seq, id, ns, worker, state, session, n, cancelled_at, created_at,
       length(command) + coalesce(length(env), 0) + coalesce(length(stdin_b64), 0) + coalesce(length(payload_inline), 0)
FROM exec WHERE finished_at IS NULL ORDER BY seq

-- name: show
SELECT seq, id, ns, worker, queue, command, workdir, timeout_s, log, state, cancelled_at, exit_code, stdout, stderr,
       duration_ms, error, result_inline, result_ref, created_at, started_at, finished_at
FROM exec WHERE ns = :ns AND id = :id

-- name: list
SELECT seq, id, ns, worker, queue, command, workdir, timeout_s, log, state, cancelled_at, exit_code, NULL, NULL,
       duration_ms, error, NULL, NULL, created_at, started_at, finished_at
FROM exec
WHERE ns = :ns AND (:worker IS NULL OR worker = :worker) AND (:queue IS NULL OR queue = :queue)
  AND (:states = '' OR instr(:states, ',' || state || ',') > 0)
ORDER BY seq DESC LIMIT :limit OFFSET :offset

-- name: ended_before
SELECT seq FROM exec WHERE finished_at < :before ORDER BY finished_at, seq LIMIT :limit

-- name: some_of
SELECT seq FROM exec WHERE ns = :ns AND finished_at IS NOT NULL LIMIT :limit

-- name: forget
DELETE FROM exec WHERE seq = :seq AND finished_at IS NOT NULL

-- name: between
SELECT seq FROM exec WHERE seq BETWEEN :first AND :last

-- name: used_bytes
SELECT (p.page_count - f.freelist_count) * s.page_size
FROM pragma_page_count AS p, pragma_freelist_count AS f, pragma_page_size AS s
