-- Small things that people write and nodes read: calendars, alerts, the defaults of a tenant. Whoever changes one holds the table
-- against others who do; readers do not wait. Names are ordered by their bytes, as in every store.
create table documents (
    kind text not null, tenant int not null, name text collate "C" not null, version bigint not null, body text not null,
    updated_at bigint not null, primary key (kind, tenant, name)
);
