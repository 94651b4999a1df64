//! Figures about every step, for Prometheus.
//!
//! Counted where things happen, read when asked. Promise: names are step, quantity and unit; labels have few values,
//! so that memory does not grow with jobs or with what users call their types.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use punctual_domain::Outcome;
use punctual_domain::policy::breaker::{Change, Stage};
use punctual_domain::run::{Limit, Run, RunState};
use punctual_domain::work::Finished;
use punctual_store::{Durations, Store};

use crate::queues::QueueState;

/// More types than this are counted together.
const TYPES_MAX: usize = 100;

/// The label of types beyond the limit, and of jobs without one.
const OTHER: &str = "other";
const NONE: &str = "none";

/// The state of a breaker that was taken away.
const CLOSED: &str = "closed";

/// How attempts ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    outcome: &'static str,
    r#type: String,
}

/// Why runs went on no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lane {
    lane: &'static str,
}

/// A verb of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

/// A copy that lists may be read from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Replica {
    replica: String,
}

/// What breakers let pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// The figures of a node.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    types: Mutex<BTreeSet<String>>,
    attempts: Family<Ended, Counter>,
    pub(crate) registered: Counter,
    pub(crate) fired: Counter,
    pub(crate) missed: Counter,
    pub(crate) throttled: Counter,
    pub(crate) refused_pending: Counter,
    pub(crate) most_pending: Gauge,
    pub(crate) stale: Counter,
    pub(crate) fire_batch: Histogram,
    pub(crate) fire_time: Histogram,
    pub(crate) fire_lateness: Histogram,
    pub(crate) claimed: Counter,
    pub(crate) complete_time: Histogram,
    start_lateness: Histogram,
    execution: Histogram,
    retries: Counter,
    dead: Counter,
    lapsed: Family<Reason, Counter>,
    asked: Counter,
    pub(crate) reclaimed: Counter,
    pub(crate) operation_steps: Counter,
    pub(crate) wheel: Gauge,
    pub(crate) body_hits: Counter,
    pub(crate) body_misses: Counter,
    pub(crate) overdue_seconds: Gauge,
    pub(crate) overdue_jobs: Gauge,
    pub(crate) nodes: Gauge,
    pub(crate) shards: Gauge,
    pub(crate) handed_over: Counter,
    pub(crate) lost_shards: Counter,
    pub(crate) clock_ahead: Gauge<f64, AtomicU64>,
    breakers: Family<State, Gauge>,
    breaker_changes: Family<State, Counter>,
    queues: Queues,
    held: Gauge,
    concurrency: Gauge,
}

/// A queue of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    tenant: String,
    queue: String,
}

