-- Runs that require something of the worker that executes them. While one may be claimed it stands in a line of its own
-- (line -1), and the column `queue` says what it requires before its queue, between two marks: chr(1) gpu=true,zone=eu
-- chr(1) default. So whoever claims without having it does not walk past it, and nodes of older versions, which know line 1 only, do not
-- take it.
create index open_requiring on open_runs (queue, lane, urgency, available_at, seq) where line = -1;

-- Whether a worker that serves these queues (all, if there are none) and has these labels may take what waits in a line.
create function punctual_may_take(line text, queues text[], labels text[]) returns boolean language sql immutable
    as $$ select case when left(line, 1) = chr(1)
        then string_to_array(split_part(line, chr(1), 2), ',') <@ labels
            and (queues is null or split_part(line, chr(1), 3) = any(queues))
        else queues is null or line = any(queues) end $$;
