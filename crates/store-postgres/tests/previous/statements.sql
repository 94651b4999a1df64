-- All statements of its verbs, schema 9. Made by `UPDATE_PREVIOUS=1 cargo test --release -p punctual-store-postgres --test previous`.

-- takes (int8), gives ()
delete from dead_letters where seq = $1
;
-- takes (_int2, _int8, _int2, _int4, _uuid, _int4, _int8), gives (int8)
delete from due d
using unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[], $7::bigint[])
    with ordinality a (shard, at, lane, tenant, job, version, slot, n)
where d.shard = any(array[a.shard]) and d.at = a.at and d.lane = a.lane and d.tenant = a.tenant and d.job = a.job
    and d.version = a.version and d.slot = a.slot
returning a.n
;
-- takes (int8, int8), gives (uuid, int4)
delete from ended_jobs where (forget_at, job, version) in (
    select forget_at, job, version from ended_jobs where forget_at < $1 order by forget_at limit $2
    for update skip locked)
returning job, version
;
-- takes (int8, int8), gives (_uuid, _int4)
delete from ended_lists e using (
    select forget_at, id, sum(count) over (order by forget_at, id) - count as before
    from (select forget_at, id, count from ended_lists where forget_at < $1 order by forget_at, id limit $2) l
) l where e.forget_at = any(array[l.forget_at]) and e.id = l.id and l.before < $2
returning e.jobs, e.versions
;
-- takes (int8, int8), gives ()
delete from gates where key in (
    select key from gates where held = 0 and waiting = 0 and next_at is null and full_at <= $1 limit $2 for update skip locked)
;
-- takes (int2, int8), gives ()
delete from history where class = $1 and seq = $2
;
-- takes (int8, int8, int2), gives ()
delete from history where class = $3 and seq in (
    select seq from history_4 where keep_until < $1 and seq not in (select seq from dead_letters) limit $2)
;
-- takes (_uuid), gives ()
delete from job_keys k using jobs j
     where j.id = any($1) and k.tenant = j.tenant and k.key = j.record::json ->> 'key' and k.job = j.id
;
-- takes (int4, text, uuid), gives ()
delete from job_keys where tenant = $1 and key = $2 and job = $3
;
-- takes (), gives ()
delete from job_versions v where not exists (select from open_runs o where o.job = v.id)
;
-- takes (_uuid), gives ()
delete from job_versions where id = any($1)
;
-- takes (_uuid), gives ()
delete from jobs where id = any($1)
;
-- takes (_uuid), gives ()
delete from ledger where job = any($1)
;
-- takes (int8), gives ()
delete from nodes where expires_at < punctual_now($1) - 60000
;
-- takes (_int8), gives ()
delete from open_runs where seq = any($1)
;
-- takes (int8, int8), gives ()
delete from operations where id in (select id from operations where finished_at < $1 limit $2)
;
-- takes (int2, int8), gives ()
delete from partitions where class = $1 and from_seq = $2
;
-- takes (int8, int8), gives ()
delete from requests where (tenant, key) in (
    select tenant, key from requests where expires_at <= $1 order by expires_at limit $2)
;
-- takes (text), gives ()
delete from rules where name = $1
;
-- takes (int8), gives ()
delete from workers w where w.is_dead and w.seen_at < $1 - 86400000::bigint
    and not exists (select from open_runs o where o.line = 2 and o.worker = w.id)
;
-- takes (_int2, _int8, _int2, _int4, _uuid, _int4, _int8), gives ()
insert into due
select * from unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[], $7::bigint[])
on conflict (shard, at, lane, tenant, job, version) do update set slot = excluded.slot
;
-- takes (_int8, _uuid, _int4), gives ()
insert into ended_lists (forget_at, count, jobs, versions)
select forget_at, count(*), array_agg(job), array_agg(version)
from unnest($1::bigint[], $2::uuid[], $3::int[]) x (forget_at, job, version) group by forget_at
;
-- takes (_int8, _int2, _int2, _int4), gives (int8)
insert into gates (key, breadth, shard, held)
select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::int[]) on conflict do nothing returning key
;
-- takes (_int8, _int2, _int2, _text), gives ()
insert into gates (key, breadth, shard, rule)
select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::text[]) on conflict do nothing
;
-- takes (int2, int8, int8), gives ()
insert into history
select 4, h.state, h.tenant, h.seq, h.job, h.keep_until, h.record
from history h join dead_letters d on d.seq = h.seq
where h.class = $1 and h.seq >= $2 and h.seq < $3
;
-- takes (_int4, _text, _uuid), gives ()
insert into job_keys select * from unnest($1::int[], $2::text[], $3::uuid[])
;
-- takes (int4, text, uuid), gives ()
insert into job_keys values ($1, $2, $3)
;
-- takes (uuid), gives ()
insert into job_versions select id, version, tenant, record from jobs
where id = $1 and exists (select from open_runs where job = $1) on conflict do nothing
;
-- takes (_uuid, _int4, _int4, _int2, _text), gives ()
insert into jobs (id, tenant, version, state, fired, completed_at, record)
select id, tenant, version, state, 0, null, record
from unnest($1::uuid[], $2::int[], $3::int[], $4::smallint[], $5::text[]) x (id, tenant, version, state, record)
;
-- takes (uuid, int4, int4, int2, text), gives ()
insert into jobs (id, tenant, version, state, fired, completed_at, record) values ($1, $2, $3, $4, 0, null, $5)
on conflict (id) do update set tenant = excluded.tenant, version = excluded.version, state = excluded.state,
    record = excluded.record
