//! Work that is spread over all databases: claims in one order, and steps of operations over runs anywhere.

use std::collections::HashSet;

use futures_util::future::join_all;
use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Version};
use punctual_domain::run::Run;
use punctual_store::{Claim, Effect, Error, Refused, Step, Stepped, Store};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Several;
use super::route::may_have_moved;
use crate::error::{Failed, failed};
use crate::postgres::Postgres;
use crate::row::{millis, numbers, urgency};

/// What may be claimed, in order; also those whose time has come since somebody last claimed, and whether there are any.
const WAITING: &str = "
with recursive lines as (
    (select queue from open_runs where line = -1 order by queue limit 1)
    union all
    select (select o.queue from open_runs o where o.line = -1 and o.queue > l.queue order by o.queue limit 1)
    from lines l where l.queue is not null
)
select lane, urgency, available_at, seq,
    exists (select from open_runs where line = 0 and available_at <= $4 and ($2::smallint[] is null or shard = any($2)))
from (
    (select lane, urgency, available_at, seq from open_runs
     where line = 1 and ($2::smallint[] is null or shard = any($2)) and ($3::text[] is null or queue = any($3))
     order by lane, urgency, available_at, seq limit $1)
    union all
    (select lane, urgency, available_at, seq from open_runs
     where line = 0 and available_at <= $4 and ($2::smallint[] is null or shard = any($2))
         and punctual_may_take(queue, $3, $5)
     order by available_at, seq limit $1)
    union all
    (select o.lane, o.urgency, o.available_at, o.seq
     from lines l cross join lateral (
         select lane, urgency, available_at, seq from open_runs
         where line = -1 and queue = l.queue and ($2::smallint[] is null or shard = any($2))
         order by lane, urgency, available_at, seq limit $1
     ) o
     where l.queue is not null and punctual_may_take(l.queue, $3, $5))
) w order by lane, urgency, available_at, seq limit $1";

/// A run's place in the order of claims.
type Place = (i16, i32, i64, i64);

/// The first in the line of a database.
struct Line {
    first: Vec<Place>,
    /// The time of some has come since somebody last claimed.
    has_come: bool,
}

impl Several {
    /// Asks every database for its share of the runs that are first in the order of all.
    pub(super) async fn claim_in_order(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
        let parts = self.split(&claim.shards);
        let looks = parts.iter().map(|(database, shards)| {
            let part = Claim { shards: shards.clone(), ..claim.clone() };
            async move { database.waiting(&part, now).await }
        });
        let (mut first, mut has_come, mut failure) = (Vec::new(), HashSet::new(), None);
        for (part, seen) in join_all(looks).await.into_iter().enumerate() {
            match seen {
                Ok(line) => {
                    first.extend(line.first.into_iter().map(|place| (place, part)));
                    // They get their turn with the next claim, also where nothing is claimed now.
                    has_come.extend(line.has_come.then_some(part));
                }
                Err(error) => failure = Some(error),
            }
        }
        first.sort_unstable();
        first.truncate(claim.limit);
        let claims = parts.iter().enumerate().filter_map(|(part, (database, shards))| {
            let limit = first.iter().filter(|(_, of)| *of == part).count();
            let claim = Claim { shards: shards.clone(), limit, ..claim.clone() };
            (limit > 0 || has_come.contains(&part)).then(|| Store::claim(*database, claim, now))
        });
        let mut claimed = Vec::new();
        for answer in join_all(claims).await {
            match answer {
                Ok(runs) => claimed.extend(runs),
                Err(error) => failure = Some(error),
            }
        }
        // What was claimed is told, whatever the others say.
        match failure {
            Some(error) if claimed.is_empty() => return Err(error),
            _ => {}
        }
        // Those that are too late stand among the others, in the order of their turns.
        claimed.sort_by_key(|run| (run.lane.rank(), urgency(run), run.available_at, run.sequence));
        Ok(claimed)
    }

