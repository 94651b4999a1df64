//! What somebody wants to be told of, and what is to be told now.
//!
//! An alert says what it is about and who hears of it; an alarm is one thing that is not well, of one alert. Promise: an alarm is told once
//! when it is raised, again each time `repeat_every` has passed while it goes on, and once when it is over; what is told next
//! follows from the alarm alone, so that whoever looks after it decides the same.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::id::{JobId, TenantId};
use crate::job::Job;
use crate::message;

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its name, unique in the tenant.
    pub name: String,
    /// Whose it is: it is about this tenant's jobs.
    pub tenant: TenantId,
    /// What it is about.
    pub on: On,
    /// Of which jobs.
    pub jobs: Which,
    /// Who is told.
    pub to: To,
    /// An alarm that goes on is told again after this long.
    pub repeat_every: Duration,
    /// When it was last changed: what happened before is not told.
    pub since: Timestamp,
}

/// How often an alarm that goes on is told, unless the alert says otherwise.
pub const REPEAT_EVERY: Duration = Duration::from_secs(3600);

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A run ended badly for good, and no later one of its job well.
    DeadLetter,
    /// A breaker is open.
    BreakerOpen,
    /// A slot became no run, or its run never started, because it was too late.
    Missed,
    /// A run started later after its slot than this.
    Late {
        /// So late is not late yet.
        over: Duration,
    },
    /// A job that is active had no success for this long.
    Silent {
        /// So long may it be quiet.
        after: Duration,
    },
}

impl On {
    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            On::DeadLetter => "dead_letter",
            On::BreakerOpen => "breaker_open",
            On::Missed => "missed",
            On::Late { .. } => "late",
            On::Silent { .. } => "silent",
        }
    }
}

/// Which jobs an alert is about: all of the tenant that fit whatever is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// This one.
    pub job: Option<JobId>,
    /// The one with this key.
    pub key: Option<String>,
    /// Of this type.
    pub kind: Option<String>,
    /// In this queue.
    pub queue: Option<String>,
    /// With all of these labels.
    pub labels: BTreeMap<String, String>,
}

impl Which {
    /// Whether a job is one of them. The system's own never are: what cannot be told would be told of for ever.
    pub fn takes(&self, job: &Job) -> bool {
        let spec = &job.spec;
        !message::is_reserved(spec.kind.as_deref())
            && self.job.is_none_or(|id| id == job.id)
            && (self.key.is_none() || self.key == spec.key)
            && (self.kind.is_none() || self.kind == spec.kind)
            && self.queue.as_ref().is_none_or(|queue| **queue == *spec.queue)
            && self.labels.iter().all(|(name, value)| spec.labels.get(name) == Some(value))
    }

    /// Whether nothing is named.
    pub fn is_all(&self) -> bool {
        *self == Which::default()
    }
}

/// Who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// Whoever answers at a URL, as JSON with all that is known.
    Webhook {
        /// Where.
        url: String,
    },
    /// A chat, in the form of Slack's incoming webhooks.
    Slack {
        /// Where.
        url: String,
    },
    /// People, by mail.
    Mail {
        /// Their addresses.
        to: Vec<String>,
    },
}

/// The function that sends mail.
pub const MAIL: &str = "system.mail";

/// The type of a message about an alarm.
pub const MESSAGE: &str = "system.alert";

/// More alarms of an alert than this are one alarm for the rest: nobody reads a thousand and one.
pub const ALARMS_MAX: usize = 1_000;

/// More alarms of a tenant than this are one for the rest of each alert: every node reads all alarms of all tenants, and one that floods
/// its own must not hide those of others.
pub const TENANT_ALARMS_MAX: usize = 3_000;

/// What was missed or late is over when nothing was for this long, and a run was on time.
pub const QUIET: SignedDuration = SignedDuration::from_mins(10);

/// What is not well.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A job.
    Job(JobId),
    /// The breaker of this name.
    Breaker(String),
    /// More jobs than are told one by one.
    Rest,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Job(job) => write!(f, "job {job}"),
            Subject::Breaker(name) => write!(f, "breaker {name}"),
            Subject::Rest => f.write_str("rest"),
        }
    }
}

