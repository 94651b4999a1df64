//! The verbs, over all databases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, select_all};
use jiff::Timestamp;
use punctual_domain::audit::{Entry as AuditEntry, EntryId, Filter as AuditFilter};
use punctual_domain::document;
use punctual_domain::id::{Epoch, JobId, OperationId, RunId, Sequence, ShardId, TenantId, Version, WorkerId};
use punctual_domain::policy::backlog::Pending;
use punctual_domain::policy::limit::Rule;
use punctual_domain::work::{About, Presence};
use punctual_domain::{Document, Labels, LedgerEntry, Note, Operation, Placement, Run, Tenant, TenantName};
use punctual_store::{
    Advanced, Answering, Attendance, Cancellation, Claim, Concluded, Conclusion, DocumentChange, Due,
    DuePage, DueQuery, Error, Figures, Firing, Health, Heartbeat, Held, Hint, Home, JobFilter, Lapse, Lapsed,
    Lists, MoveStep, Moved, OperationFilter, Page, PageRequest, Planned, Put, Queue, Queues, Refused,
    RuleChange, RunDetail, RunFilter, Runnable, Shards, Step, Stepped, Store, Stored, Subject, Trigger,
};

use super::lists::Source;
use super::route::{Answer, Answers, is_missing, may_have_moved};
use super::{Several, merge};
use crate::documents::Left;
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

