//! Small things that people write and nodes read: calendars, alerts, the defaults of a tenant, keys.
//!
//! They are few, thousands and not millions, and are read whole. What a body says is known to whoever the kind belongs to; here it is
//! text. Promise: a document is changed by a compare-and-set on its version, so that of two who change it at once one is told.

use jiff::Timestamp;

use crate::id::TenantId;

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name, unique in kind and tenant.
    pub name: String,
    /// Counts its changes, from 1.
    pub version: u64,
    /// What it says, as JSON text.
    pub body: Box<str>,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// What somebody was told of, and is not over.
    Alarm,
    /// What somebody wants to be told of.
    Alert,
    /// Days and hours that schedules share.
    Calendar,
    /// What holds for jobs that do not say.
    Defaults,
    /// A key of the API.
    Key,
    /// When a key was last used.
    KeyUse,
    /// Counts the changes of keys, so that whoever knows them asks one question and not all.
    Keyring,
    /// Counts the changes of a limit, which is a rule and no document itself.
    Limit,
    /// What a tenant may have, and whether it is suspended.
    Tenant,
}

impl Kind {
    /// All kinds, by their words.
    pub const ALL: [Kind; 9] = [
        Kind::Alarm,
        Kind::Alert,
        Kind::Calendar,
        Kind::Defaults,
        Kind::Key,
        Kind::KeyUse,
        Kind::Keyring,
        Kind::Limit,
        Kind::Tenant,
    ];

    /// The word, as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Alarm => "alarm",
            Kind::Alert => "alert",
            Kind::Calendar => "calendar",
            Kind::Defaults => "defaults",
            Kind::Key => "key",
            Kind::KeyUse => "key_use",
            Kind::Keyring => "keyring",
            Kind::Limit => "limit",
            Kind::Tenant => "tenant",
        }
    }

    /// The kind of a word.
    pub fn of(word: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_words() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.as_str()), Some(kind));
        }
        assert!(Kind::ALL.map(Kind::as_str).is_sorted());
        assert_eq!(Kind::of("poem"), None);
    }
}
