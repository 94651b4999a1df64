//! What the receiver saw, held against what is recorded: rules c to i.

use crate::account::{Account, Target, What};
use crate::fault::Window;
use crate::node::LEASE;
use crate::owed::Wrong;
use crate::plan::Fault;
use crate::read::{Attempt, Run, State};
use crate::receiver::Delivery;
use crate::schedule::{Millis, time};

/// Clocks of one machine; a worker takes its time before it sends.
const TICK: Millis = 1;

/// How long an acknowledged deletion may take to reach the last worker.
const STOP: Millis = 1_000;

/// Runs with their deliveries.
pub(crate) struct Deliveries<'a> {
    /// By run, then attempt, then time.
    sorted: &'a [Delivery],
}

impl<'a> Deliveries<'a> {
    pub(crate) fn new(all: &'a mut [Delivery]) -> Self {
        all.sort_unstable_by_key(|delivery| (delivery.run, delivery.attempt, delivery.began_at));
        Deliveries { sorted: all }
    }

    pub(crate) fn of(&self, run: u128) -> &'a [Delivery] {
        let from = self.sorted.partition_point(|delivery| delivery.run < run);
        let to = from + self.sorted[from..].partition_point(|delivery| delivery.run == run);
        &self.sorted[from..to]
    }

    pub(crate) fn all(&self) -> &'a [Delivery] {
        self.sorted
    }
}

/// Whether a run is out of the ordinary, so that its attempts must be read.
pub(crate) fn needs_attempts(run: &Run, deliveries: &[Delivery]) -> bool {
    let is_plain = run.attempt == 1 && matches!(deliveries, [] | [Delivery { attempt: 1, .. }]);
    !is_plain || !matches!(run.state, State::Succeeded | State::Cancelled)
}

/// What is known of a run.
pub(crate) struct Facts<'a> {
    pub(crate) run: &'a Run,
    pub(crate) account: &'a Account,
    pub(crate) deliveries: &'a [Delivery],
    pub(crate) attempts: Option<&'a [Attempt]>,
    pub(crate) windows: &'a [Window],
}

