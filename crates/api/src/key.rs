//! Keys of the API on the wire: what is asked for, what is shown of them, and the one answer with the secret.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::key::{Key as DomainKey, Role};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;
use crate::read::{At, Errors, Unread};
use crate::time::Time;

/// Characters of a name.
const NAME_MAX: usize = 100;

/// The longest overlap of a rotation: a replaced secret that is good for longer is one that nobody replaces.
const OVERLAP_MAX: std::time::Duration = std::time::Duration::from_secs(31 * 86_400);

/// All tenants, where one may be named.
pub const ALL_TENANTS: &str = "*";

object! {
    /// A new key.
    pub struct KeySpec {
        /// What people call it, 1 to 100 characters.
        #[schema(example = "ci of the shop", required = true)]
        pub name: String,
        /// `admin`, `operator`, `viewer` or `worker`.
        #[schema(example = "operator", required = true)]
        pub role: String,
        /// The one tenant it is for, or `*` for all. Without it, what the request is for: its `Punctual-Tenant`, or all that the caller
        /// may name.
        #[schema(example = "acme")]
        pub tenant: String,
        /// When it ends: RFC 3339 or epoch seconds; never.
        pub expires_at: Time,
        /// How long it is good, instead of `expires_at`.
        #[schema(example = "PT24H")]
        pub expires_after: Duration,
    }

    /// How a key is rotated.
    pub struct KeyRotation {
        /// How long the secret before stays good, at most 31 days. Without it, it ends at once.
        #[schema(example = "PT1H")]
        pub overlap: Duration,
    }
}

/// A key, without what proves it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    /// What programs call it; the part of the key between `pk_` and the next `_`.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// `admin`, `operator`, `viewer` or `worker`.
    pub role: String,
    /// The one tenant it is for; all, if none.
    pub tenant: Option<String>,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom: `key` and an id, or where it came from.
    pub created_by: String,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// When it got its newest secret, if that is not its first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated_at: Option<Timestamp>,
    /// Until when the secret before is good as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_until: Option<Timestamp>,
    /// When it was last used, to a minute or so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

/// A key as it was made, or rotated: with what proves it, this once.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewKey {
    /// The key.
    #[serde(flatten)]
    pub about: Key,
    /// What is sent as `Authorization: Bearer`. It is not stored and cannot be shown again.
    #[schema(example = "pk_3f2a…_9c41…")]
    pub key: String,
}

impl fmt::Debug for NewKey {
    /// Without what proves it: logs are read by others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("about", &self.about).finish_non_exhaustive()
    }
}

/// A new key as it can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadKey {
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Whom it is for, as it was written.
    pub tenant: Option<String>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

impl KeySpec {
    /// As it can be made, or everything that is wrong.
    pub fn to_domain(&self, now: Timestamp) -> Result<ReadKey, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        let name = self.name.as_deref().map(str::trim).unwrap_or_default();
        if self.name.is_none() {
            errors.add(&at.member("name"), "missing_field", "`name` is missing: what people call the key");
        } else if name.is_empty() || name.chars().count() > NAME_MAX || name.chars().any(char::is_control) {
            let detail = format!("a name has 1 to {NAME_MAX} characters, all of them printable");
            errors.add(&at.member("name"), "out_of_range", detail);
        }
        let roles = "`admin`, `operator`, `viewer` or `worker`";
        let role = match &self.role {
            None => {
                errors.add(&at.member("role"), "missing_field", format!("`role` is missing: {roles}"));
                None
            }
            Some(word) => Role::of(word).or_else(|| {
                let shown: String = word.chars().take(64).collect();
                let detail = format!("`{shown}` is not a role; write {roles}");
                errors.add(&at.member("role"), "unknown_value", detail);
                None
            }),
        };
        let expires_at = self.ends(now, &mut errors);
        match role {
            Some(role) if errors.is_empty() => {
                Ok(ReadKey { name: name.into(), role, tenant: self.tenant.clone(), expires_at })
            }
            _ => Err(Unread::Wrong(errors.into_vec())),
        }
    }

    fn ends(&self, now: Timestamp, errors: &mut Errors) -> Option<Timestamp> {
        let here = At::ROOT.member("expires_at");
        match (&self.expires_at, self.expires_after) {
            (Some(_), Some(_)) => {
                let detail = "write `expires_at` or `expires_after`, not both";
                errors.add(&At::ROOT.member("expires_after"), "conflict", detail);
                None
            }
            (Some(time), None) => {
                let ends = time.instant(&here, errors)?;
                if ends <= now {
                    errors.add(
                        &here,
                        "out_of_range",
                        "a key ends in the future; leave it out for one without an end",
                    );
                }
                Some(ends)
            }
            (None, Some(length)) => {
                let ends =
                    SignedDuration::try_from(length.0).ok().and_then(|length| now.checked_add(length).ok());
                if ends.is_none() {
                    let detail = "this is later than any time; leave it out for a key without an end";
                    errors.add(&At::ROOT.member("expires_after"), "out_of_range", detail);
                }
                ends
            }
            (None, None) => None,
        }
    }
}