;
-- takes (_uuid, _int8, _int8, _int8, _int2, _int4, _int8), gives ()
insert into ledger
select * from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::int[], $7::bigint[])
on conflict (job, from_slot) do update set to_slot = excluded.to_slot, slots = excluded.slots, fate = excluded.fate,
    decided_at = excluded.decided_at
;
-- takes (_int2, _int8), gives ()
insert into news select * from unnest($1::smallint[], $2::bigint[])
;
-- takes (uuid, int8, text, int8), gives ()
insert into nodes values ($1, punctual_now($4) + $2, $3)
on conflict (id) do update set expires_at = excluded.expires_at, record = excluded.record
;
-- takes (_int8, _int2, _int2, _int2, _int4, _int8, _int8, _int4, _int4, _uuid, _uuid, _text, _bytea, _int8, _int8, _int8), gives ()
insert into open_runs (seq, shard, line, lane, urgency, available_at, claimed_at, revision, tenant, job, worker, queue,
    record, start_by, behind, waits_on)
select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::smallint[], $5::int[], $6::bigint[],
    $7::bigint[], $8::int[], $9::int[], $10::uuid[], $11::uuid[], $12::text[], $13::bytea[], $14::bigint[],
    $15::bigint[], $16::bigint[])
on conflict (seq) do update set line = excluded.line, lane = excluded.lane, urgency = excluded.urgency, queue = excluded.queue, behind = excluded.behind, waits_on = excluded.waits_on, available_at = excluded.available_at,
    claimed_at = case when excluded.worker is null then null else open_runs.claimed_at end, revision = excluded.revision, worker = excluded.worker,
    record = excluded.record, start_by = excluded.start_by
;
-- takes (uuid, int2, int4, int4, text, int8, int8), gives ()
insert into operations values ($1, $2, $3, $4, $5, $6, $7)
on conflict (id) do update set version = excluded.version, record = excluded.record, resume_at = excluded.resume_at,
    finished_at = excluded.finished_at
;
-- takes (int2, int8, int8), gives ()
insert into partitions values ($1, $2, $3) on conflict do nothing
;
-- takes (_int4, _text, _bytea, _int8, _text, int8, _int2), gives (int4, text)
insert into requests (tenant, key, fingerprint, expires_at, result, shard)
select * from unnest($1::int[], $2::text[], $3::bytea[], $4::bigint[], $5::text[], $7::smallint[])
on conflict (tenant, key) do update set fingerprint = excluded.fingerprint, expires_at = excluded.expires_at,
    result = excluded.result, shard = excluded.shard
where requests.expires_at <= $6
returning tenant, key
;
-- takes (text, text), gives ()
insert into rules values ($1, $2) on conflict (name) do update set record = excluded.record
;
-- takes (int4, int4), gives ()
insert into schema_versions (version, applied_at, compatible_with) values ($1, now(), $2)
;
-- takes (text, bytea), gives ()
insert into settings values ($1, $2) on conflict do nothing
;
-- takes (int4), gives ()
insert into shards select n, null, 0, 0 from generate_series(0, $1 - 1) n
;
-- takes (text, int8), gives ()
insert into tenants select max(id) + 1, $1, $2 from tenants on conflict do nothing
;
-- takes (uuid, int8, _int8, _int4), gives (uuid)
insert into workers values ($1, punctual_now($2), false, $3, $4)
on conflict (id) do update set seen_at = excluded.seen_at, held_seq = excluded.held_seq,
    held_attempt = excluded.held_attempt
where not workers.is_dead
returning id
;
-- takes (_int2, _int8, _int2, _int4, _uuid, _int4, _int8), gives (int8)
select a.n
from unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[], $7::bigint[])
    with ordinality a (shard, at, lane, tenant, job, version, slot, n)
join due d on d.shard = any(array[a.shard]) and d.at = a.at and d.lane = a.lane and d.tenant = a.tenant and d.job = a.job
    and d.version = a.version and d.slot = a.slot
;
-- takes (_uuid), gives (int8, int4, bytea, int2)
select b.seq, b.revision, b.record, b.line from unnest($1::uuid[]) j (id), lateral (
    select seq, revision, record, line from open_runs o where o.job = j.id and o.line = 3
    order by o.behind, o.seq limit 2 for update) b