    /// Saves a step where its operation lives. Jobs and runs of other databases cannot be changed in the same commit: they are
    /// changed just before, if the step is the next one. When it is done again because it was not saved, they are found to
    /// have changed.
    pub(super) async fn step_one(
        &self,
        mut step: Step,
        now: Timestamp,
    ) -> Result<Result<Stepped, Refused>, Error> {
        let mut runs: Vec<Run> = Vec::new();
        let is_anywhere = match &step.effect {
            Effect::Redrive(_) | Effect::Acknowledge(_) | Effect::Change(_) | Effect::Cancel(_) => true,
            Effect::Nothing | Effect::Births { .. } => false,
        };
        if is_anywhere {
            if !self.is_next(&step).await? {
                return Ok(Err(Refused::StaleStep));
            }
            let operation = &mut step.operation;
            match std::mem::replace(&mut step.effect, Effect::Nothing) {
                Effect::Redrive(ids) => {
                    let answers = self.redrive(&ids, now).await?;
                    runs = answers.into_iter().flatten().collect();
                    operation.done += runs.len() as u64;
                    operation.failed += (ids.len() - runs.len()) as u64;
                }
                Effect::Acknowledge(ids) => {
                    let answers = self.acknowledge(&ids).await?;
                    let done = answers.iter().filter(|answer| answer.is_ok()).count();
                    operation.done += done as u64;
                    operation.failed += (ids.len() - done) as u64;
                }
                Effect::Change(puts) => {
                    let jobs: Vec<JobId> = puts.iter().map(|put| put.job.id).collect();
                    let answers = self.put_jobs(puts, now).await?;
                    Effect::count_changes(operation, jobs.into_iter().zip(&answers));
                }
                Effect::Cancel(cancellations) => {
                    let ids: Vec<RunId> = cancellations.iter().map(|one| one.run).collect();
                    let answers = self.cancel(cancellations, now).await?;
                    runs = Effect::count_cancelled(operation, ids.into_iter().zip(answers));
                }
                Effect::Nothing | Effect::Births { .. } => {}
            }
        }
        let ask = |database, steps: Vec<Step>| Store::step(database, steps, now);
        let answers = self.route(&[step], |step| step.operation.id.shard(), may_have_moved, ask).await?;
        let answer = answers.into_iter().next().unwrap_or(Err(Refused::StaleStep));
        Ok(answer.map(|mut stepped| {
            stepped.runs.extend(runs);
            stepped
        }))
    }

    /// Whether a step is the one after what is stored.
    async fn is_next(&self, step: &Step) -> Result<bool, Error> {
        let version = step.operation.version;
        Ok(match self.operation(step.operation.id).await? {
            Some(operation) => operation.is_running() && operation.version.next() == version,
            None => version == Version::FIRST,
        })
    }
}

impl Postgres {
    /// The first in line, as many as are wanted.
    async fn waiting(&self, claim: &Claim, now: Timestamp) -> Result<Line, Error> {
        let queues: Option<Vec<&str>> =
            (!claim.queues.is_empty()).then(|| claim.queues.iter().map(|queue| &**queue).collect());
        let (limit, shards) = (claim.limit as i64, numbers(&claim.shards));
        let labels: Vec<&str> = claim.labels.each().collect();
        self.read("waiting", || async {
            let client = self.connection().await?;
            let statement = client.prepare_cached(WAITING).await.map_err(failed)?;
            let values: [&(dyn ToSql + Sync); 5] = [&limit, &shards, &queues, &millis(now), &labels];
            let rows = client.query(&statement, &values).await.map_err(failed)?;
            let place = |row: &Row| (row.get(0), row.get(1), row.get(2), row.get(3));
            let has_come = rows.first().is_some_and(|row| row.get(4));
            Ok::<_, Failed>(Line { first: rows.iter().map(place).collect(), has_come })
        })
        .await
    }
}