impl KeyRotation {
    /// As it can be done, or everything that is wrong.
    pub fn to_domain(&self) -> Result<SignedDuration, Unread> {
        let (here, mut errors) = (At::ROOT.member("overlap"), Errors::default());
        let overlap = self.overlap.map_or(std::time::Duration::ZERO, |overlap| overlap.0);
        if overlap > OVERLAP_MAX {
            errors.add(&here, "out_of_range", "an overlap is at most 31 days");
            return Err(Unread::Wrong(errors.into_vec()));
        }
        Ok(SignedDuration::try_from(overlap).unwrap_or_default())
    }
}

impl Key {
    /// As it is shown.
    pub fn new(
        key: &DomainKey,
        tenant: Option<&str>,
        last_used_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let newest = key.secrets.first().map(|secret| secret.since);
        Key {
            id: key.id.to_string(),
            name: key.name.clone(),
            role: key.right.role.as_str().into(),
            tenant: tenant.map(Into::into),
            state: key.state(now).as_str().into(),
            created_at: key.created_at,
            created_by: key.created_by.clone(),
            expires_at: key.right.expires_at,
            revoked_at: key.revoked_at,
            rotated_at: newest.filter(|_| key.secrets.len() > 1),
            old_until: key.old_until(now),
            last_used_at,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::read::read;

    #[test]
    fn a_new_key_is_read_or_everything_wrong_is_named() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let spec: KeySpec = read(r#"{"name":" ci ","role":"worker","expires_after":"PT1H"}"#).unwrap();
        let key = spec.to_domain(now).unwrap();
        assert_eq!((key.name.as_str(), key.role, key.tenant), ("ci", Role::Worker, None));
        assert_eq!(key.expires_at, Some("2026-01-01T13:00:00Z".parse().unwrap()));
        for (text, wrong) in [
            ("{}", "/name /role"),
            (r#"{"name":"","role":"owner"}"#, "/name /role"),
            (r#"{"name":"a\u0007","role":"admin"}"#, "/name"),
            (r#"{"name":"a","role":"admin","expires_at":"2026-01-01T12:00:00Z"}"#, "/expires_at"),
            (
                r#"{"name":"a","role":"admin","expires_at":"2027-01-01T00:00:00Z","expires_after":"1h"}"#,
                "/expires_after",
            ),
        ] {
            let Err(Unread::Wrong(errors)) = read::<KeySpec>(text).unwrap().to_domain(now) else {
                panic!("{text}")
            };
            let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
            assert_eq!(pointers.join(" "), wrong, "{text}");
        }
    }

    #[test]
    fn what_proves_a_key_is_not_printed_by_accident() {
        let text = r#"{"id":"a1","name":"ci","role":"worker","tenant":null,"state":"active",
            "created_at":"2026-01-01T12:00:00Z","created_by":"x","key":"pk_a1_5ec2e7"}"#;
        let made: NewKey = serde_json::from_str(text).unwrap();
        assert_eq!(made.key, "pk_a1_5ec2e7");
        let printed = format!("{made:?} {made:#?}");
        assert!(printed.contains("a1") && !printed.contains("5ec2e7"), "{printed}");
    }

    #[test]
    fn an_overlap_is_at_most_a_month_and_none_ends_the_old_secret_at_once() {
        let overlap = |text: &str| read::<KeyRotation>(text).unwrap().to_domain();
        assert_eq!(overlap("{}"), Ok(SignedDuration::ZERO));
        assert_eq!(overlap(r#"{"overlap":"1h"}"#), Ok(SignedDuration::from_hours(1)));
        assert!(overlap(r#"{"overlap":"PT745H"}"#).is_err());
    }
}
