-- Nodes that are live, by their last sign of life. Updated often, never many: room for updates in place.
create table nodes (id uuid primary key, expires_at bigint not null, record text not null) with (fillfactor = 20);

-- What was made due in a shard by others than its owner, soon enough that the owner may have looked there already. The
-- owner takes it away when it is told; a new owner reads everything.
create table news (shard smallint not null, at bigint not null);
