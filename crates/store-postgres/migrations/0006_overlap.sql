-- Runs that must not overlap. A run that waits for an earlier one of its job stands in line 3, and `behind` is its slot: the
-- oldest goes on first. A run that others wait for is marked, so that whoever ends it lets the next go on; nothing else looks
-- at the mark, and no other run has it.
alter table open_runs add column behind bigint, add column is_followed boolean not null default false;
create index open_behind on open_runs (job, behind, seq) where line = 3;

-- Who is ahead must be found among many that wait. In the place of the index by job, which is its beginning.
create index open_by_job_and_line on open_runs (job, line);
drop index open_by_job;
