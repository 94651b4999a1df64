-- Waiting runs that may start until a time, by that: what is over is found without reading what is not.
create table lapses (
    start_by integer not null, seq integer not null, shard integer not null, primary key (start_by, seq)
) without rowid;
