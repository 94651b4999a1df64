//! Which database each shard lives in, as last seen.
//!
//! A shard lives where its row is in `shards`. While it moves there may be none for a moment; if whoever moved it died
//! just then, whoever notices finishes it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use punctual_domain::id::ShardId;
use punctual_store::Error;

use super::Several;
use crate::error::{Failed, failed};
use crate::postgres::Postgres;

/// A database that takes longer is left as it was last seen, so that it does not hold up the others.
const WITHIN: Duration = Duration::from_millis(1_500);

/// The place of each shard's database in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Homes(Vec<Option<usize>>);

impl Homes {
    pub(super) fn unknown(shards: u16) -> Self {
        Homes(vec![None; usize::from(shards)])
    }

    pub(super) fn of(&self, shard: ShardId) -> Option<usize> {
        self.0.get(usize::from(shard.0)).copied().flatten()
    }

    /// How many shards live nowhere.
    pub(super) fn homeless(&self) -> usize {
        self.0.iter().filter(|home| home.is_none()).count()
    }

    /// The shards of a database.
    pub(super) fn shards_of(&self, database: usize) -> Vec<ShardId> {
        let here = self.0.iter().enumerate().filter(|(_, home)| **home == Some(database));
        here.map(|(shard, _)| ShardId(shard as u16)).collect()
    }

    fn settle(&mut self, database: usize, living: &[ShardId]) {
        self.0.iter_mut().filter(|home| **home == Some(database)).for_each(|home| *home = None);
        for shard in living {
            if let Some(home) = self.0.get_mut(usize::from(shard.0)) {
                *home = Some(database);
            }
        }
    }
}

impl Several {
    /// As last seen.
    pub(super) fn homes(&self) -> Arc<Homes> {
        Arc::clone(&self.homes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks where they are. What a database that does not answer had before, it still has. An error only if none answers.
    pub(super) async fn find_homes(&self) -> Result<Arc<Homes>, Error> {
        let mut homes = self.look().await?;
        if homes.homeless() > 0 && self.arrive_homeless(&homes).await? {
            homes = self.look().await?;
        }
        let homes = Arc::new(homes);
        let mut last = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != homes {
            *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        *last = Arc::clone(&homes);
        drop(last);
        Ok(homes)
    }

    async fn look(&self) -> Result<Homes, Error> {
        let looks = self.databases.iter().map(|database| async {
            let slow = || Error::Unavailable { reason: format!("{} does not answer", database.address()) };
            tokio::time::timeout(WITHIN, database.living()).await.unwrap_or_else(|_| Err(slow()))
        });
        let answers = join_all(looks).await;
        let mut homes = Homes::clone(&self.homes());
        let mut failure = None;
        let mut has_answered = false;
        for (database, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(living) => {
                    homes.settle(database, &living);
                    has_answered = true;
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if !has_answered => Err(error),
            _ => Ok(homes),
        }
    }
}

impl Postgres {
    /// The shards that live here.
    pub(super) async fn living(&self) -> Result<Vec<ShardId>, Error> {
        let sql = "select shard from shards order by shard";
        self.read("living", || async {
            let client = self.connection().await?;
            let statement = client.prepare_cached(sql).await.map_err(failed)?;
            let rows = client.query(&statement, &[]).await.map_err(failed)?;
            Ok::<_, Failed>(rows.iter().map(|row| ShardId(row.get::<_, i16>(0) as u16)).collect())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_went_is_where_it_is_seen() {
        let mut homes = Homes::unknown(4);
        homes.settle(0, &[ShardId(0), ShardId(1), ShardId(2), ShardId(3)]);
        homes.settle(1, &[]);
        assert_eq!((homes.homeless(), homes.of(ShardId(2))), (0, Some(0)));
        homes.settle(0, &[ShardId(0), ShardId(1)]);
        homes.settle(1, &[ShardId(3)]);
        assert_eq!((homes.of(ShardId(3)), homes.of(ShardId(2)), homes.homeless()), (Some(1), None, 1));
        assert_eq!(homes.shards_of(0), [ShardId(0), ShardId(1)]);
        assert_eq!(homes.of(ShardId(9)), None, "there is no such shard");
    }
}
