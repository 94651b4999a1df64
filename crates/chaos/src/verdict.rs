//! The verdict: the rules, what broke them, and the figures per fault.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::ops::Range;

use anyhow::Result;

use crate::account::Account;
use crate::deliveries::{self, Deliveries, needs_attempts};
use crate::fault::Window;
use crate::owed::{self, Owing, Wrong, account_for};
use crate::plan::{Fault, Plan};
use crate::read::{Job, Ledger, LedgerEntry, Reader, Run, State};
use crate::receiver::Delivery;
use crate::schedule::Millis;

/// The rules, by letter.
const RULES: [(char, &str); 11] = [
    ('a', "every owed slot has a run or a recorded reason, and no other has one"),
    ('b', "a slot has one run"),
    ('c', "every run ends within a minute after all is well"),
    ('d', "what succeeded was received; attempts are 1 to n; nothing fails without a cause"),
    ('e', "a run is received again only if its attempt had an unknown outcome"),
    ('f', "two attempts of a run do not overlap within a lease"),
    ('g', "what ended stays as it ended; a stale result changes nothing"),
    ('h', "nothing begins before its time, and in health everything is on time"),
    ('i', "a deleted job starts nothing"),
    ('j', "what has an unknown outcome was done or was not, and stays so"),
    ('n', "nodes run until they are told to stop"),
];

/// How late a slot may be to count as on time.
pub(crate) const ON_TIME: Millis = 1_000;

/// In health, at least so many slots in a thousand are on time. Other work on the machine is not our fault, so this is
/// a bound for what is broken, not a figure to be proud of.
const HEALTHY_PER_MILLE: usize = 950;

/// How many examples of each broken rule are shown.
const SHOWN: usize = 5;

/// How many jobs are written out in full.
const DOSSIERS: usize = 20;

/// How many late slots are told of: of a long plan on a busy machine there are millions.
const LATE_MAX: usize = 100_000;

/// What all sides say.
pub(crate) struct Evidence<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) accounts: &'a mut [Account],
    pub(crate) windows: &'a [Window],
    /// When creations were acknowledged.
    pub(crate) accepted: &'a [Millis],
    /// What was found on the way.
    pub(crate) wrongs: Vec<Wrong>,
    /// Runs as they were seen when they had ended.
    pub(crate) witnessed: &'a HashMap<u128, Run>,
    pub(crate) began_at: Millis,
    pub(crate) horizon: Millis,
}

/// What comes of it.
pub(crate) struct Verdict {
    pub(crate) wrongs: Vec<Wrong>,
    /// Every owed slot with how late it was; none if it has no run.
    pub(crate) slots: Vec<(Millis, Option<Millis>)>,
    pub(crate) jobs: usize,
    pub(crate) runs: usize,
    pub(crate) missed: usize,
    pub(crate) skipped: usize,
    pub(crate) passed_over: usize,
    pub(crate) lost_attempts: usize,
    pub(crate) failed: usize,
    /// All that is known about the first jobs that have something wrong.
    pub(crate) dossiers: Vec<String>,
    /// Where the time went of slots that were not on time.
    pub(crate) late: Vec<String>,
    /// Slots to be owed for the plan to count.
    pub(crate) planned: usize,
    /// Something may still come: runs are open, or slots have none yet.
    pub(crate) may_settle: bool,
}