;
-- takes (), gives (int2, int8)
select class, from_seq from partitions order by class, from_seq
;
-- takes (int8), gives (int2, bytea)
select class, record from history where class in (0, 1, 2, 3, 4) and seq = $1 for update
;
-- takes (_int2), gives (int8)
select coalesce(
    (select available_at from open_runs where line = 1 and ($1::smallint[] is null or shard = any($1))
     order by lane + 0, tenant, urgency, available_at, seq limit 1),
    (select available_at from open_runs
     where line * line = 1 and line + 0 = -1 and ($1::smallint[] is null or shard = any($1))
     order by line + 0, queue, lane + 0, tenant, urgency, available_at, seq limit 1),
    (select available_at from open_runs where line = 0 and ($1::smallint[] is null or shard = any($1))
     order by available_at, seq limit 1))
;
-- takes (int8, int8, int8), gives (int8)
select coalesce(sum(e.entries), 0)::bigint
from shards s cross join lateral (
    select count(*) entries from (
        select from due d where d.shard = s.shard and d.at >= $1 and d.at < $2 limit $3
    ) few
) e
;
-- takes (), gives (int4)
select convert_from(value, 'UTF8')::int from settings where name = 'shards'
;
-- takes (_int8), gives (uuid)
select distinct job from open_runs where seq = any($1)
;
-- takes (int8), gives (uuid)
select distinct o.job from open_runs o where o.line = 3
    and (select a.seq from open_runs a where a.job = o.job and a.line < 3 limit 1) is null limit $1
;
-- takes (_int2, int8, int8, int2, int4, uuid), gives (int2, int8, int2, int4, uuid, int4, int8)
select e.shard, e.at, e.lane, e.tenant, e.job, e.version, e.slot
from shards s cross join lateral (
    select * from due d
    where d.shard = s.shard and (d.at, d.lane, d.tenant, d.job) > ($3, $4, $5, $6)
    order by d.at, d.lane, d.tenant, d.job, d.version limit $2
) e
where $1::smallint[] is null or s.shard = any($1)
;
-- takes (_int2, int8), gives (int2, int8, int2, int4, uuid, int4, int8)
select e.shard, e.at, e.lane, e.tenant, e.job, e.version, e.slot
from shards s cross join lateral (
    select * from due d where d.shard = s.shard order by d.at, d.lane, d.tenant, d.job, d.version limit $2
) e
where $1::smallint[] is null or s.shard = any($1)
;
-- takes (_uuid), gives (bool)
select exists (select from open_runs o where o.job = x.job)
            from unnest($1::uuid[]) with ordinality x (job, n) order by x.n
;
-- takes (), gives (bool)
select exists (select from pg_class where relname = 'schema_versions' and relkind = 'r' and pg_table_is_visible(oid))
;
-- takes (int4, text, int8), gives (bytea, int8, text)
select fingerprint, expires_at, result from requests
            where tenant = $1 and key = $2 and expires_at > $3
;
-- takes (_uuid), gives ()
select from jobs where id = any($1) order by id for update
;
-- takes (_uuid), gives ()
select from open_runs where job = any($1) and line < 3 and not is_followed order by seq for update
;
-- takes (int2, int8), gives ()
select from shards where shard = $1 and epoch = $2 and owner is not null
;
-- takes (uuid, int8, int8), gives (int8, int8, int8, int2, int4, int8)
select from_slot, to_slot, slots, fate, tenant, decided_at from ledger
            where job = $1 and from_slot < $2 order by from_slot desc limit $3
;
-- takes (_int8, _int8), gives (int8, bytea)
select h.seq, h.record from unnest($1::bigint[], $2::bigint[]) x (key, count), lateral (
    select seq, record from open_runs o
    where o.line = -2 and o.waits_on = x.key and o.shard = any(array(select shard from shards))
    order by o.lane, o.urgency, o.behind, o.seq limit x.count) h
;
-- takes (text), gives (int4, int8)
select id, created_at from tenants where name = $1
;
-- takes (int8), gives (uuid, int8, text, int8)
select id, expires_at, record, punctual_now($1) from nodes where expires_at >= punctual_now($1) order by id
;
-- takes (_uuid), gives (uuid, _int8, _int4)
select id, held_seq, held_attempt from workers where id = any($1) and not is_dead
;
-- takes (), gives (int4, text, int8)
select id, name, created_at from tenants order by id
;
-- takes (uuid, int8), gives (uuid, int4, int8, text)
select id, tenant, fired, case when state = 0 then record end from jobs where id > $1 order by id limit $2
;
-- takes (int4, uuid, int8), gives (uuid, int4, int4, text)
select id, tenant, version, record from operations where $1::int is null and id < $2 order by id desc limit $3
;
-- takes (uuid), gives (uuid, int4, int4, text)
select id, tenant, version, record from operations where id = $1
;
-- takes (int4, uuid, int8), gives (uuid, int4, int4, text)
select id, tenant, version, record from operations where tenant = $1 and id < $2 order by id desc limit $3
;
-- takes (_uuid, int2, bool), gives (uuid, int4, int4, text, int8, int8)
select id, tenant, version, record, fired, completed_at from jobs where id = any($1) and (state <> $2 or $3)
;
-- takes (uuid, int8), gives (uuid, int4, int4, text, int8, int8)
select id, tenant, version, record, fired, completed_at from jobs where id > $1 order by id limit $2
;
-- takes (uuid, int8, int4), gives (uuid, int4, int4, text, int8, int8)
select id, tenant, version, record, fired, completed_at from jobs where tenant = $3 and id > $1 order by id limit $2
;
-- takes (_int2, int8), gives (uuid, int4, int4, text, int8)
select id, tenant, version, record, resume_at from operations
where resume_at is not null and ($1::smallint[] is null or shard = any($1)) order by resume_at, id limit $2
;
-- takes (_uuid), gives (uuid, int4)
select id, version from jobs where id = any($1)
;
-- takes (_uuid), gives (uuid, int4)
select id, version from jobs where id = any($1) order by id for update
;
-- takes (_uuid), gives (uuid, int4, text)
select id, version, record::json ->> 'key' from jobs where id = any($1) order by id for update
;
-- takes (_uuid), gives (uuid)
select j.id from unnest($1::uuid[]) j (id), lateral (
    select from open_runs o where o.job = j.id and o.line < 3 limit 1) a
