//! The account of a bench: which slots were owed, which ran, and how late.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use comfy_table::Table;
use jiff::{SignedDuration, Timestamp};
use punctual_domain::run::RunState;
use punctual_domain::{JobId, Lane, Sequence};
use punctual_store::{PageRequest, RunFilter, Store};
use serde::Serialize;

/// What a scenario came to. What does not apply is left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct Account {
    pub(super) scenario: String,
    pub(super) registered: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) register_per_s: Option<f64>,
    pub(super) fired: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fired_per_s: Option<f64>,
    pub(super) completed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completed_per_s: Option<f64>,
    pub(super) missed: u64,
    pub(super) duplicates: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delivered: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lateness_ms: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) took_s: Option<f64>,
    pub(super) cpu_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_run: Option<f64>,
    /// At the begin of the measured time, where that says whether memory grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rss_before_mb: Option<f64>,
    pub(super) rss_mb: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk_bytes_per_job: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk_bytes_per_run: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_written_per_run: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) restart_to_first_fire_ms: Option<f64>,
    /// The first page of due slots, read from a store that was just opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) due_page_ms: Option<f64>,
    /// How late the slots of a quiet tenant were beside a noisy one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) quiet_lateness_ms: Option<Percentiles>,
    /// How late slots were before others called a target that never answers, and beside them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) others_alone_ms: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) others_beside_ms: Option<Percentiles>,
    /// While runs waited in all lanes: of a hundred runs that were started, how many each lane had, the most urgent first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lane_shares_percent: Option<[f64; Lane::COUNT]>,
    /// For how long at most none of a lane was started meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lane_gaps_ms: Option<[i64; Lane::COUNT]>,
    /// By how much what a node had was off its fair share at most, while nobody had come or gone for a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shards_off_fair_percent: Option<f64>,
    /// How late slots were at p99, in steps of [`STEP`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lateness_p99_over_time_ms: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fsync_ms: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: i64,
    pub(super) p99: i64,
    pub(super) p999: i64,
    pub(super) max: i64,
}

impl Percentiles {
    pub(super) fn of(mut values: Vec<i64>) -> Option<Percentiles> {
        values.sort_unstable();
        let last = values.len().checked_sub(1)?;
        let at = |permille: usize| values[last * permille / 1_000];
        Some(Percentiles { p50: at(500), p99: at(990), p999: at(999), max: values[last] })
    }
}

/// The steps in which lateness is told over time.
pub(super) const STEP: SignedDuration = SignedDuration::from_secs(10);

/// The slots that are owed: each job with its own.
pub(super) type Owed = HashMap<JobId, Vec<Timestamp>>;

/// What the history says about the slots that were owed.
#[derive(Debug, Default)]
pub(super) struct Audit {
    pub(super) fired: u64,
    pub(super) completed: u64,
    pub(super) missed: u64,
    pub(super) duplicates: u64,
    pub(super) lateness: Option<Percentiles>,
    /// How late each slot was, in no order.
    pub(super) slots: Vec<(Timestamp, i64)>,
    /// When the first attempt started and the last one ended.
    pub(super) span: Option<(Timestamp, Timestamp)>,
}

