//! Sequences for runs: unique in the database, following time.
//!
//! A node takes blocks from one row and gives out their numbers, so that a birth needs no round trip of its own under
//! load. A block that is not used up soon is dropped: a sequence tells when its run was born. Promise: no number is
//! given out twice, by whatever node; a later block has larger numbers.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use punctual_domain::id::Sequence;
use tokio::sync::Mutex;

use crate::connect::Time;
use crate::error::Failed;
use crate::postgres::{Postgres, transact};
use crate::row::{millis, timestamp};

/// Numbers of a block; there are sixteen blocks in a millisecond.
const BLOCK: i64 = 1_024;
pub(crate) const BLOCKS: i64 = (Sequence::COUNTER_MAX as i64 + 1) / BLOCK;

/// The block that a sequence is in. Of another database, which has blocks of its own: the last of its millisecond.
pub(crate) fn block_of(sequence: Sequence) -> i64 {
    let counter = sequence.as_i64() & i64::from(Sequence::COUNTER_MAX);
    let block = if sequence.database() == 0 { counter / BLOCK } else { BLOCKS - 1 };
    millis(sequence.born_at()) * BLOCKS + block
}

/// Blocks that are taken at once at least: under load, a commit for several batches of births.
const AHEAD: i64 = 4;

/// How much older than its run a sequence may be.
const FRESH: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Sequences {
    time: Time,
    /// The number of the database among those of the installation.
    pub(crate) database: u8,
    rest: Mutex<Rest>,
}

/// What is left of the blocks that were taken last.
#[derive(Debug)]
struct Rest {
    next: i64,
    /// Blocks after the one of `next`.
    blocks: i64,
    left: i64,
    taken_at: Instant,
}

impl Sequences {
    pub(crate) fn new(time: Time) -> Self {
        Sequences {
            time,
            database: 0,
            rest: Mutex::new(Rest { next: 0, blocks: 0, left: 0, taken_at: Instant::now() }),
        }
    }

    /// So many sequences, ascending.
    pub(crate) async fn take(
        &self,
        store: &Postgres,
        count: usize,
        now: Timestamp,
    ) -> Result<Vec<Sequence>, Failed> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut rest = self.rest.lock().await;
        let is_fresh = match self.time {
            Time::Database => rest.taken_at.elapsed() < FRESH,
            Time::Caller => Sequence::from_i64(rest.next).born_at() >= now,
        };
        if !is_fresh || rest.left + rest.blocks * BLOCK < count as i64 {
            *rest = self.more(store, count, now).await?;
        }
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            if rest.left == 0 {
                // The numbers of the last block of a millisecond end before those of the next begin.
                (rest.next, rest.left, rest.blocks) =
                    (Sequence::from_i64(rest.next - 1).next().as_i64(), BLOCK, rest.blocks - 1);
            }
            taken.push(Sequence::from_i64(rest.next));
            rest.next += 1;
            rest.left -= 1;
        }
        Ok(taken)
    }

    async fn more(&self, store: &Postgres, count: usize, now: Timestamp) -> Result<Rest, Failed> {
        let taken_at = Instant::now();
        let wanted = (count.div_ceil(BLOCK as usize) as i64).max(AHEAD);
        let callers = (self.time == Time::Caller).then(|| millis(now));
        let sql = "update sequences set block = greatest(block + 1, punctual_now($1) * $3) + $2 - 1 returning block";
        // Blocks that were taken twice, because an answer was lost, are just not used.
        let row = transact!(store, |client| {
            let statement = client.prepare_cached(sql).await?;
            Ok(client.query_one(&statement, &[&callers, &wanted, &BLOCKS]).await?)
        })?;
        let first = row.get::<_, i64>(0) - wanted + 1;
        let start =
            Sequence::first_at(timestamp(first / BLOCKS)?, self.database).as_i64() + first % BLOCKS * BLOCK;
        Ok(Rest { next: start, blocks: wanted - 1, left: BLOCK, taken_at })
    }
}
