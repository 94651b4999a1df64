-- Tenants take turns. What waits of a tenant stands together, in the order of claiming, so that who waits is found by stepping
-- from tenant to tenant: in all queues, and in the line of each queue. The second index also has the runs that require
-- something of their worker (line -1), and is in the place of the one that had them alone. open_ready stays for nodes of older
-- versions, which claim by lane and priority.
create index open_turns on open_runs (lane, tenant, urgency, available_at, seq) where line = 1;
create index open_turns_by_queue on open_runs (line, queue, lane, tenant, urgency, available_at, seq)
    where line in (-1, 1);
drop index open_requiring;
