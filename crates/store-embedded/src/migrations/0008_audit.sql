-- Who changed what. Entries are appended in the order of their ids, which follow time, and go from the other end; the index finds those of
-- one thing.
create table audit (
    at integer not null, number integer not null, tenant integer not null, kind text not null, subject text not null,
    action text not null, who_key text, who_name text not null, peer text, request_id text, before text, after text,
    primary key (at, number)
) without rowid;
create index audit_by_subject on audit (kind, subject, at, number);
