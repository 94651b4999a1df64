//! The verbs, over all databases.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, select_all};
use jiff::Timestamp;
use punctual_domain::id::{Epoch, JobId, OperationId, RunId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::policy::limit::Rule;
use punctual_domain::{LedgerEntry, Operation, Placement, Run, Tenant, TenantName, lifecycle};
use punctual_store::{
    Advanced, Attendance, Cancellation, Claim, Concluded, Conclusion, Due, DuePage, DueQuery, Error, Figures,
    Firing, Health, Heartbeat, Held, Hint, Home, JobFilter, Lapse, Lapsed, Lists, MoveStep, Moved,
    OperationFilter, Page, PageRequest, Planned, Put, Refused, RuleChange, RunDetail, RunFilter, Runnable,
    Shards, Step, Stepped, Store, Stored, Subject, Trigger,
};

use super::lists::Source;
use super::route::{Answer, Answers, is_missing, may_have_moved};
use super::{Several, merge};
use crate::postgres::Postgres;

/// A database that does not answer within this share of a lease is left out, so that the others keep their leases.
const SHARE: u32 = 3;

impl Several {
    /// What each database of a set of shards is asked about.
    pub(super) fn split(&self, shards: &Shards) -> Vec<(&Postgres, Shards)> {
        let homes = self.homes();
        let part = |(place, database)| {
            let here = homes.shards_of(place);
            let asked: Vec<ShardId> = here.into_iter().filter(|shard| shards.contains(*shard)).collect();
            (database, Shards::Some(asked))
        };
        let is_asked = |(_, shards): &(&Postgres, Shards)| *shards != Shards::Some(Vec::new());
        self.databases.iter().enumerate().map(part).filter(is_asked).collect()
    }

    /// The answers of those that answer in time; an error only if none does.
    async fn those_that_answer<'a, A>(
        &'a self,
        within: Duration,
        ask: impl Fn(&'a Postgres) -> Answer<'a, A>,
    ) -> Result<Vec<A>, Error> {
        if let Some(only) = self.only() {
            return Ok(vec![ask(only).await?]);
        }
        let limited = |database: &'a Postgres| {
            let answer = ask(database);
            async move {
                let slow =
                    || Error::Unavailable { reason: format!("{} does not answer", database.address()) };
                tokio::time::timeout(within, answer).await.unwrap_or_else(|_| Err(slow()))
            }
        };
        let (mut answers, mut failure) = (Vec::new(), None);
        for answer in join_all(self.databases.iter().map(limited)).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if answers.is_empty() => Err(error),
            _ => Ok(answers),
        }
    }
}

async fn all<T>(
    answers: impl IntoIterator<Item = impl Future<Output = Result<T, Error>>>,
) -> Result<Vec<T>, Error> {
    join_all(answers).await.into_iter().collect()
}

#[async_trait]
impl Store for Several {
    fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// It takes writes while one of them does.
    fn health(&self) -> Health {
        let failing: Vec<Health> =
            self.databases.iter().map(Store::health).filter(|health| !health.writable).collect();
        let reasons: Vec<String> = failing.iter().filter_map(|health| health.reason.clone()).collect();
        Health {
            writable: failing.len() < self.databases.len(),
            reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
        }
    }

