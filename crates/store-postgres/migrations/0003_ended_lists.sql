-- Jobs that are over or deleted, by when they are looked at to be forgotten: a row for all that one transaction noted,
-- because a row and a random index entry for each cost a sixth of a one-shot's run. Entries whose version is not the job's are
-- stale. Nodes of the first schemas go on with `ended_jobs`, which is still read.
create table ended_lists (
    forget_at bigint not null, id bigint generated always as identity, count int not null,
    jobs uuid[] not null, versions int[] not null, primary key (forget_at, id)
);
-- Ids do not get smaller.
alter table ended_lists alter jobs set storage external, alter versions set storage external;
