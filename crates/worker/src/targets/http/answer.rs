//! What came of a call: the receiver's answer or why there is none, and where the time went.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::http::{HeaderValue, StatusCode};
use bytes::Bytes;

use super::guard::Refusal;

/// Everything known about one call after it.
#[derive(Debug)]
pub struct Answer {
    /// The response, or why there is none.
    pub result: Result<Response, Failure>,
    /// Where the time went.
    pub timings: Timings,
    /// The address at the other end, once connected.
    pub remote: Option<SocketAddr>,
    /// Whether an earlier call had opened the connection.
    pub reused: bool,
}

/// A complete response, of any status: a redirect is not followed, it is an answer like another.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// How long the receiver asks us to wait; at most 30 days.
    pub retry_after: Option<Duration>,
    /// What the body is, as the receiver says.
    pub content_type: Option<HeaderValue>,
    /// The start of the body.
    pub body: Bytes,
    /// Whether the body was longer than what is kept. Of a body longer than the reading limit the
    /// rest was not read and the connection was dropped.
    pub truncated: bool,
}

/// A call without a complete response.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Failure {
    /// What went wrong.
    pub cause: Cause,
    /// The status, when the failure came after it.
    pub status: Option<StatusCode>,
    pub(super) effect_possible: bool,
}

impl Failure {
    /// Whether any byte of the request was handed to the socket. If not, the receiver knows
    /// nothing of the call, and a run that must not happen twice may be tried again. Over HTTP/2
    /// connections are shared, so it is true from the moment the request was handed over.
    pub fn is_effect_possible(&self) -> bool {
        self.effect_possible
    }
}

/// What went wrong, and in which step.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The guard does not let the call through.
    #[error(transparent)]
    Refused(Refusal),
    /// The call itself cannot be sent: too large, or an id that is no header value.
    #[error("the call cannot be sent: {0}")]
    Unsendable(String),
    /// The host has no address.
    #[error("look up `{host}`: {reason}")]
    Dns {
        /// The name.
        host: String,
        /// What the resolver says.
        reason: String,
    },
    /// Nobody answers at the address.
    #[error("connect to `{host}` at {address}: {reason}")]
    Connect {
        /// The host of the target.
        host: String,
        /// The last address tried.
        address: SocketAddr,
        /// What the system says.
        reason: String,
    },
    /// The receiver is not who the URL says, or speaks no TLS we accept.
    #[error("TLS with `{host}` at {address}: {reason}")]
    Tls {
        /// The host of the target.
        host: String,
        /// The address.
        address: SocketAddr,
        /// What the TLS library says.
        reason: String,
    },
    /// The time was up.
    #[error("no answer from `{host}` within {after:?}: {}", phase.describe())]
    TimedOut {
        /// The host of the target.
        host: String,
        /// What we were waiting for.
        phase: Phase,
        /// The limit that was reached.
        after: Duration,
    },
    /// The connection ended in the middle.
    #[error("`{host}` closed the connection before the answer was complete: {reason}")]
    Closed {
        /// The host of the target.
        host: String,
        /// What was seen.
        reason: String,
    },
    /// What came back is not HTTP, or more of it than we accept.
    #[error("`{host}` answered with something that is not HTTP: {reason}")]
    Protocol {
        /// The host of the target.
        host: String,
        /// What was seen.
        reason: String,
    },
}

impl Cause {
    /// The stable code, as it appears in APIs and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Cause::Refused(_) => "target_refused",
            Cause::Unsendable(_) => "call_unsendable",
            Cause::Dns { .. } => "dns_failed",
            Cause::Connect { .. } => "connect_failed",
            Cause::Tls { .. } => "tls_failed",
            Cause::TimedOut { .. } => "timed_out",
            Cause::Closed { .. } => "connection_closed",
            Cause::Protocol { .. } => "protocol_error",
        }
    }
}

/// The phases of a call, in order. A reused connection skips `Dns` to `Tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Waiting for a free place among the calls to this host.
    Queued,
    /// Looking the name up.
    Dns,
    /// Opening the connection.
    Connect,
    /// Agreeing on keys.
    Tls,
    /// From the request's first byte to the end of the response's headers.
    FirstByte,
    /// Reading the response's body.
    Body,
}

impl Phase {
    const COUNT: usize = 6;

    /// What happens in it, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Phase::Queued => "waiting for earlier calls to this host",
            Phase::Dns => "looking up the name",
            Phase::Connect => "connecting",
            Phase::Tls => "setting up TLS",
            Phase::FirstByte => "waiting for the response",
            Phase::Body => "reading the response",
        }
    }
}

/// How long each phase took; zero for a phase that did not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    spent: [Duration; Phase::COUNT],
}

impl Timings {
    /// The time spent in a phase.
    pub fn of(&self, phase: Phase) -> Duration {
        self.spent[phase as usize]
    }

    /// The whole call.
    pub fn total(&self) -> Duration {
        self.spent.iter().sum()
    }
}

/// Measures the phases as a call passes through them.
pub(super) struct Stopwatch {
    pub(super) phase: Phase,
    since: Instant,
    timings: Timings,
}

impl Stopwatch {
    pub(super) fn start() -> Stopwatch {
        Stopwatch { phase: Phase::Queued, since: Instant::now(), timings: Timings::default() }
    }

    /// Leaves the current phase for the next; a phase may be entered again.
    pub(super) fn enter(&mut self, phase: Phase) {
        let now = Instant::now();
        self.timings.spent[self.phase as usize] += now.duration_since(self.since);
        self.since = now;
        self.phase = phase;
    }

    pub(super) fn stop(mut self) -> Timings {
        self.enter(self.phase);
        self.timings
    }
}
