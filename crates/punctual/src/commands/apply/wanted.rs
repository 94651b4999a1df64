//! What documents ask for, as the server would show it once it is applied.
//!
//! Pure. A document is read by the code that the server reads bodies with, over the defaults that will hold then, so that what is equal
//! here is equal there. Promise: every wrong field of every document is told, each with its file, line and number.

use std::collections::BTreeMap;

use jiff::Timestamp;
use punctual_api::alert::{Alert, AlertSpec};
use punctual_api::calendar::CalendarSpec;
use punctual_api::defaults::{read_defaults, read_job_over};
use punctual_api::job::{JobSpec, Pause, Purpose, SERVER_MEMBERS};
use punctual_api::limit::{Limit, LimitSpec};
use punctual_api::read::{self, Unread, nearest};
use punctual_api::{FieldError, Rules};
use punctual_domain::TenantId;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::document::{Document, Node, Value, json};

/// What a document is, in the order of application: jobs have what defaults say, and name calendars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Defaults,
    Calendar,
    Limit,
    Job,
    Alert,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Kind; 5] = [Kind::Defaults, Kind::Calendar, Kind::Limit, Kind::Job, Kind::Alert];

    /// The word in `kind`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Defaults => "defaults",
            Kind::Calendar => "calendar",
            Kind::Limit => "limit",
            Kind::Job => "job",
            Kind::Alert => "alert",
        }
    }

    /// The member that names it.
    fn named_by(self) -> Option<&'static str> {
        match self {
            Kind::Defaults => None,
            Kind::Job => Some("key"),
            Kind::Calendar | Kind::Limit | Kind::Alert => Some("name"),
        }
    }
}

/// What one document asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// As it was read.
    pub(crate) document: Document,
    pub(crate) kind: Kind,
    /// Its key or name.
    pub(crate) name: String,
    /// What is sent, as it is written.
    pub(crate) sent: Box<RawValue>,
    /// As the server would show it.
    pub(crate) body: Node,
    /// Whether the job is to be paused, and why; nothing leaves it as it is.
    pub(crate) paused: Option<Node>,
    /// Only if it still has this version.
    pub(crate) version: Option<u32>,
}

/// What documents are read with.
pub(crate) struct Reading<'a> {
    /// The tenant whose they will be.
    pub(crate) tenant: &'a str,
    /// The defaults of the tenant, as the server has them.
    pub(crate) defaults: &'a str,
    pub(crate) rules: Rules<'a>,
    pub(crate) now: Timestamp,
}

/// Reads all documents, or tells everything that is wrong with any of them.
pub(crate) fn read(documents: Vec<Document>, reading: &Reading<'_>) -> Result<Vec<Wanted>, Vec<String>> {
    let mut wrong = Vec::new();
    let mut kinds = Vec::new();
    for document in documents {
        match kind_of(&document) {
            Ok(kind) => kinds.push((kind, document)),
            Err(line) => wrong.push(line),
        }
    }
    // Jobs have what the defaults will say, not what they say now.
    let defaults = kinds.iter().find(|(kind, _)| *kind == Kind::Defaults);
    let defaults = defaults.map(|(_, document)| body_of(document, Kind::Defaults).to_json());
    let defaults = defaults.as_deref().unwrap_or(reading.defaults).to_string();
    let mut all: Vec<Wanted> = Vec::new();
    let mut places: BTreeMap<(Kind, String), String> = BTreeMap::new();
    for (kind, document) in kinds {
        match one(kind, document, &defaults, reading) {
            Ok(wanted) => {
                let name = (kind, wanted.name.clone());
                if let Some(place) = places.get(&name) {
                    let pointer = kind.named_by().map(|member| format!("/{member}")).unwrap_or_default();
                    let what = told(kind, &wanted.name);
                    wrong.push(
                        wanted.document.wrong(&pointer, &format!("{what} is also in {place}; keep one")),
                    );
                }
                places.insert(name, wanted.document.place.to_string());
                all.push(wanted);
            }
            Err(lines) => wrong.extend(lines),
        }
    }
    if wrong.is_empty() { Ok(all) } else { Err(wrong) }
}

/// A kind with its name, for people.
pub(crate) fn told(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Defaults => kind.as_str().to_string(),
        _ => format!("{} `{name}`", kind.as_str()),
    }
}

fn kind_of(document: &Document) -> Result<Kind, String> {
    let known = Kind::ALL.map(Kind::as_str);
    if !matches!(document.body.value, Value::Map(_)) {
        return Err(document.wrong("", "expected an object with `kind`"));
    }
    let Some(node) = document.body.get("kind") else {
        let detail = format!("`kind` is missing; write one of {}", known.join(", "));
        return Err(document.wrong("", &detail));
    };
    let word = node.text().unwrap_or_default();
    if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.as_str() == word) {
        return Ok(kind);
    }
    let hint = match nearest(word, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if document.body.get("apiVersion").is_some() => {
            "this is a manifest of Kubernetes; `punctual import cronjobs` reads those".into()
        }
        None => format!("write one of {}", known.join(", ")),
    };
    let shown: String = node.to_json().chars().take(64).collect();
    Err(document.wrong("/kind", &format!("{shown} is not known; {hint}")))
}

