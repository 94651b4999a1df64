//! History, read: one run, lists of runs, the ledger.
//!
//! Promise: a page looks at a bounded number of rows, whatever the filter; what an index serves is found by it.

use jiff::Timestamp;
use punctual_domain::id::{JobId, RunId, Sequence, TenantId};
use punctual_domain::{LedgerEntry, Run};
use punctual_store::record::decode_run;
use punctual_store::{EXAMINED_MAX, Page, PageRequest, RunDetail, RunFilter};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{Failed, failed};
use crate::papers;
use crate::postgres::Postgres;
use crate::row::{fate, job_uuid, millis, timestamp};

/// Rows that are read at a time when they must be looked at.
const CHUNK: i64 = 5_000;

const RUN: &str = "
select record, array(select p.record from open_papers p where p.seq = $1 order by p.attempt) from open_runs where seq = $1
union all select record, array[papers] from history where class in (0, 1, 2, 3, 4) and seq = $1 limit 1";

/// The run that is number $2 + 1 of those of a job that have ended, newest first.
const FLOOR: &str = "
select seq from history where job = $1 order by seq desc offset $2 limit 1";

/// Where a list of runs is read: each place newest first, with the sequence below which and from which.
struct Places {
    open: Option<String>,
    ended: Option<String>,
}

impl Places {
    /// What an index serves is asked for; the rest is looked at.
    fn of(filter: &RunFilter) -> Self {
        let is_failure = matches!(filter.state, Some("failed" | "timed_out"));
        let is_ended = is_failure || matches!(filter.state, Some("succeeded" | "cancelled" | "missed"));
        let whose = match (filter.job, filter.tenant) {
            (Some(_), _) => "and job = $4",
            (None, Some(_)) => "and tenant = $4",
            (None, None) => "and $4::uuid is null",
        };
        let select = |table: &str, more: &str| {
            format!(
                "select seq, record from {table} where seq < $1 and seq >= $2 {whose} {more} order by seq desc limit $3"
            )
        };
        let dead = "and seq in (select seq from dead_letters)";
        Places {
            open: (!is_ended && filter.is_dead != Some(true)).then(|| select("open_runs", "")),
            ended: (!filter.is_of_open()).then(|| match (filter.is_dead, is_failure) {
                (Some(true), _) => select("history", &format!("and state in (11, 12) {dead}")),
                (_, true) => select("history", "and state in (11, 12)"),
                _ => select("history", ""),
            }),
        }
    }
}