/// The figures of queues, as they were last told.
#[derive(Debug, Default)]
struct Queues {
    waiting: Family<OfQueue, Gauge>,
    oldest_wait: Family<OfQueue, Gauge<f64, AtomicU64>>,
    running: Family<OfQueue, Gauge>,
    lateness: Family<OfQueue, Gauge<f64, AtomicU64>>,
    workers: Family<OfQueue, Gauge>,
    concurrency: Family<OfQueue, Gauge>,
    saturation: Family<OfQueue, Gauge<f64, AtomicU64>>,
    planned: Family<OfQueue, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 18));
        let sizes = || Histogram::new(exponential_buckets(1.0, 4.0, 7));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("punctual"),
            types: Mutex::default(),
            attempts: Family::default(),
            registered: Counter::default(),
            fired: Counter::default(),
            missed: Counter::default(),
            throttled: Counter::default(),
            refused_pending: Counter::default(),
            most_pending: Gauge::default(),
            stale: Counter::default(),
            fire_batch: sizes(),
            fire_time: seconds(),
            fire_lateness: seconds(),
            claimed: Counter::default(),
            complete_time: seconds(),
            start_lateness: seconds(),
            execution: seconds(),
            retries: Counter::default(),
            dead: Counter::default(),
            lapsed: Family::default(),
            asked: Counter::default(),
            reclaimed: Counter::default(),
            operation_steps: Counter::default(),
            wheel: Gauge::default(),
            body_hits: Counter::default(),
            body_misses: Counter::default(),
            overdue_seconds: Gauge::default(),
            overdue_jobs: Gauge::default(),
            nodes: Gauge::default(),
            shards: Gauge::default(),
            handed_over: Counter::default(),
            lost_shards: Counter::default(),
            clock_ahead: Gauge::default(),
            breakers: Family::default(),
            breaker_changes: Family::default(),
            queues: Queues::default(),
            held: Gauge::default(),
            concurrency: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    /// The figures of a node, and of its store.
    pub(crate) fn of(store: Arc<dyn Store>) -> Self {
        let mut metrics = Metrics::default();
        metrics.registry.register_collector(Box::new(OfStore(store)));
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("register_jobs", "Jobs that were created", self.registered.clone());
        registry.register("fire_runs", "Runs that were fired", self.fired.clone());
        registry.register(
            "fire_missed_slots",
            "Slots that were reached too late to run",
            self.missed.clone(),
        );
        let help = "Slots that got no run because as many waited as may";
        registry.register("fire_throttled_slots", help, self.throttled.clone());
        let help = "Requests for a run that were refused because as many waited as may";
        registry.register("pending_refused_requests", help, self.refused_pending.clone());
        let help = "Runs that wait of the tenant that has most, as last counted";
        registry.register("pending_runs_of_a_tenant", help, self.most_pending.clone());
        registry.register("fire_stale_entries", "Due entries of older versions", self.stale.clone());
        registry.register("fire_batch_entries", "Due entries fired together", self.fire_batch.clone());
        let unit = || Unit::Seconds;
        registry.register_with_unit("fire_duration", "Time to fire a batch", unit(), self.fire_time.clone());
        let help = "How late slots were fired";
        registry.register_with_unit("fire_lateness", help, unit(), self.fire_lateness.clone());
        registry.register("claim_runs", "Waiting runs that were given to a worker", self.claimed.clone());
        let help = "How long after it was due the first attempt of a run started";
        registry.register_with_unit("start_lateness", help, unit(), self.start_lateness.clone());
        let help = "How long attempts took";
        registry.register_with_unit("execute_duration", help, unit(), self.execution.clone());
        let help = "Time to record a batch of ended attempts";
        registry.register_with_unit("complete_duration", help, unit(), self.complete_time.clone());
        registry.register("complete_attempts", "Attempts that ended", self.attempts.clone());
        registry.register("complete_retries", "Attempts that are followed by another", self.retries.clone());
        registry.register("complete_dead_letters", "Runs that failed for good", self.dead.clone());
        let help = "Runs that wait for somebody to say what their last attempt did";
        registry.register("complete_asked", help, self.asked.clone());
        let help = "Runs whose next attempt did not start in time, by what was over";
        registry.register("lapse_runs", help, self.lapsed.clone());
        for limit in Limit::ALL {
            self.lapsed.get_or_create(&Reason { reason: limit.as_str() }).inc_by(0);
        }
        let help = "Attempts taken from workers that gave no sign of life";
        registry.register("reclaim_attempts", help, self.reclaimed.clone());
        registry.register("operation_steps", "Steps of operations", self.operation_steps.clone());
        registry.register("horizon_entries", "Due entries in the timing wheel", self.wheel.clone());
        registry.register(
            "horizon_body_hits",
            "Jobs that were in memory when needed",
            self.body_hits.clone(),
        );
        registry.register("horizon_body_misses", "Jobs that had to be read", self.body_misses.clone());
        let help = "How long the oldest due entry has been waiting to be fired";
        registry.register_with_unit("fire_overdue", help, unit(), self.overdue_seconds.clone());
        let help = "Active jobs whose slot came more than a second ago and is not fired, of those in memory";
        registry.register("fire_overdue_jobs", help, self.overdue_jobs.clone());
        registry.register("placement_nodes", "Nodes that are live", self.nodes.clone());
        registry.register("placement_shards", "Shards that this node owns", self.shards.clone());
        let help = "Shards that this node gave to another";
        registry.register("placement_handed_over_shards", help, self.handed_over.clone());
        let help = "Shards that went to another node because the lease had run out";
        registry.register("placement_lost_shards", help, self.lost_shards.clone());
        let help = "How far this node's clock is ahead of the store's";
        registry.register_with_unit("placement_clock_ahead", help, unit(), self.clock_ahead.clone());
        let help = "Breakers of targets and jobs that are set, by what they let pass";
        registry.register("breakers", help, self.breakers.clone());
        let help = "Breakers that this node set, changed or took away, by what they let pass since";
        registry.register("breaker_changes", help, self.breaker_changes.clone());
        for state in Stage::ALL {
            self.breakers.get_or_create(&State { state }).set(0);
            self.breaker_changes.get_or_create(&State { state }).inc_by(0);
        }
        self.breaker_changes.get_or_create(&State { state: CLOSED }).inc_by(0);
        let Queues { waiting, oldest_wait, running, lateness, workers, concurrency, saturation, planned } =
            &self.queues;
        let help = "Runs that wait for a worker, by queue, counted up to a bound";
        registry.register("queue_waiting_runs", help, waiting.clone());
        let help = "How long the run waits that waits longest";
        registry.register_with_unit("queue_oldest_wait", help, unit(), oldest_wait.clone());
        registry.register("queue_running_runs", "Runs that run, by queue", running.clone());
        let help = "How late the run started that started latest, of the last two minutes";
        registry.register_with_unit("queue_lateness", help, unit(), lateness.clone());
        registry.register("queue_workers", "Workers that pull from a queue", workers.clone());
        let help = "Attempts that fit at a time into the workers that pull from a queue";
        registry.register("queue_concurrency", help, concurrency.clone());
        let help = "How busy the workers are that pull from a queue, 0 to 1";
        registry.register("queue_saturation", help, saturation.clone());
        let help = "Slots of the next 15 minutes, by queue";
        registry.register("queue_planned_slots", help, planned.clone());
        registry.register("worker_held_attempts", "Attempts that are being executed", self.held.clone());
        registry.register("worker_concurrency", "Attempts that fit at a time", self.concurrency.clone());
    }

    /// Counts an attempt that was recorded, and the run as it is after it.
    pub(crate) fn completed(&self, finished: &Finished, after: &Run) {
        let Some(report) = &finished.report else { return };
        let labels = Ended { outcome: report.outcome.as_str(), r#type: self.type_of(finished) };
        self.attempts.get_or_create(&labels).inc();
        if report.outcome != Outcome::Lost {
            self.execution.observe(seconds_between(report.started_at, report.finished_at));
        }
        if finished.run.attempt == 1 {
            // A catch-up's runs are late by decision; their wait counts from when they might start.
            self.start_lateness.observe(seconds_between(finished.run.available_at, report.started_at));
        }
        match after.state {
            RunState::Pending(_) if after.is_asking() => {
                self.asked.inc();
            }
            RunState::Pending(_) => {
                self.retries.inc();
            }
            RunState::Failed | RunState::TimedOut => {
                self.dead.inc();
            }
            RunState::Running(_) | RunState::Succeeded | RunState::Cancelled | RunState::Missed => {}
        }
    }

    /// Counts a run that ended because its next attempt did not start in time.
    pub(crate) fn lapsed(&self, run: &Run) {
        if let Some(limit) = run.reason {
            self.lapsed.get_or_create(&Reason { reason: limit.as_str() }).inc();
        }
        if run.state.is_dead() {
            self.dead.inc();
        }
    }

    /// Counts what somebody said about a run.
    pub(crate) fn answered(&self, run: &Run) {
        match run.state {
            RunState::Pending(_) => {
                self.retries.inc();
            }
            RunState::Failed | RunState::TimedOut => {
                self.dead.inc();
            }
            RunState::Running(_) | RunState::Succeeded | RunState::Cancelled | RunState::Missed => {}
        }
    }

    fn type_of(&self, finished: &Finished) -> String {
        let Some(kind) = finished.job.spec.kind.as_deref() else { return NONE.into() };
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        if types.contains(kind) {
            return kind.into();
        }
        if types.len() >= TYPES_MAX {
            return OTHER.into();
        }
        types.insert(kind.into());
        kind.into()
    }

    /// Says how many breakers are set.
    pub(crate) fn set_breakers(&self, count: impl Fn(&str) -> usize) {
        for state in Stage::ALL {
            self.breakers.get_or_create(&State { state }).set(count(state) as i64);
        }
    }

    /// Counts a breaker that this node changed.
    pub(crate) fn breaker_changed(&self, change: &Change) {
        let state = match change {
            Change::Set(stage) => stage.as_str(),
            Change::Close => CLOSED,
        };
        self.breaker_changes.get_or_create(&State { state }).inc();
    }

    /// Says how queues are now, with the names of their tenants.
    pub(crate) fn set_queues(&self, queues: &[(Arc<str>, QueueState)], now: Timestamp) {
        let figures = &self.queues;
        figures.waiting.clear();
        figures.oldest_wait.clear();
        figures.running.clear();
        figures.lateness.clear();
        figures.workers.clear();
        figures.concurrency.clear();
        figures.saturation.clear();
        figures.planned.clear();
        for (tenant, queue) in queues {
            let counted = &queue.counted;
            let of = OfQueue { tenant: tenant.to_string(), queue: counted.queue.to_string() };
            let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            figures.waiting.get_or_create(&of).set(whole(counted.waiting));
            let oldest = counted.oldest_at.map_or(0.0, |at| seconds_between(at, now));
            figures.oldest_wait.get_or_create(&of).set(oldest);
            figures.running.get_or_create(&of).set(whole(counted.running));
            figures.lateness.get_or_create(&of).set(queue.lateness.unwrap_or_default().as_secs_f64());
            figures.workers.get_or_create(&of).set(whole(queue.workers));
            figures.concurrency.get_or_create(&of).set(whole(queue.concurrency));
            if let Some(percent) = queue.saturation {
                figures.saturation.get_or_create(&of).set(f64::from(percent) / 100.0);
            }
            figures.planned.get_or_create(&of).set(whole(queue.planned));
        }
    }

    /// Says how busy the worker of this process is.
    pub fn set_worker(&self, held: usize, concurrency: usize) {
        self.held.set(held as i64);
        self.concurrency.set(concurrency as i64);
    }

    /// All figures, as Prometheus reads them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

/// What the store counts, asked when somebody reads the figures.
struct OfStore(Arc<dyn Store>);

impl fmt::Debug for OfStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfStore")
    }
}

