-- Runs that may start until a time, while they wait: what is over is found without reading what is not. Nodes of older
-- schemas write no time here and do not look at it: what they give birth to waits as long as it takes, and what they make wait
-- again keeps an old time, which is corrected when it has passed.
alter table open_runs add column start_by bigint;
create index open_lapses on open_runs (start_by, seq) where start_by is not null and line <> 2;