;
-- takes (_uuid, int8), gives (uuid, bool, bool, int8)
select j.id,
    exists (select from open_runs o where o.job = j.id and o.line = 2),
    exists (select from open_runs o where o.job = j.id and o.line < 2),
    (select count(*) from (select from open_runs o where o.job = j.id and o.line = 3 limit $2::bigint) b)
from unnest($1::uuid[]) j (id)
;
-- takes (_uuid, _int4), gives (uuid, int4, int4, text, int8, int8)
select j.id, j.tenant, j.version, j.record, j.fired, j.completed_at
from unnest($1::uuid[], $2::int[]) x (id, version)
join jobs j on j.id = any(array[x.id]) and j.version = x.version
union all
select v.id, v.tenant, v.version, v.record, 0, null
from unnest($1::uuid[], $2::int[]) x (id, version)
join job_versions v on v.id = any(array[x.id]) and v.version = x.version
;
-- takes (_uuid, _int4), gives (uuid, int4, bool)
select j.id, j.version,
    exists (select from open_runs o where o.job = j.id) or exists (select from history h where h.job = j.id)
from unnest($1::uuid[], $2::int[]) x (id, version)
join jobs j on j.id = any(array[x.id]) and j.version = x.version
order by x.id for update of j
;
-- takes (uuid, int4), gives (int4, int2, bool, bool)
select j.version, j.state, j.version = $2 or exists (select from job_versions v where v.id = $1 and v.version = $2),
    j.record::json #> '{policies,overlap}' is not null
from jobs j where j.id = $1
;
-- takes (int4, text), gives (uuid)
select job from job_keys where tenant = $1 and key = $2
;
-- takes (int4, text, uuid), gives (uuid)
select job from job_keys where tenant = $1 and key = $2 and job <> $3
;
-- takes (int8, _int2, int8), gives (int8)
select key from gates where next_at <= $1 and ($2::smallint[] is null or shard = any($2)) order by next_at limit $3
;
-- takes (_int8), gives (int8, text, int4, int8, int8, int8)
select key, rule, held, waiting, full_at, next_at from gates where key = any($1) order by breadth, key for update
;
-- takes (_uuid, _int8), gives (uuid, int8, int8, int8, int2, int4, int8)
select l.job, l.from_slot, l.to_slot, l.slots, l.fate, l.tenant, l.decided_at
from unnest($1::uuid[], $2::bigint[]) x (job, slot), lateral (
    select * from ledger where ledger.job = x.job and from_slot <= x.slot order by from_slot desc limit 1) l
;
-- takes (), gives (int2, int8)
select lane, count(*) from open_runs where line in (-1, 1) group by lane
;
-- takes (_int2), gives (int8)
select least(
    (select min(next_at) from gates where next_at is not null and ($1::smallint[] is null or shard = any($1))),
    (select available_at from open_runs where line = -3 and ($1::smallint[] is null or shard = any($1))
        and shard = any(array(select shard from shards))
     order by available_at, seq limit 1))
;
-- takes (), gives (text, text)
select name, record from rules order by name
;
-- takes (_text), gives (text, text)
select name, record from rules where name = any($1)
;
-- takes (uuid), gives (bool)
select not exists (select from open_runs where job = $1)
;
-- takes (int8, int8, int8), gives (int8, bytea, uuid, bool)
select o.seq, o.record, o.worker, w.is_dead
from open_runs o left join workers w on w.id = o.worker
where o.line = 2 and o.claimed_at < punctual_now($1) - $2
order by o.claimed_at, o.seq limit $3
;
-- takes (_int2, _int4, _int8, _int2, uuid, int8), gives (int8, int4, bytea, int2, int8)
select o.seq, o.revision, o.record, o.line, punctual_now($6) from unnest($1::smallint[], $2::int[], $3::bigint[]) a (lane, tenant, most) cross join lateral (
    select seq, revision, record, line from open_runs where line = 1 and lane + 0 = a.lane and tenant = a.tenant
        and ($4::smallint[] is null or shard = any($4))
    order by lane + 0, tenant, urgency, available_at, seq limit a.most for update skip locked) o where not exists (select from workers where id = $5 and is_dead)
