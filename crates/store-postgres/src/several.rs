//! Several databases as one store: each shard lives whole in one of them.
//!
//! [`Several`] asks the database where the shard of a thing lives, and puts answers together where a question is about
//! all of them. Promise: no write needs two databases at once; a thing whose shard has just moved is found where it went;
//! a database that is out of reach holds up what lives in it, and the rest for a moment.

mod homes;
mod identity;
mod merge;
mod moving;
mod parts;
mod route;
mod verbs;
mod work;

use std::sync::{Arc, Mutex};

use punctual_store::Error;

use crate::connect::Options;
use crate::error::OpenError;
use crate::postgres::Postgres;
use homes::Homes;

/// The databases of an installation.
#[derive(Debug)]
pub struct Several {
    /// In the order of their numbers. The first has what is not of any shard: who the tenants are, and the settings.
    databases: Vec<Postgres>,
    shard_count: u16,
    /// Where shards live, as last seen.
    homes: Mutex<Arc<Homes>>,
}

impl Several {
    /// Connects to all of them and brings their schemas up to date. An empty database that is not one of them yet joins
    /// them, and gets shards when some are moved there.
    pub async fn open(options: &[Options]) -> Result<Self, OpenError> {
        let databases = identity::open(options).await?;
        let shard_count = databases.first().map_or(0, |database| database.shard_count);
        let several =
            Several { databases, shard_count, homes: Mutex::new(Arc::new(Homes::unknown(shard_count))) };
        let homes = several
            .find_homes()
            .await
            .map_err(|error| OpenError::Unreachable { reason: error.to_string() })?;
        match homes.homeless() {
            0 => Ok(several),
            missing => Err(OpenError::Missing { missing, known: several.known().await }),
        }
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
