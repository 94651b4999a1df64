//! Where a list goes on, as text that callers do not look into.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use punctual_domain::papers::Place;
use punctual_domain::{JobId, OperationId, Sequence};

/// A place in a list.
pub(crate) trait Cursor: Sized {
    /// Tells the lists apart, so that a cursor of one is refused by another.
    const KIND: u8;

    fn to_bytes(&self) -> Vec<u8>;

    fn from_bytes(bytes: &[u8]) -> Option<Self>;

    fn encode(&self) -> String {
        let mut bytes = vec![Self::KIND];
        bytes.extend(self.to_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (kind, rest) = bytes.split_first()?;
        (*kind == Self::KIND).then(|| Self::from_bytes(rest)).flatten()
    }
}

impl Cursor for JobId {
    const KIND: u8 = 1;

    fn to_bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(JobId::from_bytes)
    }
}

impl Cursor for Sequence {
    const KIND: u8 = 2;

    fn to_bytes(&self) -> Vec<u8> {
        self.as_i64().to_be_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(i64::from_be_bytes).map(Sequence::from_i64)
    }
}

impl Cursor for Timestamp {
    const KIND: u8 = 3;

    fn to_bytes(&self) -> Vec<u8> {
        self.as_millisecond().to_be_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Timestamp::from_millisecond(i64::from_be_bytes(bytes.try_into().ok()?)).ok()
    }
}

impl Cursor for Place {
    const KIND: u8 = 6;

    fn to_bytes(&self) -> Vec<u8> {
        [&self.attempt.to_be_bytes()[..], &self.number.to_be_bytes()[..]].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (attempt, number) = bytes.split_at_checked(4)?;
        let attempt = u32::from_be_bytes(attempt.try_into().ok()?);
        Some(Place { attempt, number: u64::from_be_bytes(number.try_into().ok()?) })
    }
}

impl Cursor for OperationId {
    const KIND: u8 = 4;

    fn to_bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(OperationId::from_bytes)
    }
}
