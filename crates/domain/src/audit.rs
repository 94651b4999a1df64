//! The audit: who changed what, and what it was before.
//!
//! An entry is made where a change is decided and is written with it. Promise: an entry is never changed; ids follow time, and two nodes
//! need no common counter to make them.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use crate::id::TenantId;

/// How long entries are kept.
pub const KEPT: SignedDuration = SignedDuration::from_hours(400 * 24);

/// A longer side of an entry is left out: a job with the largest payload that is usual fits.
pub const SIDE_MAX: usize = 64 << 10;

/// Names an entry: when it was made, and a number that keeps it apart from others of that millisecond and behind those that the same
/// process made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Milliseconds since 1970.
    pub at: i64,
    /// The number: what the process counts, then chance.
    pub number: i64,
}

impl EntryId {
    /// A new id, the so many-th of a process. It has no sign, so that it is ordered alike everywhere.
    pub fn new(at: Timestamp, count: u32, bits: u64) -> Self {
        let number = i64::from(count & 0x7fff_ffff) << 32 | i64::from(bits as u32);
        EntryId { at: at.as_millisecond(), number }
    }

    /// Before every other one.
    pub const FIRST: EntryId = EntryId { at: i64::MIN, number: i64::MIN };

    /// After every other one.
    pub const LAST: EntryId = EntryId { at: i64::MAX, number: i64::MAX };

    /// When it was made.
    pub fn made_at(self) -> Timestamp {
        Timestamp::from_millisecond(self.at).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}-{:016x}", self.at, self.number)
    }
}

/// The text is no id of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnEntry;

impl FromStr for EntryId {
    type Err = NotAnEntry;

    fn from_str(text: &str) -> Result<Self, NotAnEntry> {
        let (at, number) = text.split_once('-').ok_or(NotAnEntry)?;
        let read = |digits: &str| i64::from_str_radix(digits, 16).map_err(|_| NotAnEntry);
        Ok(EntryId { at: read(at)?, number: read(number)? })
    }
}

/// Who made a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The id of the key that was shown; none without one.
    pub key: Option<Box<str>>,
    /// What the key is called, or `loopback`.
    pub name: Box<str>,
}

impl Who {
    /// Somebody on this machine, who showed no key.
    pub fn loopback() -> Self {
        Who { key: None, name: "loopback".into() }
    }
}

/// What was changed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// Whose it is; nobody's, if it is about all tenants.
    pub tenant: TenantId,
    /// What it is: `job`, `calendar`, `key`, ...
    pub kind: &'static str,
    /// Which: its id or name.
    pub subject: Box<str>,
    /// What was done: `create`, `edit`, `pause`, ...
    pub action: &'static str,
    /// As it was, as JSON; none for what was not there.
    pub before: Option<Box<str>>,
    /// As it is, as JSON; none for what is not there any more.
    pub after: Option<Box<str>>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: EntryId,
    /// Whose is what was changed.
    pub tenant: TenantId,
    /// What was changed.
    pub kind: Box<str>,
    /// Which.
    pub subject: Box<str>,
    /// What was done.
    pub action: Box<str>,
    /// Who did it.
    pub who: Who,
    /// From which address.
    pub from: Option<Box<str>>,
    /// Under which request id.
    pub request_id: Option<Box<str>>,
    /// As it was, as JSON.
    pub before: Option<Box<str>>,
    /// As it is, as JSON.
    pub after: Option<Box<str>>,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// About what is this tenant's.
    pub tenant: Option<TenantId>,
    /// Made at this time or later.
    pub from: Option<Timestamp>,
    /// Made before.
    pub to: Option<Timestamp>,
    /// By the key of this id or name.
    pub who: Option<Box<str>>,
    /// What was done.
    pub action: Option<Box<str>>,
    /// What was changed.
    pub kind: Option<Box<str>>,
    /// Which.
    pub subject: Option<Box<str>>,
}