/// Reads everything and judges it.
pub(crate) async fn judge(
    evidence: &mut Evidence<'_>,
    reader: &Reader,
    deliveries: &mut [Delivery],
    to: Millis,
) -> Result<Verdict> {
    let listed = reader.jobs().await?;
    let mut runs = reader.runs(evidence.began_at - 10_000, to).await?;
    find_given_up(evidence.accounts, &listed);
    let by_job = sort_by_job(&mut runs);
    let mut wrongs = evidence.wrongs.clone();
    let mut by_id: HashMap<u128, usize> = HashMap::with_capacity(runs.len());
    for (place, run) in runs.iter().enumerate() {
        if by_id.insert(run.id, place).is_some() {
            wrongs.push(Wrong { rule: 'b', text: format!("run {:032x} is listed twice", run.id) });
        }
    }
    let find = |id: u128| by_id.get(&id).map(|place| runs[*place]);
    let runs_of = |account: &Account| -> &[Run] {
        let range = account.id.and_then(|id| by_job.get(&id)).cloned().unwrap_or_default();
        &runs[range]
    };
    let owings = owe(evidence, reader, &listed, runs_of).await?;
    let owners: HashMap<u128, usize> = evidence
        .accounts
        .iter()
        .enumerate()
        .filter_map(|(place, account)| account.id.map(|id| (id, place)))
        .collect();
    wrongs.extend(strangers(&runs, &listed, &owners));
    wrongs.extend(changed_since(evidence.witnessed, find));
    let deliveries = Deliveries::new(deliveries);
    let odd: Vec<u128> =
        runs.iter().filter(|run| needs_attempts(run, deliveries.of(run.id))).map(|run| run.id).collect();
    let attempts = reader.attempts(odd).await?;
    for run in runs.iter().filter(|run| run.slot <= evidence.horizon) {
        let Some(account) = owners.get(&run.job).map(|place| &evidence.accounts[*place]) else { continue };
        let facts = deliveries::Facts {
            run,
            account,
            deliveries: deliveries.of(run.id),
            attempts: attempts.get(&run.id).map(Vec::as_slice),
            windows: evidence.windows,
        };
        wrongs.extend(facts.judge());
    }
    wrongs.extend(deliveries::unrecorded(&deliveries, |id| by_id.contains_key(&id), evidence.horizon));
    let mut verdict = Verdict {
        wrongs,
        slots: Vec::new(),
        jobs: owners.len(),
        runs: runs.len(),
        missed: owings.iter().map(|owing| owing.missed).sum(),
        skipped: owings.iter().map(|owing| owing.skipped).sum(),
        passed_over: owings.iter().map(|owing| owing.passed_over).sum(),
        lost_attempts: attempts
            .values()
            .flatten()
            .filter(|one| one.outcome.as_deref() == Some("lost"))
            .count(),
        failed: runs.iter().filter(|run| matches!(run.state, State::Failed | State::TimedOut)).count(),
        dossiers: Vec::new(),
        late: Vec::new(),
        planned: planned(evidence),
        may_settle: runs.iter().any(|run| run.slot <= evidence.horizon && run.state.is_open()),
    };
    for (owing, account) in owings.into_iter().zip(evidence.accounts.iter()) {
        for (slot, run) in owing.slots {
            verdict.may_settle |= run.is_none();
            // A cancelled run never begins.
            let late = run.map(|run| {
                let begun = begin(&run, &deliveries);
                begun.map_or(0, |at| (at - slot - account.spread_of(slot, run.version)).max(0))
            });
            verdict.slots.push((slot, late));
            let is_told = late.is_some_and(|late| late > ON_TIME) && verdict.late.len() < LATE_MAX;
            if let Some(run) = run.filter(|_| is_told) {
                verdict.late.push(tell_late(&run, slot, account, &deliveries));
            }
        }
        if !owing.wrongs.is_empty() && verdict.dossiers.len() < DOSSIERS {
            let runs: String = runs_of(account).iter().map(|run| format!("  {run:?}\n")).collect();
            let wrongs: String = owing.wrongs.iter().map(|wrong| format!("  {}\n", wrong.text)).collect();
            verdict.dossiers.push(format!("{account:#?}\n{runs}{wrongs}\n"));
        }
        verdict.wrongs.extend(owing.wrongs);
    }
    verdict.health(evidence.windows);
    Ok(verdict)
}

/// Puts the runs of each job together, by slot, and says where they are.
fn sort_by_job(runs: &mut [Run]) -> HashMap<u128, Range<usize>> {
    runs.sort_unstable_by_key(|run| (run.job, run.slot, run.id));
    let mut places: HashMap<u128, Range<usize>> = HashMap::new();
    for (place, run) in runs.iter().enumerate() {
        places.entry(run.job).or_insert(place..place).end = place + 1;
    }
    places
}

/// When a run began: received, or started by the worker's word.
fn begin(run: &Run, deliveries: &Deliveries<'_>) -> Option<Millis> {
    deliveries.of(run.id).iter().map(|seen| seen.began_at).min().or(run.started_at)
}

