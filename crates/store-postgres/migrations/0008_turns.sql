-- Tenants take turns. What waits of a tenant stands together, in the order of claiming, so that who waits is found by stepping
-- from tenant to tenant: in all queues, and in the line of each queue. The second index also has the runs that require
-- something of their worker (line -1), and is in the place of the one that had them alone. open_ready stays for nodes of older
-- versions, which claim by lane and priority.
--
-- Lane and line are written as sums, and the lines as a product, so that nothing else serves a claim, whatever was counted: a table in
-- which one tenant waits makes open_ready look as good, until there are two; one that was empty makes the index by job look so.
create index open_turns on open_runs ((lane + 0), tenant, urgency, available_at, seq) where line = 1;
create index open_turns_by_queue on open_runs ((line + 0), queue, (lane + 0), tenant, urgency, available_at, seq)
    where line * line = 1;
drop index open_requiring;