impl Filter {
    /// Whether an entry is one of them.
    pub fn takes(&self, entry: &Entry) -> bool {
        let is = |wanted: &Option<Box<str>>, found: &str| wanted.as_ref().is_none_or(|one| **one == *found);
        let by = |who: &str| entry.who.key.as_deref() == Some(who) || *entry.who.name == *who;
        self.tenant.is_none_or(|tenant| tenant == entry.tenant)
            && entry.id >= self.first()
            && entry.id < self.below(None)
            && is(&self.action, &entry.action)
            && is(&self.kind, &entry.kind)
            && is(&self.subject, &entry.subject)
            && self.who.as_deref().is_none_or(by)
    }

    /// The first id that can be among them.
    pub fn first(&self) -> EntryId {
        self.from.map_or(EntryId::FIRST, |from| EntryId { at: ceiling(from), number: i64::MIN })
    }

    /// Where a list, newest first, begins or goes on: every id is below this.
    pub fn below(&self, after: Option<EntryId>) -> EntryId {
        let end = self.to.map_or(EntryId::LAST, |to| EntryId { at: ceiling(to), number: i64::MIN });
        after.map_or(end, |after| after.min(end))
    }
}

/// A side of an entry, or how large it is if it is too large.
pub fn bounded(text: Box<str>) -> Box<str> {
    match text.len() > SIDE_MAX {
        true => {
            let (bytes, hash) = (text.len(), blake3::hash(text.as_bytes()));
            format!(r#"{{"left_out_bytes":{bytes},"blake3":"{hash}"}}"#).into()
        }
        false => text,
    }
}

/// The first millisecond that is not before a time.
fn ceiling(at: Timestamp) -> i64 {
    let floor = at.as_millisecond();
    match Timestamp::from_millisecond(floor) {
        Ok(exact) if exact < at => floor + 1,
        _ => floor,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entry(at: i64, name: &str) -> Entry {
        Entry {
            id: EntryId { at, number: 7 },
            tenant: TenantId::DEFAULT,
            kind: "job".into(),
            subject: "a".into(),
            action: "edit".into(),
            who: Who { key: Some("0011".into()), name: name.into() },
            from: None,
            request_id: None,
            before: None,
            after: None,
        }
    }

    #[test]
    fn an_id_reads_back_as_it_was_written_and_follows_time() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let one = EntryId::new(at(1_800_000_000_000), u32::MAX, u64::MAX);
        let two = EntryId::new(at(1_800_000_000_001), 0, 0);
        let three = EntryId::new(at(1_800_000_000_001), 1, 0);
        assert!(one < two && two < three && one.number > 0);
        assert_eq!(one.to_string().parse(), Ok(one));
        assert_eq!(one.made_at(), at(1_800_000_000_000));
        assert!(one.to_string() < two.to_string());
        for text in ["", "12", "x-y", "12-"] {
            assert_eq!(text.parse::<EntryId>(), Err(NotAnEntry), "{text}");
        }
    }

    #[test]
    fn a_filter_takes_what_all_of_its_parts_take() {
        let at = |ms| Some(Timestamp::from_millisecond(ms).unwrap());
        let all = Filter::default();
        let cases = [
            (Filter { from: at(10), ..all.clone() }, true),
            (Filter { from: at(11), ..all.clone() }, false),
            (Filter { to: at(11), ..all.clone() }, true),
            (Filter { to: at(10), ..all.clone() }, false),
            (Filter { who: Some("0011".into()), ..all.clone() }, true),
            (Filter { who: Some("ci".into()), ..all.clone() }, true),
            (Filter { who: Some("loopback".into()), ..all.clone() }, false),
            (Filter { kind: Some("job".into()), subject: Some("a".into()), ..all.clone() }, true),
            (Filter { kind: Some("job".into()), subject: Some("b".into()), ..all.clone() }, false),
            (Filter { action: Some("edit".into()), ..all.clone() }, true),
            (Filter { action: Some("create".into()), ..all.clone() }, false),
            (Filter { tenant: Some(TenantId(7)), ..all.clone() }, false),
            (all, true),
        ];
        for (filter, wanted) in cases {
            assert_eq!(filter.takes(&entry(10, "ci")), wanted, "{filter:?}");
        }
    }
}