impl Postgres {
    pub(crate) async fn run(&self, id: RunId) -> Result<Option<RunDetail>, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(RUN).await.map_err(failed)?;
        let row = client.query_opt(&statement, &[&id.sequence().as_i64()]).await.map_err(failed)?;
        let Some(row) = row else { return Ok(None) };
        let (run, attempts) = decode_run(id.sequence(), row.get::<_, &[u8]>(0))?;
        let papers = papers::read_all(row.get(1))?;
        Ok(Some(RunDetail::of(run, attempts, papers)).filter(|detail| detail.run.id() == id))
    }

    pub(crate) async fn runs(
        &self,
        filter: &RunFilter,
        page: &PageRequest<Sequence>,
    ) -> Result<Page<Run, Sequence>, Failed> {
        let places = Places::of(filter);
        let from = filter.born_from.map_or(0, |from| Sequence::first_at(from, 0).as_i64());
        let before = filter.born_before.map_or(i64::MAX, |before| Sequence::first_at(before, 0).as_i64());
        // What has ended before this is not wanted.
        let floor = match filter.job.zip(filter.last) {
            Some((job, last)) => self.floor(job, last.get()).await?,
            None => 0,
        };
        let mut below = page.after.map_or(before, |after| after.as_i64().min(before));
        let is_served = filter.kind.is_none()
            && filter.queue.is_none()
            && filter.waiting_for.is_none()
            && filter.is_dead != Some(false)
            && (filter.state.is_none() || filter.is_dead == Some(true))
            && (filter.job.is_none() || filter.tenant.is_none());
        let chunk = if is_served { page.limit as i64 + 1 } else { CHUNK };
        let mut found = Page { items: Vec::new(), next: None };
        let mut examined = 0;
        loop {
            let rows = self.newest(&places, filter, (below, [from, from.max(floor)]), chunk).await?;
            let is_last = (rows.len() as i64) < chunk;
            for (run, is_dead) in rows {
                let is_match = filter.matches(&run) && filter.is_dead.is_none_or(|dead| dead == is_dead);
                // There is more: it starts after the last row that was looked at.
                if examined == EXAMINED_MAX || (is_match && found.items.len() == page.limit) {
                    return Ok(found);
                }
                examined += 1;
                found.next = Some(run.sequence);
                below = run.sequence.as_i64();
                if is_match {
                    found.items.push(run);
                }
            }
            if is_last {
                found.next = None;
                return Ok(found);
            }
        }
    }

    /// The oldest of the newest `last` runs of a job that have ended; below all of them if there are fewer.
    async fn floor(&self, job: JobId, last: u32) -> Result<i64, Failed> {
        let client = self.connection().await?;
        let statement = client.prepare_cached(FLOOR).await.map_err(failed)?;
        let before = i64::from(last) - 1;
        let row = client.query_opt(&statement, &[&job_uuid(job), &before]).await.map_err(failed)?;
        Ok(row.map_or(0, |row| row.get(0)))
    }

    /// The newest runs of both places, in one order, each from its own sequence on; each with whether it is a dead letter, if that is asked for.
    async fn newest(
        &self,
        places: &Places,
        filter: &RunFilter,
        (below, from): (i64, [i64; 2]),
        limit: i64,
    ) -> Result<Vec<(Run, bool)>, Failed> {
        let client = self.connection().await?;
        let job: Option<Uuid> = filter.job.map(job_uuid);
        let tenant: Option<i32> = filter.tenant.map(|TenantId(tenant)| tenant as i32);
        let whose: &(dyn ToSql + Sync) = match (&job, &tenant) {
            (None, Some(tenant)) => tenant,
            _ => &job,
        };
        let mut runs = Vec::new();
        for (sql, from) in [&places.open, &places.ended].into_iter().zip(from) {
            let Some(sql) = sql else { continue };
            let statement = client.prepare_cached(sql).await.map_err(failed)?;
            for row in client.query(&statement, &[&below, &from, &limit, whose]).await.map_err(failed)? {
                let (run, _) = decode_run(Sequence::from_i64(row.get(0)), row.get::<_, &[u8]>(1))?;
                runs.push((run, filter.is_dead == Some(true)));
            }
        }
        runs.sort_unstable_by_key(|(run, _)| std::cmp::Reverse(run.sequence));
        // A run may have ended between the two.
        runs.dedup_by_key(|(run, _)| run.sequence);
        runs.truncate(limit as usize);
        if filter.is_dead == Some(false) {
            let sequences: Vec<i64> = runs.iter().map(|(run, _)| run.sequence.as_i64()).collect();
            let sql = "select seq from dead_letters where seq = any($1)";
            let statement = client.prepare_cached(sql).await.map_err(failed)?;
            let rows = client.query(&statement, &[&sequences]).await.map_err(failed)?;
            let dead: std::collections::HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
            runs.iter_mut().for_each(|(run, is_dead)| *is_dead = dead.contains(&run.sequence.as_i64()));
        }
        Ok(runs)
    }

    pub(crate) async fn ledger(
        &self,
        job: JobId,
        page: &PageRequest<Timestamp>,
    ) -> Result<Page<LedgerEntry, Timestamp>, Failed> {
        let client = self.connection().await?;
        let sql = "
            select from_slot, to_slot, slots, fate, tenant, decided_at, cap from ledger
            where job = $1 and from_slot < $2 order by from_slot desc limit $3";
        let statement = client.prepare_cached(sql).await.map_err(failed)?;
        let before = page.after.map_or(i64::MAX, millis);
        let limit = page.limit as i64 + 1;
        let rows = client.query(&statement, &[&job_uuid(job), &before, &limit]).await.map_err(failed)?;
        let mut items = Vec::new();
        for row in rows.iter().take(page.limit) {
            items.push(LedgerEntry {
                job,
                tenant: TenantId(row.get::<_, i32>(4) as u32),
                from: timestamp(row.get(0))?,
                to: timestamp(row.get(1))?,
                slots: row.get::<_, i64>(2) as u64,
                fate: fate(row.get(3), row.get(6))?,
                decided_at: timestamp(row.get(5))?,
            });
        }
        let next = items.last().map(|entry: &LedgerEntry| entry.from).filter(|_| rows.len() > page.limit);
        Ok(Page { items, next })
    }
}
