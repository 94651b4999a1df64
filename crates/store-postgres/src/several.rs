//! Several databases as one store: each shard lives whole in one of them.
//!
//! [`Several`] asks the database where the shard of a thing lives, and puts answers together where a question is about
//! all of them. Promise: no write needs two databases at once; a thing whose shard has just moved is found where it went;
//! a database that is out of reach holds up what lives in it, and the rest for a moment.

mod homes;
mod identity;
mod lists;
mod merge;
mod moving;
mod parts;
mod replicas;
mod route;
mod verbs;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use punctual_store::{Error, Kinds};

use crate::connect::{Options, Role};
use crate::error::OpenError;
use crate::postgres::Postgres;
use homes::Homes;
use replicas::Replicas;

/// The databases of an installation.
#[derive(Debug)]
pub struct Several {
    /// In the order of their numbers. The first has what is not of any shard: who the tenants are, and the settings.
    databases: Arc<[Postgres]>,
    shard_count: u16,
    /// Where shards live, as last seen.
    homes: Mutex<Arc<Homes>>,
    /// When that was last seen to have changed.
    moved_at: Mutex<Instant>,
    /// Whose turn it is, over all of them.
    kinds: Mutex<Kinds>,
    replicas: Replicas,
}

impl Several {
    /// Connects to all of them and brings their schemas up to date. An empty database that is not one of them yet joins
    /// them, and gets shards when some are moved there. Replicas are used once they are found to be some: they need not be
    /// within reach, and nothing is written to them.
    pub async fn open(options: &[Options]) -> Result<Self, OpenError> {
        let is_database = |one: &&Options| one.role == Role::Database;
        let databases: Vec<Options> = options.iter().filter(is_database).cloned().collect();
        let databases: Arc<[Postgres]> = identity::open(&databases).await?.into();
        let shard_count = databases.first().map_or(0, |database| database.shard_count);
        let mut several = Several {
            databases,
            shard_count,
            homes: Mutex::new(Arc::new(Homes::unknown(shard_count))),
            moved_at: Mutex::new(Instant::now()),
            kinds: Mutex::default(),
            replicas: Replicas::default(),
        };
        let homes = several
            .find_homes()
            .await
            .map_err(|error| OpenError::Unreachable { reason: error.to_string() })?;
        // After it is known where shards are: a replica that was asked before would seem to miss a move.
        several.replicas = Replicas::start(&several.databases, options)?;
        match homes.homeless() {
            0 => Ok(several),
            missing => Err(OpenError::Missing { missing, known: several.known().await }),
        }
    }

    /// When a shard was last seen to have moved.
    fn moved_at(&self) -> Instant {
        *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where they are, without passwords.
    pub fn addresses(&self) -> Vec<&str> {
        self.databases.iter().map(Postgres::address).collect()
    }

    /// What all nodes share under a name: what is there, or else what is proposed.
    pub async fn setting(&self, name: &str, proposed: &[u8]) -> Result<Vec<u8>, Error> {
        self.first().setting(name, proposed).await
    }

    /// The only one, while there is one.
    fn only(&self) -> Option<&Postgres> {
        match &self.databases[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The one with what is not of any shard.
    fn first(&self) -> &Postgres {
        &self.databases[0]
    }

    /// The databases that the installation has had, for people.
    async fn known(&self) -> String {
        let known = identity::known(self.first()).await.unwrap_or_default();
        known.iter().map(|(number, address)| format!("{number} ({address})")).collect::<Vec<_>>().join(", ")
    }
}