impl Collector for OfStore {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let figures = self.0.figures();
        let help = "Runs that wait for a worker, and whose time has come.";
        let mut waiting = encoder.encode_descriptor("claim_waiting_runs", help, None, MetricType::Gauge)?;
        for lane in punctual_domain::Lane::ALL {
            let runs = ConstGauge::new(figures.waiting.of(lane));
            runs.encode(waiting.encode_family(&Lane { lane: lane.as_str() })?)?;
        }
        let help = "Runs that wait, whatever for.";
        let pending = encoder.encode_descriptor("pending_runs", help, None, MetricType::Gauge)?;
        ConstGauge::new(figures.pending).encode(pending)?;
        let help = "Time to make a commit durable.";
        let unit = Some(&Unit::Seconds);
        let mut commits =
            encoder.encode_descriptor("store_commit_duration", help, unit, MetricType::Histogram)?;
        encode_durations(&mut commits, &figures.commits)?;
        // The rest is about a store that is asked over a network.
        if figures.faults.is_empty() {
            return Ok(());
        }
        let help = "Time that a verb of the store took, with everything it waited for.";
        let mut verbs =
            encoder.encode_descriptor("store_statement_duration", help, unit, MetricType::Histogram)?;
        for (verb, took) in &figures.verbs {
            encode_durations(&mut verbs.encode_family(&Verb { verb })?, took)?;
        }
        let help = "Time that a call waited for a connection to the store.";
        let mut waits = encoder.encode_descriptor("store_pool_wait", help, unit, MetricType::Histogram)?;
        encode_durations(&mut waits, &figures.waits)?;
        let help = "Tries that failed without having done anything, and were made again.";
        let mut retries = encoder.encode_descriptor("store_retries", help, None, MetricType::Counter)?;
        for fault in &figures.faults {
            let count = ConstCounter::new(fault.retried);
            count.encode(retries.encode_family(&Kind { kind: fault.kind })?)?;
        }
        let help = "Calls that failed.";
        let mut failures = encoder.encode_descriptor("store_failures", help, None, MetricType::Counter)?;
        for fault in &figures.faults {
            let count = ConstCounter::new(fault.failed);
            count.encode(failures.encode_family(&Kind { kind: fault.kind })?)?;
        }
        encode_replicas(encoder, &figures.replicas)
    }
}

