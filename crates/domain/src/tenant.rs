//! The unit of isolation: keys, quotas and fairness are per tenant.
//!
//! How a tenant stands is asked for at every request and before every birth of a run, from memory. Promise: what is not said limits nothing.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use jiff::Timestamp;

use crate::id::TenantId;

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its number, in every key and row.
    pub id: TenantId,
    /// Its name, in every URL and log line.
    pub name: TenantName,
    /// When it was created.
    pub created_at: Timestamp,
}

/// How a tenant stands: whether it may do anything, and how much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether it may do anything.
    pub state: State,
    /// Why it is not active, in the words of whoever changed that.
    pub reason: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// How much of everything.
    pub quotas: Quotas,
}

/// Whether a tenant may do anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It may.
    #[default]
    Active,
    /// No run is born and no request is answered, until somebody resumes it.
    Suspended,
    /// The same for good: what it has goes.
    Deleted,
}

impl State {
    /// All states, in the order of a life.
    pub const ALL: [State; 3] = [State::Active, State::Suspended, State::Deleted];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Suspended => "suspended",
            State::Deleted => "deleted",
        }
    }

    /// The state of a word.
    pub fn of(word: &str) -> Option<Self> {
        State::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// How much of everything a tenant may have; what is not given is not limited beyond what holds for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Jobs.
    pub jobs: Option<u64>,
    /// Runs that wait.
    pub pending_runs: Option<u64>,
    /// Runs that start in a second.
    pub runs_per_second: Option<NonZeroU32>,
    /// Runs at the same time.
    pub concurrency: Option<NonZeroU32>,
    /// Bytes of a payload.
    pub payload_bytes: Option<u64>,
    /// Days for which runs are kept.
    pub history_days: Option<u16>,
}

/// A quota that would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which, as in the API.
    pub quota: &'static str,
    /// What it is.
    pub most: u64,
    /// What was asked for.
    pub asked: u64,
}

impl Quotas {
    /// Whether a payload and a time for which runs are kept are within them.
    pub fn check(&self, payload: Option<&str>, history_days: u16) -> Result<(), Exceeded> {
        let bytes = payload.map_or(0, str::len) as u64;
        let limits = [
            ("payload_bytes", self.payload_bytes, bytes),
            ("history_days", self.history_days.map(u64::from), history_days.into()),
        ];
        for (quota, most, asked) in limits {
            if let Some(most) = most.filter(|most| asked > *most) {
                return Err(Exceeded { quota, most, asked });
            }
        }
        Ok(())
    }

    /// Whether there is room for another job beside so many.
    pub fn check_jobs(&self, jobs: u64) -> Result<(), Exceeded> {
        match self.jobs.filter(|most| jobs >= *most) {
            Some(most) => Err(Exceeded { quota: "jobs", most, asked: jobs.saturating_add(1) }),
            None => Ok(()),
        }
    }
}

/// A tenant's name: lower-case letters, digits and hyphens, 1 to 63 of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantName(String);

impl TenantName {
    /// The name of the tenant that always exists.
    pub const DEFAULT: &'static str = "default";

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TenantName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edges = !text.starts_with('-') && !text.ends_with('-');
        match (1..=63).contains(&text.len()) && edges && text.chars().all(allowed) {
            true => Ok(TenantName(text.to_string())),
            false => Err(BadName),
        }
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A refused tenant name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tenant's name has 1 to 63 lower-case letters, digits and hyphens, and no hyphen at an end")]
pub struct BadName;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_limits_nothing() {
        let none = Quotas::default();
        assert_eq!(none.check(Some(&"x".repeat(1 << 20)), 400), Ok(()));
        assert_eq!(none.check_jobs(u64::MAX), Ok(()));
    }

    #[test]
    fn a_quota_is_reached_and_not_exceeded() {
        let quotas =
            Quotas { jobs: Some(2), payload_bytes: Some(3), history_days: Some(7), ..Quotas::default() };
        for (payload, days, wrong) in [
            (Some("123"), 7, None),
            (None, 1, None),
            (Some("1234"), 7, Some(("payload_bytes", 3, 4))),
            (None, 30, Some(("history_days", 7, 30))),
        ] {
            let told = quotas.check(payload, days).err().map(|told| (told.quota, told.most, told.asked));
            assert_eq!(told, wrong);
        }
        assert_eq!(quotas.check_jobs(1), Ok(()));
        assert_eq!(quotas.check_jobs(2), Err(Exceeded { quota: "jobs", most: 2, asked: 3 }));
    }

    #[test]
    fn states_have_their_words() {
        assert!(State::ALL.into_iter().all(|state| State::of(state.as_str()) == Some(state)));
        assert_eq!(State::of("asleep"), None);
    }
}
