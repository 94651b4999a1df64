//! The retry policy on the wire: how often, after which delays, until when and after which failures.

use punctual_domain::Outcome;
use punctual_domain::attempt::CODES;
use punctual_domain::policy::failures::{Failures as DomainFailures, OUTCOMES, Status as DomainStatus};
use punctual_domain::policy::retry::{Backoff as DomainBackoff, Retry as DomainRetry};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;
use crate::limits::{ATTEMPTS_MAX, DELAYS_MAX, FAILURES_MAX};
use crate::policies::check_range;
use crate::read::{At, Errors, Read, one_of};

object! {
    /// When a failed attempt is followed by another.
    pub struct Retry {
        /// How many attempts count, the first one included; 3, or one more than there are `delays`.
        #[schema(example = 3)]
        pub max_attempts: u32,
        /// How delays grow: `exponential` (the default), `linear`, `fixed`, or `list` with `delays`. Those that grow are up
        /// to 30 % longer at random.
        #[schema(example = "exponential")]
        pub backoff: String,
        /// The delay after the first failure; `PT1S`. It doubles with each, is added with each, or is always the same.
        pub base: Duration,
        /// With `exponential` and `linear`: the longest delay; `PT5M`.
        pub cap: Duration,
        /// With `list`: the delay after the first failure, the second and so on; the last repeats.
        pub delays: Vec<Duration>,
        /// No attempt starts later than this after the slot; no limit, unless said otherwise.
        pub retry_for: Duration,
        /// Failures that are retried besides those that are anyway: errors of the network, timeouts, 408, 425, 429 and 5xx.
        pub on: Failures,
        /// Failures that are not retried, though they would be.
        pub not_on: Failures,
    }

    /// Failures, by any of their marks. Of several that fit, the most exact one decides: a status before its class, that
    /// before the code of the error, and that before the outcome.
    pub struct Failures {
        /// `failed` or `timed_out`.
        pub outcomes: Vec<String>,
        /// HTTP statuses: one such as `409`, or a class such as `5xx`.
        pub status: Vec<Status>,
        /// Codes of errors, such as `connect_failed`.
        pub errors: Vec<String>,
    }
}

/// An HTTP status or a class of them, as text; a number is taken too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, example = "5xx")]
pub struct Status(pub String);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Backoff {
    Exponential,
    Linear,
    Fixed,
    List,
}

const BACKOFFS: [(&str, Backoff); 4] = [
    ("exponential", Backoff::Exponential),
    ("linear", Backoff::Linear),
    ("fixed", Backoff::Fixed),
    ("list", Backoff::List),
];

/// The members that another backoff brings to an end. `new` is what a change names, and whether it names delays.
pub fn ended_by(old: Option<&str>, new: Option<&str>, has_delays: bool) -> &'static [&'static str] {
    let list = has_delays.then_some("list");
    match (old.unwrap_or("exponential"), new.or(list)) {
        (_, None) => &[],
        (old, Some(new)) if old == new => &[],
        (_, Some("list")) => &["backoff", "base", "cap", "max_attempts"],
        (_, Some("fixed")) => &["cap", "delays"],
        (_, Some(_)) => &["delays"],
    }
}

impl Retry {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> DomainRetry {
        let default = DomainRetry::default();
        let backoff = match &self.backoff {
            Some(word) => one_of(word, &BACKOFFS, &at.member("backoff"), errors),
            None if self.delays.is_some() => Some(Backoff::List),
            None => Some(Backoff::Exponential),
        };
        let backoff = backoff.map(|backoff| self.backoff(backoff, at, errors)).unwrap_or_default();
        let max_attempts = self.max_attempts(&backoff, default.max_attempts, at, errors);
        let retry_for = self.retry_for.map(|length| length.0);
        if let Some(length) = retry_for.filter(|length| max_attempts > 1 && *length < backoff.first()) {
            let detail = format!(
                "no attempt would follow the first, because the first delay is `{}`; make `retry_for` longer than \
                 `{}`, or the delay shorter",
                Duration(backoff.first()),
                Duration(length)
            );
            errors.add(&at.member("retry_for"), "out_of_range", detail);
        }
        let failures = |set: &Option<Failures>, name, errors: &mut Errors| match set {
            Some(set) => set.to_domain(&at.member(name), errors),
            None => DomainFailures::default(),
        };
        let (on, not_on) = (failures(&self.on, "on", errors), failures(&self.not_on, "not_on", errors));
        refuse_both(&on, &not_on, &at.member("not_on"), errors);
        DomainRetry { max_attempts, backoff, retry_for, on, not_on }
    }

