//! The check: nothing to find after anything the suite does, and something to find after every kind of damage.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use jiff::Timestamp;
use punctual_store::check::Checked;
use punctual_store::conformance::transfer::{STORY_ENDS, story};
use punctual_store::conformance::{Case, SHARDS};
use punctual_store_postgres::{Hints, Options, Postgres, Time, check};
use punctual_testing::Postgres as Server;

fn options(address: &str) -> Options {
    Options {
        shards: Some(SHARDS),
        connections: 4,
        time: Time::Caller,
        hints: Hints::Off,
        ..Options::new(address)
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

async fn findings(address: &str) -> Checked {
    let now = Timestamp::from_second(STORY_ENDS).unwrap();
    let mut checked = check(&options(address), now).await.unwrap();
    // The suite registers jobs without due entries, where a case is not about slots.
    checked.findings.retain(|finding| !finding.what.ends_with("but no entry"));
    checked
}

/// Every story of the suite leaves a sound database behind. The store is open meanwhile.
fn run(case: Case) {
    let address = Server::shared().database();
    block_on(async {
        let store = Arc::new(Postgres::open(&options(&address)).await.unwrap());
        case(store.clone()).await;
        let checked = findings(&address).await;
        assert!(checked.findings.is_empty(), "{:#?}", checked.findings);
    });
}

mod suite {
    use super::run;
    punctual_store::conformance!(run);
}

/// What is done to the story, and the words in which the check names it.
struct Damage(&'static str, &'static str);

const DAMAGES: &[Damage] = &[
    Damage("delete from shards where shard = 3", "15 shards are numbered 0 to 15"),
    Damage("update tenants set name = 'Rare!' where id = 2", "tenant 2 has the name `Rare!`"),
    Damage("delete from tenants where id = 2", "has tenant 2, which is not there"),
    Damage(
        "update jobs set state = 1 where record like '%\"over\"%'",
        "is active and has state 1 in its column",
    ),
    Damage("update jobs set record = '{}' where record like '%\"over\"%'", "the record of job"),
    Damage("delete from job_keys where tenant = 1", "key `the-key` does not lead to job"),
    Damage("update job_keys set job = gen_random_uuid() where tenant = 1", "which is not there"),
    Damage("update job_keys set key = 'other' where tenant = 1", "which has another key or tenant"),
    Damage("update jobs set state = 3 where record like '%\"keyed\"%'", "which is deleted"),
    Damage("delete from jobs where record like '%\"keyed\"%'", "an entry of job"),
    Damage(
        "delete from due where job = (select id from jobs where record like '%\"paused\"%')",
        "but no entry ends it",
    ),
    Damage("update due set version = 9 where at = (select max(at) from due)", "newer than the job's"),
    Damage(
        "update due set lane = 2 where job = (select id from jobs where record like '%\"keyed\"%' and tenant = 1) and version = 2",
        "is in another lane than the job",
    ),
    Damage(
        "update due set tenant = 2 where job = (select id from jobs where record like '%\"keyed\"%' and tenant = 1) and version = 2",
        "has another tenant than the job",
    ),
    Damage(
        "update due set shard = (shard + 1) % 16 where job = (select id from jobs where record like '%\"keyed\"%' and tenant = 1)",
        "is in another shard than the job",
    ),
    Damage(
        "update due set slot = at + 5 where job = (select id from jobs where record like '%\"keyed\"%' and tenant = 1) and version = 2",
        "for the slot",
    ),
    Damage(
        "insert into due select shard, at + 7, lane, tenant, job, version, slot from due where version = 2",
        "has 2 entries of its version 2",
    ),
    Damage(
        "insert into due select shard, at, lane, tenant, gen_random_uuid(), version, slot from due limit 1",
        "which is not there",
    ),
    Damage("delete from job_versions", "which is not there"),
    Damage("update job_versions set version = 7", "has no version after 7"),
    Damage("update job_versions set record = '{}'", "the record of job"),
    Damage("delete from jobs where record like '%\"retried\"%'", "a run of job"),
    Damage("update open_runs set tenant = 2 where line = 2", "has another tenant than job"),
    Damage("update open_runs set line = 1 where line = 2", "is running and waits in a line"),
    Damage("update open_runs set line = 2 where line = 1", "waits in 0 lines"),
    Damage("update open_runs set line = 1 where line = 3", "waits for an earlier run and in a line"),
    Damage(
        "update open_runs set behind = behind + 1 where line = 3",
        "waits for an earlier run and in a line",
    ),
    Damage(
        "update open_runs set start_by = null where line = 3",
        "until a time that its column does not have",
    ),
    Damage("update open_runs set is_followed = false", "and there is none that would let them go on"),
    Damage(
        "delete from open_runs o where is_followed and line < 3",
        "and there is none that would let them go on",
    ),
    Damage("update open_runs set line = 5 where line = 1", "waits in 0 lines"),
    Damage(
        "update open_runs set line = 1 where line = -2",
        "waits for a limit and does not stand in its line",
    ),
    Damage(
        "update open_runs set waits_on = 5 where line = -2",
        "waits for a limit and does not stand in its line",
    ),
    Damage(
        "update open_runs set behind = 5 where line = -2",
        "waits for a limit and does not stand in its line",
    ),
    Damage("update gates set held = held + 1 where key = 1", "gate 1 says that 2 hold a permit, and 1 do"),
    Damage("update gates set waiting = 0 where key = 2", "gate 2 says that 0 wait, and 1 do"),
    Damage("delete from gates where key = -1", "gate -1 says that 0 hold a permit, and 1 do"),
    Damage("insert into gates (key, breadth, shard, held) values (99, 0, 0, 3)", "gate 99 says that 3 hold"),
    Damage("update rules set record = '{'", "limit all"),
    Damage("update documents set kind = 'poem'", "the document `holidays` is of the unknown kind `poem`"),
    Damage("update audit set at = 9000000000000000000", "an entry was made at 9000000000000000000, which is no time"),
    Damage("update open_runs set available_at = available_at + 1", "waits for another time than its own"),
    Damage("update open_runs set shard = (shard + 1) % 16", "waits in another shard than its own"),
    Damage("update open_runs set queue = 'other'", "waits in another queue than its own"),
    Damage("update open_runs set urgency = 99", "waits in another turn than its own"),
    Damage("update open_runs set start_by = start_by + 1", "until a time that its column does not have"),
    Damage("update open_runs set worker = null where line = 2", "is held by another worker"),
    Damage("update open_runs set record = '\\x00'", "a record that ends too early"),
    Damage(
        "update open_runs set job = (select id from jobs where record like '%\"over\"%')",
        "has another job or tenant in its columns",
    ),
    Damage(
        "update open_runs o set record = h.record from history h where h.seq = (select max(seq) from history)",
        "and is open",
    ),
    Damage(
        "insert into open_runs select h.seq, o.shard, o.line, o.lane, o.urgency, o.available_at, o.claimed_at, o.revision, o.tenant, o.job, o.worker, o.queue, o.record from open_runs o, history h where h.seq = (select max(seq) from history) and o.seq = (select max(seq) from open_runs)",
        "is also in open_runs",
    ),
    Damage(
        "insert into open_runs select seq + 1, shard, line, lane, urgency, available_at, claimed_at, revision, tenant, job, worker, queue, record from open_runs where seq = (select max(seq) from open_runs)",
        "are for the same slot of the same job",
    ),
    Damage("delete from jobs where id in (select job from history)", "a run of job"),
    Damage("update history set tenant = 2 where class = 3", "has another tenant than job"),
    Damage("update history set state = 13 where state = 10 and class = 3", "and has state 13 in its column"),
    Damage("update history set keep_until = 5 where class = 3", "kept until another time"),
    Damage("update history set record = '\\x00' where class = 3", "a record that ends too early"),
    Damage(
        "insert into history select 4, state, tenant, seq, job, keep_until, record from history where class = 3 limit 1",
        "is there 2 times",
    ),
    Damage(
        "update history set record = (select record from open_runs limit 1) where class = 3",
        "and in history",
    ),
    Damage("update history set papers = '\\x09' where class = 3", "papers of form 9"),
    Damage("update history set papers = '\\x0100010700' where class = 3", "has words of attempt 7"),
    Damage(
        "update history set papers = '\\x0101013700' where class = 3 and state = 10",
        "has a checkpoint and no attempt to come",
    ),
    Damage("update open_papers set seq = seq - 1000", "is of a run that is not open"),
    Damage("update open_papers set record = '\\x00'", "papers of form 0"),
    Damage("update open_papers set attempt = 7 where attempt = 1", "is of another attempt"),
    Damage("update open_papers set record = '\\x0100010700' where attempt = 1", "has words of attempt 7"),
    Damage("update open_papers set shard = shard + 1", "is not marked at its run, or in another shard"),
    Damage("update open_runs set has_papers = false", "is not marked at its run, or in another shard"),
    Damage("delete from history where class = 4", "is not there"),
    Damage(
        "insert into dead_letters select seq, tenant, job from history where state = 10 limit 1",
        "has not failed and is a dead letter",
    ),
    Damage("update dead_letters set tenant = 2", "is listed under another job or tenant"),
    Damage("update sequences set block = 5", "a sequence that this database does not give out"),
    Damage("delete from partitions where class = 3", "belongs to no partition"),
    Damage(
        "insert into partitions select 2, from_seq, to_seq from partitions where class = 3 limit 1",
        "partition",
    ),
    Damage("update ledger set tenant = 2", "has no job, or one of another tenant"),
    Damage("update ledger set slots = 0", "is no range of slots"),
    Damage("update ledger set fate = 99", "has no fate"),
    Damage("update operations set resume_at = null", "is not where its state says"),
    Damage("update operations set tenant = 9", "has tenant 9, which is not there"),
    Damage("update operations set shard = 7", "is in shard 7"),
    Damage("update operations set record = '{}'", "operation"),
    Damage("delete from jobs where record like '%\"caught up with\"%'", "is for job"),
    Damage("update requests set fingerprint = '\\x01'", "has a fingerprint of 1 bytes"),
    Damage("delete from ended_lists", "is over, and would never be forgotten"),
    Damage(
        "insert into ended_jobs select 5, id, version from jobs where record like '%\"keyed\"%'",
        "is due, and would be forgotten",
    ),
    Damage("update ended_lists set versions = array_fill(99, array[count])", "newer than the job's"),
    Damage("insert into settings values ('copy', '\\x7b7d')", "a copy into this database is not finished"),
];

#[test]
fn every_kind_of_damage_is_found_and_named() {
    let server = Server::shared();
    let address = server.database();
    let name = address.rsplit_once('/').unwrap().1;
    block_on(async {
        story(Arc::new(Postgres::open(&options(&address)).await.unwrap())).await;
        let sound = findings(&address).await;
        assert!(sound.findings.is_empty(), "{:#?}", sound.findings);
        assert!(
            sound.jobs > 10 && sound.history > 10 && sound.running >= 2 && sound.partitions > 3,
            "{sound:?}"
        );
    });
    let mut missed = Vec::new();
    for (n, Damage(sql, words)) in DAMAGES.iter().enumerate() {
        let damaged = format!("damaged_{n}_{}", std::process::id());
        server.psql("postgres", &format!("create database {damaged} template {name}"));
        server.psql(&damaged, sql);
        let checked = block_on(findings(&server.url(&damaged)));
        let is_named = checked.findings.iter().any(|finding| finding.to_string().contains(words));
        if !is_named || checked.is_sound() {
            missed.push(format!("{sql}: {words}: {:?}", checked.findings));
        }
        server.psql("postgres", &format!("drop database {damaged}"));
    }
    assert!(missed.is_empty(), "not found, or not named: {missed:#?}");
}