    fn figures(&self) -> Figures {
        let figures = merge::figures(self.databases.iter().map(Store::figures));
        Figures { replicas: self.replicas.figures(), ..figures }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn homes(&self) -> Vec<Home> {
        let homes = Several::homes(self);
        let home = |(place, database): (usize, &Postgres)| Home {
            database: database.sequences.database,
            address: database.address().into(),
            shards: homes.shards_of(place),
        };
        self.databases.iter().enumerate().map(home).collect()
    }

    fn lists(&self) -> Option<&dyn Lists> {
        (!self.replicas.is_empty()).then_some(self)
    }

    async fn move_shards(&self, step: MoveStep) -> Result<Moved, Error> {
        self.move_on(&step).await
    }

    async fn attend(&self, attendance: Attendance, ttl: Duration, now: Timestamp) -> Result<(), Error> {
        let ask = |database| Store::attend(database, attendance.clone(), ttl, now);
        self.those_that_answer(ttl / SHARE, ask).await.map(|_| ())
    }

    async fn placement(&self, now: Timestamp) -> Result<Placement, Error> {
        if let Some(only) = self.only() {
            return Store::placement(only, now).await;
        }
        self.find_homes().await?;
        let within = Duration::from_secs(5) / SHARE;
        let mut answers =
            self.those_that_answer(within, |database| Store::placement(database, now)).await?.into_iter();
        let Some(mut placement) = answers.next() else { return Err(nothing()) };
        for other in answers {
            // A node that does not reach one of them could not take the shards that live there: it gets none.
            placement.nodes.retain(|(node, _)| other.nodes.iter().any(|(known, _)| known.id == node.id));
            placement.shards.extend(other.shards);
        }
        placement.shards.sort_by_key(|shard| shard.shard);
        Ok(placement)
    }

    async fn acquire(
        &self,
        owner: WorkerId,
        shards: Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Error> {
        // A database gives what lives in it; what is asked for besides is not there.
        let ask = |database| Store::acquire(database, owner, shards.clone(), ttl, now);
        let mut held: Vec<_> =
            self.those_that_answer(ttl / SHARE, ask).await?.into_iter().flatten().collect();
        held.sort_unstable();
        Ok(held)
    }

    async fn hand_over(
        &self,
        owner: WorkerId,
        shards: Vec<(ShardId, WorkerId)>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<(), Error> {
        let ask = |database| Store::hand_over(database, owner, shards.clone(), ttl, now);
        self.those_that_answer(ttl / SHARE, ask).await.map(|_| ())
    }

    async fn leave(&self, node: WorkerId, now: Timestamp) -> Result<(), Error> {
        all(self.databases.iter().map(|database| Store::leave(database, node, now))).await.map(|_| ())
    }

    async fn news(&self, owner: WorkerId, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        // One that is out of reach tells nothing; what lives in it is read anew when it is back.
        let reachable = self.databases.iter().filter(|database| Store::health(*database).writable);
        let news = all(reachable.map(|database| Store::news(database, owner, now))).await?;
        Ok(news.into_iter().flatten().min())
    }

    async fn hint(&self) -> Hint {
        select_all(self.databases.iter().map(Store::hint)).await.0
    }

    async fn put_jobs(&self, puts: Vec<Put>, now: Timestamp) -> Result<Vec<Result<(), Refused>>, Error> {
        let ask = |database, puts: Vec<Put>| Store::put_jobs(database, puts, now);
        self.route(&puts, |put| put.job.id.shard(), may_have_moved, ask).await
    }

    async fn jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        let ask = |database, asked: Vec<_>| -> Answers<'_, _> {
            Box::pin(async move { Store::jobs(database, &asked).await })
        };
        self.route(ids, |id| id.shard(), is_missing, ask).await
    }

    async fn kept_jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Stored>>, Error> {
        let ask = |database, asked: Vec<_>| -> Answers<'_, _> {
            Box::pin(async move { Store::kept_jobs(database, &asked).await })
        };
        self.route(ids, |id| id.shard(), is_missing, ask).await
    }

