-- The first schema. Times are milliseconds since 1970 (UTC), ids as the API shows them.

-- The time by which leases are judged: the database's, unless a test has a clock of its own.
create function punctual_now(callers bigint) returns bigint language sql volatile
    as $$ select coalesce(callers, (extract(epoch from clock_timestamp()) * 1000)::bigint) $$;

-- What all nodes of an installation share, such as the secret that signs callbacks.
create table settings (name text primary key, value bytea not null);

create table tenants (id int primary key, name text not null unique, created_at bigint not null);
insert into tenants values (1, 'default', 0);

-- Who owns which shard, and until when. A fire shares the rows of its shards; a change of a job takes its shard's row
-- for itself, so that nothing fires in it meanwhile. Updated often, never grown: room for updates in place.
create table shards (
    shard smallint primary key, owner uuid, epoch bigint not null, expires_at bigint not null
) with (fillfactor = 50);

-- Where the sequences of runs come from: the last block that was given out.
create table sequences (one boolean primary key default true check (one), block bigint not null)
    with (fillfactor = 10);
insert into sequences values (true, 0);

-- Workers by their last sign of life, and what they held then.
create table workers (
    id uuid primary key, seen_at bigint not null, is_dead boolean not null,
    held_seq bigint[] not null, held_attempt int[] not null
) with (fillfactor = 50);

create table jobs (
    id uuid primary key, tenant int not null, version int not null,
    state smallint not null, -- 0 active, 1 paused, 2 ended, 3 deleted
    fired bigint not null, completed_at bigint, record text not null
);
create index jobs_by_tenant on jobs (tenant, id);

-- Older versions, while open runs keep them.
create table job_versions (
    id uuid not null, version int not null, tenant int not null, record text not null, primary key (id, version)
);

create table job_keys (tenant int not null, key text not null, job uuid not null, primary key (tenant, key));

-- Jobs that are over or deleted, by when they are looked at to be forgotten. An entry whose version is not the job's is
-- stale: whether the job is over was decided then.
create table ended_jobs (
    forget_at bigint not null, job uuid not null, version int not null, primary key (forget_at, job, version)
);

create table requests (
    tenant int not null, key text not null, fingerprint bytea not null, expires_at bigint not null,
    result text not null, primary key (tenant, key)
);
create index requests_by_time on requests (expires_at);

-- The order of firing, by shard. An entry whose version is not the job's is stale and dropped when its time comes.
create table due (
    shard smallint not null, at bigint not null, lane smallint not null, tenant int not null, job uuid not null,
    version int not null, slot bigint not null,
    primary key (shard, at, lane, tenant, job, version)
);

-- Runs that have not ended. `line` says where a run stands: 0 its time has not come, 1 it may be claimed, 2 it runs.
-- `revision` grows with every change: whoever ends a run must have seen the last one.
create table open_runs (
    seq bigint primary key, shard smallint not null, line smallint not null, lane smallint not null,
    urgency int not null, available_at bigint not null, claimed_at bigint, revision int not null,
    tenant int not null, job uuid not null, worker uuid, queue text not null, record bytea not null
);
create index open_ready on open_runs (lane, urgency, available_at, seq) where line = 1;
create index open_delayed on open_runs (available_at, seq) where line = 0;
create index open_running on open_runs (claimed_at, seq) where line = 2;
create index open_by_job on open_runs (job);

-- Runs that ended, by class of retention (0 day, 1 week, 2 month, 3 year) and, inside a class, by the time of birth,
-- which is the start of the sequence. Class 4 has those that outlive their partition: they ended late, or are dead
-- letters.
create table history (
    class smallint not null, state smallint not null, tenant int not null, seq bigint not null, job uuid not null,
    keep_until bigint not null, record bytea not null, primary key (class, seq)
) partition by list (class);
create index history_by_job on history (job, seq);
create index history_by_tenant on history (tenant, seq);
create index history_failed on history (seq) where state in (11, 12);
create table history_0 partition of history for values in (0) partition by range (seq);
create table history_1 partition of history for values in (1) partition by range (seq);
create table history_2 partition of history for values in (2) partition by range (seq);
create table history_3 partition of history for values in (3) partition by range (seq);
create table history_4 partition of history for values in (4);
create index history_4_by_time on history_4 (keep_until);

-- Partitions of history that exist: born in [from_seq, to_seq).
create table partitions (
    class smallint not null, from_seq bigint not null, to_seq bigint not null, primary key (class, from_seq)
);

create table dead_letters (seq bigint primary key, tenant int not null, job uuid not null);

create table ledger (
    job uuid not null, from_slot bigint not null, to_slot bigint not null, slots bigint not null,
    fate smallint not null, tenant int not null, decided_at bigint not null, primary key (job, from_slot)
);

-- Long work over many runs. Written once per step, not per run.
create table operations (
    id uuid primary key, shard smallint not null, tenant int not null, version int not null, record text not null,
    resume_at bigint, -- while it runs
    finished_at bigint -- since it ended
);
create index operations_by_tenant on operations (tenant, id);
create index operations_running on operations (resume_at, id) where resume_at is not null;
create index operations_ended on operations (finished_at) where finished_at is not null;
