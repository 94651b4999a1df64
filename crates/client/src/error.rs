//! What can go wrong between a caller and a server.

use punctual_api::Problem;

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of the server cannot be one.
    #[error("`{text}` is not the address of a server: {reason}; write it as `http://127.0.0.1:7171`")]
    Address {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS cannot be set up: a root certificate is wrong.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// A value cannot be sent.
    #[error("{0}")]
    Request(String),
    /// No connection: nothing was sent.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        /// The server's address.
        server: String,
        /// Why not.
        reason: String,
    },
    /// The connection ended in the middle: whether the request was carried out is not known.
    #[error("the connection to {server} broke off: {reason}")]
    Broken {
        /// The server's address.
        server: String,
        /// Why.
        reason: String,
    },
    /// The server said no, and why.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// An answer that this client does not understand: perhaps it is not Punctual that answers.
    #[error("{server} gave an answer that is not Punctual's to {request}: {reason}")]
    Unexpected {
        /// The server's address.
        server: String,
        /// The method and path.
        request: String,
        /// Its status, if it is that of a failure.
        status: Option<u16>,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// What the server said, if it was the server.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    /// The status of a refusal, by the server or by whatever is in between.
    pub fn status(&self) -> Option<u16> {
        match self {
            Error::Refused(problem) => Some(problem.status),
            Error::Unexpected { status, .. } => *status,
            Error::Address { .. }
            | Error::Tls(_)
            | Error::Request(_)
            | Error::Unreachable { .. }
            | Error::Broken { .. } => None,
        }
    }
}

/// The deepest reason of an error: the ones above it say only which library it passed.
pub(crate) fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
