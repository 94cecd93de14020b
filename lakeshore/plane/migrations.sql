-- The steps from each released schema of the plane to the next one, under `-- to: <version>` headings. The rules are in
-- migrations.py.

-- to: 2
-- Pages of ended rows by seq, whatever the filter; who still names a blob; which tombstones are old.
CREATE INDEX invocation_ended ON invocation (ns, state) WHERE finished_at IS NOT NULL;
CREATE INDEX invocation_ended_queue ON invocation (ns, queue, state) WHERE finished_at IS NOT NULL;
CREATE INDEX invocation_ended_worker ON invocation (ns, worker) WHERE finished_at IS NOT NULL;
CREATE INDEX args_blob ON args (blob, size) WHERE blob IS NOT NULL;
CREATE INDEX result_blob ON result (blob, size) WHERE blob IS NOT NULL;
CREATE INDEX tombstone_purged ON tombstone (purged_at);

-- to: 3
-- Rows that wait for an instant. They have a state of their own, which no statement of an older program claims.
ALTER TABLE invocation ADD COLUMN due REAL;
CREATE INDEX invocation_due ON invocation (due) WHERE state = 'delayed';
CREATE INDEX invocation_due_of_queue ON invocation (ns, queue, due) WHERE state = 'delayed';
CREATE INDEX invocation_delayed ON invocation (ns, queue) WHERE state = 'delayed';

-- to: 4
-- What a queue's row decides: whom it admits, how fast it hands out. `guarded` rows are looked at by every submit.
ALTER TABLE queue ADD COLUMN on_full TEXT;
ALTER TABLE queue ADD COLUMN cutoff_s REAL;
ALTER TABLE queue ADD COLUMN rate_limit REAL;
ALTER TABLE queue ADD COLUMN rate_at REAL;
ALTER TABLE queue ADD COLUMN guarded INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN spec BLOB;

-- to: 5
-- What a row asks of a worker: rows that ask the same lie together. The index keeps its name, by which older programs
-- read it.
ALTER TABLE invocation ADD COLUMN needs TEXT;
DROP INDEX invocation_queued;
CREATE INDEX invocation_queued ON invocation (ns, queue, needs, priority DESC, seq) WHERE state = 'queued';

-- to: 6
-- What rows that wait for an instant ask of a worker: they count among the asks of their queue before they are let through.
CREATE INDEX invocation_delayed_needs ON invocation (ns, queue, needs) WHERE state = 'delayed' AND needs IS NOT NULL;