    /// The delays, and what does not go with them.
    fn backoff(&self, backoff: Backoff, at: &At<'_>, errors: &mut Errors) -> DomainBackoff {
        let is_list = backoff == Backoff::List;
        let conflicts = [
            (
                "base",
                self.base.is_some() && is_list,
                "`base` does not go with `list`, whose `delays` say it all; leave it out",
            ),
            (
                "cap",
                self.cap.is_some() && is_list,
                "`cap` does not go with `list`, whose `delays` say it all; leave it out",
            ),
            (
                "cap",
                self.cap.is_some() && backoff == Backoff::Fixed,
                "`cap` does not go with `fixed`, whose delay does not grow; leave it out",
            ),
            (
                "delays",
                self.delays.is_some() && !is_list,
                "`delays` goes with `\"backoff\":\"list\"`; write that, or leave `delays` out",
            ),
        ];
        for (member, _, detail) in conflicts.iter().filter(|(_, is_wrong, _)| *is_wrong) {
            errors.add(&at.member(member), "conflict", *detail);
        }
        let (first, longest) = match DomainBackoff::default() {
            DomainBackoff::Exponential { base, cap } | DomainBackoff::Linear { base, cap } => (base, cap),
            DomainBackoff::Fixed { delay } => (delay, delay),
            DomainBackoff::List { .. } => Default::default(),
        };
        let base = self.base.map_or(first, |base| base.0);
        // A long first delay raises the default cap, but not one that was asked for.
        let cap = self.cap.map_or(longest.max(base), |cap| cap.0);
        match backoff {
            Backoff::Exponential | Backoff::Linear => {
                if cap < base {
                    let detail = "`cap` is shorter than `base`; it is the longest delay";
                    errors.add(&at.member("cap"), "out_of_range", detail);
                }
                match backoff {
                    Backoff::Linear => DomainBackoff::Linear { base, cap },
                    _ => DomainBackoff::Exponential { base, cap },
                }
            }
            Backoff::Fixed => DomainBackoff::Fixed { delay: base },
            Backoff::List => {
                let delays: Vec<_> = self.delays.iter().flatten().map(|delay| delay.0).collect();
                let here = at.member("delays");
                if self.delays.is_none() {
                    let detail = "`delays` is missing; write how long to wait after each failure";
                    errors.add(&here, "missing_field", detail);
                } else if !(1..=DELAYS_MAX).contains(&delays.len()) {
                    let detail = format!("{} delays are not 1 to {DELAYS_MAX}", delays.len());
                    errors.add(&here, "out_of_range", detail);
                }
                DomainBackoff::List { delays }
            }
        }
    }

    fn max_attempts(&self, backoff: &DomainBackoff, default: u32, at: &At<'_>, errors: &mut Errors) -> u32 {
        let listed = match backoff {
            DomainBackoff::List { delays } => Some(delays.len() as u32),
            DomainBackoff::Exponential { .. }
            | DomainBackoff::Linear { .. }
            | DomainBackoff::Fixed { .. } => None,
        };
        let max_attempts = self.max_attempts.unwrap_or(listed.map_or(default, |delays| delays + 1));
        check_range(max_attempts, ATTEMPTS_MAX, &at.member("max_attempts"), errors);
        if let Some(delays) = listed.filter(|delays| *delays >= max_attempts && *delays > 0) {
            let detail = format!(
                "{delays} delays are for {} attempts, and `max_attempts` is {max_attempts}; raise that, or give fewer \
                 delays",
                delays + 1
            );
            errors.add(&at.member("delays"), "out_of_range", detail);
        }
        max_attempts
    }
}

