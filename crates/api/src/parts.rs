//! Jobs in parts on the wire: `{"count": 4}`, or `"broadcast"`.

use punctual_domain::parts::{COUNT_MAX, Parts as DomainParts};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::read::{At, Errors, Read, unknown_name};

object! {
    /// So many parts.
    pub struct PartCount {
        /// How many runs each slot becomes, 1 to 1000: 1 of n to n of n.
        #[schema(example = 4)]
        pub count: u32,
    }
}

/// How each slot of a job becomes several runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Parts {
    /// So many, each of which is told which part it is.
    Count(PartCount),
    /// `broadcast`: one for each worker that pulls from the queue, lives and has what is required when the slot is fired.
    Word(String),
}

const BROADCAST: &str = "broadcast";

impl Read for Parts {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        match text.as_bytes().first() {
            Some(b'{') => PartCount::read(text, at, errors).map(Parts::Count),
            Some(b'"') => String::read(text, at, errors).map(Parts::Word),
            _ => {
                errors.wrong_type(at, "`{\"count\": 4}` or `\"broadcast\"`", text);
                None
            }
        }
    }
}

impl Parts {
    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<DomainParts> {
        match self {
            Parts::Word(word) if word == BROADCAST => Some(DomainParts::Broadcast),
            Parts::Word(word) => {
                errors.add(at, "unknown_value", unknown_name("value", word, &[BROADCAST]));
                None
            }
            Parts::Count(PartCount { count: Some(count) }) if (1..=COUNT_MAX).contains(count) => {
                Some(DomainParts::Count(*count))
            }
            Parts::Count(PartCount { count: Some(_) }) => {
                let detail = format!("a slot has 1 to {COUNT_MAX} parts; give each more to do");
                errors.add(&at.member("count"), "out_of_range", detail);
                None
            }
            Parts::Count(PartCount { count: None }) => {
                errors.add(&at.member("count"), "missing_field", "how many parts? write `{\"count\": 4}`");
                None
            }
        }
    }
}

impl From<DomainParts> for Parts {
    fn from(parts: DomainParts) -> Self {
        match parts {
            DomainParts::Count(count) => Parts::Count(PartCount { count: Some(count) }),
            DomainParts::Broadcast => Parts::Word(BROADCAST.into()),
        }
    }
}

impl std::str::FromStr for Parts {
    type Err = String;

    /// As in the CLI: a number, or `broadcast`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count) => Ok(Parts::Count(PartCount { count: Some(count) })),
            Err(_) if text == BROADCAST => Ok(Parts::Word(BROADCAST.into())),
            Err(_) => Err(format!("write a number of parts or `{BROADCAST}`")),
        }
    }
}
