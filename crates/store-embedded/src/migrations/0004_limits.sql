-- Waiting runs in the lines of their limits, each line in its order. They are in no other line. Only these are written by
-- a key that is random, and only while they wait.
create table limited (
    key integer not null, lane integer not null, urgency integer not null, scheduled_for integer not null, seq integer not null,
    primary key (key, lane, urgency, scheduled_for, seq)
) without rowid;

-- When the bucket of a key is full, in nanoseconds since 1970. How many hold a permit is counted from the open runs.
create table tokens (key integer primary key, full_at integer not null);

-- Limits that administrators set.
create table rules (name text primary key, record blob not null) without rowid;
