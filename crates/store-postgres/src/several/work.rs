//! Work that is spread over all databases: claims in one order, and steps of operations over runs anywhere.

use std::collections::HashMap;
use std::sync::PoisonError;

use futures_util::future::join_all;
use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Version};
use punctual_domain::run::Run;
use punctual_domain::{Ask, Division, Waiters};
use punctual_store::{Claim, Effect, Error, Refused, Step, Stepped, Store};

use super::Several;
use super::route::may_have_moved;
use crate::postgres::Postgres;
use crate::row::urgency;
use crate::turns::{self, Place, Seen, Waiter};

/// A database, and who waits there for a claim.
struct Part<'s> {
    database: &'s Postgres,
    claim: Claim,
    seen: Seen,
}

impl Several {
    /// Asks every database for the runs whose turn it is among those of all.
    pub(super) async fn claim_in_turns(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
        let kinds = || self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = kinds().of(&claim).clone();
        let mut failure = None;
        let looks = self.split(&claim.shards).into_iter().map(|(database, shards)| {
            let (claim, turns) = (Claim { shards, ..claim.clone() }, &turns);
            async move {
                let seen = database.write("who_waits", database.who_waits(&claim, turns, now)).await;
                seen.map(|seen| Part { database, claim, seen })
            }
        });
        let answers = join_all(looks).await;
        let mut parts = those(answers, &mut failure);
        let waiters: Vec<Waiter> = parts.iter().flat_map(|part| part.seen.waiters()).collect();
        let waiters = Waiters::new(&turns, waiters, claim.limit);
        let mut division = Division::new(&turns, waiters, claim.limit);
        let mut found: HashMap<Waiter, Vec<(Place, usize)>> = HashMap::new();
        loop {
            let asks = division.divide(kinds().of(&claim), now);
            if asks.is_empty() {
                break;
            }
            let peeks = parts.iter().map(|part| part.database.peek(&part.claim, &part.seen, &asks));
            let mut first: HashMap<Waiter, Vec<(Place, usize)>> = HashMap::new();
            for (number, answer) in join_all(peeks).await.into_iter().enumerate() {
                match answer {
                    Ok(places) => places.into_iter().for_each(|(waiter, places)| {
                        first
                            .entry(waiter)
                            .or_default()
                            .extend(places.into_iter().map(|place| (place, number)));
                    }),
                    // The others go on without it.
                    Err(error) => {
                        parts[number].seen = Seen::default();
                        failure = Some(error);
                    }
                }
            }
            for ask in asks {
                let waiter = (ask.lane, ask.tenant);
                let mut first = first.remove(&waiter).unwrap_or_default();
                first.sort_unstable();
                first.truncate(ask.most);
                division.found(ask, first.len());
                found.insert(waiter, first);
            }
        }
        let tagged = found.into_iter().map(|(waiter, first)| {
            let parts = first.into_iter().map(|(_, number)| (waiter, number));
            (waiter, parts.collect::<Vec<(Waiter, usize)>>())
        });
        let mut asks: Vec<HashMap<Waiter, usize>> = vec![HashMap::new(); parts.len()];
        for (waiter, number) in division.in_turns(tagged.collect()) {
            *asks[number].entry(waiter).or_default() += 1;
        }
        let claims = parts.iter().zip(asks).filter(|(_, asks)| !asks.is_empty()).map(|(part, asks)| {
            let ask = |((lane, tenant), most)| Ask { lane, tenant, most };
            let asks: Vec<Ask> = asks.into_iter().map(ask).collect();
            let Part { database, claim, seen } = part;
            async move { database.write("claim", database.claim_asked(claim, seen, &asks, now)).await }
        });
        let answers = join_all(claims).await;
        let mut claimed: HashMap<Waiter, Vec<Run>> = HashMap::new();
        for run in those(answers, &mut failure).into_iter().flatten() {
            claimed.entry((run.lane, run.tenant)).or_default().push(run);
        }
        // What was claimed is told, whatever the others say.
        match failure {
            Some(error) if claimed.is_empty() => return Err(error),
            _ => {}
        }
        // Those that are too late stand among the others, in the order of their turns.
        claimed.values_mut().for_each(|runs| {
            runs.sort_by_key(|run| (urgency(run), run.available_at, run.sequence));
        });
        Ok(division.in_turns(claimed))
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
            // These are in the shard of the operation.
            Effect::Nothing | Effect::Births { .. } | Effect::Message(_) => false,
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
                Effect::Nothing | Effect::Births { .. } | Effect::Message(_) => {}
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

/// Those that answered; a failure of the others is kept.
fn those<T>(answers: Vec<Result<T, Error>>, failure: &mut Option<Error>) -> Vec<T> {
    let keep = |answer: Result<T, Error>| answer.map_err(|error| *failure = Some(error)).ok();
    answers.into_iter().filter_map(keep).collect()
}

impl Postgres {
    /// Where the first of those stand who are asked for.
    async fn peek(
        &self,
        claim: &Claim,
        seen: &Seen,
        asks: &[Ask],
    ) -> Result<HashMap<Waiter, Vec<Place>>, Error> {
        self.read("peek", || async {
            let client = self.connection().await?;
            turns::peek(&client, claim, seen, asks).await
        })
        .await
    }
}
