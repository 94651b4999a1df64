//! The headers of a call: the user's, checked once, and the names that are ours.

use ::http::header::{CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::target::cut;
use crate::Error;

/// Headers a target may have; more is a mistake, and each one travels with every call.
pub const HEADERS_MAX: usize = 50;

/// Bytes of all names and values together: below what common servers accept (8 KiB), with room
/// for our own.
pub const HEADER_BYTES_MAX: usize = 6 * 1024;

/// Names we send. Users cannot set them.
pub mod names {
    use ::http::HeaderName;

    /// The same for every attempt of a run.
    pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
    /// Standard Webhooks: the same for every attempt of a run.
    pub const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
    /// Standard Webhooks: when the attempt was made, in Unix seconds.
    pub const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
    /// Standard Webhooks: one signature per secret.
    pub const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
    /// The run.
    pub const RUN_ID: HeaderName = HeaderName::from_static("punctual-run-id");
    /// The job.
    pub const JOB_ID: HeaderName = HeaderName::from_static("punctual-job-id");
    /// The nominal time.
    pub const SCHEDULED_FOR: HeaderName = HeaderName::from_static("punctual-scheduled-for");
    /// The number of the attempt, from 1.
    pub const ATTEMPT: HeaderName = HeaderName::from_static("punctual-attempt");
    /// Which part of its slot, from 1, of a job in parts.
    pub const PART: HeaderName = HeaderName::from_static("punctual-part");
    /// Of how many.
    pub const PARTS: HeaderName = HeaderName::from_static("punctual-parts");
    /// The batch, of an item of one.
    pub const BATCH_ID: HeaderName = HeaderName::from_static("punctual-batch-id");
    /// The item of the batch.
    pub const ITEM_ID: HeaderName = HeaderName::from_static("punctual-item-id");
    /// When we stop waiting for the answer.
    pub const DEADLINE: HeaderName = HeaderName::from_static("punctual-deadline");
    /// Under this a receiver reports that does so later.
    pub const COMPLETION_TOKEN: HeaderName = HeaderName::from_static("punctual-completion-token");
    /// Where it reports what came of it.
    pub const COMPLETE_URL: HeaderName = HeaderName::from_static("punctual-complete-url");
    /// Where it says that it goes on.
    pub const HEARTBEAT_URL: HeaderName = HeaderName::from_static("punctual-heartbeat-url");
    /// How often it must, in seconds, if the job says.
    pub const HEARTBEAT_WITHIN: HeaderName = HeaderName::from_static("punctual-heartbeat-within");
    /// Ties together what one cause led to.
    pub const CORRELATION_ID: HeaderName = HeaderName::from_static("punctual-correlation-id");
    /// W3C trace context.
    pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
}

/// Names that belong to the connection, to the message's framing or to us.
const RESERVED: [&str; 16] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const RESERVED_PREFIXES: [&str; 2] = ["webhook-", "punctual-"];

/// The user's headers of a target, each one valid and none of them ours.
#[derive(Clone, Debug)]
pub struct Headers {
    /// Ready to be copied into a request.
    pub(super) template: HeaderMap,
    pub(super) has_content_type: bool,
}

impl Default for Headers {
    fn default() -> Self {
        let agent = HeaderValue::from_static(concat!("punctual/", env!("CARGO_PKG_VERSION")));
        Headers { template: HeaderMap::from_iter([(USER_AGENT, agent)]), has_content_type: false }
    }
}

impl Headers {
    /// Checks names and values. A name may repeat; `User-Agent` replaces ours.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Headers, Error> {
        let mut template = HeaderMap::new();
        let mut bytes = 0;
        for (name, value) in pairs {
            let (name, value) = read(name, value)?;
            bytes += name.as_str().len() + value.len();
            template.append(name, value);
            if template.len() > HEADERS_MAX {
                return Err(Error::Headers(format!("are more than {HEADERS_MAX}")));
            }
            if bytes > HEADER_BYTES_MAX {
                return Err(Error::Headers(format!("have more than {HEADER_BYTES_MAX} bytes together")));
            }
        }
        for (name, value) in Headers::default().template.drain() {
            if let Some(name) = name
                && !template.contains_key(&name)
            {
                template.insert(name, value);
            }
        }
        Ok(Headers { has_content_type: template.contains_key(CONTENT_TYPE), template })
    }

    /// What these names say is secret: it is not printed, and HTTP/2 keeps it out of its tables.
    #[must_use]
    pub fn hiding(mut self, is_secret: impl Fn(&str) -> bool) -> Self {
        for (name, value) in self.template.iter_mut() {
            if is_secret(name.as_str()) {
                value.set_sensitive(true);
            }
        }
        self
    }
}