/// The body without what is only for us.
fn body_of(document: &Document, kind: Kind) -> Node {
    let mut body = document.body.clone();
    body.take("kind");
    let own: &[&str] = match kind {
        Kind::Job => &SERVER_MEMBERS,
        Kind::Calendar => &["name", "version", "updated_at", "operation_id"],
        Kind::Alert | Kind::Limit => &["name"],
        Kind::Defaults => &[],
    };
    for member in own {
        body.take(member);
    }
    body
}

fn one(kind: Kind, document: Document, defaults: &str, reading: &Reading<'_>) -> Result<Wanted, Vec<String>> {
    let mut errors: Vec<FieldError> = Vec::new();
    let name = match kind.named_by().map(|member| (member, document.body.get(member))) {
        None => String::new(),
        Some((member, node)) => match node.and_then(Node::text) {
            Some(text) if !text.is_empty() => text.to_string(),
            _ => {
                let detail = match node {
                    None => format!("`{member}` is missing: documents are found by it"),
                    Some(_) => "expected text".into(),
                };
                errors.push(FieldError::new(format!("/{member}"), "missing_field", detail));
                // Valid, so that only what is wrong is told.
                "x".into()
            }
        },
    };
    let mut body = body_of(&document, kind);
    let sent = body.to_json();
    if kind == Kind::Job {
        // It is told already, if it is missing.
        body.set("key", name.as_str());
    }
    let text = body.to_json();
    let shown = match shown(kind, &name, &text, defaults, reading) {
        Ok(shown) => shown,
        Err(Unread::Malformed(reason)) => return Err(vec![document.wrong("", &reason)]),
        Err(Unread::Wrong(more)) => {
            let is_new = |error: &FieldError| errors.iter().all(|known| known.pointer != error.pointer);
            let more: Vec<FieldError> = more.into_iter().filter(is_new).collect();
            errors.extend(more);
            Node::new(Value::Null)
        }
    };
    let paused = match (kind, document.body.get("paused")) {
        (Kind::Job, Some(node)) => pause(node, &mut errors).filter(|said| !is_over(said, reading.now)),
        _ => None,
    };
    // As the server shows it; another's would silently become this one's.
    if let (Kind::Job, Some(tenant)) = (kind, document.body.get("tenant").and_then(Node::text))
        && tenant != reading.tenant
    {
        let detail = format!(
            "this is applied to the tenant `{}`; write `--tenant {tenant}`, or leave it out",
            reading.tenant
        );
        errors.push(FieldError::new("/tenant", "conflict", detail));
    }
    let version = match (kind, document.body.get("version")) {
        (Kind::Job | Kind::Calendar, Some(node)) => {
            let number = node.whole().and_then(|number| u32::try_from(number).ok());
            if number.is_none() {
                errors.push(FieldError::new("/version", "wrong_type", "expected a whole number"));
            }
            number
        }
        _ => None,
    };
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| document.wrong(&error.pointer, &error.detail)).collect());
    }
    let sent = RawValue::from_string(sent).map_err(|error| vec![document.wrong("", &error.to_string())])?;
    Ok(Wanted { document, kind, name, sent, body: shown, paused, version })
}

/// As the server would show it.
fn shown(kind: Kind, name: &str, text: &str, defaults: &str, reading: &Reading<'_>) -> Result<Node, Unread> {
    match kind {
        Kind::Defaults => node(&read_defaults(text, &reading.rules)?),
        Kind::Calendar => {
            let calendar = CalendarSpec::from_text(text)?.to_domain(name, reading.rules.tzdb)?;
            node(&CalendarSpec::from(&calendar))
        }
        Kind::Limit => {
            let spec: LimitSpec = read::read(text)?;
            let tenant = spec.tenant.clone();
            // Which tenant that is only the server knows; it is shown by name.
            node(&Limit::new(&spec.to_domain(name, None)?, tenant.as_deref()).spec)
        }
        Kind::Job => {
            let spec = read_job_over(text, Some(defaults), Purpose::Create, &reading.rules)?;
            node(&JobSpec::from(&spec))
        }
        Kind::Alert => {
            let spec: AlertSpec = read::read(text)?;
            // Whether there is a mail server is the server's to say.
            let alert = spec.to_domain(name, TenantId::DEFAULT, true, &reading.rules, reading.now)?;
            node(&Alert::from(&alert).spec)
        }
    }
}

/// A value as a node, as it is.
pub(crate) fn node(value: &impl Serialize) -> Result<Node, Unread> {
    let text = serde_json::to_string(value).map_err(|error| Unread::Malformed(error.to_string()))?;
    json::read_as_is(&text).map_err(|unread| Unread::Malformed(unread.reason))
}

/// Whether a pause has ended by itself: then nobody wants anything of it any more.
fn is_over(paused: &Node, now: Timestamp) -> bool {
    let until = paused.get("until").and_then(Node::text).and_then(|text| text.parse::<Timestamp>().ok());
    until.is_some_and(|until| until <= now)
}