impl Facts<'_> {
    /// Everything that is wrong with a run.
    pub(crate) fn judge(&self) -> Vec<Wrong> {
        let mut wrongs = Vec::new();
        let mut wrong = |rule, text: String| {
            let run = self.run;
            let attempts =
                self.attempts.map(|attempts| format!("; attempts {attempts:?}")).unwrap_or_default();
            let seen: Vec<(u32, Millis, Option<Millis>)> = self
                .deliveries
                .iter()
                .map(|seen| {
                    (seen.attempt, seen.began_at - run.slot, seen.answered_at.map(|at| at - run.slot))
                })
                .collect();
            let about = format!(
                "{} run {:032x} slot {}: {text}; {run:?}; seen (attempt, begin, answer) {seen:?}{attempts}",
                self.account.name,
                run.id,
                time(run.slot)
            );
            wrongs.push(Wrong { rule, text: about });
        };
        self.ends(&mut wrong);
        self.matches_the_record(&mut wrong);
        self.begins(&mut wrong);
        wrongs
    }

    /// How it ended.
    fn ends(&self, wrong: &mut impl FnMut(char, String)) {
        let run = self.run;
        match run.state {
            State::Pending | State::Running => wrong('c', "it has not ended".into()),
            State::Succeeded => {
                let is_seen = |seen: &Delivery| seen.attempt == run.attempt && seen.answered_at.is_some();
                if self.account.target != Target::Discard && !self.deliveries.iter().any(is_seen) {
                    wrong('d', "it succeeded, and its last attempt was not received and answered".into());
                }
            }
            State::Failed | State::TimedOut => {
                let is_target = self.account.target == Target::Faulty && self.target_was_away();
                if !is_target {
                    wrong('d', "it failed, and its target was there".into());
                }
            }
            State::Cancelled => {
                let changes = self.account.changes.iter().map(|change| &change.what);
                let given_up = self.account.given_up.iter().map(|(what, _)| what);
                if !changes.chain(given_up).any(|what| *what == What::Delete) {
                    wrong('d', "it was cancelled, and nobody asked for that".into());
                }
            }
        }
    }

    fn target_was_away(&self) -> bool {
        let until = self.run.finished_at.unwrap_or(Millis::MAX);
        self.windows.iter().any(|window| {
            matches!(window.fault, Fault::TargetDown | Fault::TargetHang)
                && self.run.slot <= window.healed_at + 1_000
                && until >= window.from
        })
    }

    /// What was received, against the attempts that are recorded.
    fn matches_the_record(&self, wrong: &mut impl FnMut(char, String)) {
        if let Some(seen) = self.deliveries.iter().find(|seen| seen.attempt > self.run.attempt) {
            wrong('g', format!("attempt {} was received and is not recorded", seen.attempt));
        }
        let pairs = || self.deliveries.windows(2).map(|pair| (&pair[0], &pair[1]));
        for (first, second) in pairs().filter(|(first, second)| first.attempt == second.attempt) {
            // The target broke the connection, or the first was never answered: sent again inside the attempt.
            if first.answered_at.is_some() {
                let apart = second.began_at - first.began_at;
                wrong('e', format!("attempt {} was received twice, {apart} ms apart", first.attempt));
            }
        }
        let Some(attempts) = self.attempts else { return };
        let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        if !numbers.iter().copied().eq(1..=self.run.attempt) {
            wrong('d', format!("recorded attempts are {numbers:?}, not 1 to {}", self.run.attempt));
        }
        let outcome = |number: u32| {
            let attempt = attempts.iter().find(|attempt| attempt.number == number);
            attempt.and_then(|attempt| attempt.outcome.as_deref())
        };
        let succeeded = attempts.iter().filter(|attempt| attempt.outcome.as_deref() == Some("succeeded"));
        match (self.run.state, succeeded.count(), outcome(self.run.attempt)) {
            (State::Succeeded, 1, Some("succeeded")) => {}
            (State::Succeeded, count, last) => {
                wrong('g', format!("it succeeded with {count} successful attempts, the last one {last:?}"));
            }
            (_, 0, _) => {}
            (_, count, _) => wrong('g', format!("{count} attempts succeeded, and it did not")),
        }
        for (first, second) in pairs().filter(|(first, second)| first.attempt < second.attempt) {
            // Nothing: it was given back, or its worker died.
            let is_unknown = matches!(outcome(first.attempt), None | Some("lost"));
            if first.answered_at.is_some() && !is_unknown {
                let text = format!("attempt {} was answered, and another followed", first.attempt);
                wrong('e', text);
            }
            let is_in_flight = first.answered_at.is_none_or(|answered| answered > second.began_at);
            if is_in_flight && is_unknown {
                self.is_apart(attempts, first.attempt, second.attempt, wrong);
            }
        }
        let is_good = self.account.target != Target::Faulty;
        for attempt in attempts.iter().filter(|attempt| is_good && attempt.number < self.run.attempt) {
            if !matches!(attempt.outcome.as_deref(), None | Some("lost")) {
                let reason =
                    attempt.error.as_ref().map(|reason| format!("{}: {}", reason.code, reason.message));
                wrong(
                    'd',
                    format!("attempt {} failed, and its target was there: {reason:?}", attempt.number),
                );
            }
        }
    }

    /// Two attempts that were under way together: the lease of the first had ended.
    fn is_apart(&self, attempts: &[Attempt], first: u32, second: u32, wrong: &mut impl FnMut(char, String)) {
        let claimed =
            |number| attempts.iter().find(|attempt| attempt.number == number).map(Attempt::claimed_at);
        let (Some(one), Some(two)) = (claimed(first), claimed(second)) else { return };
        // Both are times of the database, to the millisecond.
        let least = LEASE as Millis * 1_000 - 1;
        if two - one < least {
            wrong(
                'f',
                format!(
                    "attempt {second} was claimed {} ms after attempt {first}, which was under way",
                    two - one
                ),
            );
        }
    }

    /// When it began.
    fn begins(&self, wrong: &mut impl FnMut(char, String)) {
        let run = self.run;
        let first = self.deliveries.iter().map(|seen| seen.began_at).min();
        if first.is_some_and(|at| at < run.slot - TICK) {
            wrong('h', "it was received before its time".into());
        }
        if self.deliveries.is_empty() && run.started_at.is_some_and(|at| at < run.slot - TICK) {
            wrong('h', "it started before its time".into());
        }
        if self.deliveries.iter().any(|seen| seen.slot != run.slot || seen.job != run.job) {
            wrong('d', "it was received for another job or slot".into());
        }
        let deleted = self.account.changes.iter().find(|change| change.what == What::Delete);
        if let Some(deleted) = deleted {
            let born_at = run.born_at();
            let begins_late = first.is_some_and(|at| at > deleted.acknowledged_at + STOP);
            // What was claimed before may be under way on a node that stands still.
            if born_at > deleted.acknowledged_at || (begins_late && !self.in_a_fault(deleted.acknowledged_at))
            {
                wrong(
                    'i',
                    format!("it began after its job was deleted at {}", time(deleted.acknowledged_at)),
                );
            }
        }
    }

    fn in_a_fault(&self, at: Millis) -> bool {
        self.windows.iter().any(|window| (window.from - 2_000..=window.healed_at + 15_000).contains(&at))
    }
}

/// Deliveries of runs that are not recorded at all.
pub(crate) fn unrecorded(
    deliveries: &Deliveries<'_>,
    is_recorded: impl Fn(u128) -> bool,
    horizon: Millis,
) -> Vec<Wrong> {
    let mut wrongs = Vec::new();
    for seen in deliveries.all().iter().filter(|seen| seen.slot <= horizon && !is_recorded(seen.run)) {
        let text =
            format!("a delivery of run {:032x} at {}, which is not recorded", seen.run, time(seen.began_at));
        wrongs.push(Wrong { rule: 'd', text });
    }
    wrongs
}