impl FromStr for Subject {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.split_once(' ') {
            Some(("job", id)) => id.parse().map(Subject::Job).map_err(drop),
            Some(("breaker", name)) => Ok(Subject::Breaker(name.into())),
            None if text == "rest" => Ok(Subject::Rest),
            _ => Err(()),
        }
    }
}

/// One thing of which somebody is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Of which alert.
    pub alert: String,
    /// Of which tenant.
    pub tenant: TenantId,
    /// What the alert is about: an alarm of another kind ends with it.
    pub on: String,
    /// What is not well.
    pub subject: Subject,
    /// What people call it.
    pub name: String,
    /// Since when.
    pub since: Timestamp,
    /// When it was last seen to be so.
    pub last_at: Timestamp,
    /// How often it was.
    pub count: u64,
    /// The newest of them, in a sentence.
    pub detail: String,
    /// How often it was told.
    pub told: u32,
    /// When it was last told.
    pub told_at: Option<Timestamp>,
    /// When it was over; it is told once more, and gone.
    pub over_at: Option<Timestamp>,
}

/// Something that was seen not to be well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What people call it.
    pub name: String,
    /// When it was last so.
    pub last_at: Timestamp,
    /// How often.
    pub count: u64,
    /// The newest of them, in a sentence.
    pub detail: String,
}

/// What is to be done about an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing before this time.
    Wait(Timestamp),
    /// It is told for the first time, or again.
    Tell,
    /// It is told that it is over, and the alarm is gone.
    TellOver,
}

impl Alarm {
    /// A new alarm, which nobody was told of.
    pub fn raise(alert: &Alert, subject: Subject, seen: Seen) -> Alarm {
        let Seen { name, last_at, count, detail } = seen;
        Alarm {
            alert: alert.name.clone(),
            tenant: alert.tenant,
            on: alert.on.as_str().into(),
            subject,
            name,
            since: last_at,
            last_at,
            count,
            detail,
            told: 0,
            told_at: None,
            over_at: None,
        }
    }

    /// The name of its document.
    pub fn document(&self) -> String {
        document(&self.alert, &self.subject)
    }

    /// It was seen again while it goes on.
    pub fn see(&mut self, seen: Seen) {
        self.count = self.count.saturating_add(seen.count);
        if seen.last_at >= self.last_at {
            self.last_at = seen.last_at;
            self.detail = seen.detail;
        }
    }

    /// What is to be done now. What was raised is told, even if it is over by then.
    pub fn step(&self, repeat_every: Duration, now: Timestamp) -> Step {
        let Some(told_at) = self.told_at else { return Step::Tell };
        if self.over_at.is_some() {
            return Step::TellOver;
        }
        let every = SignedDuration::try_from(repeat_every).unwrap_or(SignedDuration::MAX);
        match told_at.checked_add(every) {
            Ok(again) if again <= now => Step::Tell,
            Ok(again) => Step::Wait(again),
            Err(_) => Step::Wait(Timestamp::MAX),
        }
    }

    /// The key of the message that is told next: whoever tells it, it is one message.
    pub fn key(&self, step: Step) -> String {
        let which = match step {
            Step::TellOver => "over".to_string(),
            Step::Tell | Step::Wait(_) => (self.told + 1).to_string(),
        };
        let subject = self.subject.to_string().replace(' ', "/");
        format!("alarm/{}/{subject}/{}/{which}", self.alert, self.since.as_millisecond())
    }

    /// It was told.
    pub fn tell(&mut self, now: Timestamp) {
        self.told += 1;
        self.told_at = Some(now);
    }
}

/// The name of an alarm's document.
pub fn document(alert: &str, subject: &Subject) -> String {
    format!("{alert} {subject}")
}

