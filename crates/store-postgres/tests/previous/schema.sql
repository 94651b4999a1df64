-- A database as its store leaves it after the story of story.rs, schema 9. Made by `UPDATE_PREVIOUS=1 cargo test --release -p punctual-store-postgres --test previous`.

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.punctual_may_take(line text, queues text[], labels text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ select case when left(line, 1) = chr(1)
        then string_to_array(split_part(line, chr(1), 2), ',') <@ labels
            and (queues is null or split_part(line, chr(1), 3) = any(queues))
        else queues is null or line = any(queues) end $$;
CREATE FUNCTION public.punctual_note() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.punctual_now(callers bigint) RETURNS bigint
    LANGUAGE sql
    AS $$ select coalesce(callers, (extract(epoch from clock_timestamp()) * 1000)::bigint) $$;
CREATE FUNCTION public.punctual_shard(id uuid) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select (((get_byte(uuid_send(id), 6) & 15) << 8) | get_byte(uuid_send(id), 7))::smallint $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.changes (
    id bigint NOT NULL,
    part smallint NOT NULL,
    is_gone boolean NOT NULL,
    record jsonb NOT NULL
);
CREATE SEQUENCE public.changes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.changes_id_seq OWNED BY public.changes.id;
CREATE TABLE public.databases (
    number smallint NOT NULL,
    address text NOT NULL,
    is_this boolean NOT NULL,
    joined_at bigint NOT NULL
);
CREATE TABLE public.dead_letters (
    seq bigint NOT NULL,
    tenant integer NOT NULL,
    job uuid NOT NULL
);
CREATE TABLE public.due (
    shard smallint NOT NULL,
    at bigint NOT NULL,
    lane smallint NOT NULL,
    tenant integer NOT NULL,
    job uuid NOT NULL,
    version integer NOT NULL,
    slot bigint NOT NULL
);
CREATE TABLE public.ended_jobs (
    forget_at bigint NOT NULL,
    job uuid NOT NULL,
    version integer NOT NULL
);
CREATE TABLE public.ended_lists (
    forget_at bigint NOT NULL,
    id bigint NOT NULL,
    count integer NOT NULL,
    jobs uuid[] NOT NULL,
    versions integer[] NOT NULL
);
ALTER TABLE ONLY public.ended_lists ALTER COLUMN jobs SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.ended_lists ALTER COLUMN versions SET STORAGE EXTERNAL;
ALTER TABLE public.ended_lists ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.ended_lists_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.gates (
    key bigint NOT NULL,
    breadth smallint NOT NULL,
    shard smallint NOT NULL,
    rule text,
    held integer DEFAULT 0 NOT NULL,
    waiting bigint DEFAULT 0 NOT NULL,
    full_at bigint DEFAULT 0 NOT NULL,
    next_at bigint
)
WITH (fillfactor='50');
CREATE TABLE public.history (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
)
PARTITION BY LIST (class);
CREATE TABLE public.history_0 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
)
PARTITION BY RANGE (seq);
CREATE TABLE public.history_0_1800000000000 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
);
CREATE TABLE public.history_0_1800007200000 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
);
CREATE TABLE public.history_1 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
)
PARTITION BY RANGE (seq);
CREATE TABLE public.history_1_1799971200000 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
);
CREATE TABLE public.history_2 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
)
PARTITION BY RANGE (seq);
CREATE TABLE public.history_2_1799971200000 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
);
CREATE TABLE public.history_3 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
)
PARTITION BY RANGE (seq);
CREATE TABLE public.history_3_1799884800000 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
);
CREATE TABLE public.history_4 (
    class smallint NOT NULL,
    state smallint NOT NULL,
    tenant integer NOT NULL,
    seq bigint NOT NULL,
    job uuid NOT NULL,
    keep_until bigint NOT NULL,
    record bytea NOT NULL
);
CREATE TABLE public.job_keys (
    tenant integer NOT NULL,
    key text NOT NULL,
    job uuid NOT NULL
);
CREATE TABLE public.job_versions (
    id uuid NOT NULL,
    version integer NOT NULL,
    tenant integer NOT NULL,
    record text NOT NULL
);
CREATE TABLE public.jobs (
    id uuid NOT NULL,
    tenant integer NOT NULL,
    version integer NOT NULL,
    state smallint NOT NULL,
    fired bigint NOT NULL,
    completed_at bigint,
    record text NOT NULL
);
CREATE TABLE public.ledger (
    job uuid NOT NULL,
    from_slot bigint NOT NULL,
    to_slot bigint NOT NULL,
    slots bigint NOT NULL,
    fate smallint NOT NULL,
    tenant integer NOT NULL,
    decided_at bigint NOT NULL
);
CREATE TABLE public.moves (
    operation uuid NOT NULL,
    is_source boolean NOT NULL,
    peer smallint NOT NULL,
    shards smallint[] NOT NULL,
    is_over boolean NOT NULL,
    token bigint NOT NULL,
    "position" text,
    epochs bigint[]
);
CREATE TABLE public.news (
    shard smallint NOT NULL,
    at bigint NOT NULL
);
CREATE TABLE public.nodes (
    id uuid NOT NULL,
    expires_at bigint NOT NULL,
    record text NOT NULL
)
WITH (fillfactor='20');
CREATE TABLE public.open_runs (
    seq bigint NOT NULL,
    shard smallint NOT NULL,
    line smallint NOT NULL,
    lane smallint NOT NULL,
    urgency integer NOT NULL,
    available_at bigint NOT NULL,
    claimed_at bigint,
    revision integer NOT NULL,
    tenant integer NOT NULL,
    job uuid NOT NULL,
    worker uuid,
    queue text NOT NULL,
    record bytea NOT NULL,
    start_by bigint,
    behind bigint,
    is_followed boolean DEFAULT false NOT NULL,
    waits_on bigint
);
CREATE TABLE public.operations (
    id uuid NOT NULL,
    shard smallint NOT NULL,
    tenant integer NOT NULL,
    version integer NOT NULL,
    record text NOT NULL,
    resume_at bigint,
    finished_at bigint
);
CREATE TABLE public.partitions (
    class smallint NOT NULL,
    from_seq bigint NOT NULL,
    to_seq bigint NOT NULL
);
CREATE TABLE public.requests (
    tenant integer NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    expires_at bigint NOT NULL,
    result text NOT NULL,
    shard smallint
);
CREATE TABLE public.rules (
    name text NOT NULL,
    record text NOT NULL
);
CREATE TABLE public.schema_versions (
    version integer NOT NULL,
    applied_at timestamp with time zone NOT NULL,
    compatible_with integer
);
CREATE TABLE public.sequences (
    one boolean DEFAULT true NOT NULL,
    block bigint NOT NULL,
    CONSTRAINT sequences_one_check CHECK (one)
)
WITH (fillfactor='10');
CREATE TABLE public.settings (
    name text NOT NULL,
    value bytea NOT NULL
);
CREATE TABLE public.shards (
    shard smallint NOT NULL,
    owner uuid,
    epoch bigint NOT NULL,
    expires_at bigint NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.tenants (
    id integer NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL
);
CREATE TABLE public.workers (
    id uuid NOT NULL,
    seen_at bigint NOT NULL,
    is_dead boolean NOT NULL,
    held_seq bigint[] NOT NULL,
    held_attempt integer[] NOT NULL
)
WITH (fillfactor='50');
ALTER TABLE ONLY public.history ATTACH PARTITION public.history_0 FOR VALUES IN ('0');
ALTER TABLE ONLY public.history_0 ATTACH PARTITION public.history_0_1800000000000 FOR VALUES FROM ('1887436800000000000') TO ('1887444349747200000');
ALTER TABLE ONLY public.history_0 ATTACH PARTITION public.history_0_1800007200000 FOR VALUES FROM ('1887444349747200000') TO ('1887451899494400000');
ALTER TABLE ONLY public.history ATTACH PARTITION public.history_1 FOR VALUES IN ('1');
ALTER TABLE ONLY public.history_1 ATTACH PARTITION public.history_1_1799971200000 FOR VALUES FROM ('1887406601011200000') TO ('1887451899494400000');
ALTER TABLE ONLY public.history ATTACH PARTITION public.history_2 FOR VALUES IN ('2');
ALTER TABLE ONLY public.history_2 ATTACH PARTITION public.history_2_1799971200000 FOR VALUES FROM ('1887406601011200000') TO ('1887497197977600000');
ALTER TABLE ONLY public.history ATTACH PARTITION public.history_3 FOR VALUES IN ('3');
ALTER TABLE ONLY public.history_3 ATTACH PARTITION public.history_3_1799884800000 FOR VALUES FROM ('1887316004044800000') TO ('1887950182809600000');
ALTER TABLE ONLY public.history ATTACH PARTITION public.history_4 FOR VALUES IN ('4');
ALTER TABLE ONLY public.changes ALTER COLUMN id SET DEFAULT nextval('public.changes_id_seq'::regclass);
INSERT INTO public.dead_letters VALUES (1887436862914560000, 1, '01a3185c-5000-7003-8000-000000000003');
INSERT INTO public.dead_letters VALUES (1887436925829120000, 1, '01a3185c-5000-7003-8000-000000000003');
INSERT INTO public.dead_letters VALUES (1887437114572800000, 1, '01a3185f-f980-7004-8000-000000000004');
INSERT INTO public.dead_letters VALUES (1887437177487360000, 1, '01a3185f-f980-7004-8000-000000000004');
INSERT INTO public.dead_letters VALUES (1887437366231040000, 1, '01a31863-a300-7005-8000-000000000005');
INSERT INTO public.dead_letters VALUES (1887437429145600000, 1, '01a31863-a300-7005-8000-000000000005');
INSERT INTO public.dead_letters VALUES (1887437617889280000, 1, '01a31867-4c80-7006-8000-000000000006');
INSERT INTO public.dead_letters VALUES (1887437680803840000, 1, '01a31867-4c80-7006-8000-000000000006');
INSERT INTO public.due VALUES (3, 1800000240000, 1, 1, '01a3185c-5000-7003-8000-000000000003', 1, 1800000240000);
INSERT INTO public.due VALUES (4, 1800000480000, 1, 1, '01a3185f-f980-7004-8000-000000000004', 1, 1800000480000);
INSERT INTO public.due VALUES (5, 1800000720000, 1, 1, '01a31863-a300-7005-8000-000000000005', 1, 1800000720000);
INSERT INTO public.due VALUES (6, 1800000960000, 1, 1, '01a31867-4c80-7006-8000-000000000006', 1, 1800000960000);
INSERT INTO public.due VALUES (7, 1800001020000, 1, 1, '01a3186a-f600-7007-8000-000000000007', 1, 1800001020000);
INSERT INTO public.due VALUES (8, 1800011820000, 1, 1, '01a3190f-c180-7008-8000-000000000008', 1, 1800011820000);
INSERT INTO public.due VALUES (8, 1800012360000, 1, 1, '01a3190f-c180-7008-8000-000000000008', 2, 1800012360000);
INSERT INTO public.due VALUES (9, 1800012360000, 1, 1, '01a3190f-c180-7009-8000-000000000009', 1, 1800012360000);
INSERT INTO public.due VALUES (9, 1800015360000, 1, 1, '01a3190f-c180-7009-8000-000000000009', 2, 1800015360000);
INSERT INTO public.due VALUES (10, 1800012360000, 1, 1, '01a3190f-c180-700a-8000-00000000000a', 1, 1800012360000);
INSERT INTO public.due VALUES (13, 1800011820000, 1, 1, '01a3190f-c180-700d-8000-00000000000d', 1, 1800011820000);
INSERT INTO public.due VALUES (14, 1800011820000, 1, 1, '01a3190f-c180-700e-8000-00000000000e', 1, 1800011820000);
INSERT INTO public.due VALUES (15, 1800011820000, 1, 1, '01a3190f-c180-700f-8000-00000000000f', 1, 1800011820000);
INSERT INTO public.due VALUES (0, 1800011820000, 1, 1, '01a3190f-c180-7000-8000-000000000010', 1, 1800011820000);
INSERT INTO public.due VALUES (1, 1800011790000, 1, 1, '01a3190f-c180-7001-8000-000000000011', 1, 1800011790000);
INSERT INTO public.due VALUES (2, 1800011820000, 1, 1, '01a3190f-c180-7002-8000-000000000012', 1, 1800011820000);
INSERT INTO public.due VALUES (3, 1800011820000, 1, 1, '01a3190f-c180-7003-8000-000000000013', 1, 1800011820000);
INSERT INTO public.ended_lists OVERRIDING SYSTEM VALUE VALUES (1800619200000, 1, 1, '{01a3190f-c180-700a-8000-00000000000a}', '{2}');
INSERT INTO public.ended_lists OVERRIDING SYSTEM VALUE VALUES (1800619200000, 2, 1, '{01a3190f-c180-700b-8000-00000000000b}', '{1}');
INSERT INTO public.gates VALUES (1, 10, 1, 'one', 1, 1, 0, NULL);
INSERT INTO public.history_0_1800000000000 VALUES (0, 10, 1, 1887436800000000000, '01a3185c-5000-7003-8000-000000000003', 1800086400000, '\x010a08c00301a3185c500070038000000000000003010101000001a3185c50007002800000000004004000000000');
INSERT INTO public.history_0_1800000000000 VALUES (0, 11, 1, 1887436862914560000, '01a3185c-5000-7003-8000-000000000003', 1800086460000, '\x010b08c00501a3185c500070038000000000000003010101000001a3185c50007002800000000004004000000001010101a3185c500070028000000000040040c0e9e985e36802030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_0_1800000000000 VALUES (0, 12, 1, 1887436925829120000, '01a3185c-5000-7003-8000-000000000003', 1800086520000, '\x010c08c00501a3185c500070038000000000000003010101000001a3185c50007002800000000004004000000001010101a3185c5000700280000000000400408093f185e36803030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_0_1800000000000 VALUES (0, 13, 1, 1887436988743680000, '01a3185c-5000-7003-8000-000000000003', 1800086580000, '\x010d08c00501a3185c500070038000000000000003010101000001a3185c50007002800000000004004000000001010101a3185c500070028000000000040040c0bcf885e36804030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_1_1799971200000 VALUES (1, 10, 1, 1887437051658240000, '01a3185f-f980-7004-8000-000000000004', 1800605040000, '\x010a28c00301a3185ff98070048000000000000004010101000001a3185c50007002800000000004004000000000');
INSERT INTO public.history_1_1799971200000 VALUES (1, 11, 1, 1887437114572800000, '01a3185f-f980-7004-8000-000000000004', 1800605100000, '\x010b28c00501a3185ff98070048000000000000004010101000001a3185c50007002800000000004004000000001010101a3185c500070028000000000040040c08f8786e36802030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_1_1799971200000 VALUES (1, 12, 1, 1887437177487360000, '01a3185f-f980-7004-8000-000000000004', 1800605160000, '\x010c28c00501a3185ff98070048000000000000004010101000001a3185c50007002800000000004004000000001010101a3185c50007002800000000004004080b98e86e36803030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_1_1799971200000 VALUES (1, 13, 1, 1887437240401920000, '01a3185f-f980-7004-8000-000000000004', 1800605220000, '\x010d28c00501a3185ff98070048000000000000004010101000001a3185c50007002800000000004004000000001010101a3185c500070028000000000040040c0e29586e36804030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_2_1799971200000 VALUES (2, 10, 1, 1887437303316480000, '01a31863-a300-7005-8000-000000000005', 1802592480000, '\x010a48c00301a31863a30070058000000000000005010101000001a3185c50007002800000000004004000000000');
INSERT INTO public.history_2_1799971200000 VALUES (2, 11, 1, 1887437366231040000, '01a31863-a300-7005-8000-000000000005', 1802592540000, '\x010b48c00501a31863a30070058000000000000005010101000001a3185c50007002800000000004004000000001010101a3185c500070028000000000040040c0b5a486e36802030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_2_1799971200000 VALUES (2, 12, 1, 1887437429145600000, '01a31863-a300-7005-8000-000000000005', 1802592600000, '\x010c48c00501a31863a30070058000000000000005010101000001a3185c50007002800000000004004000000001010101a3185c50007002800000000004004080dfab86e36803030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_2_1799971200000 VALUES (2, 13, 1, 1887437492060160000, '01a31863-a300-7005-8000-000000000005', 1802592660000, '\x010d48c00501a31863a30070058000000000000005010101000001a3185c50007002800000000004004000000001010101a3185c500070028000000000040040c088b386e36804030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_3_1799884800000 VALUES (3, 10, 1, 1887437554974720000, '01a31867-4c80-7006-8000-000000000006', 1834560720000, '\x010a68c00301a318674c8070068000000000000006010101000001a3185c50007002800000000004004000000000');
INSERT INTO public.history_3_1799884800000 VALUES (3, 11, 1, 1887437617889280000, '01a31867-4c80-7006-8000-000000000006', 1834560780000, '\x010b68c00501a318674c8070068000000000000006010101000001a3185c50007002800000000004004000000001010101a3185c500070028000000000040040c0dbc186e36802030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_3_1799884800000 VALUES (3, 12, 1, 1887437680803840000, '01a31867-4c80-7006-8000-000000000006', 1834560840000, '\x010c68c00501a318674c8070068000000000000006010101000001a3185c50007002800000000004004000000001010101a3185c5000700280000000000400408085c986e36803030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_3_1799884800000 VALUES (3, 13, 1, 1887437743718400000, '01a31867-4c80-7006-8000-000000000006', 1834560900000, '\x010d68c00501a318674c8070068000000000000006010101000001a3185c50007002800000000004004000000001010101a3185c500070028000000000040040c0aed086e36804030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500');
INSERT INTO public.history_4 VALUES (4, 10, 1, 1887437806632960000, '01a3186a-f600-7007-8000-000000000007', 1800098160000, '\x010a08c00301a3186af60070078000000000000007010101000001a3185c5000700280000000000400400080aea60a80aea60a80aea60a');
INSERT INTO public.job_keys VALUES (1, 'key-0', '01a3185c-5000-7003-8000-000000000003');
INSERT INTO public.job_keys VALUES (1, 'key-1', '01a3185f-f980-7004-8000-000000000004');
INSERT INTO public.job_keys VALUES (1, 'key-2', '01a31863-a300-7005-8000-000000000005');
INSERT INTO public.job_keys VALUES (1, 'key-3', '01a31867-4c80-7006-8000-000000000006');
INSERT INTO public.job_versions VALUES ('01a3190f-c180-7008-8000-000000000008', 1, 1, '{"v":1,"name":"before","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-700a-8000-00000000000a', 1, 2, 3, 0, NULL, '{"v":1,"name":"deleted","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"state":"deleted","created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-700b-8000-00000000000b', 1, 1, 0, 0, NULL, '{"v":1,"name":"over","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-700d-8000-00000000000d', 1, 1, 0, 0, NULL, '{"v":1,"name":"running","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3185c-5000-7003-8000-000000000003', 1, 1, 0, 1, 1800000180000, '{"v":1,"name":"kept 0","key":"key-0","labels":{"team":"billing"},"queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"policies":{"days":1},"created":1800000000000,"updated":1800000000000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-700e-8000-00000000000e', 1, 1, 0, 0, NULL, '{"v":1,"name":"asked to stop","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-700f-8000-00000000000f', 1, 1, 0, 0, NULL, '{"v":1,"name":"later","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-7000-8000-000000000010', 1, 1, 0, 0, NULL, '{"v":1,"name":"ready","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3185f-f980-7004-8000-000000000004', 1, 1, 0, 2, 1800000420000, '{"v":1,"name":"kept 1","key":"key-1","labels":{"team":"billing"},"queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800000240000,"updated":1800000240000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-7001-8000-000000000011', 1, 1, 0, 0, NULL, '{"v":1,"name":"news","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-7002-8000-000000000012', 1, 1, 0, 0, NULL, '{"v":1,"name":"first","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-7003-8000-000000000013', 1, 1, 0, 0, NULL, '{"v":1,"name":"second","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a31863-a300-7005-8000-000000000005', 1, 1, 0, 3, 1800000660000, '{"v":1,"name":"kept 2","key":"key-2","labels":{"team":"billing"},"queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"policies":{"days":30},"created":1800000480000,"updated":1800000480000}');
INSERT INTO public.jobs VALUES ('01a31867-4c80-7006-8000-000000000006', 1, 1, 0, 4, 1800000900000, '{"v":1,"name":"kept 3","key":"key-3","labels":{"team":"billing"},"queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"policies":{"days":400},"created":1800000720000,"updated":1800000720000}');
INSERT INTO public.jobs VALUES ('01a3186a-f600-7007-8000-000000000007', 1, 1, 0, 0, NULL, '{"v":1,"name":"late","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"policies":{"days":1},"created":1800000960000,"updated":1800000960000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-7008-8000-000000000008', 1, 2, 0, 0, NULL, '{"v":1,"name":"after","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.jobs VALUES ('01a3190f-c180-7009-8000-000000000009', 1, 2, 1, 0, NULL, '{"v":1,"name":"paused","queue":"default","schedule":{"at":"* * * * *"},"target":"discard","payload":{"n":7},"state":{"paused":{"reason":"holidays","by":"ada","since":1800011760000,"until":1800015360000}},"created":1800011760000,"updated":1800011760000}');
INSERT INTO public.ledger VALUES ('01a3190f-c180-7009-8000-000000000009', 1800012360000, 1800015300000, 50, 2, 1, 1800011760000);
INSERT INTO public.news VALUES (3, 1800000000000);
INSERT INTO public.news VALUES (4, 1800000240000);
INSERT INTO public.news VALUES (5, 1800000480000);
INSERT INTO public.news VALUES (6, 1800000720000);
INSERT INTO public.news VALUES (7, 1800000960000);
INSERT INTO public.news VALUES (8, 1800011760000);
INSERT INTO public.news VALUES (8, 1800012360000);
INSERT INTO public.news VALUES (9, 1800012360000);
INSERT INTO public.news VALUES (10, 1800012360000);
INSERT INTO public.news VALUES (11, 1800011760000);
INSERT INTO public.news VALUES (13, 1800011760000);
INSERT INTO public.news VALUES (14, 1800011760000);
INSERT INTO public.news VALUES (15, 1800011760000);
INSERT INTO public.news VALUES (0, 1800011760000);
INSERT INTO public.news VALUES (1, 1800011790000);
INSERT INTO public.nodes VALUES ('01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1801011760000, '{"name":"one","address":"http://one:7070","release":"0.1.0","roles":{"api":true,"scheduler":true,"worker":true},"started":1800000000000,"capacity":100,"ahead":3,"density":[[3,60]]}');
INSERT INTO public.open_runs VALUES (1887449131253760000, 8, 0, 1, 0, 1800012060000, NULL, 2, 1, '01a3190f-c180-7008-8000-000000000008', NULL, 'default', '\x010428c20401a3190fc1807008800000000000000801010100c0cf24010001a3190fc180700c8000000000180180000001010101a3190fc180700c80000000001801808086fe90e36802030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500', NULL, NULL, false, NULL);
INSERT INTO public.open_runs VALUES (1887449131253760001, 11, 0, 1, 0, 1800012060000, NULL, 2, 1, '01a3190f-c180-700b-8000-00000000000b', NULL, 'default', '\x010428c20401a3190fc180700b800000000000000b01010100c0cf24010001a3190fc180700c8000000000180180000001010101a3190fc180700c80000000001801808086fe90e36802030000046c6f73742974686520776f726b657220746861742068656c64207468697320617474656d707420697320676f6e6500', NULL, NULL, false, NULL);
INSERT INTO public.open_runs VALUES (1887449131253760003, 14, 2, 1, 0, 1800011760000, 1800011760000, 1, 1, '01a3190f-c180-700e-8000-00000000000e', '01a3190f-c180-700c-8000-000000180180', 'default', '\x010128400001a3190fc180700e800000000000000e010101000001a3190fc180700c800000000018018000', NULL, NULL, false, NULL);
INSERT INTO public.open_runs VALUES (1887449131253760002, 13, 2, 1, 0, 1800011760000, 1800011760000, 2, 1, '01a3190f-c180-700d-8000-00000000000d', '01a3190f-c180-700c-8000-000000180180', 'default', '\x010128400801a3190fc180700d800000000000000d010101000001a3190fc180700c800000000018018000', NULL, NULL, false, NULL);
INSERT INTO public.open_runs VALUES (1887449131253760004, 15, 0, 1, 0, 1800011880000, NULL, 0, 1, '01a3190f-c180-700f-8000-00000000000f', NULL, 'default', '\x010228100001a3190fc180700f800000000000000f0101000080d30e087469636b65742d37', NULL, NULL, false, NULL);
INSERT INTO public.open_runs VALUES (1887449131253760005, 0, 1, 1, 0, 1800011760000, NULL, 0, 1, '01a3190f-c180-7000-8000-000000000010', NULL, 'default', '\x010328000001a3190fc180700080000000000000100101000000', NULL, NULL, false, NULL);
INSERT INTO public.open_runs VALUES (1887449131253760006, 2, 1, 1, 0, 1800011760000, NULL, 0, 1, '01a3190f-c180-7002-8000-000000000012', NULL, 'default', '\x010328001001a3190fc18070028000000000000012010100000010010100000000000000018a036f6e65', NULL, NULL, false, NULL);
INSERT INTO public.open_runs VALUES (1887449131253760007, 3, -2, 1, 0, 1800011760000, NULL, 0, 1, '01a3190f-c180-7003-8000-000000000013', NULL, 'default', '\x010328001001a3190fc18070038000000000000013010100000010010000000000000000018a036f6e65', NULL, 1800011760000, false, 1);
INSERT INTO public.operations VALUES ('01a3190f-c180-7001-8000-000000000001', 1, 1, 2, '{"v":1,"kind":{"redrive":{"kind":"report"}},"state":0,"cursor":{"slot":1800011760000},"resume":1800011765000,"created":1800011760000,"updated":1800011760000}', 1800011765000, NULL);
INSERT INTO public.operations VALUES ('01a3190f-c180-7002-8000-000000000002', 2, 1, 2, '{"v":1,"kind":{"redrive":{"kind":"report"}},"state":1,"resume":1800011760000,"created":1800011760000,"updated":1800011760000,"finished":1800011760000}', NULL, 1800011760000);
INSERT INTO public.partitions VALUES (0, 1887436800000000000, 1887444349747200000);
INSERT INTO public.partitions VALUES (1, 1887406601011200000, 1887451899494400000);
INSERT INTO public.partitions VALUES (2, 1887406601011200000, 1887497197977600000);
INSERT INTO public.partitions VALUES (3, 1887316004044800000, 1887950182809600000);
INSERT INTO public.partitions VALUES (0, 1887444349747200000, 1887451899494400000);
INSERT INTO public.requests VALUES (1, 'pause', '\x07070707070707070707070707070707', 1800098160000, 'an answer', 9);
INSERT INTO public.requests VALUES (1, 'asked', '\x07070707070707070707070707070707', 1800098160000, 'an answer', 12);
INSERT INTO public.rules VALUES ('one', '{"max":1}');
INSERT INTO public.schema_versions VALUES (1, '2026-11-17 20:10:01.822641+00', 1);
INSERT INTO public.schema_versions VALUES (2, '2026-11-17 20:10:01.841177+00', 1);
INSERT INTO public.schema_versions VALUES (3, '2026-11-17 20:10:01.843566+00', 1);
INSERT INTO public.schema_versions VALUES (4, '2026-11-17 20:10:01.845603+00', 1);
INSERT INTO public.schema_versions VALUES (5, '2026-11-17 20:10:01.85007+00', 1);
INSERT INTO public.schema_versions VALUES (6, '2026-11-17 20:10:01.851632+00', 1);
INSERT INTO public.schema_versions VALUES (7, '2026-11-17 20:10:01.853733+00', 1);
INSERT INTO public.schema_versions VALUES (8, '2026-11-17 20:10:01.855342+00', 1);
INSERT INTO public.schema_versions VALUES (9, '2026-11-17 20:10:01.857367+00', 1);
INSERT INTO public.sequences VALUES (true, 28800188160003);
INSERT INTO public.settings VALUES ('shards', '\x3136');
INSERT INTO public.settings VALUES ('signing-key', '\x6120736563726574');
INSERT INTO public.shards VALUES (0, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (1, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (2, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (3, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (4, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (5, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (6, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (7, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (8, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (9, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (10, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (11, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (12, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (13, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (14, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.shards VALUES (15, '01a3185c-5000-7555-aaaa-aaaaaaaaaaaa', 1, 1801000000000);
INSERT INTO public.tenants VALUES (1, 'default', 0);
INSERT INTO public.tenants VALUES (2, 'acme', 1800000000000);
INSERT INTO public.workers VALUES ('01a3185c-5000-7001-8000-000000020020', 1800011760000, false, '{1887449131253760005}', '{1}');
SELECT pg_catalog.setval('public.changes_id_seq', 1, false);
SELECT pg_catalog.setval('public.ended_lists_id_seq', 2, true);
ALTER TABLE ONLY public.changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.databases
    ADD CONSTRAINT databases_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.due
    ADD CONSTRAINT due_pkey PRIMARY KEY (shard, at, lane, tenant, job, version);
ALTER TABLE ONLY public.ended_jobs
    ADD CONSTRAINT ended_jobs_pkey PRIMARY KEY (forget_at, job, version);
ALTER TABLE ONLY public.ended_lists
    ADD CONSTRAINT ended_lists_pkey PRIMARY KEY (forget_at, id);
ALTER TABLE ONLY public.gates
    ADD CONSTRAINT gates_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.history
    ADD CONSTRAINT history_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_0
    ADD CONSTRAINT history_0_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_0_1800000000000
    ADD CONSTRAINT history_0_1800000000000_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_0_1800007200000
    ADD CONSTRAINT history_0_1800007200000_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_1
    ADD CONSTRAINT history_1_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_1_1799971200000
    ADD CONSTRAINT history_1_1799971200000_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_2
    ADD CONSTRAINT history_2_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_2_1799971200000
    ADD CONSTRAINT history_2_1799971200000_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_3
    ADD CONSTRAINT history_3_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_3_1799884800000
    ADD CONSTRAINT history_3_1799884800000_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.history_4
    ADD CONSTRAINT history_4_pkey PRIMARY KEY (class, seq);
ALTER TABLE ONLY public.job_keys
    ADD CONSTRAINT job_keys_pkey PRIMARY KEY (tenant, key);
ALTER TABLE ONLY public.job_versions
    ADD CONSTRAINT job_versions_pkey PRIMARY KEY (id, version);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (job, from_slot);
ALTER TABLE ONLY public.moves
    ADD CONSTRAINT moves_pkey PRIMARY KEY (operation);
ALTER TABLE ONLY public.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.open_runs
    ADD CONSTRAINT open_runs_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.operations
    ADD CONSTRAINT operations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.partitions
    ADD CONSTRAINT partitions_pkey PRIMARY KEY (class, from_seq);
ALTER TABLE ONLY public.requests
    ADD CONSTRAINT requests_pkey PRIMARY KEY (tenant, key);
ALTER TABLE ONLY public.rules
    ADD CONSTRAINT rules_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.schema_versions
    ADD CONSTRAINT schema_versions_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.sequences
    ADD CONSTRAINT sequences_pkey PRIMARY KEY (one);
ALTER TABLE ONLY public.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.shards
    ADD CONSTRAINT shards_pkey PRIMARY KEY (shard);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_name_key UNIQUE (name);
ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);
CREATE INDEX gates_by_rule ON public.gates USING btree (rule) WHERE (rule IS NOT NULL);
CREATE INDEX gates_by_time ON public.gates USING btree (next_at) WHERE (next_at IS NOT NULL);
CREATE INDEX history_by_job ON ONLY public.history USING btree (job, seq);
CREATE INDEX history_0_job_seq_idx ON ONLY public.history_0 USING btree (job, seq);
CREATE INDEX history_0_1800000000000_job_seq_idx ON public.history_0_1800000000000 USING btree (job, seq);
CREATE INDEX history_failed ON ONLY public.history USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_0_seq_idx ON ONLY public.history_0 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_0_1800000000000_seq_idx ON public.history_0_1800000000000 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_by_tenant ON ONLY public.history USING btree (tenant, seq);
CREATE INDEX history_0_tenant_seq_idx ON ONLY public.history_0 USING btree (tenant, seq);
CREATE INDEX history_0_1800000000000_tenant_seq_idx ON public.history_0_1800000000000 USING btree (tenant, seq);
CREATE INDEX history_0_1800007200000_job_seq_idx ON public.history_0_1800007200000 USING btree (job, seq);
CREATE INDEX history_0_1800007200000_seq_idx ON public.history_0_1800007200000 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_0_1800007200000_tenant_seq_idx ON public.history_0_1800007200000 USING btree (tenant, seq);
CREATE INDEX history_1_job_seq_idx ON ONLY public.history_1 USING btree (job, seq);
CREATE INDEX history_1_1799971200000_job_seq_idx ON public.history_1_1799971200000 USING btree (job, seq);
CREATE INDEX history_1_seq_idx ON ONLY public.history_1 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_1_1799971200000_seq_idx ON public.history_1_1799971200000 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_1_tenant_seq_idx ON ONLY public.history_1 USING btree (tenant, seq);
CREATE INDEX history_1_1799971200000_tenant_seq_idx ON public.history_1_1799971200000 USING btree (tenant, seq);
CREATE INDEX history_2_job_seq_idx ON ONLY public.history_2 USING btree (job, seq);
CREATE INDEX history_2_1799971200000_job_seq_idx ON public.history_2_1799971200000 USING btree (job, seq);
CREATE INDEX history_2_seq_idx ON ONLY public.history_2 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_2_1799971200000_seq_idx ON public.history_2_1799971200000 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_2_tenant_seq_idx ON ONLY public.history_2 USING btree (tenant, seq);
CREATE INDEX history_2_1799971200000_tenant_seq_idx ON public.history_2_1799971200000 USING btree (tenant, seq);
CREATE INDEX history_3_job_seq_idx ON ONLY public.history_3 USING btree (job, seq);
CREATE INDEX history_3_1799884800000_job_seq_idx ON public.history_3_1799884800000 USING btree (job, seq);
CREATE INDEX history_3_seq_idx ON ONLY public.history_3 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_3_1799884800000_seq_idx ON public.history_3_1799884800000 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_3_tenant_seq_idx ON ONLY public.history_3 USING btree (tenant, seq);
CREATE INDEX history_3_1799884800000_tenant_seq_idx ON public.history_3_1799884800000 USING btree (tenant, seq);
CREATE INDEX history_4_by_time ON public.history_4 USING btree (keep_until);
CREATE INDEX history_4_job_seq_idx ON public.history_4 USING btree (job, seq);
CREATE INDEX history_4_seq_idx ON public.history_4 USING btree (seq) WHERE (state = ANY (ARRAY[11, 12]));
CREATE INDEX history_4_tenant_seq_idx ON public.history_4 USING btree (tenant, seq);
CREATE INDEX jobs_by_tenant ON public.jobs USING btree (tenant, id);
CREATE INDEX open_behind ON public.open_runs USING btree (job, behind, seq) WHERE (line = 3);
CREATE INDEX open_by_job_and_line ON public.open_runs USING btree (job, line);
CREATE INDEX open_coming ON public.open_runs USING btree (available_at, seq) WHERE (line = '-3'::integer);
CREATE INDEX open_delayed ON public.open_runs USING btree (available_at, seq) WHERE (line = 0);
CREATE INDEX open_lapses ON public.open_runs USING btree (start_by, seq) WHERE ((start_by IS NOT NULL) AND (line <> 2));
CREATE INDEX open_limited ON public.open_runs USING btree (waits_on, lane, urgency, behind, seq) WHERE (line = '-2'::integer);
CREATE INDEX open_ready ON public.open_runs USING btree (lane, urgency, available_at, seq) WHERE (line = 1);
CREATE INDEX open_running ON public.open_runs USING btree (claimed_at, seq) WHERE (line = 2);
CREATE INDEX open_turns ON public.open_runs USING btree (((lane + 0)), tenant, urgency, available_at, seq) WHERE (line = 1);
CREATE INDEX open_turns_by_queue ON public.open_runs USING btree (((line + 0)), queue, ((lane + 0)), tenant, urgency, available_at, seq) WHERE ((line * line) = 1);
CREATE INDEX operations_by_tenant ON public.operations USING btree (tenant, id);
CREATE INDEX operations_ended ON public.operations USING btree (finished_at) WHERE (finished_at IS NOT NULL);
CREATE INDEX operations_running ON public.operations USING btree (resume_at, id) WHERE (resume_at IS NOT NULL);
CREATE INDEX requests_by_time ON public.requests USING btree (expires_at);
ALTER INDEX public.history_0_job_seq_idx ATTACH PARTITION public.history_0_1800000000000_job_seq_idx;
ALTER INDEX public.history_0_pkey ATTACH PARTITION public.history_0_1800000000000_pkey;
ALTER INDEX public.history_0_seq_idx ATTACH PARTITION public.history_0_1800000000000_seq_idx;
ALTER INDEX public.history_0_tenant_seq_idx ATTACH PARTITION public.history_0_1800000000000_tenant_seq_idx;
ALTER INDEX public.history_0_job_seq_idx ATTACH PARTITION public.history_0_1800007200000_job_seq_idx;
ALTER INDEX public.history_0_pkey ATTACH PARTITION public.history_0_1800007200000_pkey;
ALTER INDEX public.history_0_seq_idx ATTACH PARTITION public.history_0_1800007200000_seq_idx;
ALTER INDEX public.history_0_tenant_seq_idx ATTACH PARTITION public.history_0_1800007200000_tenant_seq_idx;
ALTER INDEX public.history_by_job ATTACH PARTITION public.history_0_job_seq_idx;
ALTER INDEX public.history_pkey ATTACH PARTITION public.history_0_pkey;
ALTER INDEX public.history_failed ATTACH PARTITION public.history_0_seq_idx;
ALTER INDEX public.history_by_tenant ATTACH PARTITION public.history_0_tenant_seq_idx;
ALTER INDEX public.history_1_job_seq_idx ATTACH PARTITION public.history_1_1799971200000_job_seq_idx;
ALTER INDEX public.history_1_pkey ATTACH PARTITION public.history_1_1799971200000_pkey;
ALTER INDEX public.history_1_seq_idx ATTACH PARTITION public.history_1_1799971200000_seq_idx;
ALTER INDEX public.history_1_tenant_seq_idx ATTACH PARTITION public.history_1_1799971200000_tenant_seq_idx;
ALTER INDEX public.history_by_job ATTACH PARTITION public.history_1_job_seq_idx;
ALTER INDEX public.history_pkey ATTACH PARTITION public.history_1_pkey;
ALTER INDEX public.history_failed ATTACH PARTITION public.history_1_seq_idx;
ALTER INDEX public.history_by_tenant ATTACH PARTITION public.history_1_tenant_seq_idx;
ALTER INDEX public.history_2_job_seq_idx ATTACH PARTITION public.history_2_1799971200000_job_seq_idx;
ALTER INDEX public.history_2_pkey ATTACH PARTITION public.history_2_1799971200000_pkey;
ALTER INDEX public.history_2_seq_idx ATTACH PARTITION public.history_2_1799971200000_seq_idx;
ALTER INDEX public.history_2_tenant_seq_idx ATTACH PARTITION public.history_2_1799971200000_tenant_seq_idx;
ALTER INDEX public.history_by_job ATTACH PARTITION public.history_2_job_seq_idx;
ALTER INDEX public.history_pkey ATTACH PARTITION public.history_2_pkey;
ALTER INDEX public.history_failed ATTACH PARTITION public.history_2_seq_idx;
ALTER INDEX public.history_by_tenant ATTACH PARTITION public.history_2_tenant_seq_idx;
ALTER INDEX public.history_3_job_seq_idx ATTACH PARTITION public.history_3_1799884800000_job_seq_idx;
ALTER INDEX public.history_3_pkey ATTACH PARTITION public.history_3_1799884800000_pkey;
ALTER INDEX public.history_3_seq_idx ATTACH PARTITION public.history_3_1799884800000_seq_idx;
ALTER INDEX public.history_3_tenant_seq_idx ATTACH PARTITION public.history_3_1799884800000_tenant_seq_idx;
ALTER INDEX public.history_by_job ATTACH PARTITION public.history_3_job_seq_idx;
ALTER INDEX public.history_pkey ATTACH PARTITION public.history_3_pkey;
ALTER INDEX public.history_failed ATTACH PARTITION public.history_3_seq_idx;
ALTER INDEX public.history_by_tenant ATTACH PARTITION public.history_3_tenant_seq_idx;
ALTER INDEX public.history_by_job ATTACH PARTITION public.history_4_job_seq_idx;
ALTER INDEX public.history_pkey ATTACH PARTITION public.history_4_pkey;
ALTER INDEX public.history_failed ATTACH PARTITION public.history_4_seq_idx;
ALTER INDEX public.history_by_tenant ATTACH PARTITION public.history_4_tenant_seq_idx;
