//! Asks the database of each thing, and asks again where it went.
//!
//! A write is refused where its shard does not live any more, and a thing is not found there. Promise: such an answer is
//! given only if the shard still lives where it was asked; otherwise the thing is asked for where the shard went, once it
//! is there.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use punctual_domain::id::ShardId;
use punctual_domain::lifecycle;
use punctual_store::{Error, Held, Refused};

use super::Several;
use super::verbs::all;
use crate::postgres::Postgres;

/// What a database will say.
pub(super) type Answer<'a, A> = Pin<Box<dyn Future<Output = Result<A, Error>> + Send + 'a>>;

/// Answers to a list of questions.
pub(super) type Answers<'a, A> = Answer<'a, Vec<A>>;

/// How long a call waits for a shard that is on its way.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether a refusal may mean that the shard has moved.
pub(super) fn may_have_moved<T>(answer: &Result<T, Refused>) -> bool {
    matches!(
        answer,
        Err(Refused::Elsewhere
            | Refused::NoJob
            | Refused::NoRun
            | Refused::StaleStep
            | Refused::Lifecycle(lifecycle::Refused::StaleLease { .. }))
    )
}

/// Whether what is not there may be where its shard went.
pub(super) fn is_missing<T>(answer: &Option<T>) -> bool {
    answer.is_none()
}

impl Several {
    /// Asks each item's database, all at once, and again for those items whose answers are suspicious and whose shards
    /// have moved.
    pub(super) async fn route<'s, Q, A, F>(
        &'s self,
        items: &[Q],
        shard: impl Fn(&Q) -> ShardId + Send + Sync,
        is_suspicious: impl Fn(&A) -> bool + Send + Sync,
        ask: F,
    ) -> Result<Vec<A>, Error>
    where
        Q: Clone + Send + Sync,
        A: Send,
        F: Fn(&'s Postgres, Vec<Q>) -> Answers<'s, A> + Send + Sync,
    {
        if let Some(only) = self.only() {
            return ask(only, items.to_vec()).await;
        }
        let begun = Instant::now();
        let mut answers: Vec<Option<A>> = items.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..items.len()).collect();
        let mut homes = self.homes();
        loop {
            let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for place in &open {
                if let Some(home) = homes.of(shard(&items[*place])) {
                    groups.entry(home).or_default().push(*place);
                }
            }
            let asked = groups.iter().map(|(home, places)| {
                ask(&self.databases[*home], places.iter().map(|place| items[*place].clone()).collect())
            });
            let told = join_all(asked.collect::<Vec<_>>()).await;
            for (places, told) in groups.values().zip(told) {
                for (place, answer) in places.iter().zip(told?) {
                    answers[*place] = Some(answer);
                }
            }
            open.retain(|place| answers[*place].as_ref().is_none_or(&is_suspicious));
            if open.is_empty() {
                break;
            }
            let before = homes;
            homes = self.find_homes().await?;
            // An answer stands if the shard is still where it was asked.
            open.retain(|place| {
                let shard = shard(&items[*place]);
                answers[*place].is_none() || homes.of(shard) != before.of(shard)
            });
            open.iter().for_each(|place| answers[*place] = None);
            if open.is_empty() {
                break;
            }
            if begun.elapsed() > PATIENCE {
                let moving = shard(&items[open[0]]).0;
                let reason = format!("shard {moving} is on its way to another database; try again");
                return Err(Error::Unavailable { reason });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Asks about attempts that workers hold. A run is where it was born, unless it has moved: then the others are asked.
    pub(super) async fn route_held<'s, Q, A, F>(
        &'s self,
        items: Vec<Q>,
        held: impl Fn(&Q) -> Held + Send + Sync,
        ask: F,
    ) -> Result<Vec<Result<A, Refused>>, Error>
    where
        Q: Clone + Send + Sync,
        A: Send,
        F: Fn(&'s Postgres, Vec<Q>) -> Answers<'s, Result<A, Refused>> + Send + Sync,
    {
        if let Some(only) = self.only() {
            return ask(only, items).await;
        }
        let is_elsewhere = |answer: &Result<A, Refused>| {
            matches!(answer, Err(Refused::Lifecycle(lifecycle::Refused::StaleLease { .. })))
        };
        let mut answers: Vec<Option<Result<A, Refused>>> = items.iter().map(|_| None).collect();
        let born = |item: &Q| self.numbered(held(item).sequence.database()).unwrap_or(0);
        for round in 0..self.databases.len() {
            let mut groups: Vec<Vec<usize>> = self.databases.iter().map(|_| Vec::new()).collect();
            for (index, item) in items.iter().enumerate() {
                if answers[index].as_ref().is_none_or(is_elsewhere) {
                    groups[(born(item) + round) % self.databases.len()].push(index);
                }
            }
            let asked = self.databases.iter().zip(&groups).map(|(database, group)| {
                ask(database, group.iter().map(|index| items[*index].clone()).collect())
            });
            for (group, told) in groups.iter().zip(all(asked.collect::<Vec<_>>()).await?) {
                for (index, answer) in group.iter().zip(told) {
                    answers[*index] = Some(answer);
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Asks for one thing.
    pub(super) async fn route_one<'s, A, F>(
        &'s self,
        shard: ShardId,
        is_suspicious: impl Fn(&A) -> bool + Send + Sync,
        ask: F,
    ) -> Result<A, Error>
    where
        A: Send + 's,
        F: Fn(&'s Postgres) -> Answer<'s, A> + Send + Sync,
    {
        let asked = [shard];
        let one = self.route(
            &asked,
            |shard| *shard,
            is_suspicious,
            |database, _| {
                let answer = ask(database);
                Box::pin(async move { Ok(vec![answer.await?]) })
            },
        );
        let mut answers = one.await?;
        answers.pop().ok_or_else(|| Error::Unavailable { reason: "a database gave no answer".into() })
    }
}
