-- Several databases. A shard lives in the database that has its row in `shards`; how many there are in all is a setting,
-- because a database may have none of them.
insert into settings select 'shards', convert_to((max(shard) + 1)::text, 'UTF8') from shards;

-- The databases of the installation, in each of them; `is_this` is the one that it is itself. None while there is only one.
create table databases (
    number smallint primary key, address text not null, is_this boolean not null, joined_at bigint not null
);

-- The shard of what a request made, with which it moves. Not known of requests that an older version remembered.
alter table requests add column shard smallint;

-- The shard of a job or an operation is the twelve bits after the time in its id.
create function punctual_shard(id uuid) returns smallint language sql immutable parallel safe
    as $$ select (((get_byte(uuid_send(id), 6) & 15) << 8) | get_byte(uuid_send(id), 7))::smallint $$;

-- Shards that are on their way to another database, or from one. `token` fences whoever went on with it before; in the
-- database that they go to, `position` is how far the copy is and `epochs` what the shards' epochs were at the end.
create table moves (
    operation uuid primary key, is_source boolean not null, peer smallint not null, shards smallint[] not null,
    is_over boolean not null, token bigint not null, position text, epochs bigint[]
);

-- What has changed in shards that leave, since their copy began.
create table changes (id bigserial primary key, part smallint not null, is_gone boolean not null, record jsonb not null);

-- Notes changes; put on a table while shards leave. Its arguments are the part's number, the rows `r` that the table's
-- stand for, and the shard of such a row.
create function punctual_note() returns trigger language plpgsql as $$
declare
    note text := 'insert into changes (part, is_gone, record) select %s, %s, to_jsonb(r) from %s
        where exists (select from moves m where m.is_source and not m.is_over and %s = any (m.shards))';
begin
    if tg_op <> 'INSERT' then
        execute format(note, tg_argv[0], 'true', format(tg_argv[1], 'old_rows'), tg_argv[2]);
    end if;
    if tg_op <> 'DELETE' then
        execute format(note, tg_argv[0], 'false', format(tg_argv[1], 'new_rows'), tg_argv[2]);
    end if;
    return null;
end $$;