impl Several {
    /// What all of them know, from the first that answers.
    async fn first_that_answers<'s, T, A>(&'s self, ask: impl Fn(&'s Postgres) -> A) -> Result<T, Error>
    where
        A: Future<Output = Result<T, Error>>,
    {
        let mut failure = nothing();
        for database in self.databases.iter() {
            match ask(database).await {
                Ok(answer) => return Ok(answer),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

pub(super) async fn all<T>(
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

    fn pending(&self, tenant: TenantId) -> Pending {
        self.databases.iter().map(|database| database.pending(tenant)).fold(Pending::default(), Pending::plus)
    }

    /// One that does not answer keeps what was last counted there.
    async fn count_pending(&self) -> Result<Pending, Error> {
        let mut answers = Vec::with_capacity(self.databases.len());
        for database in self.databases.iter() {
            answers.push(Store::count_pending(database).await);
        }
        merge::pending(answers)
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

    async fn put_born(
        &self,
        puts: Vec<Put>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Run>, Refused>>, Error> {
        let ask = |database, puts: Vec<Put>| Store::put_born(database, puts, now);
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

    async fn asked_to_stop(&self, worker: WorkerId, held: &[Held]) -> Result<Vec<Held>, Error> {
        // One that does not answer has nothing to say; it is asked again soon.
        let ask = |database| Store::asked_to_stop(database, worker, held);
        let answers = join_all(self.databases.iter().map(ask)).await;
        if let [Err(error)] = answers.as_slice() {
            return Err(error.clone());
        }
        Ok(answers.into_iter().flatten().flatten().collect())
    }

    async fn note(&self, notes: Vec<Note>, now: Timestamp) -> Result<Vec<Result<(), Refused>>, Error> {
        self.route_held(notes, |note| note.held, |database, some| Store::note(database, some, now)).await
    }

    async fn checkpoints(&self, runs: &[RunId]) -> Result<Vec<Option<Box<str>>>, Error> {
        let ask = |database, asked: Vec<_>| -> Answers<'_, _> {
            Box::pin(async move { Store::checkpoints(database, &asked).await })
        };
        self.route(runs, |run| run.shard(), is_missing, ask).await
    }

    async fn introduce(&self, worker: WorkerId, about: About, now: Timestamp) -> Result<bool, Error> {
        let tell = |database| Store::introduce(database, worker, about.clone(), now);
        Ok(all(self.databases.iter().map(tell)).await?.into_iter().all(|lives| lives))
    }

    async fn workers(&self, tenant: Option<TenantId>) -> Result<Vec<Presence>, Error> {
        let lists = all(self.databases.iter().map(|database| Store::workers(database, tenant))).await?;
        let mut workers: BTreeMap<WorkerId, Presence> = BTreeMap::new();
        for seen in lists.into_iter().flatten() {
            // Each is told of everything that is held.
            let known = workers.entry(seen.worker).or_insert_with(|| seen.clone());
            if known.seen_at < seen.seen_at {
                *known = seen;
            }
        }
        Ok(workers.into_values().collect())
    }

    async fn queues(&self, tenant: Option<TenantId>) -> Result<Vec<Queue>, Error> {
        let lists = all(self.databases.iter().map(|database| Store::queues(database, tenant))).await?;
        let mut queues = Queues::default();
        queues.join(lists.into_iter().flatten());
        Ok(queues.into_vec())
    }

    async fn addressed(&self) -> Result<Vec<Labels>, Error> {
        let lists = all(self.databases.iter().map(Store::addressed)).await?;
        Ok(lists.into_iter().flatten().collect::<BTreeSet<_>>().into_iter().collect())
    }

    async fn suspected(&self) -> Result<Vec<WorkerId>, Error> {
        let lists = all(self.databases.iter().map(Store::suspected)).await?;
        Ok(lists.into_iter().flatten().collect())
    }

    async fn dismiss(&self, worker: WorkerId, now: Timestamp) -> Result<(), Error> {
        all(self.databases.iter().map(|database| Store::dismiss(database, worker, now))).await?;
        Ok(())
    }

    async fn complete(
        &self,
        conclusions: Vec<Conclusion>,
        now: Timestamp,
    ) -> Result<Vec<Result<Concluded, Refused>>, Error> {
        let ask = |database, some| Store::complete(database, some, now);
        self.route_held(conclusions, |conclusion| conclusion.held, ask).await
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

    async fn answer(
        &self,
        answers: Vec<Answering>,
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Error> {
        let ask = |database, some: Vec<Answering>| Store::answer(database, some, now);
        self.route(&answers, |one| one.run.shard(), may_have_moved, ask).await
    }

    async fn put_rules(&self, changes: Vec<RuleChange>, now: Timestamp) -> Result<(), Error> {
        let put = self.databases.iter().map(|database| Store::put_rules(database, changes.clone(), now));
        all(put).await.map(|_| ())
    }

    async fn rules(&self) -> Result<Vec<Rule>, Error> {
        self.first_that_answers(Store::rules).await
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

    async fn put_documents(
        &self,
        changes: Vec<DocumentChange>,
        now: Timestamp,
    ) -> Result<Vec<Result<Option<Document>, Refused>>, Error> {
        let Some((first, others)) = self.databases.split_first() else { return Err(nothing()) };
        let keys: Vec<_> =
            changes.iter().map(|change| (change.kind, change.tenant, change.name.clone())).collect();
        // The first database decides; the others have a copy, to read while it is out of reach.
        let answers = Store::put_documents(first, changes, now).await?;
        let left: Vec<Left> = keys
            .into_iter()
            .zip(&answers)
            .filter_map(|((kind, tenant, name), answer)| {
                answer.as_ref().ok().map(|document| (kind, tenant, name, document.clone()))
            })
            .collect();
        all(others.iter().map(|database| database.write("put_documents", database.leave_documents(&left))))
            .await?;
        Ok(answers)
    }

    async fn document(
        &self,
        kind: document::Kind,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Document>, Error> {
        self.first_that_answers(|database| Store::document(database, kind, tenant, name)).await
    }

    async fn documents(
        &self,
        kind: document::Kind,
        tenant: Option<TenantId>,
        after: Option<(TenantId, String)>,
        limit: usize,
    ) -> Result<Vec<Document>, Error> {
        self.first_that_answers(|database| Store::documents(database, kind, tenant, after.clone(), limit))
            .await
    }

    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), Error> {
        Store::append_audit(self.first(), entries).await
    }

    /// An entry is where its change was committed, so all are asked.
    async fn audit(
        &self,
        filter: &AuditFilter,
        page: PageRequest<EntryId>,
    ) -> Result<Page<AuditEntry, EntryId>, Error> {
        let pages =
            all(self.databases.iter().map(|database| Store::audit(database, filter, page.clone()))).await?;
        Ok(merge::descending(pages, |entry| entry.id, page.limit))
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
