-- What attempts say of themselves: outputs, log lines, progress, and where the next one goes on. While a run is open, a row for each
-- attempt that said something; attempt 0 is the checkpoint, which is the run's. Keys follow time, and a run that says nothing has no
-- row. What an ended run has said goes with it, in a column of its own at the end of its row in history, which lists do not read: it
-- is dropped with its partition.
create table open_papers (
    seq integer not null, attempt integer not null, record blob not null, primary key (seq, attempt)
) without rowid;