/// What is known of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its slots become runs.
    pub is_active: bool,
    /// When it was registered.
    pub created_at: Option<Timestamp>,
    /// When its newest dead letter ended.
    pub dead_at: Option<Timestamp>,
    /// It has none that was found, but not all were looked at.
    pub is_dead_unknown: bool,
    /// When its newest success ended.
    pub succeeded_at: Option<Timestamp>,
    /// So long successes are kept: what was before that is not known.
    pub kept: Option<Duration>,
    /// The newest slot whose run was on time.
    pub on_time: Option<Timestamp>,
}

/// Whether a job is not well, for what can be told from what is stored at any time.
pub fn is_unwell(alert: &Alert, facts: &Facts, now: Timestamp) -> bool {
    match alert.on {
        On::DeadLetter => facts
            .dead_at
            .is_some_and(|dead| dead >= alert.since && facts.succeeded_at.is_none_or(|well| well <= dead)),
        On::Silent { after } => is_silent(alert, after, facts, now) == Some(true),
        On::BreakerOpen | On::Missed | On::Late { .. } => false,
    }
}

/// Whether a job has been silent for too long. None if nobody can know: its last success may be gone from its history.
fn is_silent(alert: &Alert, after: Duration, facts: &Facts, now: Timestamp) -> Option<bool> {
    if !facts.is_active {
        return Some(false);
    }
    let watched = [Some(alert.since), facts.created_at].into_iter().flatten().max()?;
    let since = facts.succeeded_at.map_or(watched, |well| well.max(watched));
    let is_silent = now >= after_that(since, after);
    let is_known = facts.succeeded_at.is_some()
        || facts.kept.is_none_or(|kept| after <= kept || now < after_that(watched, kept));
    (is_known || !is_silent).then_some(is_silent)
}

/// Whether an alarm about a job is over.
pub fn is_over(alert: &Alert, alarm: &Alarm, facts: &Facts, now: Timestamp) -> bool {
    match alert.on {
        On::DeadLetter if facts.is_dead_unknown => {
            facts.succeeded_at.is_some_and(|well| well > alarm.last_at)
        }
        On::DeadLetter => facts.dead_at.is_none_or(|dead| facts.succeeded_at.is_some_and(|well| well > dead)),
        On::Silent { after } => is_silent(alert, after, facts, now) == Some(false),
        On::Missed | On::Late { .. } => {
            let is_quiet = alarm.last_at.checked_add(QUIET).is_ok_and(|quiet| quiet <= now);
            is_quiet && facts.on_time.is_some_and(|slot| slot > alarm.last_at)
        }
        On::BreakerOpen => true,
    }
}