/// `true`, `false`, or why: `{"reason": ...}`.
fn pause(node: &Node, errors: &mut Vec<FieldError>) -> Option<Node> {
    match &node.value {
        Value::Null => None,
        Value::Bool(_) => Some(node.clone()),
        Value::Map(_) => {
            let mut said = node.clone();
            said.take("since"); // As the server shows it.
            match read::read::<Pause>(&said.to_json()) {
                Ok(_) => Some(said),
                Err(Unread::Wrong(wrong)) => {
                    errors.extend(
                        wrong.into_iter().map(|error| FieldError {
                            pointer: format!("/paused{}", error.pointer),
                            ..error
                        }),
                    );
                    None
                }
                Err(Unread::Malformed(reason)) => {
                    errors.push(FieldError::new("/paused", "wrong_type", reason));
                    None
                }
            }
        }
        _ => {
            let detail = "write true, false, or an object with `reason`, `by` and `until`";
            errors.push(FieldError::new("/paused", "wrong_type", detail));
            None
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use punctual_schedule::Tzdb;

    use super::*;
    use crate::document::files;

    /// What documents of one text ask for.
    pub(crate) fn wanted(text: &str) -> Result<Vec<Wanted>, Vec<String>> {
        let tzdb = Tzdb::bundled();
        let documents = files::parse("f.yaml", text, false).expect("documents");
        let reading = Reading {
            tenant: "default",
            defaults: "{}",
            rules: Rules::new(&tzdb),
            now: Timestamp::UNIX_EPOCH,
        };
        read(documents, &reading)
    }

    #[test]
    fn every_wrong_field_of_every_document_is_told_with_its_line() {
        let text = "kind: job
key: a
schedule: {cron: '61 * * * *', timezone: Mars}
target:
  http: {uri: 'http://x'}
---
kind: jib
---
kind: calendar
exclude_dates: ['2026-02-30']
---
name: lost
---
kind: job
schedule: {now: true}
target: {discard: {}}
paused: {why: x}
";
        let wrong = wanted(text).expect_err("wrong");
        let expected = [
            ("f.yaml:7: document 2, /kind: ", "did you mean `job`?"),
            ("f.yaml:12: document 4: ", "`kind` is missing"),
            ("f.yaml:5: document 1, /target/http/uri: ", "did you mean `url`?"),
            ("f.yaml:9: document 3, /name: ", "`name` is missing"),
            ("f.yaml:10: document 3, /exclude_dates/0: ", ""),
            ("f.yaml:14: document 5, /key: ", "`key` is missing"),
            ("f.yaml:17: document 5, /paused/why: ", "unknown"),
        ];
        for (place, words) in expected {
            assert!(
                wrong.iter().any(|line| line.starts_with(place) && line.contains(words)),
                "{place}: {wrong:#?}"
            );
        }
    }

    #[test]
    fn a_job_is_what_the_server_would_show_over_the_defaults_of_the_files() {
        let text = "kind: job
key: a
schedule: {every: 5s}
target: {discard: {}}
payload: {n: 1.50}
---
kind: defaults
timeout: 1m
";
        let wanted = wanted(text).expect("right");
        let job = wanted.iter().find(|one| one.kind == Kind::Job).expect("a job");
        assert_eq!(job.body.get("timeout"), Some(&"PT1M".into()));
        assert_eq!(job.body.get("name"), Some(&"a".into()));
        assert_eq!(job.body.at(&["schedule", "every"]), Some(&"PT5S".into()));
        assert_eq!(job.body.get("payload").map(Node::to_json).as_deref(), Some(r#"{"n":1.50}"#));
    }

    #[test]
    fn the_same_thing_twice_is_refused_by_both_places() {
        let text = "kind: calendar\nname: a\n---\nkind: calendar\nname: a\n";
        let wrong = wanted(text).expect_err("twice");
        assert_eq!(wrong, ["f.yaml:5: document 2, /name: calendar `a` is also in f.yaml:1; keep one"]);
    }

    #[test]
    fn the_job_of_another_tenant_is_refused() {
        let text = "kind: job\nkey: a\ntenant: acme\nschedule: {now: true}\ntarget: {discard: {}}\n";
        let wrong = wanted(text).expect_err("another's");
        assert!(
            wrong[0].starts_with("f.yaml:3: document 1, /tenant: ") && wrong[0].contains("--tenant acme"),
            "{wrong:?}"
        );
    }

    #[test]
    fn what_was_read_from_the_server_may_be_written_back() {
        let text = r#"{"kind":"job","id":"x","tenant":"default","version":3,"state":"paused","next_fire_at":null,
            "paused":{"reason":"r","since":"2026-01-01T00:00:00Z"},"created_at":"x","updated_at":"y",
            "key":"a","schedule":{"now":true},"target":{"discard":{}}}"#;
        let wanted = wanted(text).expect("right");
        assert_eq!(
            (wanted[0].version, wanted[0].paused.as_ref().map(Node::to_json)),
            (Some(3), Some(r#"{"reason":"r"}"#.into()))
        );
        assert!(!wanted[0].sent.get().contains("tenant"), "{}", wanted[0].sent);
    }
}
