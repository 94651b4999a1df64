//! How statements over lists are planned, on the worst day: when the tables were last counted, they were empty.
//!
//! Busy tables are counted at any moment, and the plans that are made then are kept. A plan that goes from the table to the
//! list compares everything with everything: with 100,000 open runs, ending 1,000 took longer than 20 seconds.

use punctual_testing::Postgres as Server;

use crate::audit;
use crate::backlog::COUNT_WAITING;
use crate::claim::{LEASE, NEXT, PROMOTE, SUSPECTED};
use crate::complete::{EXCHANGE, EXCHANGE_WITH_PERMITS};
use crate::connect::Options;
use crate::due::{COUNT_DUE, DELETE_DUE, FIND_DUE, MORE_OF_SHARDS};
use crate::ended::{HOLD, LOOK_AT_LISTS};
use crate::fire::{FIRE, PROGRESS};
use crate::jobs::{JOB_VERSIONS, PLANNED};
use crate::lapse::{CORRECT, LAPSED, NEXT_LAPSE};
use crate::limit;
use crate::overlap::{ACCOUNTED, AHEAD, FIRST_BEHIND, HOLD_AHEAD, LEFT_BEHIND, LOOK, MARK};
use crate::papers;
use crate::partition::DELETE_OPEN;
use crate::placement::{RENEW, TAKE_OVER};
use crate::postgres::Postgres;
use crate::put_jobs::HOLDERS;
use crate::queues::{REQUIRING_LINES, RUNNING_IN_QUEUES, WAITING_IN_QUEUES, WAITING_IN_QUEUES_OF};
use crate::straight;
use crate::turns::{PEEK, PEEK_OF_LINES, TAKE, TAKE_OF_LINES, WHO, WHO_OF_LINES};

const STATEMENTS: [(&str, &str); 54] = [
    ("FIRE", FIRE),
    ("PROGRESS", PROGRESS),
    ("EXCHANGE", EXCHANGE),
    ("EXCHANGE_WITH_PERMITS", EXCHANGE_WITH_PERMITS),
    ("PASS", straight::PASS),
    ("TAKE_BACK", straight::TAKE_BACK),
    ("LEASE", LEASE),
    ("PROMOTE", PROMOTE),
    ("WHO", WHO),
    ("WHO_OF_LINES", WHO_OF_LINES),
    ("TAKE", TAKE),
    ("TAKE_OF_LINES", TAKE_OF_LINES),
    ("PEEK", PEEK),
    ("PEEK_OF_LINES", PEEK_OF_LINES),
    ("NEXT", NEXT),
    ("LAPSED", LAPSED),
    ("NEXT_LAPSE", NEXT_LAPSE),
    ("CORRECT", CORRECT),
    ("DELETE_DUE", DELETE_DUE),
    ("FIND_DUE", FIND_DUE),
    ("MORE_OF_SHARDS", MORE_OF_SHARDS),
    ("COUNT_DUE", COUNT_DUE),
    ("JOB_VERSIONS", JOB_VERSIONS),
    ("PLANNED", PLANNED),
    ("HOLDERS", HOLDERS),
    ("HOLD", HOLD),
    ("LOOK_AT_LISTS", LOOK_AT_LISTS),
    ("RENEW", RENEW),
    ("HOLD_AHEAD", HOLD_AHEAD),
    ("LOOK", LOOK),
    ("MARK", MARK),
    ("AHEAD", AHEAD),
    ("FIRST_BEHIND", FIRST_BEHIND),
    ("ACCOUNTED", ACCOUNTED),
    ("LEFT_BEHIND", LEFT_BEHIND),
    ("TAKE_OVER", TAKE_OVER),
    ("LOCK_GATES", limit::LOCK),
    ("WRITE_GATES", limit::WRITE),
    ("PEEK_AT_LINES", limit::PEEK),
    ("HEADS", limit::HEADS),
    ("RIPE", limit::RIPE),
    ("COMING", limit::COMING),
    ("COUNT_WAITING", COUNT_WAITING),
    ("WAITING_IN_QUEUES", WAITING_IN_QUEUES),
    ("WAITING_IN_QUEUES_OF", WAITING_IN_QUEUES_OF),
    ("RUNNING_IN_QUEUES", RUNNING_IN_QUEUES),
    ("REQUIRING_LINES", REQUIRING_LINES),
    ("SUSPECTED", SUSPECTED),
    ("DELETE_OPEN", DELETE_OPEN),
    ("READ_PAPERS", papers::READ),
    ("TAKE_PAPERS", papers::TAKE),
    ("MARK_PAPERS", papers::MARK),
    ("CHECKPOINTS", papers::CHECKPOINTS),
    ("FORGET_AUDIT", audit::FORGET),
];