fn after_that(since: Timestamp, after: Duration) -> Timestamp {
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    since.checked_add(after).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use punctual_schedule::Schedule;

    use super::*;
    use crate::id::{ShardId, Version};
    use crate::job::{JobState, Spec, Target};
    use crate::lifecycle::tests::at;

    fn alert(on: On) -> Alert {
        Alert {
            name: "pager".into(),
            tenant: TenantId::DEFAULT,
            on,
            jobs: Which::default(),
            to: To::Slack { url: "http://127.0.0.1/x".into() },
            repeat_every: Duration::from_secs(600),
            since: at(100),
        }
    }

    fn seen(second: i64, count: u64) -> Seen {
        Seen { name: "job".into(), last_at: at(second), count, detail: format!("at {second}") }
    }

    fn alarm(told: u32, told_at: Option<i64>, over_at: Option<i64>) -> Alarm {
        let alarm = Alarm::raise(&alert(On::Missed), Subject::Rest, seen(1_000, 1));
        Alarm { told, told_at: told_at.map(at), over_at: over_at.map(at), ..alarm }
    }

    #[test]
    fn an_alarm_is_told_repeated_and_ended() {
        let every = Duration::from_secs(600);
        for (alarm, now, expected) in [
            (alarm(0, None, None), 1_000, Step::Tell),
            (alarm(0, None, Some(1_001)), 1_002, Step::Tell),
            (alarm(1, Some(1_000), None), 1_001, Step::Wait(at(1_600))),
            (alarm(1, Some(1_000), None), 1_600, Step::Tell),
            (alarm(7, Some(1_600), None), 1_700, Step::Wait(at(2_200))),
            (alarm(1, Some(1_000), Some(1_500)), 1_501, Step::TellOver),
        ] {
            assert_eq!(alarm.step(every, at(now)), expected, "{alarm:?} at {now}");
        }
        assert_eq!(alarm(1, Some(0), None).step(Duration::MAX, at(9)), Step::Wait(Timestamp::MAX));
    }

    #[test]
    fn every_telling_has_a_key_of_its_own() {
        let mut one = alarm(0, None, None);
        let first = one.key(Step::Tell);
        assert_eq!(first, "alarm/pager/rest/1800001000000/1");
        assert_eq!(one.key(Step::Tell), first, "whoever decides");
        one.tell(at(1_001));
        assert_eq!(one.key(Step::Tell), "alarm/pager/rest/1800001000000/2");
        assert_eq!(one.key(Step::TellOver), "alarm/pager/rest/1800001000000/over");
        let later = Alarm { since: at(2_000), ..one };
        assert_eq!(
            later.key(Step::TellOver),
            "alarm/pager/rest/1800002000000/over",
            "raised again, told again"
        );
    }

    #[test]
    fn what_goes_on_is_counted_and_keeps_its_newest_detail() {
        let mut one = alarm(1, Some(1_000), None);
        one.see(seen(1_200, 4));
        one.see(seen(1_100, 2));
        assert_eq!((one.count, one.since, one.last_at, &*one.detail), (7, at(1_000), at(1_200), "at 1200"));
    }

    /// Dead and succeeded at, whether it is raised, whether it is over.
    #[test]
    fn a_job_with_a_dead_letter_is_well_again_with_its_next_success() {
        for (dead, well, unwell, over) in [
            (None, None, false, true),
            (Some(200), None, true, false),
            (Some(200), Some(150), true, false),
            (Some(200), Some(200), true, false),
            (Some(200), Some(201), false, true),
            (Some(50), None, false, false), // It died before the alert was set.
            (None, Some(10), false, true),  // Redriven or acknowledged.
        ] {
            let facts = Facts { dead_at: dead.map(at), succeeded_at: well.map(at), ..Facts::default() };
            let alert = alert(On::DeadLetter);
            assert_eq!(is_unwell(&alert, &facts, at(300)), unwell, "{facts:?}");
            assert_eq!(is_over(&alert, &alarm(1, Some(1), None), &facts, at(300)), over, "{facts:?}");
        }
    }

    /// Now, how long successes are kept, whether it is raised, whether it is over.
    #[test]
    fn nobody_is_told_of_a_silence_that_nobody_can_know_of() {
        let alert = alert(On::Silent { after: Duration::from_secs(1_000) });
        for (now, kept, unwell, over) in [
            (1_099, 100, false, true), // It is too early in any case.
            (1_100, 100, false, false),
            (1_100, 999, false, false),
            (1_100, 1_000, true, false),
        ] {
            let kept = Some(Duration::from_secs(kept));
            let facts = Facts { is_active: true, created_at: Some(at(0)), kept, ..Facts::default() };
            assert_eq!(is_unwell(&alert, &facts, at(now)), unwell, "{facts:?} at {now}");
            assert_eq!(
                is_over(&alert, &alarm(1, Some(1), None), &facts, at(now)),
                over,
                "{facts:?} at {now}"
            );
            let well = Facts { succeeded_at: Some(at(90)), ..facts };
            assert_eq!(is_unwell(&alert, &well, at(now)), now >= 1_100, "a success that is there is known");
        }
    }

    #[test]
    fn a_dead_letter_that_was_not_found_among_very_many_is_not_over() {
        let (alert, alarm) = (alert(On::DeadLetter), alarm(1, Some(1_001), None));
        let unknown = Facts { is_dead_unknown: true, ..Facts::default() };
        assert!(!is_over(&alert, &alarm, &unknown, at(2_000)));
        let well = |second| Facts { succeeded_at: Some(at(second)), ..unknown };
        assert!(!is_over(&alert, &alarm, &well(999), at(2_000)));
        assert!(is_over(&alert, &alarm, &well(1_001), at(2_000)));
    }

    /// Registered and succeeded at, whether it is active, now, whether it is raised.
    #[test]
    fn a_job_is_silent_when_it_had_no_success_for_too_long() {
        for (created, well, is_active, now, expected) in [
            (0, None, true, 159, false), // The alert is from 100.
            (0, None, true, 160, true),
            (120, None, true, 160, false),
            (120, None, true, 180, true),
            (0, Some(130), true, 189, false),
            (0, Some(130), true, 190, true),
            (0, Some(130), false, 900, false), // It is paused, or over.
        ] {
            let facts = Facts {
                is_active,
                created_at: Some(at(created)),
                succeeded_at: well.map(at),
                ..Facts::default()
            };
            let alert = alert(On::Silent { after: Duration::from_secs(60) });
            assert_eq!(is_unwell(&alert, &facts, at(now)), expected, "{facts:?} at {now}");
            assert_eq!(is_over(&alert, &alarm(1, Some(1), None), &facts, at(now)), !expected);
            let kept = Facts { kept: Some(Duration::from_secs(60)), ..facts };
            assert_eq!(is_unwell(&alert, &kept, at(now)), expected, "what is kept is enough");
        }
    }

    /// The newest slot that was on time, now, whether it is over; the last bad one was at 1000.
    #[test]
    fn what_was_missed_or_late_is_over_after_a_quiet_time_and_a_run_on_time() {
        for (on_time, now, expected) in [
            (None, 9_000, false),
            (Some(900), 9_000, false),
            (Some(1_060), 1_599, false),
            (Some(1_060), 1_600, true),
            (Some(87_400), 87_401, true), // A daily job, with its next run.
        ] {
            let facts = Facts { on_time: on_time.map(at), ..Facts::default() };
            for on in [On::Missed, On::Late { over: Duration::from_secs(5) }] {
                let alarm = alarm(1, Some(1_000), None);
                assert_eq!(is_over(&alert(on), &alarm, &facts, at(now)), expected, "{on_time:?} at {now}");
            }
        }
    }

    #[test]
    fn an_alert_takes_the_jobs_it_names_and_none_of_the_systems() {
        let schedule = Schedule::parse("@every 1h").expect("valid");
        let mut job = Job {
            id: JobId::new(at(0), ShardId(1), 1),
            tenant: TenantId::DEFAULT,
            version: Version::FIRST,
            state: JobState::Active,
            spec: Spec { key: Some("k".into()), ..Spec::new("j", schedule, Target::Discard) },
            created_at: at(0),
            updated_at: at(0),
            carried: None,
            changes: Vec::new(),
        };
        job.spec.labels.insert("team".into(), "core".into());
        let labels = |value: &str| BTreeMap::from([("team".to_string(), value.to_string())]);
        for (which, expected) in [
            (Which::default(), true),
            (Which { job: Some(job.id), ..Which::default() }, true),
            (Which { job: Some(JobId::new(at(0), ShardId(1), 2)), ..Which::default() }, false),
            (Which { key: Some("k".into()), ..Which::default() }, true),
            (Which { key: Some("l".into()), ..Which::default() }, false),
            (Which { kind: Some("report".into()), ..Which::default() }, false),
            (Which { queue: Some("default".into()), ..Which::default() }, true),
            (Which { queue: Some("mail".into()), ..Which::default() }, false),
            (Which { labels: labels("core"), ..Which::default() }, true),
            (Which { labels: labels("web"), ..Which::default() }, false),
        ] {
            assert_eq!(which.takes(&job), expected, "{which:?}");
        }
        job.spec.kind = Some(MESSAGE.into());
        assert!(!Which::default().takes(&job));
    }

    #[test]
    fn subjects_are_read_as_they_are_written() {
        let job = JobId::new(at(0), ShardId(1), 1);
        for subject in [Subject::Job(job), Subject::Breaker("http a.example:80".into()), Subject::Rest] {
            assert_eq!(subject.to_string().parse(), Ok(subject));
        }
        assert_eq!("job x".parse::<Subject>(), Err(()));
    }
}