fn read(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Error> {
    let wrong = |reason: String| Error::Header { name: cut(name.escape_debug().to_string()), reason };
    let parsed: HeaderName = name.parse().map_err(|_| {
        wrong("is not a name; a name is letters, digits and hyphens, without spaces".to_owned())
    })?;
    let lower = parsed.as_str();
    if RESERVED.contains(&lower) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
        return Err(wrong("is set by Punctual and cannot be given".to_owned()));
    }
    if let Some(c) = value.chars().find(|c| c.is_control() && *c != '\t') {
        return Err(wrong(format!("has the character U+{:04X} in its value", c as u32)));
    }
    let value = value.parse().map_err(|_| wrong("has a value that cannot be sent".to_owned()))?;
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_header_that_could_change_the_message_is_refused_by_name() {
        let cases = [
            ("X-A\r\nHost", "b", "is not a name"),
            ("X-A", "b\r\nHost: evil", "U+000D"),
            ("X-A", "b\nc", "U+000A"),
            ("X-A", "b\0", "U+0000"),
            ("X-A", "b\u{7f}", "U+007F"),
            ("X-A", "b\u{85}c", "U+0085"),
            ("", "b", "is not a name"),
            ("X A", "b", "is not a name"),
            ("X-A:", "b", "is not a name"),
            (":authority", "b", "is not a name"),
            ("Überschrift", "b", "is not a name"),
        ];
        for (name, value, part) in cases {
            let message = Headers::parse([(name, value)]).unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains(['\r', '\n', '\0']), "{message}");
        }
    }

    #[test]
    fn our_names_cannot_be_given_in_any_case() {
        for name in RESERVED.into_iter().chain(["webhook-id", "webhook-anything", "punctual-run-id"]) {
            for name in [name.to_owned(), name.to_uppercase()] {
                let message = Headers::parse([(name.as_str(), "x")]).unwrap_err().to_string();
                assert!(message.contains(&name) && message.contains("set by Punctual"), "{message}");
            }
        }
    }

    #[test]
    fn headers_are_few_and_small() {
        let many: Vec<String> = (0..=HEADERS_MAX).map(|n| format!("x-{n}")).collect();
        assert!(Headers::parse(many.iter().map(|name| (name.as_str(), "1"))).is_err());
        assert!(Headers::parse(many.iter().skip(1).map(|name| (name.as_str(), "1"))).is_ok());
        let large = "x".repeat(HEADER_BYTES_MAX);
        assert!(Headers::parse([("x-a", large.as_str())]).is_err());
        assert!(Headers::parse([("x-a", &large[..HEADER_BYTES_MAX - 3])]).is_ok());
    }

    #[test]
    fn user_headers_are_kept_as_given() {
        let headers =
            Headers::parse([("X-A", "1"), ("x-a", "2"), ("User-Agent", "mine"), ("X-B", "tab\tü")]).unwrap();
        assert_eq!(headers.template.get_all("x-a").iter().count(), 2);
        assert_eq!(headers.template["user-agent"], "mine");
        assert_eq!(headers.template["x-b"].as_bytes(), "tab\tü".as_bytes());
        assert!(Headers::default().template["user-agent"].to_str().unwrap().starts_with("punctual/"));
    }
}
