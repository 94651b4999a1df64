//! The audit on the wire: who changed what, and the versions of a job that follow from it.

use jiff::Timestamp;
use punctual_domain::audit as domain;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::payload::Payload;

/// A change that somebody asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its id; ids follow time.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub who: AuditWho,
    /// From which address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The `X-Request-Id` of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Whose it is; nothing, if it is about all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What was changed: `job`, `jobs`, `run`, `operation`, `calendar`, `alert`, `defaults`, `key`, `limit`, `breaker`, `tenant` or `worker`.
    pub kind: String,
    /// Which: its id or its name.
    pub subject: String,
    /// What was done, such as `create`, `edit`, `delete`, `pause`, `trigger` or `revoke`.
    pub action: String,
    /// As it was, with secrets covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Payload>,
    /// As it is since, with secrets covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Payload>,
}

/// Who made a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditWho {
    /// The id of the key that was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What the key is called; `loopback` for somebody on the server's machine without one.
    pub name: String,
}

/// A version of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobVersion {
    /// Its number; nothing for the end of the job, and for a job that was too large to be kept here.
    pub version: Option<u32>,
    /// Since when it was the job's.
    pub at: Option<Timestamp>,
    /// Who brought it; nothing if an import, an operation or the end of a pause did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<AuditWho>,
    /// What was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The `X-Request-Id` of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The job, with secrets covered; nothing from its end on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Payload>,
}

impl From<&domain::Who> for AuditWho {
    fn from(who: &domain::Who) -> Self {
        AuditWho { key: who.key.as_deref().map(Into::into), name: who.name.to_string() }
    }
}

impl AuditEntry {
    /// An entry as it is shown; `tenant` is the name of the one it is about.
    pub fn new(entry: &domain::Entry, tenant: Option<&str>) -> Self {
        AuditEntry {
            id: entry.id.to_string(),
            at: entry.id.made_at(),
            who: AuditWho::from(&entry.who),
            from: entry.from.as_deref().map(Into::into),
            request_id: entry.request_id.as_deref().map(Into::into),
            tenant: tenant.map(Into::into),
            kind: entry.kind.to_string(),
            subject: entry.subject.to_string(),
            action: entry.action.to_string(),
            before: entry.before.as_deref().and_then(Payload::new),
            after: entry.after.as_deref().and_then(Payload::new),
        }
    }
}

/// What is read of a job that is shown.
#[derive(Deserialize)]
struct Glimpse {
    version: u32,
    updated_at: Timestamp,
}

/// The version of a job that is shown.
pub fn version_of(job: &str) -> Option<u32> {
    serde_json::from_str::<Glimpse>(job).ok().map(|glimpse| glimpse.version)
}

impl JobVersion {
    /// A version as it is shown: the job, and the entry that brought it, if one did.
    pub fn new(job: Option<&str>, entry: Option<&domain::Entry>) -> Self {
        let glimpse = job.and_then(|job| serde_json::from_str::<Glimpse>(job).ok());
        let since = glimpse.as_ref().map(|glimpse| glimpse.updated_at);
        JobVersion {
            version: glimpse.map(|glimpse| glimpse.version),
            at: entry.map(|entry| entry.id.made_at()).or(since),
            who: entry.map(|entry| AuditWho::from(&entry.who)),
            action: entry.map(|entry| entry.action.to_string()),
            request_id: entry.and_then(|entry| entry.request_id.as_deref().map(Into::into)),
            job: job.and_then(Payload::new),
        }
    }
}

/// Parts of the names of headers that carry a secret.
const SECRETS: [&str; 8] =
    ["authorization", "cookie", "key", "token", "secret", "password", "signature", "credential"];

/// What stands for a secret.
const COVER: &str = "\"***\"";

/// Where the walk is.
struct Level {
    is_object: bool,
    is_headers: bool,
    /// The next text is the name of a member.
    is_name: bool,
}

