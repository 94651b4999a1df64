-- Small things that people write and nodes read: calendars, alerts, the defaults of a tenant.
create table documents (
    kind text not null, tenant integer not null, name text not null, version integer not null, body text not null,
    updated_at integer not null, primary key (kind, tenant, name)
) without rowid;
