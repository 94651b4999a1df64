//! What a worker has, and what a job requires of the worker that executes it: labels, compared exactly.
//!
//! A job that requires `zone=eu` is executed by workers with the label `zone=eu` and by no others; one that requires
//! nothing by any. Promise: labels that are equal have the same text, whatever the order in which they were written.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::id::{TenantId, WorkerId};

/// How many a worker has, or a job requires: each is a place, a size or a device that somebody provides.
pub const COUNT_MAX: usize = 16;

/// Bytes of a name, and of a value.
pub const LENGTH_MAX: usize = 63;

/// Labels with names that begin like this are the system's own.
pub const RESERVED: &str = "punctual/";

/// What runs require that are pulled, and what those have who pull: the number of their tenant. So neither gets what is for
/// others, and nobody gets what is another tenant's.
const PULL: &str = "punctual/pull";

/// What a run requires that is for one worker alone, of those that pull: its id.
const WORKER: &str = "punctual/worker";

/// What a run requires that is tried alone, and what a worker has that takes such a run now.
const ALONE: &str = "punctual/alone";

/// Labels, each with a name of its own. None, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Option<Arc<str>>);

/// Why something is not a set of labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Not `name=value`.
    #[error("`{0}` is not a label: write name=value")]
    Form(String),
    /// Empty or too long.
    #[error("the label `{0}`: its name and its value have 1 to {LENGTH_MAX} characters each")]
    Length(String),
    /// A character that would be taken for another label, or is not seen.
    #[error("the label `{0}`: write letters, digits and any of . _ - /")]
    Character(String),
    /// The same name twice.
    #[error("the label `{0}` is given twice")]
    Twice(String),
    /// Too many.
    #[error("{0} labels are too many; at most {COUNT_MAX}")]
    Count(usize),
    /// The system's own.
    #[error("the label `{0}`: names that begin with `{RESERVED}` are the system's own; take another")]
    Reserved(String),
}

impl Labels {
    /// No labels.
    pub const NONE: Labels = Labels(None);

    /// These labels, which somebody gave.
    pub fn given(labels: &BTreeMap<String, String>) -> Result<Self, Wrong> {
        match labels.keys().find(|name| name.starts_with(RESERVED)) {
            Some(name) => Err(Wrong::Reserved(name.chars().take(LENGTH_MAX).collect())),
            None => Labels::new(labels),
        }
    }

    /// These labels.
    pub fn new(labels: &BTreeMap<String, String>) -> Result<Self, Wrong> {
        let given = labels.keys().filter(|name| !name.starts_with(RESERVED)).count();
        if given > COUNT_MAX {
            return Err(Wrong::Count(given));
        }
        let mut text = String::new();
        for (name, value) in labels {
            check(name, value)?;
            if !text.is_empty() {
                text.push(',');
            }
            text.extend([name, "=", value]);
        }
        Ok(Labels((!text.is_empty()).then(|| text.into())))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Their text: `gpu=true,zone=eu`.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// Each as `name=value`, in the order of their names.
    pub fn each(&self) -> impl Iterator<Item = &str> {
        self.as_str().split(',').filter(|label| !label.is_empty())
    }

    /// Each by its name.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let pair = |label: &str| label.split_once('=').map(|(name, value)| (name.into(), value.into()));
        self.each().filter_map(pair).collect()
    }

    /// Whether a worker with these labels may execute what requires those. Who pulls is given nothing else, and nobody else
    /// what is pulled; whoever asks for what is for one worker alone is given that alone; who asks for what is tried alone is given nothing
    /// else, and nobody else what is tried alone.
    pub fn meet(&self, required: &Labels) -> bool {
        self.are_pulling() == required.are_pulling()
            && self.worker() == required.worker()
            && self.are_alone() == required.are_alone()
            && required.each().all(|label| self.each().any(|has| has == label))
    }

    /// The same for what is pulled by workers of a tenant.
    #[must_use]
    pub fn pulling(&self, tenant: TenantId) -> Labels {
        let mut labels = self.to_map();
        labels.insert(PULL.into(), tenant.0.to_string());
        // The system's own are not counted.
        Labels::new(&labels).unwrap_or_default()
    }

