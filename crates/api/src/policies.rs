//! The policies of a job on the wire, besides [`crate::retry`]. What is left out has its default; what is read back shows it.

use punctual_domain::policy::catch_up::CatchUp as DomainCatchUp;
use punctual_domain::policy::retention::Retention as DomainRetention;

use crate::duration::Duration;
use crate::limits::{CATCH_UP_MAX, CATCH_UP_RATE_MAX};
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

    /// How long history is kept.
    pub struct Retention {
        /// 1, 7 (the default), 30 or 400.
        #[schema(example = 7)]
        pub days: u16,
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

impl Retention {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> DomainRetention {
        let Some(days) = self.days else { return DomainRetention::default() };
        DomainRetention::of_days(days.into()).unwrap_or_else(|| {
            let detail = format!("history is not kept for {days} days; write 1, 7, 30 or 400");
            errors.add(&at.member("days"), "unknown_value", detail);
            DomainRetention::default()
        })
    }
}

impl From<DomainRetention> for Retention {
    fn from(retention: DomainRetention) -> Self {
        Retention { days: Some(retention.days()) }
    }
}

pub(crate) fn check_range(number: u32, most: u32, at: &At<'_>, errors: &mut Errors) {
    if !(1..=most).contains(&number) {
        errors.add(at, "out_of_range", format!("{number} is not in 1 to {most}"));
    }
}