impl Audit {
    /// Reads all runs and holds them against what was owed. Slots of other times are not looked at.
    pub(super) async fn read(store: &dyn Store, owed: &Owed) -> Result<Audit> {
        let mut seen: HashMap<(JobId, Timestamp), u32> = HashMap::new();
        let mut audit = Audit::default();
        let mut after: Option<Sequence> = None;
        loop {
            let page = PageRequest { after, limit: 5_000 };
            let page = store.runs(&RunFilter::default(), page).await.context("read the history")?;
            for run in &page.items {
                if !owed.get(&run.job).is_some_and(|slots| slots.contains(&run.scheduled_for)) {
                    continue;
                }
                *seen.entry((run.job, run.scheduled_for)).or_default() += 1;
                audit.completed += u64::from(run.state == RunState::Succeeded);
                if let (Some(started), Some(finished)) = (run.started_at, run.finished_at) {
                    let late = started.duration_since(run.scheduled_for).as_millis() as i64;
                    audit.slots.push((run.scheduled_for, late));
                    let (first, last) = audit.span.unwrap_or((started, finished));
                    audit.span = Some((first.min(started), last.max(finished)));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        audit.fired = seen.len() as u64;
        audit.duplicates = seen.values().map(|times| u64::from(times - 1)).sum();
        audit.missed = owed.values().map(|slots| slots.len() as u64).sum::<u64>() - audit.fired;
        audit.lateness = Percentiles::of(audit.slots.iter().map(|(_, late)| *late).collect());
        Ok(audit)
    }

    /// How late slots were at p99, from a time on, in steps of [`STEP`].
    pub(super) fn lateness_over_time(&self, from: Timestamp) -> Vec<i64> {
        let mut steps: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (slot, late) in &self.slots {
            let number = slot.duration_since(from).as_millis() / STEP.as_millis();
            steps.entry(number as i64).or_default().push(*late);
        }
        steps.into_values().filter_map(Percentiles::of).map(|late| late.p99).collect()
    }
}

impl Account {
    /// Takes over what the audit found.
    pub(super) fn audited(self, audit: &Audit) -> Account {
        Account {
            fired: audit.fired,
            completed: audit.completed,
            missed: audit.missed,
            duplicates: audit.duplicates,
            lateness_ms: audit.lateness,
            ..self
        }
    }

    /// For people.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        let mut row = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                table.add_row([name.to_owned(), value]);
            }
        };
        row("scenario", Some(self.scenario.clone()));
        row("registered", Some(with_rate(self.registered, self.register_per_s)));
        row("fired", Some(with_rate(self.fired, self.fired_per_s)));
        row("completed", Some(with_rate(self.completed, self.completed_per_s)));
        row("delivered", self.delivered.map(|count| count.to_string()));
        row("missed", Some(self.missed.to_string()));
        row("duplicates", Some(self.duplicates.to_string()));
        let lateness = |ms: Percentiles| {
            format!("p50 {} ms, p99 {} ms, p99.9 {} ms, max {} ms", ms.p50, ms.p99, ms.p999, ms.max)
        };
        row("lateness", self.lateness_ms.map(lateness));
        row("of the quiet tenant", self.quiet_lateness_ms.map(lateness));
        row("alone", self.others_alone_ms.map(lateness));
        row("beside it", self.others_beside_ms.map(lateness));
        let shares = |shares: [f64; Lane::COUNT]| {
            let names =
                Lane::ALL.iter().zip(shares).map(|(lane, share)| format!("{} {share:.1} %", lane.as_str()));
            names.collect::<Vec<_>>().join(", ")
        };
        row("shares of lanes", self.lane_shares_percent.map(shares));
        row("longest gaps", self.lane_gaps_ms.map(|gaps| format!("{gaps:?} ms")));
        row("took", self.took_s.map(|s| format!("{s:.2} s")));
        row("CPU", Some(format!("{:.2} s", self.cpu_s)));
        row("CPU per run", self.cpu_us_per_run.map(|us| format!("{us:.1} us")));
        let before = self.rss_before_mb.map(|mb| format!(" ({mb:.0} MB at the begin)"));
        row("memory", Some(format!("{:.0} MB{}", self.rss_mb, before.unwrap_or_default())));
        row("disk per job", self.disk_bytes_per_job.map(|bytes| format!("{bytes:.0} bytes")));
        row("disk per run", self.disk_bytes_per_run.map(|bytes| format!("{bytes:.0} bytes")));
        row("written per run", self.bytes_written_per_run.map(|bytes| format!("{bytes:.0} bytes")));
        row("restart to first fire", self.restart_to_first_fire_ms.map(|ms| format!("{ms:.0} ms")));
        row("page of due slots", self.due_page_ms.map(|ms| format!("{ms:.1} ms")));
        row(
            "shards off what is fair",
            self.shards_off_fair_percent.map(|share| format!("at most {share:.0} %")),
        );
        let over_time = self.lateness_p99_over_time_ms.as_ref();
        row("p99 over time", over_time.map(|steps| format!("{steps:?} ms, every {} s", STEP.as_secs())));
        row("fsync", self.fsync_ms.map(|ms| format!("{ms:.2} ms")));
        table
    }
}

fn with_rate(count: u64, rate: Option<f64>) -> String {
    match rate {
        Some(rate) => format!("{count} ({rate:.0}/s)"),
        None => count.to_string(),
    }
}
