//! Workers elsewhere: what they tell of themselves is kept, so that the process after this one knows whom it may hear of.
//!
//! In rows of `meta`, one for each that lives, written when it changes. How busy a worker is changes all the time, and is not kept.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_domain::id::{TenantId, WorkerId};
use punctual_domain::work::{About, Presence};
use punctual_store::Error;
use punctual_store::record::{decode_about, encode_about};
use rusqlite::{Connection, params};

use crate::error::failed;
use crate::row::damaged;
use crate::writer::Batch;

/// Before the id, in the names of these rows.
const NAMED: &str = "worker/";

/// Those who told of themselves, as the database has it.
pub(crate) fn load(connection: &Connection) -> Result<HashMap<WorkerId, About>, Error> {
    let mut statement = connection
        .prepare("select name, value from meta where name >= 'worker/' and name < 'worker0'")
        .map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut told = HashMap::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let (name, text): (String, String) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        let worker = name.strip_prefix(NAMED).and_then(|id| id.parse().ok());
        told.insert(worker.ok_or_else(|| damaged("a worker without an id"))?, decode_about(&text)?);
    }
    Ok(told)
}

fn name(worker: WorkerId) -> String {
    format!("{NAMED}{worker}")
}

impl Batch<'_> {
    pub(crate) fn introduce(
        &mut self,
        worker: WorkerId,
        about: About,
        now: Timestamp,
    ) -> Result<bool, Error> {
        self.check()?;
        let lasting = About { saturation: None, ..about.clone() };
        if !self.memory.liveness.introduce(worker, about, now) {
            return Ok(false);
        }
        if self.memory.told.get(&worker) != Some(&lasting) {
            let text = encode_about(&lasting)?;
            self.line("insert or replace into meta values (?1, ?2)", params![name(worker), text])?;
            self.memory.told.insert(worker, lasting);
        }
        Ok(true)
    }

    pub(crate) fn workers(&self, tenant: Option<TenantId>) -> Vec<Presence> {
        self.memory.liveness.seen(tenant)
    }

    pub(crate) fn dismiss(&mut self, worker: WorkerId) -> Result<(), Error> {
        self.memory.liveness.bury(worker);
        self.forget_dead()
    }

    pub(crate) fn expired(
        &mut self,
        lease: Duration,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Run>, Error> {
        let running = self.memory.running.values().map(|entry| &entry.run);
        let lost = self.memory.liveness.expired(running, lease, now, limit);
        self.forget_dead()?;
        Ok(lost)
    }

    /// Who is dead is not waited for by the process after this one.
    fn forget_dead(&mut self) -> Result<(), Error> {
        let is_dead = |worker: &&WorkerId| !self.memory.liveness.has_told(**worker);
        let dead: Vec<WorkerId> = self.memory.told.keys().filter(is_dead).copied().collect();
        for worker in dead {
            self.line("delete from meta where name = ?1", params![name(worker)])?;
            self.memory.told.remove(&worker);
        }
        Ok(())
    }
}