/// Where the time of a late slot went: in milliseconds after it, its birth, each arrival, and its start by the worker's
/// word.
fn tell_late(run: &Run, slot: Millis, account: &Account, deliveries: &Deliveries<'_>) -> String {
    let born = run.born_at() - slot;
    let arrived: Vec<Millis> = deliveries.of(run.id).iter().map(|seen| seen.began_at - slot).collect();
    let started = run.started_at.map(|at| at - slot);
    let (name, schedule) = (&account.name, account.current());
    format!(
        "slot {slot}: born +{born}, arrived {arrived:?}, started {started:?}, attempt {}, {name}, {schedule:?}\n",
        run.attempt
    )
}

/// Creations that nobody knew the outcome of: are they there?
fn find_given_up(accounts: &mut [Account], listed: &HashMap<u128, Job>) {
    let by_name: HashMap<&str, u128> = listed.values().map(|job| (job.name.as_str(), job.id())).collect();
    for account in accounts.iter_mut().filter(|account| account.id.is_none()) {
        account.id = by_name.get(account.name.as_str()).copied();
    }
}

/// Goes through the slots of all jobs; reads the ledgers of those where it matters.
async fn owe<'r>(
    evidence: &Evidence<'_>,
    reader: &Reader,
    listed: &HashMap<u128, Job>,
    runs_of: impl Fn(&Account) -> &'r [Run],
) -> Result<Vec<Owing>> {
    let account_with = |account: &Account, ledgers: &HashMap<u128, Option<Vec<LedgerEntry>>>| {
        let id = account.id.unwrap_or_default();
        account_for(&owed::Facts {
            account,
            runs: runs_of(account),
            listed: listed.get(&id),
            ledger: match ledgers.get(&id) {
                None => Ledger::Unread,
                Some(None) => Ledger::Gone,
                Some(Some(entries)) => Ledger::Read(entries),
            },
            windows: evidence.windows,
            horizon: evidence.horizon,
        })
    };
    let none = HashMap::new();
    let mut owings: Vec<Owing> =
        evidence.accounts.iter().map(|account| account_with(account, &none)).collect();
    let wanted: Vec<u128> = evidence
        .accounts
        .iter()
        .zip(&owings)
        .filter(|(_, owing)| owing.needs_ledger)
        .filter_map(|(account, _)| account.id)
        .collect();
    let ledgers = reader.ledgers(wanted).await?;
    for (account, owing) in evidence.accounts.iter().zip(&mut owings) {
        if owing.needs_ledger {
            *owing = account_with(account, &ledgers);
        }
    }
    Ok(owings)
}

/// Jobs and runs that nobody asked for.
fn strangers(runs: &[Run], listed: &HashMap<u128, Job>, owners: &HashMap<u128, usize>) -> Vec<Wrong> {
    let jobs = listed.values().filter(|job| !owners.contains_key(&job.id()));
    let mut wrongs: Vec<Wrong> = jobs
        .map(|job| Wrong { rule: 'j', text: format!("job {} is there twice or unasked", job.name) })
        .collect();
    for run in runs.iter().filter(|run| !owners.contains_key(&run.job)) {
        let text = format!("run {:032x} is of job {:032x}, which was never acknowledged", run.id, run.job);
        wrongs.push(Wrong { rule: 'a', text });
    }
    wrongs
}

/// Runs that had ended and are not what they were.
fn changed_since(witnessed: &HashMap<u128, Run>, find: impl Fn(u128) -> Option<Run>) -> Vec<Wrong> {
    let changed = witnessed.iter().filter(|(id, run)| find(**id) != Some(**run));
    changed
        .map(|(id, run)| Wrong {
            rule: 'g',
            text: format!("it had ended as {run:?} and is now {:?}", find(*id)),
        })
        .collect()
}

/// Nine tenths of what the plan asks for: some jobs end, some are paused.
fn planned(evidence: &Evidence<'_>) -> usize {
    let seconds = (evidence.horizon - evidence.began_at) / 1_000;
    evidence.plan.rate * usize::try_from(seconds).unwrap_or(0) * 8 / 10
}

/// The figures of a fault, or of health.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) times: usize,
    pub(crate) slots: usize,
    pub(crate) on_time: usize,
    pub(crate) latest: Millis,
    pub(crate) seconds: usize,
    pub(crate) accepting: usize,
}

