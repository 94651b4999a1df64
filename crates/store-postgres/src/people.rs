//! Redrive and acknowledge: what people do to dead letters.

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{JobId, RunId, Version};
use punctual_domain::lifecycle::{self, Event};
use punctual_domain::policy::overlap::Overlap;
use punctual_store::Refused;
use punctual_store::record::decode_run;

use crate::client::Client;
use crate::error::Failed;
use crate::fire::SHARE_SHARDS;
use crate::limit::settle;
use crate::open_runs::OpenColumns;
use crate::overlap::{look, mark, take_jobs};
use crate::papers::{self, Unwritten};
use crate::postgres::{Postgres, transact};
use crate::put_jobs::write_open;
use crate::row::{DELETED, Entry, is_held, job_uuid};
use crate::work::Work;

/// A run that ended, held until the transaction ends.
const LOCK_ENDED: &str = "
select class, record, papers from history where class in (0, 1, 2, 3, 4) and seq = $1 for update";

const VERSIONS: &str = "
select j.version, j.state, j.version = $2 or exists (select from job_versions v where v.id = $1 and v.version = $2),
    j.record::json #> '{policies,overlap}' is not null
from jobs j where j.id = $1";

impl Postgres {
    pub(crate) async fn redrive(
        &self,
        runs: &[RunId],
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Failed> {
        let mut answers = Vec::with_capacity(runs.len());
        for id in runs {
            let answer: Result<Run, Refused> = transact!(self, |client| {
                let transaction = Work::begin(&mut client).await?;
                let answer = redrive(&transaction, *id, now).await?;
                let settled = transaction.commit(self).await?;
                Ok(answer.map(|run| settle(&settled, run)))
            })?;
            answers.push(match answer {
                Err(Refused::NoRun) => Err(self.why_not(*id, "redriven").await?),
                answer => answer,
            });
        }
        Ok(answers)
    }

    pub(crate) async fn acknowledge(&self, runs: &[RunId]) -> Result<Vec<Result<(), Refused>>, Failed> {
        let mut answers = Vec::with_capacity(runs.len());
        for id in runs {
            let Some(detail) = self.run(*id).await?.filter(|detail| detail.run.state.is_ended()) else {
                answers.push(Err(Refused::NoRun));
                continue;
            };
            let removed: u64 = transact!(self, |client| acknowledge(&client, *id).await)?;
            let state = detail.run.state.as_str();
            answers.push(match removed {
                0 => Err(lifecycle::Refused::WrongState { state, event: "acknowledged" }.into()),
                _ => Ok(()),
            });
        }
        Ok(answers)
    }
}

/// Takes a run out of the dead letters. Says how many it was.
pub(crate) async fn acknowledge(client: &Client<'_>, id: RunId) -> Result<u64, Failed> {
    let statement = client.prepare_cached("delete from dead_letters where seq = $1").await?;
    client.execute(&statement, &[&id.sequence().as_i64()]).await.map_err(Failed::at_commit)
}

pub(crate) async fn redrive(
    transaction: &Work<'_>,
    id: RunId,
    now: Timestamp,
) -> Result<Result<Run, Refused>, Failed> {
    let sequence = id.sequence().as_i64();
    let share = transaction.prepare_cached(SHARE_SHARDS).await?;
    let held = transaction.query(&share, &[&vec![id.shard().0 as i16]]).await?;
    if !is_held(&held, id.shard()) {
        return Ok(Err(Refused::Elsewhere));
    }
    let lock = transaction.prepare_cached(LOCK_ENDED).await?;
    let Some(row) = transaction.query_opt(&lock, &[&sequence]).await? else { return Ok(Err(Refused::NoRun)) };
    let class: i16 = row.get(0);
    let (mut run, attempts) = decode_run(id.sequence(), row.get::<_, &[u8]>(1))?;
    let said = papers::read(row.get(2))?;
    if run.id() != id {
        return Ok(Err(Refused::NoRun));
    }
    if let Err(refused) = lifecycle::apply(&mut run.clone(), Event::Redriven { at: now, is_behind: false }) {
        return Ok(Err(refused.into()));
    }
    let version = run.version.0 as i32;
    let find = transaction.prepare_cached(VERSIONS).await?;
    let row = transaction.query_opt(&find, &[&job_uuid(run.job), &version]).await?;
    let Some(row) = row.filter(|row| row.get::<_, i16>(1) != DELETED) else {
        return Ok(Err(Refused::NoJob));
    };
    // Its own version of the job may be gone by now; it goes on with the current one.
    if !row.get::<_, bool>(2) {
        run.version = Version(row.get::<_, i32>(0) as u32);
    }
    let is_behind = row.get(3) && is_any_open(transaction, run.job).await?;
    if let Err(refused) = lifecycle::apply(&mut run, Event::Redriven { at: now, is_behind }) {
        return Ok(Err(refused.into()));
    }
    let delete = transaction.prepare_cached("delete from history where class = $1 and seq = $2").await?;
    transaction.execute(&delete, &[&class, &sequence]).await?;
    let settle = transaction.prepare_cached("delete from dead_letters where seq = $1").await?;
    transaction.execute(&settle, &[&sequence]).await?;
    let entry = Entry { said, ..Entry::born((run, attempts)) };
    let (mut open, mut said) = (OpenColumns::default(), Unwritten::default());
    open.push(&entry, now);
    said.push_of(&entry);
    write_open(transaction, &open).await?;
    said.add(transaction).await?;
    if is_behind {
        mark(transaction, &[job_uuid(entry.run.job)]).await?;
    }
    Ok(Ok(entry.run))
}

/// Whether a run must wait for its turn, in a job whose runs must not overlap. It is decided after all others that are.
async fn is_any_open(transaction: &Work<'_>, job: JobId) -> Result<bool, Failed> {
    take_jobs(transaction, [job]).await?;
    // Any policy but `allow` will do: all of them hold it.
    let open = look(transaction, [(job, Overlap::Skip)]).await?;
    Ok(open.get(&job).is_some_and(|open| Overlap::Skip.holds_redriven(*open)))
}
