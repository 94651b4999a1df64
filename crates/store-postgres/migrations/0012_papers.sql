-- What attempts say of themselves: outputs, log lines, progress, and where the next one goes on. While a run is open, a row for each
-- attempt that said something; attempt 0 is the checkpoint, which is the run's. Its run is marked, so that whoever ends it looks; one
-- that says nothing has no row and no mark.
create table open_papers (
    seq bigint not null, attempt int not null, shard smallint not null, record bytea not null, primary key (seq, attempt)
);
alter table open_runs add column has_papers boolean not null default false;

-- What an ended run has said goes with it and is dropped with its partition. What is long is kept beside the table by itself, and
-- lists do not ask for it.
alter table history add column papers bytea;
