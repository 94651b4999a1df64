-- The schema of format 1, with which every database begins; what came later is in `migrations/`. Nothing random-keyed is written per run: due entries move a little in time, open runs and
-- history grow at their ends.

create table meta (name text primary key, value) without rowid;

create table tenants (id integer primary key, name text not null unique, created_at integer not null);

-- One process owns all shards; the epoch fences a process that was thought gone.
create table shards (shard integer primary key, owner blob, epoch integer not null, expires_at integer not null);

-- Workers inside the process: they are gone when another process opens the directory. An owner of shards is one, and
-- so is whoever has runs born to it.
create table local_workers (id blob primary key) without rowid;

create table jobs (
    id blob primary key, tenant integer not null, version integer not null,
    state integer not null, -- 0 active, 1 paused, 2 ended, 3 deleted
    record blob not null, fired integer not null, completed_at integer,
    kept_by integer -- the partition of its newest run outside the schedule, if it was over when that was born
) without rowid;

-- Older versions, while open runs keep them.
create table job_versions (
    id blob not null, version integer not null, tenant integer not null, record blob not null,
    primary key (id, version)
) without rowid;

create table job_keys (
    tenant integer not null, key text not null, job blob not null, primary key (tenant, key)
) without rowid;

create table requests (
    tenant integer not null, key text not null, fingerprint blob not null, expires_at integer not null,
    result text not null, primary key (tenant, key)
) without rowid;
-- Looking for what has expired reads nothing else, however many requests an import has left.
create index requests_by_time on requests (expires_at);

-- The order of firing. An entry whose version is not the job's is stale and dropped when its time comes.
create table due (
    at integer not null, lane integer not null, tenant integer not null, job blob not null,
    version integer not null, slot integer not null,
    primary key (at, lane, tenant, job, version)
) without rowid;

-- Jobs that are over or deleted, by class of retention and the newest sequence at that time: such a job is forgotten when the
-- partitions of its class up to there are gone. One whose version is not the job's is stale and dropped when its time comes.
create table ended_jobs (
    retention integer not null, seq integer not null,
    jobs blob not null, -- (id, version), 20 bytes each
    primary key (retention, seq)
) without rowid;

create table open_runs (seq integer primary key, record blob not null);

-- Waiting runs whose time has come, in the order of claiming; and those whose time has not. They tell who may claim
-- them, so that a claim reads only the runs it takes. Runs that require something of their worker stand behind all others,
-- in lanes from 8 on, and what they require is before their queue: who has not what they require does not walk past them.
create table ready (
    lane integer not null, urgency integer not null, available_at integer not null, seq integer not null,
    shard integer not null, queue text not null,
    primary key (lane, urgency, available_at, seq)
) without rowid;
-- The line of each queue: who serves one does not walk past the others'.
create index ready_by_queue on ready (queue, lane, urgency, available_at, seq, shard);
create table delayed (
    available_at integer not null, seq integer not null, shard integer not null,
    primary key (available_at, seq)
) without rowid;

-- History is kept in tables history_<id>, one per (retention class, period); a run ends in the one of its birth.
-- Partition 0 keeps dead letters whose own partition is gone.
create table partitions (
    id integer primary key, retention integer not null, from_seq integer not null, to_seq integer
);

create table dead_letters (seq integer primary key);

-- Runs that ended badly, while their history is kept.
create table failures (seq integer primary key);

-- Runs that are not in the partition of their birth, because it is gone: those that ended late, and dead letters.
create table strays (seq integer primary key, job blob not null, partition integer not null);
create index strays_by_job on strays (job, seq);

-- Where the runs of a job are: births in the order of tags, written in bulk.
create table segments (
    partition integer not null, number integer not null, first integer not null, last integer not null,
    common blob not null, -- tenants that are everywhere in it
    primary key (partition, number)
) without rowid;
create table marks (
    partition integer not null, number integer not null, bucket integer not null,
    marks blob not null, -- (tag, seq), 12 bytes each
    primary key (partition, number, bucket)
) without rowid;

create table ledger (
    job blob not null, from_slot integer not null, to_slot integer not null, slots integer not null,
    fate integer not null, tenant integer not null, decided_at integer not null,
    primary key (job, from_slot)
) without rowid;

-- Long work over many runs. Written once per step, not per run.
create table operations (
    id blob primary key, tenant integer not null, version integer not null, record blob not null,
    resume_at integer, -- while it runs
    finished_at integer -- since it ended
) without rowid;
create index operations_by_tenant on operations (tenant, id);
create index operations_running on operations (resume_at, id) where resume_at is not null;
create index operations_ended on operations (finished_at) where finished_at is not null;
