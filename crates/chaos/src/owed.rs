//! The oracle: which slots a job owed, and whether each has its run or a recorded reason.
//!
//! Promise: it goes by what was asked for and acknowledged, and by the product's written rules alone. A slot is owed
//! to the version of the job that was in force; a slot that was due and not fired when a job was edited is carried over to
//! the new version, and the new schedule goes on from it; slots of a pause are skipped and accounted for; a slot reached
//! more than a minute late may be missed, if the ledger says so.

use std::collections::HashMap;

use crate::account::{Account, What};
use crate::fault::{AHEAD_MS, Window};
use crate::plan::Fault;
use crate::read::{Cause, Job, Ledger, LedgerEntry, Run};
use crate::schedule::{Millis, Schedule, When};

/// Younger slots are simply late, and each runs.
const GRACE: Millis = 60_000;

/// A period from completion counts from when the end was recorded. Reports wait while the database is away, and the
/// worker's clock is not the recorder's.
const REPORT_MAX: Millis = 60_000;

/// What is known about a job in the end.
pub(crate) struct Facts<'a> {
    pub(crate) account: &'a Account,
    /// Its runs.
    pub(crate) runs: &'a [Run],
    /// As it is listed; nothing if it is not.
    pub(crate) listed: Option<&'a Job>,
    /// Read only for those that may need it.
    pub(crate) ledger: Ledger<'a>,
    /// What went wrong, and when.
    pub(crate) windows: &'a [Window],
    /// Slots up to here are owed.
    pub(crate) horizon: Millis,
}

impl Facts<'_> {
    /// How far the clock of a node may be from ours.
    fn tolerance(&self, at: Millis) -> Millis {
        let is_off = |window: &&Window| {
            window.fault == Fault::ClockOffset && (window.from..=window.until).contains(&at)
        };
        match self.windows.iter().find(is_off) {
            Some(_) => AHEAD_MS + 100,
            None => 1,
        }
    }
}

/// A rule that was broken, by its letter, and how.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub(crate) rule: char,
    pub(crate) text: String,
}

/// What came of the slots of a job.
#[derive(Debug, Default)]
pub(crate) struct Owing {
    /// Slots that were owed, and the run of each.
    pub(crate) slots: Vec<(Millis, Option<Run>)>,
    /// Missed, as the ledger says.
    pub(crate) missed: usize,
    /// Skipped by a pause, as the ledger says.
    pub(crate) skipped: usize,
    /// Slots of an older schedule that an edit of a late job passed over.
    pub(crate) passed_over: usize,
    pub(crate) wrongs: Vec<Wrong>,
    /// The ledger must be read to know.
    pub(crate) needs_ledger: bool,
}

/// A stretch of a job's life under one version.
struct Era<'a> {
    version: u32,
    state: EraState<'a>,
    /// When it was decided.
    since: Millis,
    /// Since when it may have begun, if that is not known.
    since_at_least: Millis,
}

#[derive(Clone, Copy)]
enum EraState<'a> {
    Active(&'a Schedule),
    Paused,
    Deleted,
}

/// Goes through the slots of a job.
pub(crate) fn account_for(facts: &Facts<'_>) -> Owing {
    let mut owing = Owing::default();
    let account = facts.account;
    let Some(created_at) = account.created_at() else {
        return owing; // It was never acknowledged, and is not there.
    };
    let tolerance = facts.tolerance(account.sent_at);
    let is_late = |at: Millis| created_at > at + tolerance;
    if created_at < account.sent_at - tolerance || account.acknowledged_at.is_some_and(is_late) {
        owing.wrong('j', account, None, format!("created at {created_at}, not while it was asked for"));
    }
    let eras = eras(facts, created_at, &mut owing);
    let mut runs: HashMap<Millis, Run> = HashMap::with_capacity(facts.runs.len());
    for run in facts.runs.iter().filter(|run| run.cause == Cause::Schedule) {
        if let Some(other) = runs.insert(run.slot, *run) {
            let text = format!("two runs: {:032x} and {:032x}", other.id, run.id);
            owing.wrong('b', account, Some(run.slot), text);
        }
    }
    match account.schedule.when {
        When::Completion { period } => from_completion(facts, period, created_at, &mut runs, &mut owing),
        _ => by_the_clock(facts, &eras, created_at, &mut runs, &mut owing),
    }
    for run in runs.values().filter(|run| run.slot <= facts.horizon) {
        let text = format!("a run that is not owed, of version {}: {:032x}", run.version, run.id);
        owing.wrong('a', account, Some(run.slot), text);
    }
    triggers(facts, &mut owing);
    owing
}