impl Failures {
    fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> DomainFailures {
        let mut set = DomainFailures::default();
        let outcomes = OUTCOMES.map(|outcome| (outcome.as_str(), outcome));
        let codes = CODES.map(|code| (code, code));
        let lengths = [
            ("outcomes", self.outcomes.as_ref().map_or(0, Vec::len)),
            ("status", self.status.as_ref().map_or(0, Vec::len)),
            ("errors", self.errors.as_ref().map_or(0, Vec::len)),
        ];
        for (member, length) in lengths.into_iter().filter(|(_, length)| *length > FAILURES_MAX) {
            let detail = format!("{length} are too many, at most {FAILURES_MAX}; name a class or an outcome");
            errors.add(&at.member(member), "too_long", detail);
        }
        let here = at.member("outcomes");
        for (index, word) in self.outcomes.iter().flatten().take(FAILURES_MAX).enumerate() {
            push(&mut set.outcomes, one_of(word, &outcomes, &here.item(index), errors));
        }
        let here = at.member("status");
        for (index, status) in self.status.iter().flatten().take(FAILURES_MAX).enumerate() {
            push(&mut set.statuses, status.to_domain(&here.item(index), errors));
        }
        let here = at.member("errors");
        for (index, word) in self.errors.iter().flatten().take(FAILURES_MAX).enumerate() {
            let code = one_of(word, &codes, &here.item(index), errors);
            push(&mut set.errors, code.map(str::to_string));
        }
        set
    }

    fn of(set: &DomainFailures) -> Option<Self> {
        fn list<T, U>(from: &[T], to: impl Fn(&T) -> U) -> Option<Vec<U>> {
            (!from.is_empty()).then(|| from.iter().map(to).collect())
        }
        (!set.is_empty()).then(|| Failures {
            outcomes: list(&set.outcomes, |outcome: &Outcome| outcome.as_str().to_string()),
            status: list(&set.statuses, |status| Status(status.to_string())),
            errors: list(&set.errors, String::clone),
        })
    }
}

/// Adds what is right and not there yet.
fn push<T: PartialEq>(list: &mut Vec<T>, item: Option<T>) {
    if let Some(item) = item.filter(|item| !list.contains(item)) {
        list.push(item);
    }
}

/// The same failure cannot be retried and not retried.
fn refuse_both(on: &DomainFailures, not_on: &DomainFailures, at: &At<'_>, errors: &mut Errors) {
    let mut refuse = |member: &str, word: &str| {
        let detail = format!("`{word}` is in `on` too; keep it in one of them");
        errors.add(&at.member(member), "conflict", detail);
    };
    for outcome in not_on.outcomes.iter().filter(|outcome| on.outcomes.contains(outcome)) {
        refuse("outcomes", outcome.as_str());
    }
    for status in not_on.statuses.iter().filter(|status| on.statuses.contains(status)) {
        refuse("status", &status.to_string());
    }
    for code in not_on.errors.iter().filter(|code| on.errors.contains(code)) {
        refuse("errors", code);
    }
}

impl Status {
    fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<DomainStatus> {
        let shown: String = self.0.chars().take(64).collect();
        match self.0.parse() {
            Ok(DomainStatus::One(200..300) | DomainStatus::Class(2)) => {
                let detail = format!("`{shown}` is a success, which is never retried; leave it out");
                errors.add(at, "out_of_range", detail);
                None
            }
            Ok(status) => Some(status),
            Err(_) => {
                let detail = format!(
                    "`{shown}` is not an HTTP status; write one such as `409`, or a class such as `5xx`"
                );
                errors.add(at, "unknown_value", detail);
                None
            }
        }
    }
}

impl Read for Status {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        match text.parse::<u32>() {
            Ok(_) => Some(Status(text.into())),
            Err(_) if text.starts_with('"') => String::read(text, at, errors).map(Status),
            Err(_) => {
                errors.wrong_type(at, "a status such as `409` or `5xx`", text);
                None
            }
        }
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Number(u32),
        }
        Ok(Status(match Either::deserialize(deserializer)? {
            Either::Text(text) => text,
            Either::Number(number) => number.to_string(),
        }))
    }
}

impl From<&DomainRetry> for Retry {
    fn from(retry: &DomainRetry) -> Self {
        let (base, cap, delays) = match &retry.backoff {
            DomainBackoff::Exponential { base, cap } | DomainBackoff::Linear { base, cap } => {
                (Some(*base), Some(*cap), None)
            }
            DomainBackoff::Fixed { delay } => (Some(*delay), None, None),
            DomainBackoff::List { delays } => (None, None, Some(delays)),
        };
        Retry {
            max_attempts: Some(retry.max_attempts),
            backoff: Some(retry.backoff.as_str().into()),
            base: base.map(Duration),
            cap: cap.map(Duration),
            delays: delays.map(|delays| delays.iter().copied().map(Duration).collect()),
            retry_for: retry.retry_for.map(Duration),
            on: Failures::of(&retry.on),
            not_on: Failures::of(&retry.not_on),
        }
    }
}