impl Verdict {
    /// Whether every rule held and enough was owed.
    pub(crate) fn is_good(&self) -> bool {
        self.wrongs.is_empty() && self.slots.len() >= self.planned
    }

    fn health(&mut self, windows: &[Window]) {
        let calm = self.slots.iter().filter(|(slot, _)| is_calm(*slot, windows));
        let (mut all, mut on_time) = (0, 0);
        for (_, late) in calm {
            all += 1;
            on_time += usize::from(late.is_some_and(|late| late <= ON_TIME));
        }
        if on_time * 1_000 < all * HEALTHY_PER_MILLE {
            let text = format!("in health only {on_time} of {all} slots are on time");
            self.wrongs.push(Wrong { rule: 'h', text });
        }
    }

    /// The figures of health and of each fault.
    pub(crate) fn figures(&self, evidence: &Evidence<'_>) -> (Figures, Vec<(Fault, Figures)>) {
        let seconds = |at: Millis| at.div_euclid(1_000);
        let accepted: std::collections::HashSet<i64> =
            evidence.accepted.iter().copied().map(seconds).collect();
        let tell = |is_inside: &dyn Fn(Millis) -> bool, times| {
            let mut figures = Figures { times, ..Figures::default() };
            for (slot, late) in self.slots.iter().filter(|(slot, _)| is_inside(*slot)) {
                let _ = slot;
                figures.slots += 1;
                figures.on_time += usize::from(late.is_some_and(|late| late <= ON_TIME));
                figures.latest = figures.latest.max(late.unwrap_or(0));
            }
            for second in seconds(evidence.began_at)..=seconds(evidence.horizon) {
                if is_inside(second * 1_000) {
                    figures.seconds += 1;
                    figures.accepting += usize::from(accepted.contains(&second));
                }
            }
            figures
        };
        let health = tell(&|at| is_calm(at, evidence.windows), 0);
        let mut faults = Vec::new();
        for fault in Fault::ALL {
            let windows: Vec<&Window> =
                evidence.windows.iter().filter(|window| window.fault == fault).collect();
            if !windows.is_empty() {
                let is_inside = |at: Millis| windows.iter().any(|window| is_within(at, window));
                faults.push((fault, tell(&is_inside, windows.len())));
            }
        }
        (health, faults)
    }

    /// The verdict for people.
    pub(crate) fn print(&self, evidence: &Evidence<'_>) -> String {
        let mut text = String::new();
        let (health, faults) = self.figures(evidence);
        let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n  {:18} times   slots  on time  latest  creates accepted", "fault");
        let mut line = |name: &str, figures: &Figures| {
            let _ = writeln!(
                text,
                "  {name:18} {:5} {:7}  {:5.1} %  {:4.1} s  {:5.1} % of {} s",
                figures.times,
                figures.slots,
                percent(figures.on_time, figures.slots),
                figures.latest as f64 / 1_000.0,
                percent(figures.accepting, figures.seconds),
                figures.seconds
            );
        };
        line("(health)", &health);
        for (fault, figures) in &faults {
            line(fault.name(), figures);
        }
        let mut broken: BTreeMap<char, Vec<&Wrong>> = BTreeMap::new();
        for wrong in &self.wrongs {
            broken.entry(wrong.rule).or_default().push(wrong);
        }
        for (letter, rule) in RULES {
            let Some(wrongs) = broken.get(&letter) else { continue };
            let _ = writeln!(text, "\n  rule {letter} is broken {} times: {rule}", wrongs.len());
            for wrong in wrongs.iter().take(SHOWN) {
                let _ = writeln!(text, "    {}", wrong.text);
            }
        }
        if self.slots.len() < self.planned {
            let _ = writeln!(text, "\n  only {} slots were owed, not {}", self.slots.len(), self.planned);
        }
        text
    }
}

fn is_within(at: Millis, window: &Window) -> bool {
    (window.from..=window.until).contains(&at)
}

/// Whether no fault is near.
pub(crate) fn is_calm(at: Millis, windows: &[Window]) -> bool {
    // A batch of slots just before a fault may be under way.
    !windows.iter().any(|window| is_within(at, window) || is_within(at + 1_000, window))
}
