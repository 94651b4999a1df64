-- Runs that wait may be very many, and stay for long; those that run are as many as workers have room for. They are kept apart, so
-- that who opens the store reads only what runs. What was in `open_runs` and waits goes to its own table (the second byte of a
-- record is the state, and 1 is running).
create table waiting_runs (seq integer primary key, record blob not null);
insert into waiting_runs select seq, record from open_runs where substr(record, 2, 1) <> x'01';
delete from open_runs where substr(record, 2, 1) <> x'01';
alter table open_runs rename to running_runs;
create view open_runs as select seq, record from running_runs union all select seq, record from waiting_runs;

-- Which runs of a job wait. Only these are written by a key that is random, and only while they wait: a run that is born running
-- is not here. Kinds: 0 plain, 1 it has limits, 2 it waits for an earlier run. Those of a kind are in memory as well.
create table waits (
    job blob not null, seq integer not null, kind integer not null, primary key (job, seq)
) without rowid;
create index waits_of_a_kind on waits (seq) where kind > 0;

-- How many runs wait, and how many of these for a worker alone. Written once per write, not per run.
create table backlog (
    tenant integer not null, lane integer not null, runs integer not null, ready integer not null,
    primary key (tenant, lane)
) without rowid;