fn encode_replicas(mut encoder: DescriptorEncoder<'_>, replicas: &[punctual_store::Replica]) -> fmt::Result {
    if replicas.is_empty() {
        return Ok(());
    }
    let of = |replica: &punctual_store::Replica| Replica { replica: replica.address.clone() };
    let help = "Whether lists are read from the replica.";
    let mut used = encoder.encode_descriptor("replica_used", help, None, MetricType::Gauge)?;
    for replica in replicas {
        ConstGauge::new(u64::from(replica.is_used)).encode(used.encode_family(&of(replica))?)?;
    }
    let help = "How old what the replica has may be.";
    let mut lags = encoder.encode_descriptor("replica_lag", help, Some(&Unit::Seconds), MetricType::Gauge)?;
    for (replica, lag) in replicas.iter().filter_map(|replica| Some((replica, replica.lag?))) {
        ConstGauge::new(lag.as_secs_f64()).encode(lags.encode_family(&of(replica))?)?;
    }
    let help = "Pages of lists that were read from the replica.";
    let mut reads = encoder.encode_descriptor("replica_reads", help, None, MetricType::Counter)?;
    for replica in replicas {
        ConstCounter::new(replica.reads).encode(reads.encode_family(&of(replica))?)?;
    }
    Ok(())
}

fn encode_durations(encoder: &mut MetricEncoder<'_>, durations: &Durations) -> fmt::Result {
    let buckets: Vec<(f64, u64)> = durations.buckets().collect();
    encoder.encode_histogram::<NoLabelSet>(durations.seconds(), durations.count(), &buckets, None)
}

/// Never negative: clocks may be set.
pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_prometheus_wants_them() {
        let metrics = Metrics::of(Arc::new(punctual_store::Memory::new(4)));
        metrics.fired.inc_by(3);
        metrics.fire_lateness.observe(0.004);
        let text = metrics.text();
        assert!(text.contains("punctual_fire_runs_total 3"), "{text}");
        assert!(text.contains("punctual_fire_lateness_seconds_count 1"), "{text}");
        assert!(text.contains("punctual_claim_waiting_runs{lane=\"batch\"} 0"), "{text}");
        assert!(text.contains("punctual_pending_runs 0"), "{text}");
        assert!(text.contains("punctual_store_commit_duration_seconds_count 0"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