    async fn job_versions(&self, versions: &[(JobId, Version)]) -> Result<Vec<Option<Stored>>, Error> {
        let ask = |database, asked: Vec<_>| -> Answers<'_, _> {
            Box::pin(async move { Store::job_versions(database, &asked).await })
        };
        self.route(versions, |(id, _)| id.shard(), is_missing, ask).await
    }

    async fn have_open_runs(&self, jobs: &[JobId]) -> Result<Vec<bool>, Error> {
        let ask = |database, asked: Vec<_>| -> Answers<'_, _> {
            Box::pin(async move { Store::have_open_runs(database, &asked).await })
        };
        self.route(jobs, |id| id.shard(), |has| !*has, ask).await
    }

    async fn job_by_key(&self, tenant: TenantId, key: &str) -> Result<Option<JobId>, Error> {
        // A key that was changed is not where its hash says.
        let found =
            all(self.databases.iter().map(|database| Store::job_by_key(database, tenant, key))).await?;
        Ok(self.choose(found.into_iter().enumerate()))
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        page: PageRequest<JobId>,
    ) -> Result<Page<Stored, JobId>, Error> {
        self.list_jobs_from(Source::Databases, filter, page).await
    }

    async fn planned(&self, page: PageRequest<JobId>) -> Result<Page<Planned, JobId>, Error> {
        self.planned_from(Source::Databases, page).await
    }

    async fn request(&self, tenant: TenantId, key: &str, now: Timestamp) -> Result<Option<Subject>, Error> {
        // Where it is depends on what it made.
        let found =
            all(self.databases.iter().map(|database| Store::request(database, tenant, key, now))).await?;
        Ok(found.into_iter().flatten().next())
    }

    async fn remember(
        &self,
        requests: Vec<Subject>,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refused>>, Error> {
        let shard = |subject: &Subject| ShardId::of(subject.tenant, &subject.key, self.shard_count);
        let ask = |database, requests: Vec<Subject>| Store::remember(database, requests, now);
        self.route(&requests, shard, may_have_moved, ask).await
    }

    async fn trigger(
        &self,
        triggers: Vec<Trigger>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        let ask = |database, triggers: Vec<Trigger>| Store::trigger(database, triggers, now);
        self.route(&triggers, |trigger| trigger.job.shard(), may_have_moved, ask).await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, Error> {
        if let Some(only) = self.only() {
            return Store::due(only, query).await;
        }
        let ask = |(database, shards)| Store::due(database, DueQuery { shards, ..query.clone() });
        let pages = all(self.split(&query.shards).into_iter().map(ask)).await?;
        Ok(merge::due(pages, query.until, query.limit))
    }

    async fn count_due(&self, from: Timestamp, to: Timestamp, limit: usize) -> Result<usize, Error> {
        let counts = all(self.databases.iter().map(|one| Store::count_due(one, from, to, limit))).await?;
        Ok(counts.into_iter().sum::<usize>().min(limit))
    }

    async fn is_due(&self, entries: &[Due]) -> Result<Vec<bool>, Error> {
        let ask = |database, asked: Vec<_>| -> Answers<'_, _> {
            Box::pin(async move { Store::is_due(database, &asked).await })
        };
        self.route(entries, |due| due.key.job.shard(), |is_due| !*is_due, ask).await
    }

    async fn fire(
        &self,
        firings: Vec<Firing>,
        now: Timestamp,
    ) -> Result<Vec<Result<Vec<Run>, Refused>>, Error> {
        if let Some(only) = self.only() {
            return Store::fire(only, firings, now).await;
        }
        // A shard that moved has another epoch there: it is fired by whoever owns it then.
        let ask = |database, firings: Vec<Firing>| Store::fire(database, firings, now);
        self.route(&firings, |firing| firing.due.key.job.shard(), |_| false, ask).await
    }

    async fn claim(&self, claim: Claim, now: Timestamp) -> Result<Vec<Run>, Error> {
        if let Some(only) = self.only() {
            return Store::claim(only, claim, now).await;
        }
        self.claim_in_turns(claim, now).await
    }

    async fn next_available_at(&self, shards: &Shards) -> Result<Option<Timestamp>, Error> {
        if let Some(only) = self.only() {
            return Store::next_available_at(only, shards).await;
        }
        let parts = self.split(shards);
        let ask = parts.iter().map(|(database, shards)| Store::next_available_at(*database, shards));
        Ok(all(ask).await?.into_iter().flatten().min())
    }

    async fn heartbeat(&self, worker: WorkerId, held: Vec<Held>, now: Timestamp) -> Result<Heartbeat, Error> {
        let beat = |database| Store::heartbeat(database, worker, held.clone(), now);
        let answers = join_all(self.databases.iter().map(beat)).await;
        let has_failed = answers.iter().any(Result::is_err);
        let mut replies = Vec::new();
        for answer in answers {
            match answer {
                Ok(reply) => replies.push(reply),
                Err(error) if self.databases.len() == 1 => return Err(error),
                Err(_) => {}
            }
        }
        let Some(mut reply) = replies.pop() else { return Err(nothing()) };
        for other in replies {
            reply.is_refused |= other.is_refused;
            reply.not_held.retain(|held| other.not_held.contains(held));
            reply.cancelled.extend(other.cancelled);
        }
        // Whether one that does not answer holds it is not known.
        if has_failed && !reply.is_refused {
            reply.not_held.clear();
        }
        Ok(reply)
    }

    async fn complete(
        &self,
        conclusions: Vec<Conclusion>,
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Error> {
        if let Some(only) = self.only() {
            return Store::complete(only, conclusions, now).await;
        }
        // A run is where it was born, unless it has moved: then the others are asked.
        let is_elsewhere = |answer: &Result<Concluded, Refused>| {
            matches!(answer, Err(Refused::Lifecycle(lifecycle::Refused::StaleLease { .. })))
        };
        let mut answers: Vec<Option<Result<Concluded, Refused>>> = conclusions.iter().map(|_| None).collect();
        let born = |conclusion: &Conclusion| self.numbered(conclusion.held.sequence.database()).unwrap_or(0);
        for round in 0..self.databases.len() {
            let mut groups: Vec<Vec<usize>> = self.databases.iter().map(|_| Vec::new()).collect();
            for (index, conclusion) in conclusions.iter().enumerate() {
                if answers[index].as_ref().is_none_or(is_elsewhere) {
                    groups[(born(conclusion) + round) % self.databases.len()].push(index);
                }
            }
            let ask = |(database, group): (_, &Vec<usize>)| {
                let asked: Vec<Conclusion> = group.iter().map(|index| conclusions[*index].clone()).collect();
                Store::complete(database, asked, now)
            };
            let asked: Vec<_> = self.databases.iter().zip(&groups).map(ask).collect();
            for (group, told) in groups.iter().zip(all(asked).await?) {
                for (index, answer) in group.iter().zip(told) {
                    answers[*index] = Some(answer);
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    async fn expired(&self, lease: Duration, now: Timestamp, limit: usize) -> Result<Vec<Run>, Error> {
        let within = self.first().patience;
        let ask = |database| Store::expired(database, lease, now, limit);
        let lost = self.those_that_answer(within, ask).await?;
        Ok(lost.into_iter().flatten().take(limit).collect())
    }

    async fn cancel(
        &self,
        cancellations: Vec<Cancellation>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        let ask = |database, some: Vec<Cancellation>| Store::cancel(database, some, now);
        self.route(&cancellations, |one| one.run.shard(), may_have_moved, ask).await
    }

    async fn lapsed(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Lapsed, Error> {
        if let Some(only) = self.only() {
            return Store::lapsed(only, shards, now, limit).await;
        }
        let parts = self.split(shards);
        let ask = parts.iter().map(|(database, shards)| Store::lapsed(*database, shards, now, limit));
        Ok(merge::lapsed(all(ask).await?, limit))
    }

    async fn lapse(&self, lapses: Vec<Lapse>, now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        let ask = |database, some: Vec<Lapse>| Store::lapse(database, some, now);
        self.route(&lapses, |one| one.run.shard(), may_have_moved, ask).await
    }

    async fn put_rules(&self, changes: Vec<RuleChange>, now: Timestamp) -> Result<(), Error> {
        let put = self.databases.iter().map(|database| Store::put_rules(database, changes.clone(), now));
        all(put).await.map(|_| ())
    }

    async fn rules(&self) -> Result<Vec<Rule>, Error> {
        let mut failure = nothing();
        for database in self.databases.iter() {
            match Store::rules(database).await {
                Ok(rules) => return Ok(rules),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Each database has gates of its own.
    async fn advance(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Advanced, Error> {
        let ask = self.databases.iter().map(|database| Store::advance(database, shards, now, limit));
        let parts = all(ask).await?;
        Ok(Advanced {
            runs: parts.iter().map(|part| part.runs).sum(),
            next_at: parts.iter().filter_map(|part| part.next_at).min(),
        })
    }

    async fn run(&self, id: RunId) -> Result<Option<RunDetail>, Error> {
        self.route_one(id.shard(), is_missing, |database| Store::run(database, id)).await
    }

    async fn runs(
        &self,
        filter: &RunFilter,
        page: PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Error> {
        self.runs_from(Source::Databases, filter, page).await
    }

    async fn ledger(
        &self,
        job: JobId,
        page: PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Error> {
        let is_empty = |page: &Page<LedgerEntry, Timestamp>| page.items.is_empty();
        self.route(
            &[job],
            |job| job.shard(),
            is_empty,
            |database, _| {
                let page = page.clone();
                Box::pin(async move { Ok(vec![Store::ledger(database, job, page).await?]) })
            },
        )
        .await?
        .pop()
        .map_or_else(|| Err(nothing()), Ok)
    }

    async fn redrive(&self, runs: &[RunId], now: Timestamp) -> Result<Vec<Result<Run, Refused>>, Error> {
        let ask = |database, asked: Vec<_>| -> Answers<'_, _> {
            Box::pin(async move { Store::redrive(database, &asked, now).await })
        };
        self.route(runs, |id| id.shard(), may_have_moved, ask).await
    }

    async fn acknowledge(&self, runs: &[RunId]) -> Result<Vec<Result<(), Refused>>, Error> {
        let ask = |database, asked: Vec<_>| -> Answers<'_, _> {
            Box::pin(async move { Store::acknowledge(database, &asked).await })
        };
        self.route(runs, |id| id.shard(), may_have_moved, ask).await
    }

    async fn retain(&self, now: Timestamp, limit: usize) -> Result<u64, Error> {
        let done = all(self.databases.iter().map(|database| Store::retain(database, now, limit))).await?;
        let cleaned = if self.only().is_none() { self.clean_moves(limit).await? } else { 0 };
        Ok(done.into_iter().sum::<u64>() + cleaned)
    }

    async fn step(&self, steps: Vec<Step>, now: Timestamp) -> Result<Vec<Result<Stepped, Refused>>, Error> {
        if let Some(only) = self.only() {
            return Store::step(only, steps, now).await;
        }
        let mut answers = Vec::with_capacity(steps.len());
        for step in steps {
            answers.push(self.step_one(step, now).await?);
        }
        Ok(answers)
    }

    async fn runnable(&self, shards: &Shards, now: Timestamp, limit: usize) -> Result<Runnable, Error> {
        let parts = self.split(shards);
        let ask = parts.iter().map(|(database, shards)| Store::runnable(*database, shards, now, limit));
        Ok(merge::runnable(all(ask).await?, limit))
    }

    async fn operation(&self, id: OperationId) -> Result<Option<Operation>, Error> {
        self.route_one(id.shard(), is_missing, |database| Store::operation(database, id)).await
    }

    async fn operations(
        &self,
        filter: &OperationFilter,
        page: PageRequest<OperationId>,
    ) -> Result<Page<Operation, OperationId>, Error> {
        self.operations_from(Source::Databases, filter, page).await
    }

    async fn put_tenant(&self, name: &TenantName, now: Timestamp) -> Result<Tenant, Error> {
        let tenant = Store::put_tenant(self.first(), name, now).await?;
        all(self.databases[1..].iter().map(|database| database.copy_tenant(&tenant))).await?;
        Ok(tenant)
    }

    async fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        let mut failure = nothing();
        for database in self.databases.iter() {
            match Store::tenants(database).await {
                Ok(tenants) => return Ok(tenants),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

fn nothing() -> Error {
    Error::Unavailable { reason: "no database gave an answer".into() }
}

impl Several {
    /// Of the answers of all databases, the one that lives where it was found.
    fn choose(&self, found: impl Iterator<Item = (usize, Option<JobId>)>) -> Option<JobId> {
        let homes = Several::homes(self);
        let mut found = found.filter_map(|(place, job)| Some((place, job?)));
        found.find(|(place, job)| homes.of(job.shard()).is_none_or(|home| home == *place)).map(|(_, job)| job)
    }
}