;
-- takes (_int2, _int4, _int8, _int2, _int2, _text, uuid, int8), gives (int8, int4, bytea, int2, int8)
select o.seq, o.revision, o.record, o.line, punctual_now($8) from unnest($1::smallint[], $2::int[], $3::bigint[], $5::smallint[], $6::text[])
    a (lane, tenant, most, line, queue) cross join lateral (
    select seq, revision, record, line from open_runs where line * line = 1 and line + 0 = a.line and queue = a.queue and lane + 0 = a.lane
        and tenant = a.tenant and ($4::smallint[] is null or shard = any($4))
    order by line + 0, queue, lane + 0, tenant, urgency, available_at, seq limit a.most for update skip locked) o where not exists (select from workers where id = $7 and is_dead)
;
-- takes (int8), gives (void)
select pg_advisory_xact_lock($1)
;
-- takes (), gives (int4)
select pg_backend_pid()
;
-- takes (int8), gives (bytea)
select record from open_runs where seq = $1
union all select record from history where class in (0, 1, 2, 3, 4) and seq = $1 limit 1
;
-- takes (_int8), gives (int8)
select seq from dead_letters where seq = any($1)
;
-- takes (int8, int8, int8, uuid), gives (int8, bytea)
select seq, record from history where seq < $1 and seq >= $2 and $4::uuid is null  order by seq desc limit $3
;
-- takes (int8, int8, int8, uuid), gives (int8, bytea)
select seq, record from history where seq < $1 and seq >= $2 and $4::uuid is null and state in (11, 12) and seq in (select seq from dead_letters) order by seq desc limit $3
;
-- takes (int8, int8, int8, uuid), gives (int8, bytea)
select seq, record from history where seq < $1 and seq >= $2 and $4::uuid is null and state in (11, 12) order by seq desc limit $3
;
-- takes (int8, int8, int8, uuid), gives (int8, bytea)
select seq, record from history where seq < $1 and seq >= $2 and job = $4  order by seq desc limit $3
;
-- takes (int8, int8, int8, uuid), gives (int8, bytea)
select seq, record from history where seq < $1 and seq >= $2 and job = $4 and state in (11, 12) and seq in (select seq from dead_letters) order by seq desc limit $3
;
-- takes (int8, int8, int8, uuid), gives (int8, bytea)
select seq, record from history where seq < $1 and seq >= $2 and job = $4 and state in (11, 12) order by seq desc limit $3
;
-- takes (int8, int8, int8, int4), gives (int8, bytea)
select seq, record from history where seq < $1 and seq >= $2 and tenant = $4  order by seq desc limit $3
;
-- takes (int8, int8, int8, uuid), gives (int8, bytea)
select seq, record from open_runs where seq < $1 and seq >= $2 and $4::uuid is null  order by seq desc limit $3
;
-- takes (int8, int8, int8, uuid), gives (int8, bytea)
select seq, record from open_runs where seq < $1 and seq >= $2 and job = $4  order by seq desc limit $3
;
-- takes (int8, int8, int8, int4), gives (int8, bytea)
select seq, record from open_runs where seq < $1 and seq >= $2 and tenant = $4  order by seq desc limit $3
;
-- takes (int8, _int2, int8), gives (int8, int4, bytea, int2)
select seq, revision, record, line from open_runs
where line = -3 and available_at <= $1 and ($2::smallint[] is null or shard = any($2))
    and shard = any(array(select shard from shards))
