//! Replicas: standbys of the databases, from which lists for people are read.
//!
//! Every second each database is asked how far it is, and each replica who it is and how far it has come. Which database a
//! replica is of is known by what both say, not by where they are. Promise: a list comes from a replica only if that has
//! everything that the database had a few seconds before, and from the database otherwise, also if the replica fails; nothing
//! else is read from a replica, and nothing is written to one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use punctual_store::Error;
use tokio::task::JoinHandle;

use crate::connect::{Options, Role};
use crate::error::{Failed, OpenError, failed};
use crate::migrate;
use crate::postgres::Postgres;

/// How often databases and replicas are asked. What they say is as old, so it is well below the lag that is allowed.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Who takes longer to answer is out of reach.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How far a database was, for ten minutes back: a replica that is further behind is as old as it was then.
const SAMPLES_MAX: usize = 600;

/// Who a server's database is, whether it follows another, and how far it is.
const WHO: &str = "
select c.system_identifier, d.oid::bigint, pg_is_in_recovery(),
    (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end - '0/0'::pg_lsn)::bigint
from pg_control_system() c cross join pg_database d where d.datname = current_database()";

/// What a standby shares with its database, and with no other: the cluster it was copied from, and the place in it.
type Origin = (i64, i64);

/// What a database or a replica says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    origin: Origin,
    is_standby: bool,
    /// Bytes of log that were written, or applied.
    position: i64,
}

/// How far a database was, from when it is known.
#[derive(Debug, Default)]
struct Course {
    origin: Option<Origin>,
    samples: VecDeque<(Instant, i64)>,
}

impl Course {
    fn note(&mut self, at: Instant, seen: Seen) {
        // A standby that was not promoted yet says nothing of how far the database is.
        if seen.is_standby {
            return;
        }
        self.origin = Some(seen.origin);
        self.samples.push_back((at, seen.position));
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    /// Since when there is something that is not applied at a position yet: what was there before is.
    fn as_of(&self, position: i64) -> Option<Instant> {
        self.samples.iter().rev().find(|(_, written)| *written <= position).map(|(at, _)| *at)
    }
}

/// A standby.
#[derive(Debug)]
pub(super) struct Replica {
    store: Postgres,
    lag_max: Duration,
    standing: Mutex<Standing>,
    reads: AtomicU64,
}

/// What is known about a replica.
#[derive(Debug)]
struct Standing {
    /// The database that it is of, if lists may be read from it; otherwise why not.
    of: Result<usize, String>,
    /// It has everything that was there then.
    as_of: Option<Instant>,
    is_told: bool,
}

/// All replicas, and who watches them.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    all: Vec<Arc<Replica>>,
    watcher: Option<JoinHandle<()>>,
}

impl Drop for Replicas {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            watcher.abort();
        }
    }
}

impl Replicas {
    /// Watches those that are replicas of these databases. None is used before it has been asked.
    pub(super) fn start(databases: &Arc<[Postgres]>, options: &[Options]) -> Result<Self, OpenError> {
        let mut all = Vec::new();
        for one in options {
            if let Role::Replica { lag_max } = one.role {
                let store = Postgres::replica(one)?;
                let standing =
                    Standing { of: Err("it was not asked yet".into()), as_of: None, is_told: false };
                let (standing, reads) = (Mutex::new(standing), AtomicU64::new(0));
                all.push(Arc::new(Replica { store, lag_max, standing, reads }));
            }
        }
        let watcher = (!all.is_empty()).then(|| tokio::spawn(watch(Arc::clone(databases), all.clone())));
        Ok(Replicas { all, watcher })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// One that has everything that was in a database at some time, and is not too old.
    pub(super) fn of(&self, database: usize, since: Instant) -> Option<&Replica> {
        let has_all = |replica: &&Arc<Replica>| {
            let standing = replica.standing();
            let is_new = |as_of: Instant| as_of >= since && as_of.elapsed() <= replica.lag_max;
            standing.of == Ok(database) && standing.as_of.is_some_and(is_new)
        };
        self.all.iter().find(has_all).map(|replica| &**replica)
    }

    pub(super) fn figures(&self) -> Vec<punctual_store::Replica> {
        let figures = |replica: &Arc<Replica>| {
            let standing = replica.standing();
            let lag = standing.as_of.map(|as_of| as_of.elapsed());
            punctual_store::Replica {
                address: replica.store.address().into(),
                lag,
                is_used: standing.of.is_ok() && lag.is_some_and(|lag| lag <= replica.lag_max),
                reads: replica.reads.load(Ordering::Relaxed),
            }
        };
        self.all.iter().map(figures).collect()
    }
}

impl Replica {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is read from.
    pub(super) fn store(&self) -> &Postgres {
        &self.store
    }