/// JSON text with the values of headers covered that carry a secret, whatever they are headers of. Everything else stays as it is, byte
/// for byte.
pub fn covered(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut shown = String::with_capacity(text.len());
    let (mut levels, mut name): (Vec<Level>, Option<&str>) = (Vec::new(), None);
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let Some(end) = end_of_text(bytes, at) else { break };
                let inner = &text[at + 1..end - 1];
                let Some(level) = levels.last().filter(|level| level.is_object) else {
                    at = end;
                    continue;
                };
                if level.is_name {
                    name = Some(inner);
                } else {
                    if level.is_headers && name.take().is_some_and(is_secret) {
                        shown.push_str(&text[copied..at]);
                        shown.push_str(COVER);
                        copied = end;
                    }
                    name = None;
                }
                at = end;
                continue;
            }
            b'{' => {
                let is_headers = name.take().is_some_and(|name| name.eq_ignore_ascii_case("headers"));
                levels.push(Level { is_object: true, is_headers, is_name: true });
            }
            b'[' => {
                name = None;
                levels.push(Level { is_object: false, is_headers: false, is_name: false });
            }
            b'}' | b']' => drop(levels.pop()),
            b':' => {
                if let Some(level) = levels.last_mut() {
                    level.is_name = false;
                }
            }
            b',' => {
                name = None;
                if let Some(level) = levels.last_mut() {
                    level.is_name = level.is_object;
                }
            }
            _ => {}
        }
        at += 1;
    }
    shown.push_str(&text[copied..]);
    shown
}

/// Where a text ends that begins here: after its closing quote.
fn end_of_text(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_carry_a_secret_are_covered_and_nothing_else_is_touched() {
        let cases = [
            (r#"{"a":1.0}"#, r#"{"a":1.0}"#),
            (r#"{"headers":{"Authorization":"Bearer x"}}"#, r#"{"headers":{"Authorization":"***"}}"#),
            (
                r#"{"target":{"url":"https://x","headers":{"Accept":"a","X-Api-Key":"k\"k","x":"y"}},"key":"report"}"#,
                r#"{"target":{"url":"https://x","headers":{"Accept":"a","X-Api-Key":"***","x":"y"}},"key":"report"}"#,
            ),
            (
                r#"{"payload": {"token":"stays", "n":12345678901234567890.10, "l":["key",{"key":"v"}]}}"#,
                r#"{"payload": {"token":"stays", "n":12345678901234567890.10, "l":["key",{"key":"v"}]}}"#,
            ),
            (
                r#"{"headers" : { "Cookie" : "c" , "b":"c"} }"#,
                r#"{"headers" : { "Cookie" : "***" , "b":"c"} }"#,
            ),
            (r#"{"name":"headers","x":{"token":"stays"}}"#, r#"{"name":"headers","x":{"token":"stays"}}"#),
            (
                r#"[{"headers":{"a-token":"t"}},"{\"headers\":"]"#,
                r#"[{"headers":{"a-token":"***"}},"{\"headers\":"]"#,
            ),
            (r#"{"headers":{"ä-secret":"ö"},"z":"ü"}"#, r#"{"headers":{"ä-secret":"***"},"z":"ü"}"#),
        ];
        for (text, wanted) in cases {
            assert_eq!(covered(text), wanted);
        }
    }

    #[test]
    fn a_version_is_read_from_the_job_that_is_shown() {
        let job = r#"{"id":"x","version":3,"updated_at":"2026-12-24T18:00:00Z","name":"a"}"#;
        let version = JobVersion::new(Some(job), None);
        assert_eq!((version.version, version_of(job)), (Some(3), Some(3)));
        assert_eq!(version.at.map(|at| at.to_string()).as_deref(), Some("2026-12-24T18:00:00Z"));
        assert_eq!(version_of(r#"{"left_out_bytes":70000}"#), None);
    }
}