/// The versions of a job, and what is wrong with the last of them.
fn eras<'a>(facts: &Facts<'a>, created_at: Millis, owing: &mut Owing) -> Vec<Era<'a>> {
    let account = facts.account;
    let mut schedule = &account.schedule;
    let begin = |version, state, since| Era { version, state, since, since_at_least: since };
    let mut eras = vec![begin(1, EraState::Active(schedule), created_at)];
    for change in &account.changes {
        let state = match &change.what {
            What::Edit(next) => {
                schedule = next;
                EraState::Active(schedule)
            }
            What::Pause { .. } => EraState::Paused,
            What::Resume => EraState::Active(schedule),
            What::Delete => EraState::Deleted,
        };
        let is_exact = !matches!(state, EraState::Deleted);
        let since_at_least = if is_exact { change.decided_at } else { change.sent_at };
        if change.decided_at < change.sent_at - facts.tolerance(change.sent_at)
            && !matches!(change.what, What::Resume)
        {
            owing.wrong('j', account, None, format!("{:?} was decided before it was asked for", change.what));
        }
        eras.push(Era { version: change.version, state, since: change.decided_at, since_at_least });
    }
    let version = account.version();
    let ends_by_itself = match account.changes.last().map(|change| &change.what) {
        Some(What::Pause { until: Some(until) }) => Some(*until),
        _ => None,
    };
    match (&account.given_up, facts.listed) {
        (_, Some(_)) if account.is_deleted() => {
            owing.wrong('j', account, None, "it is deleted and still listed".into());
        }
        (_, None) if account.is_deleted() => {}
        (Some((What::Delete, sent_at)), None) => {
            let state = EraState::Deleted;
            eras.push(Era { version: version + 1, state, since: facts.horizon, since_at_least: *sent_at });
        }
        (_, None) => owing.wrong('a', account, None, "it was acknowledged and is gone".into()),
        (_, Some(job)) if job.version == version => {
            let is_paused = matches!(eras.last(), Some(Era { state: EraState::Paused, .. }));
            if is_paused != (job.state == "paused") {
                owing.wrong('j', account, None, format!("it is {} at version {version}", job.state));
            }
            if ends_by_itself.is_some_and(|until| until < facts.horizon - 10_000) {
                owing.wrong('c', account, None, "its pause does not end".into());
            }
        }
        (given_up, Some(job)) if job.version == version + 1 => {
            let state = match given_up {
                Some((What::Edit(next), _)) => Some(EraState::Active(next)),
                Some((What::Pause { .. }, _)) => Some(EraState::Paused),
                Some((What::Resume, _)) => Some(EraState::Active(schedule)),
                Some((What::Delete, _)) => None,
                None => ends_by_itself.map(|_| EraState::Active(schedule)),
            };
            match state {
                Some(state) => eras.push(begin(job.version, state, job.updated_at())),
                None => owing.wrong('j', account, None, format!("nobody made version {}", job.version)),
            }
        }
        // A pause that ended by itself after its answer was lost.
        (Some((What::Pause { until: Some(_) }, sent_at)), Some(job)) if job.version == version + 2 => {
            let pause =
                Era { since_at_least: *sent_at, ..begin(version + 1, EraState::Paused, job.updated_at()) };
            eras.push(pause);
            eras.push(begin(job.version, EraState::Active(schedule), job.updated_at()));
        }
        (_, Some(job)) => {
            let text = format!("it is at version {}, which nobody made; known is {version}", job.version);
            owing.wrong('j', account, None, text);
        }
    }
    eras
}