/// Those that have an order of their own index.
const TURNS: [&str; 7] = ["WHO", "WHO_OF_LINES", "TAKE", "TAKE_OF_LINES", "PEEK", "PEEK_OF_LINES", "NEXT"];

/// Counts tables that have pages but no rows.
const COUNT_EMPTY: &str = "
alter table due set (autovacuum_enabled = off); alter table jobs set (autovacuum_enabled = off);
alter table job_versions set (autovacuum_enabled = off); alter table job_keys set (autovacuum_enabled = off);
alter table open_runs set (autovacuum_enabled = off); alter table shards set (autovacuum_enabled = off);
alter table gates set (autovacuum_enabled = off); alter table open_papers set (autovacuum_enabled = off);
alter table ended_lists set (autovacuum_enabled = off); alter table ledger set (autovacuum_enabled = off);
alter table audit set (autovacuum_enabled = off);
insert into audit (at, number, tenant, kind, subject, action, who_name)
    select n, n, 1, 'job', n::text, 'edit', 'ci' from generate_series(1, 5000) n;
insert into due select n % 256, n, 1, 1, gen_random_uuid(), 1, n from generate_series(1, 5000) n;
insert into jobs select gen_random_uuid(), 1, 1, 0, 0, null, '' from generate_series(1, 5000);
insert into job_versions select id, version, tenant, record from jobs;
insert into job_keys select 1, id::text, id from jobs;
insert into open_runs
    select n, 1, n % 3, 1, 0, n, n, 0, 1, gen_random_uuid(), null, 'default', '' from generate_series(1, 5000) n;
insert into gates (key, breadth, shard, next_at) select n, 1, 1, n from generate_series(1, 5000) n;
insert into ledger select id, 1, 1, 1, 0, 1, 1 from jobs;
insert into ended_lists (forget_at, count, jobs, versions) select n, 0, '{}', '{}' from generate_series(1, 5000) n;
insert into open_papers select n, 1, 1, '' from generate_series(1, 5000) n; delete from open_papers;
delete from due; delete from jobs; delete from job_versions; delete from job_keys; delete from open_runs;
delete from ended_lists; delete from shards; delete from ledger; delete from gates; delete from audit;
analyze due; analyze jobs; analyze job_versions; analyze job_keys; analyze open_runs; analyze ended_lists; analyze shards;
analyze ledger; analyze gates; analyze open_papers; analyze audit";

#[tokio::test]
async fn statements_over_lists_go_by_an_index_whatever_was_counted() {
    let store = Postgres::open(&Options::new(Server::shared().database())).await.unwrap();
    let client = store.connection().await.unwrap();
    client.batch_execute(COUNT_EMPTY).await.unwrap();
    client.batch_execute("set plan_cache_mode = force_generic_plan").await.unwrap();
    for (name, sql) in STATEMENTS {
        client.batch_execute(&format!("prepare {name} as {sql}")).await.unwrap();
        let values = (1..).take_while(|n| sql.contains(&format!("${n}"))).map(|_| "null").collect::<Vec<_>>();
        let explain = format!("explain execute {name} ({})", values.join(", "));
        let lines = client.query(explain.as_str(), &[]).await.unwrap();
        let plan = lines.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n");
        // A scan of a whole table is disabled, which is this cost.
        let is_by_index = !plan.contains("Join Filter") && !plan.contains("cost=10000000000");
        assert!(is_by_index, "{name}\n{plan}");
        // A claim that went by another index would walk past what waits for others, or sort all that waits.
        if TURNS.contains(&name) {
            assert!(plan.contains("open_turns") && !plan.contains("Sort"), "{name}\n{plan}");
        }
    }
}
