-- Who changed what. Entries are appended in the order of their ids, which follow time, and go from the other end; the index finds those of
-- one thing. Words are compared by their bytes. Nodes of older schemas change things without an entry.
create table audit (
    at bigint not null, number bigint not null, tenant int not null, kind text collate "C" not null,
    subject text collate "C" not null, action text not null, who_key text, who_name text not null, peer text, request_id text,
    before text, after text, primary key (at, number)
);
create index audit_by_subject on audit (kind, subject, at, number);
