//! Open runs and history: each run by itself and against its columns, then all of them by what they are.

use std::collections::{BTreeSet, HashMap};

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use punctual_domain::id::{RunId, Sequence, ShardId, Version};
use punctual_domain::invariants;
use punctual_domain::policy::limit::Key;
use punctual_domain::run::{Run, RunState};
use punctual_domain::{Attempt, Papers};
use punctual_store::check::Checked;
use punctual_store::record::{decode_rule, decode_run};
use punctual_store::transfer::EndedRun;
use punctual_store::{Error, Gates, RunDetail, line_of};
use tokio_postgres::Row;
use uuid::Uuid;

use super::papers;
use super::walk::Rows;
use crate::documents;
use crate::error::Failed;
use crate::partition::{LATE, Partition, class, state_code};
use crate::row::{
    BEHIND, COMING, DELAYED, LIMITED, READY, REQUIRING, RUNNING, job_uuid, millis, shard, urgency,
    worker_uuid,
};
use crate::sequences::block_of;

const OPEN: &str = "
select o.seq, o.record, o.tenant, o.job, o.shard, o.line, o.lane, o.urgency, o.available_at, o.worker, o.queue, o.claimed_at,
    array(select v.version from job_versions v where v.id = o.job) || array(select j.version from jobs j where j.id = o.job),
    o.start_by, o.behind, o.waits_on
from open_runs o";

const HISTORY: &str = "select seq, record, tenant, job, class, state, keep_until, papers from history";

/// Who runs are, looked at in one go: 24 bytes each.
const SEEN_MAX: u64 = 4_000_000;

pub(super) async fn check(checked: &mut Checked, transaction: &Transaction<'_>) -> Result<(), Failed> {
    let block: i64 = transaction.query_one("select block from sequences", &[]).await?.get(0);
    let mut counted = Gates::default();
    let mut rows = Rows::of(transaction, OPEN).await?;
    while let Some(row) = rows.next().await? {
        if let Some((run, _)) = read(checked, "open_runs", &row, block) {
            open(checked, &run, &row);
            if !run.limits.is_empty() {
                counted.recall(&run, Timestamp::UNIX_EPOCH);
            }
        }
    }
    gates(checked, transaction, &counted).await?;
    let mut rows = Rows::of(transaction, HISTORY).await?;
    while let Some(row) = rows.next().await? {
        checked.history += 1;
        if let Some((run, attempts)) = read(checked, "history", &row, block) {
            papers::ended(checked, &run, row.get(7));
            ended(checked, run, attempts, &row);
        }
    }
    let passes = (checked.open_runs + checked.history) / SEEN_MAX + 1;
    for pass in 0..passes {
        twins(checked, transaction, pass, passes).await?;
    }
    Ok(())
}

/// What gates say about who holds permits and who waits, and what the open runs say.
async fn gates(checked: &mut Checked, transaction: &Transaction<'_>, counted: &Gates) -> Result<(), Failed> {
    let mut told = HashMap::new();
    for row in transaction.query("select key, held, waiting from gates", &[]).await? {
        let counts = (row.get::<_, i32>(1).unsigned_abs(), row.get::<_, i64>(2).unsigned_abs());
        told.insert(Key(row.get::<_, i64>(0) as u64), counts);
    }
    for row in transaction.query("select name, record from rules", &[]).await? {
        if let Err(error) = decode_rule(row.get(0), row.get::<_, &str>(1).as_bytes()) {
            checked.find("rules", error.to_string());
        }
    }
    let sql = "select kind, tenant, name, version, body, updated_at from documents";
    for row in transaction.query(sql, &[]).await? {
        if let Err(error) = documents::read(&row) {
            checked.find("documents", error.to_string());
        }
    }
    let sql = "select at, number from audit where at < -377705023201000 or at > 253402207200000";
    for row in transaction.query(sql, &[]).await? {
        let at: i64 = row.get(0);
        checked.find("audit", format!("an entry was made at {at}, which is no time"));
    }
    let known = counted.passages().map(|passage| passage.key).chain(told.keys().copied());
    let known: BTreeSet<Key> = known.collect();
    for key in known {
        let (held, waiting) = told.get(&key).copied().unwrap_or_default();
        let (holders, standing) = counted.counts(key);
        if held != holders {
            let what = format!("gate {} says that {held} hold a permit, and {holders} do", key.0 as i64);
            checked.find("gates", what);
        }
        if waiting != standing {
            let what = format!("gate {} says that {waiting} wait, and {standing} do", key.0 as i64);
            checked.find("gates", what);
        }
    }
    Ok(())
}