    /// The same for what is for one worker alone, or for what that worker has.
    #[must_use]
    pub fn of_worker(&self, worker: WorkerId) -> Labels {
        let mut labels = self.to_map();
        labels.insert(WORKER.into(), worker.to_string());
        Labels::new(&labels).unwrap_or_default()
    }

    /// The worker that they are of, if they are of one alone.
    pub fn worker(&self) -> Option<WorkerId> {
        let of = |label: &str| label.strip_prefix(WORKER)?.strip_prefix('=')?.parse().ok();
        self.each().find_map(of)
    }

    /// The same for what is tried alone, or for who asks for that.
    #[must_use]
    pub fn alone(&self) -> Labels {
        let mut labels = self.to_map();
        labels.insert(ALONE.into(), "true".into());
        Labels::new(&labels).unwrap_or_default()
    }

    /// The same for what is not tried alone.
    #[must_use]
    pub fn in_company(&self) -> Labels {
        if !self.are_alone() {
            return self.clone();
        }
        let mut labels = self.to_map();
        labels.remove(ALONE);
        Labels::new(&labels).unwrap_or_default()
    }

    /// Whether they are of a run that is tried alone, or of who asks for one.
    pub fn are_alone(&self) -> bool {
        self.have(ALONE)
    }

    /// The same without the system's own.
    #[must_use]
    pub fn without_own(&self) -> Labels {
        if !self.as_str().contains(RESERVED) {
            return self.clone();
        }
        let mut labels = self.to_map();
        labels.retain(|name, _| !name.starts_with(RESERVED));
        Labels::new(&labels).unwrap_or_default()
    }

    /// Whether they are of a run that is pulled, or of a worker that pulls.
    pub fn are_pulling(&self) -> bool {
        self.have(PULL)
    }

    fn have(&self, name: &str) -> bool {
        self.each().any(|label| label.split('=').next() == Some(name))
    }
}

/// Whether a name and a value are a label.
pub fn check(name: &str, value: &str) -> Result<(), Wrong> {
    let is_sized = |text: &str| (1..=LENGTH_MAX).contains(&text.len());
    if !is_sized(name) || !is_sized(value) {
        return Err(Wrong::Length(name.chars().take(LENGTH_MAX).collect()));
    }
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
    match is_plain(name) && is_plain(value) {
        true => Ok(()),
        false => Err(Wrong::Character(name.into())),
    }
}

impl FromStr for Labels {
    type Err = Wrong;

