//! What is wrong with a target, a header, a secret or a setting.
//!
//! Made when something is parsed, before any connection exists. What goes wrong during a call is
//! a [`Failure`](crate::targets::http::Failure), because it belongs to the attempt.

use crate::targets::http::Refusal;

/// A refused target, header, secret, setting or signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL is not one we call. The URL is shown without its user and its query.
    #[error("target `{url}` {reason}; {way_out}")]
    Target {
        /// The URL, shortened and without secrets.
        url: String,
        /// What is wrong with it.
        reason: String,
        /// What to write instead.
        way_out: String,
    },
    /// The guard does not let this target through.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A header that cannot be sent, or is ours to send.
    #[error("header `{name}` {reason}")]
    Header {
        /// The name as given, shortened.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Too many headers, or too large together.
    #[error("the headers of a target {0}")]
    Headers(String),
    /// Not a signing secret. The text itself is never repeated.
    #[error("the signing secret {0}")]
    Secret(&'static str),
    /// Not an entry of an allow-list.
    #[error("`{text}` in `{setting}` {reason}")]
    Setting {
        /// The list's name.
        setting: &'static str,
        /// The entry as given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An extra root certificate that cannot be read.
    #[error("root certificate {number} cannot be used: {reason}")]
    Root {
        /// Its place in the list, from 1.
        number: usize,
        /// What the TLS library says.
        reason: String,
    },
    /// The TLS library cannot be set up.
    #[error("set up TLS: {0}")]
    Tls(String),
    /// A received webhook is not authentic.
    #[error("the webhook {0}")]
    Signature(&'static str),
}

impl Error {
    /// The stable code, as it appears in APIs and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Target { .. } => "target_url_invalid",
            Error::Refused(_) => "target_refused",
            Error::Header { .. } | Error::Headers(_) => "target_header_invalid",
            Error::Secret(_) => "signing_secret_invalid",
            Error::Setting { .. } => "setting_invalid",
            Error::Root { .. } | Error::Tls(_) => "tls_setup_failed",
            Error::Signature(_) => "webhook_signature_invalid",
        }
    }
}