/// Slots that the clock alone decides.
fn by_the_clock(
    facts: &Facts<'_>,
    eras: &[Era<'_>],
    created_at: Millis,
    runs: &mut HashMap<Millis, Run>,
    owing: &mut Owing,
) {
    let account = facts.account;
    let mut expected = account.schedule.first(created_at);
    let mut fires = 0;
    for (place, era) in eras.iter().enumerate() {
        let next = eras.get(place + 1);
        let EraState::Active(schedule) = era.state else {
            if matches!(era.state, EraState::Deleted) {
                return;
            }
            // What a pause leaves out is accounted for when it ends.
            if let Some(Era { state: EraState::Active(schedule), since, .. }) = next {
                skip(facts, schedule, expected, *since, owing);
                expected = schedule.next_after(*since);
            }
            continue;
        };
        let limit = next.map_or(facts.horizon, |next| next.since.min(facts.horizon));
        let mut late = None;
        while let Some(slot) = expected.filter(|slot| *slot <= limit) {
            let after = schedule.next_after(slot);
            let is_ours = |run: &Run| run.version == era.version || next.is_none();
            if let Some(run) = runs.get(&slot).copied().filter(is_ours) {
                runs.remove(&slot);
                if run.version != era.version {
                    let text = format!("fired under version {}, not {}", run.version, era.version);
                    owing.wrong('a', account, Some(slot), text);
                }
                owing.slots.push((slot, Some(run)));
                fires += 1;
                expected = after.filter(|_| schedule.max_fires.is_none_or(|most| fires < most));
            } else if is_missed(facts, slot, owing) {
                owing.missed += 1;
                expected = after;
            } else if next.is_some() {
                late = Some(slot);
                break;
            } else {
                owing.slots.push((slot, None));
                owing.wrong('a', account, Some(slot), format!("no run, of version {}", era.version));
                expected = after;
            }
        }
        let Some(next) = next else { return };
        match (next.state, late) {
            (EraState::Active(_), Some(slot)) => {
                let mut lost = schedule.next_after(slot);
                while let Some(at) = lost.filter(|at| *at <= next.since) {
                    owing.passed_over += 1;
                    lost = schedule.next_after(at);
                }
                // The carried slot fires under the new version, whose schedule goes on from it.
                expected = Some(slot);
            }
            (EraState::Active(to), None) => expected = to.next_after(next.since),
            (EraState::Paused, late) => {
                // From the first slot that was due and not fired, or the first inside the pause.
                expected = late.or(expected);
            }
            (EraState::Deleted, Some(slot)) if slot < next.since_at_least - GRACE => {
                owing.wrong('a', account, Some(slot), "no run, long before it was deleted".into());
            }
            (EraState::Deleted, _) => {}
        }
    }
}

/// Slots of a pause: each must be in the ledger.
fn skip(facts: &Facts<'_>, schedule: &Schedule, from: Option<Millis>, to: Millis, owing: &mut Owing) {
    let mut slot = from;
    while let Some(at) = slot.filter(|at| *at <= to) {
        let ledger = match facts.ledger {
            Ledger::Read(ledger) => ledger,
            Ledger::Gone => return,
            Ledger::Unread => {
                owing.needs_ledger = true;
                return;
            }
        };
        let is_told = |entry: &&LedgerEntry| entry.contains(at) && entry.reason == "pause";
        if ledger.iter().find(is_told).is_some() {
            owing.skipped += 1;
        } else {
            let text = "neither run nor skipped, around a pause".into();
            owing.wrong('a', facts.account, Some(at), text);
        }
        slot = schedule.next_after(at);
    }
}

/// Whether the ledger says that a slot was missed, and rightly.
fn is_missed(facts: &Facts<'_>, slot: Millis, owing: &mut Owing) -> bool {
    let ledger = match facts.ledger {
        Ledger::Read(ledger) => ledger,
        Ledger::Gone => return false,
        Ledger::Unread => {
            owing.needs_ledger = true;
            return false;
        }
    };
    let entry = ledger.iter().find(|entry| entry.contains(slot) && entry.state == "missed");
    entry.is_some_and(|entry| entry.decided_at() - slot >= GRACE)
}

/// Slots that each follow the end of the run before.
fn from_completion(
    facts: &Facts<'_>,
    period: i64,
    created_at: Millis,
    runs: &mut HashMap<Millis, Run>,
    owing: &mut Owing,
) {
    let account = facts.account;
    let mut chain: Vec<Run> = runs.drain().map(|(_, run)| run).collect();
    chain.sort_by_key(|run| run.slot);
    let most = account.schedule.max_fires;
    let mut due = Some((created_at, created_at));
    for (place, run) in chain.iter().enumerate() {
        let slot = run.slot;
        match due {
            Some((from, to)) if (from - 1..=to + 1).contains(&slot) => {}
            Some((from, to)) => {
                let text = format!("a run that is not a period after the one before: owed in {from}..={to}");
                owing.wrong('a', account, Some(slot), text);
            }
            None => {
                owing.wrong('a', account, Some(slot), "a run after the last, or beside an open one".into());
            }
        }
        owing.slots.push((slot, Some(*run)));
        let is_last = most.is_some_and(|most| place as u64 + 1 >= most);
        due = run.finished_at.filter(|_| !is_last).map(|end| (end + period, end + period + REPORT_MAX));
    }
    // A chain that nobody continues is dead.
    if let Some((from, _)) = due
        && from + REPORT_MAX / 2 < facts.horizon
        && account.schedule.end.is_none_or(|end| from + REPORT_MAX / 2 < end)
    {
        owing.slots.push((from, None));
        owing.wrong('a', account, Some(from), "no run follows the one before".into());
    }
}

fn triggers(facts: &Facts<'_>, owing: &mut Owing) {
    let account = facts.account;
    let found: Vec<u128> =
        facts.runs.iter().filter(|run| run.cause == Cause::Trigger).map(|run| run.id).collect();
    for run in account.triggered.iter().filter(|run| !found.contains(run)) {
        owing.wrong('a', account, None, format!("the triggered run {run:032x} is gone"));
    }
    let unasked = found.iter().filter(|run| !account.triggered.contains(run)).count();
    if unasked > account.triggers_given_up {
        owing.wrong('b', account, None, format!("{unasked} triggered runs that nobody asked for"));
    }
}

impl Owing {
    fn wrong(&mut self, rule: char, account: &Account, slot: Option<Millis>, text: String) {
        let at = slot.map(|slot| format!(" slot {}", crate::schedule::time(slot))).unwrap_or_default();
        let id = account.id.map(crate::account::id_text).unwrap_or_default();
        self.wrongs.push(Wrong { rule, text: format!("{} ({id}){at}: {text}", account.name) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Change, Target};
    use crate::read::State;

    const ID: u128 = 1_000 << 80;

    fn every(period: i64) -> Schedule {
        let when = When::Every { anchor: 0, period, writes_anchor: true };
        Schedule { when, end: None, max_fires: None, spread: 0 }
    }

    /// A job created at 1,000 with a slot every ten seconds.
    fn account() -> Account {
        let mut account = Account::new("job".into(), every(10_000), Target::Discard, 1_000);
        account.id = Some(ID);
        account.acknowledged_at = Some(1_000);
        account
    }

    fn changed(what: What, version: u32, at: Millis) -> Change {
        Change { what, version, decided_at: at, sent_at: at, acknowledged_at: at }
    }

    fn run(slot: Millis, version: u32) -> Run {
        let (state, cause) = (State::Succeeded, Cause::Schedule);
        let id = (slot as u128) << 8 | u128::from(version);
        let (started_at, finished_at) = (Some(slot), Some(slot));
        Run { id, job: ID, version, cause, slot, state, attempt: 1, started_at, finished_at }
    }

    fn listed(version: u32, state: &str) -> Job {
        let text = format!(
            r#"{{"id":"{}","name":"job","version":{version},"state":"{state}","updated_at":"1970-01-01T00:00:30Z"}}"#,
            crate::account::id_text(ID)
        );
        serde_json::from_str(&text).expect("a job")
    }

    fn skipped(from: &str, to: &str) -> LedgerEntry {
        let text = format!(
            r#"{{"from":"{from}","to":"{to}","state":"skipped","reason":"pause","decided_at":"{to}"}}"#
        );
        serde_json::from_str(&text).expect("an entry")
    }

    /// What is wrong, as the letters of the rules.
    fn check(account: &Account, runs: &[Run], ledger: &[LedgerEntry]) -> (Owing, String) {
        let listed = (!account.is_deleted()).then(|| listed(account.version(), "active"));
        let owing = account_for(&Facts {
            account,
            runs,
            listed: listed.as_ref(),
            ledger: Ledger::Read(ledger),
            windows: &[],
            horizon: 45_000,
        });
        let letters = owing.wrongs.iter().map(|wrong| wrong.rule).collect();
        (owing, letters)
    }

    #[test]
    fn each_owed_slot_has_one_run() {
        let all = [10_000, 20_000, 30_000, 40_000].map(|slot| run(slot, 1));
        assert_eq!(check(&account(), &all, &[]).1, "");
        assert_eq!(check(&account(), &all[1..], &[]).1, "a", "a missing one");
        let invented = [&all[..], &[run(25_000, 1)]].concat();
        assert_eq!(check(&account(), &invented, &[]).1, "a", "an invented one");
        let twice = [&all[..], &[Run { id: 7, ..run(20_000, 1) }]].concat();
        assert_eq!(check(&account(), &twice, &[]).1, "b", "two of one");
        let later = [&all[..], &[run(50_000, 1)]].concat();
        assert_eq!(check(&account(), &later, &[]).1, "", "one after what is looked at");
    }

    #[test]
    fn an_edit_takes_over_where_the_old_version_stopped() {
        let mut edited = account();
        edited.changes.push(changed(What::Edit(every(7_000)), 2, 21_500));
        let on_time = [run(10_000, 1), run(20_000, 1), run(28_000, 2), run(35_000, 2), run(42_000, 2)];
        assert_eq!(check(&edited, &on_time, &[]).1, "");
        // The slot at 20 s was due and not fired: it is carried over, and the new schedule goes on from it.
        let carried =
            [run(10_000, 1), run(20_000, 2), run(21_000, 2), run(28_000, 2), run(35_000, 2), run(42_000, 2)];
        assert_eq!(check(&edited, &carried, &[]).1, "");
        let lost = [run(10_000, 1), run(28_000, 2), run(35_000, 2), run(42_000, 2)];
        assert!(check(&edited, &lost, &[]).1.starts_with('a'));
        let stale = [&on_time[..], &[run(30_000, 1)]].concat();
        assert_eq!(check(&edited, &stale, &[]).1, "a", "the old version goes on firing");
    }

    #[test]
    fn slots_of_a_pause_are_in_the_ledger() {
        let mut paused = account();
        paused.changes.push(changed(What::Pause { until: None }, 2, 15_000));
        paused.changes.push(changed(What::Resume, 3, 35_000));
        let runs = [run(10_000, 1), run(40_000, 3)];
        let (owing, letters) =
            check(&paused, &runs, &[skipped("1970-01-01T00:00:20Z", "1970-01-01T00:00:30Z")]);
        assert_eq!((letters.as_str(), owing.skipped), ("", 2));
        assert_eq!(check(&paused, &runs, &[]).1, "aa");
    }

    #[test]
    fn a_deleted_job_owes_nothing_more() {
        let mut deleted = account();
        deleted.changes.push(changed(What::Delete, 2, 25_000));
        assert_eq!(check(&deleted, &[run(10_000, 1), run(20_000, 1)], &[]).1, "");
        assert_eq!(check(&deleted, &[run(10_000, 1), run(20_000, 1), run(30_000, 1)], &[]).1, "a");
    }

    #[test]
    fn what_was_given_up_is_done_or_not_done() {
        let mut given_up = account();
        given_up.given_up = Some((What::Pause { until: None }, 15_000));
        let with = |job: &Job, runs: &[Run]| {
            let (account, windows, ledger) = (&given_up, &[][..], Ledger::Read(&[]));
            account_for(&Facts { account, runs, listed: Some(job), ledger, windows, horizon: 45_000 })
                .wrongs
                .len()
        };
        let all = [10_000, 20_000, 30_000, 40_000].map(|slot| run(slot, 1));
        assert_eq!(with(&listed(1, "active"), &all), 0);
        assert_eq!(with(&listed(2, "paused"), &all[..3]), 0, "it was paused at 30 s");
        assert_eq!(with(&listed(2, "paused"), &all), 1, "and fires nothing after that");
        assert_eq!(with(&listed(1, "active"), &all[..3]), 1, "it was not, and goes on");
    }

    #[test]
    fn a_period_from_completion_goes_on_from_the_end_of_the_run_before() {
        let mut account = account();
        account.schedule.when = When::Completion { period: 10_000 };
        let ended = |slot: Millis, end: Millis| Run { finished_at: Some(end), ..run(slot, 1) };
        let chain =
            [ended(1_000, 4_000), ended(14_010, 20_000), ended(30_000, 31_000), ended(41_000, 41_500)];
        assert_eq!(check(&account, &chain, &[]).1, "");
        assert_eq!(check(&account, &[chain[0], ended(12_000, 12_500)], &[]).1, "a", "too soon");
    }
}