/// What holds for every run, wherever it is. One that cannot be read is a finding.
fn read(checked: &mut Checked, table: &str, row: &Row, block: i64) -> Option<(Run, Vec<Attempt>)> {
    let sequence: i64 = row.get(0);
    let decoded: Result<_, Error> = decode_run(Sequence::from_i64(sequence), row.get::<_, &[u8]>(1));
    let (run, attempts) = match decoded {
        Ok(read) => read,
        Err(error) => {
            checked.find(table, format!("run {sequence}: {error}"));
            return None;
        }
    };
    let id = run.id();
    if let Err(broken) = invariants::check(&run) {
        checked.find(table, format!("run {id}: not true that {}", broken.0));
    }
    if !attempts.iter().map(|attempt| attempt.number).eq(1..=run.attempt) {
        let what = format!("run {id} has {} attempts, and not 1 to {}", attempts.len(), run.attempt);
        checked.find(table, what);
    }
    if sequence <= 0 || block_of(run.sequence) > block {
        checked.find(table, format!("run {id} has a sequence that this database does not give out"));
    }
    let columns: (i32, Uuid) = (row.get(2), row.get(3));
    if columns != (run.tenant.0 as i32, job_uuid(run.job)) {
        checked.find(table, format!("run {id} has another job or tenant in its columns"));
    }
    Some((run, attempts))
}

fn open(checked: &mut Checked, run: &Run, row: &Row) {
    let id = run.id();
    checked.open_runs += 1;
    let line: i16 = row.get(5);
    let ready = if run.requires.is_empty() { READY } else { REQUIRING };
    match run.state {
        RunState::Running(_) => {
            checked.running += 1;
            if line != RUNNING {
                checked.find("open_runs", format!("run {id} is running and waits in a line"));
            }
        }
        RunState::Pending(_) if run.is_behind() => {
            if line != BEHIND || row.get::<_, Option<i64>>(14) != Some(millis(run.scheduled_for)) {
                checked.find("open_runs", format!("run {id} waits for an earlier run and in a line"));
            }
        }
        RunState::Pending(_) if run.is_limited() => {
            let key = run.next_limit().map(|limited| limited.key.0 as i64);
            let place = (row.get::<_, Option<i64>>(14), row.get::<_, Option<i64>>(15));
            if line != LIMITED || place != (Some(millis(run.scheduled_for)), key) {
                checked
                    .find("open_runs", format!("run {id} waits for a limit and does not stand in its line"));
            }
        }
        RunState::Pending(_) if !run.has_passed() => {
            if line != COMING {
                checked.find("open_runs", format!("run {id} has limits to pass and stands in another line"));
            }
        }
        RunState::Pending(_) if ![DELAYED, ready].contains(&line) => {
            checked.find("open_runs", format!("run {id} waits in 0 lines, and not in one"));
        }
        RunState::Pending(_) => {}
        RunState::Succeeded
        | RunState::Failed
        | RunState::TimedOut
        | RunState::Cancelled
        | RunState::Missed => {
            checked.find("open_runs", format!("run {id} has {} and is open", run.state.as_str()));
        }
    }
    let lane: i16 = run.lane.rank().into();
    let wrong = [
        (row.get::<_, i64>(8) != millis(run.available_at), "for another time"),
        (row.get::<_, i16>(4) != shard(run.job), "in another shard"),
        (row.get::<_, &str>(10) != line_of(run), "in another queue"),
        ((row.get(6), row.get(7)) != (lane, urgency(run)), "in another turn"),
    ];
    for (_, what) in wrong.iter().filter(|(is_wrong, _)| *is_wrong) {
        checked.find("open_runs", format!("run {id} waits {what} than its own"));
    }
    // A time that is not the run's any more is corrected when it has passed.
    if run.lapses_after().is_some_and(|at| row.get::<_, Option<i64>>(13) != Some(millis(at))) {
        checked.find("open_runs", format!("run {id} may start until a time that its column does not have"));
    }
    let holder = run.lease().map(|lease| worker_uuid(lease.worker));
    let is_held = row.get::<_, Option<i64>>(11).is_some();
    if row.get::<_, Option<Uuid>>(9) != holder || is_held != holder.is_some() {
        checked.find("open_runs", format!("run {id} is held by another worker than its column says"));
    }
    let kept: Vec<i32> = row.get(12);
    let Version(version) = run.version;
    if !kept.is_empty() && !kept.contains(&(version as i32)) {
        checked.find(
            "open_runs",
            format!("run {id} has version {version} of job {}, which is not there", run.job),
        );
    }
}

