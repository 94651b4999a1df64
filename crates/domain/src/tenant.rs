//! The unit of isolation: keys, quotas and fairness are per tenant.

use std::fmt;
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
