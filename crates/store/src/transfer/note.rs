//! What TO keeps about a copy that is not finished.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::piece::Kind;
use super::tally::Tally;
use crate::error::Error;

/// Where an export goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// In this kind of piece.
    pub kind: Kind,
    /// After this place in the store's own order; none for the first.
    pub after: Option<String>,
}

impl Cursor {
    /// Before everything.
    pub const START: Cursor = Cursor { kind: Kind::Tenants, after: None };
}

/// Which installation a store is, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Which: for people too.
    pub name: String,
    /// Another one after a node used it: what was copied before is not what is there now.
    pub state: String,
}

/// A copy that is not finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Of what.
    pub from: Identity,
    /// Since when. What was old then is old until the copy is done, however often it is interrupted.
    #[serde(with = "millis")]
    pub begun_at: Timestamp,
    /// What comes next; nothing, if everything is copied and is to be verified.
    pub cursor: Option<Cursor>,
    /// What was copied so far.
    pub tally: Tally,
}

impl Note {
    /// Nothing is copied yet.
    pub fn new(from: Identity, now: Timestamp) -> Self {
        Note { from, begun_at: now, cursor: Some(Cursor::START), tally: Tally::default() }
    }

    /// As it is kept.
    pub fn encode(&self) -> Result<String, Error> {
        serde_json::to_string(self)
            .map_err(|error| Error::Damaged { what: format!("the note of a copy: {error}") })
    }

    /// Reads it back.
    pub fn decode(text: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(text)
            .map_err(|error| Error::Damaged { what: format!("the note of a copy: {error}") })
    }
}

/// Times are milliseconds since 1970.
mod millis {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(at.as_millisecond())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        Timestamp::from_millisecond(i64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}
