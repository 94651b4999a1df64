//! Lapse: runs whose next attempt did not start in time.
//!
//! Their times are in a column with an index of its own; whether one is over is decided on the row that is held.

use jiff::Timestamp;
use punctual_domain::Run;
use punctual_store::{Lapse, Lapsed, Refused, Shards};

use crate::complete::{Rows, Wanted};
use crate::error::{Failed, failed};
use crate::postgres::Postgres;
use crate::row::{Entry, millis, numbers, timestamp};

/// What is over, and one more.
pub(crate) const LAPSED: &str = "
select seq, revision, record, line, start_by from open_runs
where start_by < $1 and line <> 2 and ($2::smallint[] is null or shard = any($2))
order by start_by, seq limit $3";

/// When the first of the others is over.
pub(crate) const NEXT_LAPSE: &str = "
select start_by from open_runs
where start_by >= $1 and line <> 2 and ($2::smallint[] is null or shard = any($2))
order by start_by, seq limit 1";

/// Nodes of older schemas leave times of runs that have other ones by now, or none.
pub(crate) const CORRECT: &str = "
update open_runs o set start_by = x.start_by
from unnest($1::bigint[], $2::int[], $3::bigint[]) x (seq, revision, start_by)
where o.seq = any(array[x.seq]) and o.revision = x.revision";

impl Postgres {
    pub(crate) async fn lapsed(
        &self,
        shards: &Shards,
        now: Timestamp,
        limit: usize,
    ) -> Result<Lapsed, Failed> {
        let client = self.connection().await?;
        let (at, shards, most) = (millis(now), numbers(shards), limit as i64 + 1);
        let over = client.prepare_cached(LAPSED).await.map_err(failed)?;
        let rows = client.query(&over, &[&at, &shards, &most]).await.map_err(failed)?;
        let mut lapsed = Lapsed::default();
        let (mut sequences, mut revisions, mut right) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            let (entry, start_by) = (Entry::read(row)?, row.get::<_, i64>(4));
            let lapses_after = entry.run.lapses_after().map(millis);
            if lapses_after != Some(start_by) {
                sequences.push(entry.run.sequence.as_i64());
                revisions.push(entry.revision);
                right.push(lapses_after);
            } else if lapsed.runs.len() == limit {
                lapsed.next_at = Some(timestamp(start_by)?);
            } else {
                lapsed.runs.push(entry.run);
            }
        }
        if !sequences.is_empty() {
            let correct = client.prepare_cached(CORRECT).await.map_err(failed)?;
            client.execute(&correct, &[&sequences, &revisions, &right]).await.map_err(failed)?;
            // There may be others behind them.
            lapsed.next_at = Some(now);
        }
        if lapsed.next_at.is_none() {
            let next = client.prepare_cached(NEXT_LAPSE).await.map_err(failed)?;
            let row = client.query_opt(&next, &[&at, &shards]).await.map_err(failed)?;
            lapsed.next_at = row.map(|row| timestamp(row.get(0))).transpose()?;
        }
        Ok(lapsed)
    }

    pub(crate) async fn lapse(
        &self,
        lapses: &[Lapse],
        now: Timestamp,
    ) -> Result<Vec<Result<Run, Refused>>, Failed> {
        let wanted: Vec<Wanted> = lapses.iter().map(|one| (one.run.sequence(), one.successor)).collect();
        let lapse = |rows: &mut Rows| -> Vec<Result<Run, Refused>> {
            lapses.iter().map(|one| rows.lapse(one, now)).collect()
        };
        let messages = self.messages(lapses.iter().map(|one| &one.messages), now).await?;
        let (answers, _) = self.with_rows(&wanted, &messages, now, lapse).await?;
        let mut told = Vec::with_capacity(answers.len());
        for (answer, lapse) in answers.into_iter().zip(lapses) {
            told.push(match answer {
                Err(Refused::NoRun) => Err(self.why_not(lapse.run, "missed").await?),
                answer => answer,
            });
        }
        Ok(told)
    }
}
