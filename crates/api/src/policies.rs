//! The policies of a job on the wire, besides [`crate::retry`]. What is left out has its default; what is read back shows it.

use std::num::NonZeroU32;

use punctual_domain::policy::catch_up::CatchUp as DomainCatchUp;
use punctual_domain::policy::overlap::{Overlap as DomainOverlap, QUEUE_MAX};
use punctual_domain::policy::retention::{Keep, Policy as DomainRetention, Retention as Class};

use crate::duration::Duration;
use crate::limits::{CATCH_UP_MAX, CATCH_UP_RATE_MAX, LAST_MAX, OUTPUT_MAX, QUEUE_ALL_MAX};
use crate::read::{At, Errors, one_of};

object! {
    /// What happens to slots that are reached too late.
    pub struct CatchUp {
        /// `latest` (the default): one run, for the newest; `none`; `all`: the newest `max`, oldest first.
        #[schema(example = "latest")]
        pub policy: String,
        /// How old a slot may be; `PT1H`.
        pub window: Duration,
        /// With `all`: how many slots at most; 100.
        pub max: u32,
        /// With `all`: how many per second at most; 50.
        pub rate: u32,
    }

    /// What happens when a run is to be made while others of the job are open. A run is open until it has ended, also while
    /// it waits for its next attempt.
    pub struct Overlap {
        /// `allow` (the default): they run beside each other; `skip`: there is no run; `queue_one`: one run waits, more are
        /// skipped; `queue_all`: up to `max` wait, oldest slot first; `cancel_running`: what waits is cancelled, what runs is
        /// asked to stop, and the new run starts when it has.
        #[schema(example = "skip")]
        pub policy: String,
        /// With `queue_all`: how many runs wait at most, 1 to 1000; 100.
        pub max: u32,
    }

    /// What is kept of the job's runs, and how long.
    pub struct Retention {
        /// For how many days after its end a run is kept: 1, 7 (the default), 30 or 400.
        #[schema(example = 7)]
        pub days: u16,
        /// Runs that succeeded are kept for one day, all others for `days`; `false`.
        pub failures: bool,
        /// Lists of the job's runs show the newest so many that have ended, 1 to 1000. All that are kept, unless said otherwise.
        pub last: u32,
        /// How many bytes of an attempt's output are kept, 0 to 262144; 65536.
        pub output_max: u32,
    }
}

/// Under `all`, unless said otherwise.
const ALL_MAX: u32 = 100;
const ALL_RATE: u32 = 50;

#[derive(Clone, Copy)]
enum Policy {
    Latest,
    None,
    All,
}

const POLICIES: [(&str, Policy); 3] =
    [("latest", Policy::Latest), ("none", Policy::None), ("all", Policy::All)];

impl CatchUp {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> DomainCatchUp {
        let window = self.window.map_or(std::time::Duration::from_secs(3600), |window| window.0);
        let policy = match &self.policy {
            Some(word) => one_of(word, &POLICIES, &at.member("policy"), errors),
            None => Some(Policy::Latest),
        };
        let (max, rate) = (self.max.unwrap_or(ALL_MAX), self.rate.unwrap_or(ALL_RATE));
        check_range(max, CATCH_UP_MAX, &at.member("max"), errors);
        check_range(rate, CATCH_UP_RATE_MAX, &at.member("rate"), errors);
        match policy {
            Some(Policy::Latest) => DomainCatchUp::Latest { window },
            Some(Policy::All) => DomainCatchUp::All { window, max, rate },
            Some(Policy::None) | None => DomainCatchUp::None,
        }
    }
}

impl From<&DomainCatchUp> for CatchUp {
    fn from(catch_up: &DomainCatchUp) -> Self {
        let wire = |policy: &str, window| CatchUp {
            policy: Some(policy.into()),
            window: Some(Duration(window)),
            ..CatchUp::default()
        };
        match *catch_up {
            DomainCatchUp::Latest { window } => wire("latest", window),
            DomainCatchUp::None => CatchUp { policy: Some("none".into()), ..CatchUp::default() },
            DomainCatchUp::All { window, max, rate } => {
                CatchUp { max: Some(max), rate: Some(rate), ..wire("all", window) }
            }
        }
    }
}

const OVERLAPS: [(&str, DomainOverlap); 5] = [
    ("allow", DomainOverlap::Allow),
    ("skip", DomainOverlap::Skip),
    ("queue_one", DomainOverlap::QueueOne),
    ("queue_all", DomainOverlap::QueueAll { max: QUEUE_MAX }),
    ("cancel_running", DomainOverlap::CancelRunning),
];

impl Overlap {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> DomainOverlap {
        let policy = match &self.policy {
            Some(word) => one_of(word, &OVERLAPS, &at.member("policy"), errors),
            None => None,
        };
        if let Some(max) = self.max {
            check_range(max, QUEUE_ALL_MAX, &at.member("max"), errors);
        }
        match policy.unwrap_or_default() {
            DomainOverlap::QueueAll { max } => DomainOverlap::QueueAll { max: self.max.unwrap_or(max) },
            policy => policy,
        }
    }
}

impl From<DomainOverlap> for Overlap {
    fn from(overlap: DomainOverlap) -> Self {
        let max = match overlap {
            DomainOverlap::QueueAll { max } => Some(max),
            DomainOverlap::Allow
            | DomainOverlap::Skip
            | DomainOverlap::QueueOne
            | DomainOverlap::CancelRunning => None,
        };
        Overlap { policy: Some(overlap.as_str().into()), max }
    }
}

impl Retention {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> DomainRetention {
        let default = DomainRetention::default();
        let class = self.days.map_or(Some(default.keep.class()), |days| {
            let class = Class::of_days(days.into());
            if class.is_none() {
                let detail = format!("history is not kept for {days} days; write 1, 7, 30 or 400");
                errors.add(&at.member("days"), "unknown_value", detail);
            }
            class
        });
        let class = class.unwrap_or_default();
        if let Some(last) = self.last {
            check_range(last, LAST_MAX, &at.member("last"), errors);
        }
        let output_max = self.output_max.unwrap_or(default.output_max);
        if output_max > OUTPUT_MAX {
            let detail = format!(
                "{output_max} is not in 0 to {OUTPUT_MAX}; keep larger results where the job puts them"
            );
            errors.add(&at.member("output_max"), "out_of_range", detail);
        }
        DomainRetention {
            keep: if self.failures == Some(true) { Keep::Failures(class) } else { Keep::All(class) },
            last: self.last.and_then(NonZeroU32::new),
            output_max,
        }
    }
}

impl From<DomainRetention> for Retention {
    fn from(retention: DomainRetention) -> Self {
        Retention {
            days: Some(retention.keep.class().days()),
            failures: Some(matches!(retention.keep, Keep::Failures(_))),
            last: retention.last.map(NonZeroU32::get),
            output_max: Some(retention.output_max),
        }
    }
}

pub(crate) fn check_range(number: u32, most: u32, at: &At<'_>, errors: &mut Errors) {
    if !(1..=most).contains(&number) {
        errors.add(at, "out_of_range", format!("{number} is not in 1 to {most}"));
    }
}