    /// A page was read from it.
    pub(super) fn was_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what was found about it, and says so if that changes whether it is used.
    fn settle(&self, found: Result<(usize, Option<Instant>), String>) {
        let mut standing = self.standing();
        let (of, as_of) = match found {
            Ok((database, as_of)) => {
                // What it had before, it still has.
                let as_of = as_of.max(standing.as_of);
                let behind = as_of.map(|as_of| as_of.elapsed());
                let of = match behind {
                    Some(behind) if behind <= self.lag_max => Ok(database),
                    Some(behind) => Err(format!("it is {:.0} s behind", behind.as_secs_f64())),
                    None => Err("how far it is behind is not known".into()),
                };
                (of, as_of)
            }
            Err(reason) => (Err(reason), None),
        };
        let address = self.store.address();
        match (&standing.of, &of) {
            (Err(_), Ok(_)) => tracing::info!(replica = address, "lists are read from the replica"),
            (Ok(_), Err(reason)) => tell_unused(address, reason),
            (Err(_), Err(reason)) if !standing.is_told => tell_unused(address, reason),
            _ => {}
        }
        *standing = Standing { of, as_of, is_told: true };
    }
}

fn tell_unused(address: &str, reason: &str) {
    tracing::warn!(replica = address, reason, "the replica is not used; lists are read from the database");
}

async fn watch(databases: Arc<[Postgres]>, replicas: Vec<Arc<Replica>>) {
    let mut courses: Vec<Course> = databases.iter().map(|_| Course::default()).collect();
    loop {
        let asked_at = Instant::now();
        for (course, seen) in courses.iter_mut().zip(join_all(databases.iter().map(ask)).await) {
            // One that is out of reach gets no further, as far as is known.
            if let Ok(seen) = seen {
                course.note(asked_at, seen);
            }
        }
        let answers = join_all(replicas.iter().map(|replica| ask_replica(&replica.store))).await;
        for (replica, seen) in replicas.iter().zip(answers) {
            let found = seen.and_then(|seen| place(&courses, seen));
            replica.settle(found);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Which database a replica is of, and as of when.
fn place(courses: &[Course], seen: Seen) -> Result<(usize, Option<Instant>), String> {
    if !seen.is_standby {
        return Err("it takes writes itself, and follows no database".into());
    }
    let database = courses.iter().position(|course| course.origin == Some(seen.origin));
    let database = database.ok_or("it is not a copy of a database of this installation")?;
    Ok((database, courses[database].as_of(seen.position)))
}

/// Who a database is and how far.
async fn ask(database: &Postgres) -> Result<Seen, String> {
    let asked = database.read("position", || async {
        let client = database.connection().await?;
        let statement = client.prepare_cached(WHO).await.map_err(failed)?;
        let row = client.query_one(&statement, &[]).await.map_err(failed)?;
        let origin = (row.get(0), row.get(1));
        Ok::<_, Failed>(Seen { origin, is_standby: row.get(2), position: row.get(3) })
    });
    match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(answer) => answer.map_err(|error: Error| error.to_string()),
        Err(_) => Err("it does not answer".into()),
    }
}

/// Who a replica is and how far, if it can be read by this version.
async fn ask_replica(replica: &Postgres) -> Result<Seen, String> {
    let seen = ask(replica).await?;
    let schema = async {
        let client = replica.connection().await.map_err(|failed| failed.told().1.to_string())?;
        migrate::read(&client).await.and_then(|schema| schema.check()).map_err(|error| error.to_string())
    };
    match tokio::time::timeout(ANSWER_WITHIN, schema).await {
        Ok(usable) => usable.map(|()| seen),
        Err(_) => Err("it does not answer".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Origin = (7, 1);

    fn seen(position: i64) -> Seen {
        Seen { origin: OURS, is_standby: true, position }
    }

    #[test]
    fn a_replica_is_as_old_as_the_last_that_it_has_applied() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut course = Course::default();
        for (seconds, position) in [(0, 100), (1, 100), (2, 150), (3, 200)] {
            course.note(at(seconds), Seen { is_standby: false, ..seen(position) });
        }
        let courses = [Course::default(), course];
        for (position, as_of) in [(99, None), (100, Some(1)), (149, Some(1)), (150, Some(2)), (999, Some(3))]
        {
            assert_eq!(place(&courses, seen(position)), Ok((1, as_of.map(at))), "{position}");
        }
    }

    #[test]
    fn what_is_no_standby_of_ours_is_not_used() {
        let mut course = Course::default();
        course.note(Instant::now(), Seen { is_standby: false, ..seen(1) });
        let courses = [course];
        for (found, part) in [
            (Seen { is_standby: false, ..seen(1) }, "takes writes"),
            (Seen { origin: (8, 1), ..seen(1) }, "not a copy"),
            (Seen { origin: (7, 2), ..seen(1) }, "not a copy"),
        ] {
            let reason = place(&courses, found).expect_err("it is not used");
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn a_course_is_bounded() {
        let mut course = Course::default();
        for position in 0..10_000 {
            course.note(Instant::now(), Seen { is_standby: false, ..seen(position) });
        }
        assert_eq!(course.samples.len(), SAMPLES_MAX);
        assert!(course.as_of(9_000).is_none(), "too long ago");
    }
}
