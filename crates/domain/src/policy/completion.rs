//! When a call is over: with its answer, or with a report that the receiver sends later.
//!
//! Decided when a call was answered. Promise: without `token` a success is a success, whatever its status; with it a success means
//! that the receiver has begun, and what comes of it is what the receiver says ([`crate::receiver`]).

use std::time::Duration;

/// How a run's target says that it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Completion {
    /// By its answer.
    #[default]
    Answer,
    /// By a report under the token that it was given.
    Token {
        /// It must be heard of so often; within the timeout of the attempt, if nothing is said.
        heartbeat: Option<Duration>,
    },
}

impl Completion {
    /// The words, as in the API.
    pub const WORDS: [&str; 2] = ["answer", "token"];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Completion::Answer => Self::WORDS[0],
            Completion::Token { .. } => Self::WORDS[1],
        }
    }

    /// How often a receiver must be heard of, if the job says.
    pub fn heartbeat(self) -> Option<Duration> {
        match self {
            Completion::Answer => None,
            Completion::Token { heartbeat } => heartbeat,
        }
    }

    /// Whether receivers report later.
    pub fn is_by_token(self) -> bool {
        matches!(self, Completion::Token { .. })
    }
}
