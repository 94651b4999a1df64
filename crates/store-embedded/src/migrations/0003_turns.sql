-- Tenants take turns. What waits of a tenant stands together, in the order of claiming, so that who waits is found by stepping
-- from tenant to tenant. A run that was waiting keeps its time; its tenant is that of its job, whose id the record has after
-- five bytes.
create table turns (
    lane integer not null, tenant integer not null, urgency integer not null, available_at integer not null,
    seq integer not null, shard integer not null, queue text not null,
    primary key (lane, tenant, urgency, available_at, seq)
) without rowid;
insert into turns
select r.lane, coalesce(j.tenant, 1), r.urgency, r.available_at, r.seq, r.shard, r.queue
from ready r left join open_runs o on o.seq = r.seq left join jobs j on j.id = substr(o.record, 6, 16);
drop table ready;
alter table turns rename to ready;
-- The line of each queue: who serves one does not walk past the others'.
create index ready_by_queue on ready (queue, lane, tenant, urgency, available_at, seq, shard);
