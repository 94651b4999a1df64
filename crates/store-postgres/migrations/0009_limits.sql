-- Limits that runs share. A run that waits for one stands in line -2, and `waits_on` is the key of the gate it stands before; one
-- that has not come to its gates yet, because its time has not come, stands in line -3. Neither is claimed from, by nodes of older
-- versions too, and both are ahead of runs that wait for an earlier one of their job. In a line the lane comes first, then the
-- urgency, then the slot, which is in `behind`.
alter table open_runs add column waits_on bigint;
create index open_limited on open_runs (waits_on, lane, urgency, behind, seq) where line = -2;
create index open_coming on open_runs (available_at, seq) where line = -3;

-- A gate for each key that is in use: how many hold a permit, how many stand in its line, when its bucket is full (nanoseconds),
-- and when its line goes on by itself. Rows are locked in the order (breadth, key), after everything else.
create table gates (
    key bigint primary key, breadth smallint not null, shard smallint not null, rule text,
    held int not null default 0, waiting bigint not null default 0, full_at bigint not null default 0, next_at bigint
) with (fillfactor = 50);
create index gates_by_time on gates (next_at) where next_at is not null;
create index gates_by_rule on gates (rule) where rule is not null;

-- Limits that administrators set.
create table rules (name text primary key, record text not null);