fn ended(checked: &mut Checked, run: Run, attempts: Vec<Attempt>, row: &Row) {
    let id = run.id();
    if !run.state.is_ended() {
        checked.find("history", format!("run {id} is {} and in history", run.state.as_str()));
        return;
    }
    let (place, state, keep_until): (i16, i16, i64) = (row.get(4), row.get(5), row.get(6));
    if state != state_code(&run) {
        checked.find(
            "history",
            format!("run {id} is {} and has state {state} in its column", run.state.as_str()),
        );
    }
    let own = class(run.class());
    let partition = Partition::at(own, millis(run.sequence.born_at()));
    if place != LATE && place != own {
        let days = run.class().days();
        checked.find("history", format!("run {id} is kept {days} days, not as this partition"));
    }
    let ended = EndedRun { detail: RunDetail::of(run, attempts, Papers::default()), is_dead_letter: false };
    if place != LATE && millis(ended.ended_at()) >= partition.to {
        checked.find("history", format!("run {id} ended after its partition did"));
    }
    if keep_until != millis(ended.keep_until()) {
        checked.find("history", format!("run {id} is kept until another time than its class says"));
    }
}

/// No two runs for the same (job, cause, slot, part): sorted, they stand side by side. A part of them at a time.
async fn twins(
    checked: &mut Checked,
    transaction: &Transaction<'_>,
    pass: u64,
    passes: u64,
) -> Result<(), Failed> {
    let mut seen: Vec<([u8; 16], i64, u16)> = Vec::new();
    let sql = "select seq, record from open_runs union all select seq, record from history";
    let mut rows = Rows::of(transaction, sql).await?;
    while let Some(row) = rows.next().await? {
        let sequence: i64 = row.get(0);
        // One that cannot be read was found before.
        let Ok((run, _)) = decode_run(Sequence::from_i64(sequence), row.get::<_, &[u8]>(1)) else { continue };
        let key = *run.idempotency_key().as_bytes();
        let [a, b, ..] = key;
        if u64::from(u16::from_le_bytes([a, b])) % passes == pass {
            seen.push((key, sequence, run.job.shard().0));
        }
    }
    seen.sort_unstable();
    for pair in seen.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
        let [one, other] = [pair[0], pair[1]].map(|(_, sequence, shard)| run_id(sequence, shard));
        checked.find("history", format!("runs {one} and {other} are for the same slot of the same job"));
    }
    Ok(())
}

fn run_id(sequence: i64, shard: u16) -> RunId {
    RunId::new(Sequence::from_i64(sequence), ShardId(shard))
}