    /// `zone=eu,gpu=true`, in any order.
    fn from_str(text: &str) -> Result<Self, Wrong> {
        let mut labels = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| Wrong::Form(part.into()))?;
            if labels.insert(name.to_string(), value.to_string()).is_some() {
                return Err(Wrong::Twice(name.into()));
            }
        }
        Labels::new(&labels)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::lifecycle::tests::at;

    fn labels(text: &str) -> Labels {
        text.parse().unwrap()
    }

    #[test]
    fn the_order_in_which_they_are_written_does_not_matter() {
        assert_eq!(labels("zone=eu, gpu=true"), labels("gpu=true,zone=eu"));
        assert_eq!(labels("zone=eu,gpu=true").as_str(), "gpu=true,zone=eu");
        assert_eq!(Labels::new(&labels("b=2,a=1").to_map()).unwrap(), labels("a=1,b=2"));
        assert!(labels("").is_empty() && labels(" , ") == Labels::NONE);
    }

    #[test]
    fn a_worker_may_have_more_than_is_required_and_nothing_else_instead() {
        for (has, required, meets) in [
            ("", "", true),
            ("zone=eu", "", true),
            ("zone=eu", "zone=eu", true),
            ("gpu=true,zone=eu", "zone=eu", true),
            ("zone=eu,gpu=true", "gpu=true,zone=eu", true),
            ("", "zone=eu", false),
            ("zone=us", "zone=eu", false),
            ("zone=eu-1", "zone=eu", false),
            ("zone=eu", "gpu=true,zone=eu", false),
            ("eu=zone", "zone=eu", false),
        ] {
            assert_eq!(labels(has).meet(&labels(required)), meets, "{has} for {required}");
        }
    }

    #[test]
    fn what_is_pulled_is_for_those_who_pull_for_its_tenant_and_for_nobody_else() {
        let (one, two) = (TenantId(1), TenantId(2));
        let (plain, zone) = (Labels::NONE, labels("zone=eu"));
        for (has, required, meets) in [
            (plain.pulling(one), plain.pulling(one), true),
            (plain.pulling(one), plain.pulling(two), false),
            (plain.pulling(one), plain.clone(), false),
            (plain.clone(), plain.pulling(one), false),
            (zone.pulling(one), plain.pulling(one), true),
            (zone.pulling(one), zone.pulling(one), true),
            (zone.pulling(one), zone.clone(), false),
            (zone.clone(), zone.pulling(one), false),
            (plain.pulling(one), zone.pulling(one), false),
        ] {
            assert_eq!(has.meet(&required), meets, "{has} for {required}");
            assert!(!has.without_own().are_pulling());
        }
        assert_eq!(zone.pulling(one).without_own(), zone);
        let full: Labels = (0..16).map(|n| format!("n{n}=1")).collect::<Vec<_>>().join(",").parse().unwrap();
        let pulled = full.pulling(one);
        assert_eq!(pulled.as_str().parse::<Labels>(), Ok(pulled.clone()), "one more is not counted");
        assert!(matches!(Labels::given(&pulled.to_map()), Err(Wrong::Reserved(_))));
    }

    #[test]
    fn what_is_for_one_worker_alone_is_apart_from_what_is_for_all_of_its_kind() {
        let (one, two) = (WorkerId::new(at(0), 1), WorkerId::new(at(0), 2));
        let pulling = Labels::NONE.pulling(TenantId(1));
        let zone = labels("zone=eu").pulling(TenantId(1));
        for (has, required, meets) in [
            (pulling.of_worker(one), pulling.of_worker(one), true),
            (zone.of_worker(one), pulling.of_worker(one), true),
            (pulling.of_worker(one), zone.of_worker(one), false),
            (pulling.of_worker(one), pulling.of_worker(two), false),
            (pulling.of_worker(one), pulling.clone(), false),
            (pulling.clone(), pulling.of_worker(one), false),
        ] {
            assert_eq!(has.meet(&required), meets, "{has} for {required}");
        }
    }

    #[test]
    fn what_is_tried_alone_is_for_who_asks_for_that_and_for_nothing_else() {
        let (plain, zone) = (Labels::NONE, labels("zone=eu"));
        let pulled = zone.pulling(TenantId(1));
        for (has, required, meets) in [
            (plain.alone(), plain.alone(), true),
            (plain.alone(), plain.clone(), false),
            (plain.clone(), plain.alone(), false),
            (zone.alone(), plain.alone(), true),
            (zone.alone(), zone.clone(), false),
            (plain.alone(), zone.alone(), false),
            (pulled.alone(), pulled.alone(), true),
            (pulled.alone(), zone.alone(), false),
            (pulled.clone(), pulled.alone(), false),
        ] {
            assert_eq!(has.meet(&required), meets, "{has} for {required}");
        }
        for labels in [plain, zone, pulled] {
            assert_eq!(labels.alone().alone(), labels.alone());
            assert_eq!(labels.alone().in_company(), labels);
            assert_eq!(labels.alone().without_own(), labels.without_own());
            assert_eq!(labels.alone().as_str().parse(), Ok(labels.alone()));
        }
    }

    #[test]
    fn what_is_no_label_is_named() {
        let long = "x".repeat(64);
        let many = (0..17).map(|n| format!("n{n}=1")).collect::<Vec<_>>().join(",");
        for (text, part) in [
            ("zone", "`zone` is not a label"),
            ("zone=", "`zone`: its name and its value"),
            ("=eu", "1 to 63"),
            (&format!("{long}=eu"), "1 to 63"),
            (&format!("zone={long}"), "1 to 63"),
            ("zone=e u", "write letters"),
            ("zone=a=b", "write letters"),
            ("zöne=eu", "write letters"),
            ("zone=eu,zone=us", "given twice"),
            (&many, "17 labels are too many"),
        ] {
            let error = text.parse::<Labels>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
