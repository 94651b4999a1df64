//! What a worker has, and what a job requires of the worker that executes it: labels, compared exactly.
//!
//! A job that requires `zone=eu` is executed by workers with the label `zone=eu` and by no others; one that requires
//! nothing by any. Promise: labels that are equal have the same text, whatever the order in which they were written.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How many a worker has, or a job requires: each is a place, a size or a device that somebody provides.
pub const COUNT_MAX: usize = 16;

/// Bytes of a name, and of a value.
pub const LENGTH_MAX: usize = 63;

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
}

impl Labels {
    /// No labels.
    pub const NONE: Labels = Labels(None);

    /// These labels.
    pub fn new(labels: &BTreeMap<String, String>) -> Result<Self, Wrong> {
        if labels.len() > COUNT_MAX {
            return Err(Wrong::Count(labels.len()));
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

    /// Whether a worker with these labels may execute what requires those.
    pub fn meet(&self, required: &Labels) -> bool {
        required.each().all(|label| self.each().any(|has| has == label))
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