order by available_at, seq limit $3 for update skip locked
;
-- takes (uuid), gives (int8, int4, bytea, int2)
select seq, revision, record, line from open_runs where job = $1 and line <> 2 order by seq for update
;
-- takes (uuid), gives (int8, int4, bytea, int2)
select seq, revision, record, line from open_runs where job = $1 and line = 3 order by seq for update
;
-- takes (_uuid, _int8), gives (int8, int4, bytea, int2)
select seq, revision, record, line from open_runs where job = any($1) and seq <> all($2) order by seq for update
;
-- takes (_int8, uuid), gives (int8, int4, bytea, int2)
select seq, revision, record, line from open_runs where seq = any($1) and worker = $2
;
-- takes (_int8), gives (int8, int4, bytea, int2, bool)
select seq, revision, record, line, is_followed from open_runs where seq = any($1) order by seq for update
;
-- takes (int8, _int2, int8), gives (int8, int4, bytea, int2, int8)
select seq, revision, record, line, start_by from open_runs
where start_by < $1 and line <> 2 and ($2::smallint[] is null or shard = any($2))
order by start_by, seq limit $3
;
-- takes (uuid), gives (int2, int8)
select shard, epoch from shards where owner = $1
;
-- takes (_int2), gives (int2, uuid)
select shard, owner from shards where shard = any($1) order by shard for key share
;
-- takes (_int2), gives (int2, uuid)
select shard, owner from shards where shard = any($1) order by shard for update
;
-- takes (int8), gives (int2, uuid, int8, int8, int8)
select shard, owner, epoch, expires_at, punctual_now($1) from shards order by shard
;
-- takes (int8, _int2), gives (int8)
select start_by from open_runs
where start_by >= $1 and line <> 2 and ($2::smallint[] is null or shard = any($2))
order by start_by, seq limit 1
;
-- takes (text), gives (bytea)
select value from settings where name = $1
;
-- takes (), gives (int4, int8, int4)
select version, (extract(epoch from applied_at) * 1000)::bigint, coalesce((to_json(s) ->> 'compatible_with')::int, version) from schema_versions s order by version
;
-- takes (uuid), gives (int4, bool)
select version, finished_at is null from operations where id = $1 for update
;
-- takes (uuid), gives (int4, int2)
select version, state from jobs where id = $1
;
-- takes (uuid), gives (int4, int2, int4)
select version, state, tenant from jobs where id = $1
;
-- takes (_int4, _text), gives (int8, uuid)
select x.n, k.job from unnest($1::int[], $2::text[]) with ordinality x (tenant, key, n)
join job_keys k on k.tenant = any(array[x.tenant]) and k.key = x.key
;
-- takes (_int8, _int4, _int4), gives (int8)
update gates g set held = g.held + x.count
from unnest($1::bigint[], $2::int[], $3::int[]) x (key, count, max)
where g.key = any(array[x.key]) and g.waiting = 0 and g.held + x.count <= x.max
returning g.key
;
-- takes (_int8, _int4), gives ()
update gates g set held = g.held - x.count from unnest($1::bigint[], $2::int[]) x (key, count)
where g.key = any(array[x.key])
;
-- takes (_int8, _int4, _int8, _int8, _int8, _text), gives ()
update gates g set held = x.held, waiting = x.waiting, full_at = x.full_at, next_at = x.next_at, rule = x.rule
from unnest($1::bigint[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
    x (key, held, waiting, full_at, next_at, rule) where g.key = any(array[x.key])
;
-- takes (text, int8), gives ()
update gates set next_at = $2 where key in (
                        select key from gates where rule = $1 and waiting > 0 order by breadth, key for update)
;
-- takes (_uuid, _int8, _int8), gives ()
update jobs j set fired = x.fired, completed_at = x.completed_at
from unnest($1::uuid[], $2::bigint[], $3::bigint[]) x (id, fired, completed_at) where j.id = any(array[x.id])
;
-- takes (_uuid, int8), gives ()
update jobs set completed_at = $2 where id = any($1)
;
-- takes (uuid, int8, _int8, _int4, _bytea), gives ()
update open_runs o set line = 2, worker = $1, claimed_at = punctual_now($2), revision = x.revision, record = x.record
from unnest($3::bigint[], $4::int[], $5::bytea[]) x (seq, revision, record) where o.seq = any(array[x.seq])
;
-- takes (int8), gives (int2)
update open_runs o set line = case when left(o.queue, 1) = chr(1) then -1 else 1 end
from (
    select seq from open_runs where line = 0 and available_at <= $1 order by available_at, seq limit 10000
    for update skip locked
) due
where o.seq = any(array[due.seq]) returning o.lane
;
-- takes (_uuid), gives ()
update open_runs set is_followed = true where job = any($1) and line < 3 and not is_followed
;
-- takes (int8, int8, int8), gives (int8)
update sequences set block = greatest(block + 1, punctual_now($1) * $3) + $2 - 1 returning block
;
-- takes (int8, int8), gives ()
update workers set is_dead = true where not is_dead and seen_at < punctual_now($1) - $2
;
-- takes (_int2, _int2, _int4, _int8, _uuid, _int8, _bytea), gives ()
with ended as (
    insert into history (class, state, tenant, seq, job, keep_until, record)
    select * from unnest($1::smallint[], $2::smallint[], $3::int[], $4::bigint[], $5::uuid[], $6::bigint[], $7::bytea[])
    returning state, seq, tenant, job
)
insert into dead_letters select seq, tenant, job from ended where state in (11, 12) on conflict do nothing
;
-- takes (uuid, _int2, _uuid, int8, int8), gives ()
with given as (
    select s.shard, x.heir from unnest($2::smallint[], $3::uuid[]) x (shard, heir)
    join shards s on s.shard = x.shard where s.owner = $1 order by s.shard for update of s
)
update shards s set epoch = s.epoch + 1, owner = given.heir, expires_at =
    coalesce((select n.expires_at from nodes n where n.id = given.heir), punctual_now($5) + $4)
from given where s.shard = given.shard and s.owner = $1
;
-- takes (_int2, _int2, _int4, _int8, _uuid, _int8, _bytea, _int4, _int8, _int4, _uuid), gives (int8)
with gone as (
    delete from open_runs o
    where o.seq = any($4::bigint[])
        and ((o.seq, o.revision) in (select x.seq, x.revision from unnest($4::bigint[], $8::int[]) x (seq, revision))) is true
        and not o.is_followed
    returning o.seq
), ended as (
    insert into history (class, state, tenant, seq, job, keep_until, record)
    select x.* from unnest($1::smallint[], $2::smallint[], $3::int[], $4::bigint[], $5::uuid[], $6::bigint[],
        $7::bytea[]) x (class, state, tenant, seq, job, keep_until, record)
    where (x.seq in (select seq from gone)) is true
), dead as (
    insert into dead_letters select x.* from unnest($9::bigint[], $10::int[], $11::uuid[]) x (seq, tenant, job)
    where (x.seq in (select seq from gone)) is true on conflict do nothing
) select x.seq from unnest($4::bigint[]) x (seq) where x.seq not in (select seq from gone)
;
-- takes (_int2, _int2, _int4, _int8, _uuid, _int8, _bytea, _int4, _int8, _int4, _uuid, _int8, _int8, _int2, int8), gives (int8, int4)
with gone as (
    delete from open_runs o
    where o.seq = any($4::bigint[])
        and ((o.seq, o.revision) in (select x.seq, x.revision from unnest($4::bigint[], $8::int[]) x (seq, revision))) is true
        and not o.is_followed
    returning o.seq
), ended as (
    insert into history (class, state, tenant, seq, job, keep_until, record)
    select x.* from unnest($1::smallint[], $2::smallint[], $3::int[], $4::bigint[], $5::uuid[], $6::bigint[],
        $7::bytea[]) x (class, state, tenant, seq, job, keep_until, record)
    where (x.seq in (select seq from gone)) is true
), dead as (
    insert into dead_letters select x.* from unnest($9::bigint[], $10::int[], $11::uuid[]) x (seq, tenant, job)
    where (x.seq in (select seq from gone)) is true on conflict do nothing
), freed as (
    update gates g set held = greatest(g.held - x.count, 0),
        next_at = case when g.waiting > 0 then least(g.next_at, $15) else g.next_at end
    from (
        select y.key, count(*)::int as count from unnest($12::bigint[], $13::bigint[], $14::smallint[]) y (seq, key, breadth)
        where (y.seq in (select seq from gone)) is true group by y.breadth, y.key order by y.breadth, y.key
    ) x
    where g.key = any(array[x.key])
    returning g.key, g.waiting, x.count
)
select x.seq, null::int from unnest($4::bigint[]) x (seq) where x.seq not in (select seq from gone)
union all select key, count from freed where waiting > 0
;
-- takes (uuid, int8), gives ()
with gone as (delete from nodes where id = $1)
update shards set owner = null, expires_at = punctual_now($2) where owner = $1
;
-- takes (_int8, _int8), gives (int8, int4, bytea, int2, int8)
with heads as materialized (
    select x.key, h.seq, h.n from unnest($1::bigint[], $2::bigint[]) x (key, count), lateral (
        select seq, row_number() over (order by o.lane, o.urgency, o.behind, o.seq) as n from open_runs o
        where o.line = -2 and o.waits_on = x.key and o.shard = any(array(select shard from shards))
        order by o.lane, o.urgency, o.behind, o.seq limit x.count) h
)
select h.seq, r.revision, r.record, r.line, h.key from heads h left join lateral (
    select o.revision, o.record, o.line from open_runs o where o.seq = h.seq for update skip locked) r on true
order by h.key, h.n
;
-- takes (uuid, _int2, int8, int8), gives ()
with held as (
    select shard from shards
    where owner is distinct from $1 and ($2::smallint[] is null or shard = any($2))
        and (owner is null or expires_at < punctual_now($4))
    order by shard for update
)
update shards s set epoch = s.epoch + 1, owner = $1, expires_at = punctual_now($4) + $3
from held where s.shard = any(array[held.shard]) and (s.owner is null or s.expires_at < punctual_now($4))
;
-- takes (uuid, int8, int8), gives (int2, int8)
with held as (select shard from shards where owner = $1 order by shard for no key update)
update shards s set expires_at = punctual_now($3) + $2
from held where s.shard = any(array[held.shard]) and s.owner = $1
returning s.shard, s.epoch
;
-- takes (_int2, _int8, _int2, _int4, _uuid, _int4, _int8, _int8, _int8, _int2, int8, _int8, _int2, _int8, _int2, _int4, _uuid, _int4, _int8, _int8, _int8, _int2, _int2, _int2, _int4, _int8, _int4, _uuid, _uuid, _text, _bytea, _int8), gives (int8, bool)
with owned as materialized (
    select a.* from unnest($1::smallint[], $2::bigint[], $3::smallint[], $4::int[], $5::uuid[], $6::int[], $7::bigint[],
        $8::bigint[], $9::bigint[])
        with ordinality a (shard, at, lane, tenant, job, version, slot, epoch, forget_at, n)
    where ((a.shard, a.epoch) in (
        select s.shard, s.epoch from shards s where s.shard = any($10::smallint[]) and s.owner is not null)) is true
), gone as (
    delete from due d using owned a
    where d.shard = any(array[a.shard]) and d.at = a.at and d.lane = a.lane and d.tenant = a.tenant and d.job = a.job
        and d.version = a.version and d.slot = a.slot
    returning a.n, a.job, a.version, a.forget_at
), fired as materialized (
    select gone.* from gone join jobs j on j.id = any(array[gone.job]) and j.version = gone.version and j.state = 0
), over as (
    insert into ended_lists (forget_at, count, jobs, versions)
    select forget_at, count(*), array_agg(job), array_agg(version) from fired
    where forget_at is not null group by forget_at
), next as (
    insert into due (shard, at, lane, tenant, job, version, slot)
    select x.shard, x.at, x.lane, x.tenant, x.job, x.version, x.slot
    from unnest($12::bigint[], $13::smallint[], $14::bigint[], $15::smallint[], $16::int[], $17::uuid[], $18::int[],
        $19::bigint[]) x (n, shard, at, lane, tenant, job, version, slot)
    where (x.n in (select n from fired)) is true
    on conflict (shard, at, lane, tenant, job, version) do update set slot = excluded.slot
), born as (
    insert into open_runs (seq, shard, line, lane, urgency, available_at, claimed_at, revision, tenant, job, worker,
        queue, record, start_by)
    select x.seq, x.shard, x.line, x.lane, x.urgency, x.available_at,
        case when x.worker is null then null else (select punctual_now($11)) end, 0, x.tenant, x.job, x.worker, x.queue, x.record,
        x.start_by
    from unnest($20::bigint[], $21::bigint[], $22::smallint[], $23::smallint[], $24::smallint[], $25::int[],
        $26::bigint[], $27::int[], $28::uuid[], $29::uuid[], $30::text[], $31::bytea[], $32::bigint[])
        x (n, seq, shard, line, lane, urgency, available_at, tenant, job, worker, queue, record, start_by)
    where (x.n in (select n from fired)) is true
)
select n, n in (select n from owned) from generate_series(1::bigint, cardinality($1::smallint[])) n
where n not in (select n from fired)
;
-- takes (_int2, _int4, _int4, int8, _text, _text), gives (int2, int4, int2, text)
with recursive required as (
    (select queue from open_runs where line * line = 1 and line + 0 = -1 and cardinality($6::text[]) > 0
     order by line + 0, queue limit 1)
    union all
    select (
        select o.queue from open_runs o where o.line * o.line = 1 and o.line + 0 = -1 and o.queue > r.queue
        order by o.line + 0, o.queue limit 1)
    from required r where r.queue is not null
), lines as (
    select 1::smallint as line, q.queue from unnest($5::text[]) q (queue)
    union all
    select -1::smallint, r.queue from required r where r.queue is not null and punctual_may_take(r.queue, $5, $6)
), who as (
    select l.line, l.queue, c.lane, c.upto, 1::bigint as nth, (
        select o.tenant from open_runs o
        where o.line * o.line = 1 and o.line + 0 = l.line and o.queue = l.queue and o.lane + 0 = c.lane
            and o.tenant > c.above and o.tenant <= c.upto
        order by o.line + 0, o.queue, o.lane + 0, o.tenant limit 1) as tenant
    from lines l cross join unnest($1::smallint[], $2::int[], $3::int[]) c (lane, above, upto)
    union all
    select w.line, w.queue, w.lane, w.upto, w.nth + 1, (
        select o.tenant from open_runs o
        where o.line * o.line = 1 and o.line + 0 = w.line and o.queue = w.queue and o.lane + 0 = w.lane
            and o.tenant > w.tenant and o.tenant <= w.upto
        order by o.line + 0, o.queue, o.lane + 0, o.tenant limit 1)
    from who w where w.tenant is not null and w.nth < $4
)
select lane, tenant, line, queue from who where tenant is not null
;
-- takes (_int2, _int4, _int4, int8), gives (int2, int4)
with recursive who as (
    select c.lane, c.upto, 1::bigint as nth, (
        select o.tenant from open_runs o
        where o.line = 1 and o.lane + 0 = c.lane and o.tenant > c.above and o.tenant <= c.upto
        order by o.lane + 0, o.tenant limit 1) as tenant
    from unnest($1::smallint[], $2::int[], $3::int[]) c (lane, above, upto)
    union all
    select w.lane, w.upto, w.nth + 1, (
        select o.tenant from open_runs o
        where o.line = 1 and o.lane + 0 = w.lane and o.tenant > w.tenant and o.tenant <= w.upto
        order by o.lane + 0, o.tenant limit 1)
    from who w where w.tenant is not null and w.nth < $4
)
select lane, tenant from who where tenant is not null
;
-- takes (uuid), gives (int8)
with told as (delete from news where shard in (select shard from shards where owner = $1) returning at)
select min(at) from told
;
