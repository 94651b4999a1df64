//! Masks of patches: which fields of a job a patch is about.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use serde_json::value::RawValue;

use crate::json::Members;

/// What patches are of.
const PATCHED: &str = ".punctual.v1.JobSpec";

/// The first path that names no field of a job. In a map every name is one.
pub fn unknown(paths: &[String]) -> Option<&String> {
    paths.iter().find(|path| !is_known(PATCHED, path))
}

fn is_known(message: &str, path: &str) -> bool {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let field =
        messages().get(message).and_then(|message| message.field.iter().find(|field| field.name() == name));
    match (field, rest) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(field), Some(rest)) if field.label() == Label::Repeated => {
            let entry = field.type_name().strip_prefix(message);
            entry.is_some_and(|entry| entry.starts_with('.')) && !rest.is_empty() && !rest.contains('.')
        }
        // They are one value in JSON.
        (Some(field), Some(_)) if field.type_name() == ".punctual.v1.Parts" => false,
        (Some(field), Some(rest)) => field.r#type() == Type::Message && is_known(field.type_name(), rest),
    }
}

fn messages() -> &'static HashMap<String, DescriptorProto> {
    static MESSAGES: OnceLock<HashMap<String, DescriptorProto>> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        // They are our own, made when this was built.
        let files = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap_or_default();
        let ours = files.file.into_iter().filter(|file| file.package() == "punctual.v1");
        let messages = ours.flat_map(|file| file.message_type);
        messages.map(|message| (format!(".punctual.v1.{}", message.name()), message)).collect()
    })
}

/// The merge patch (RFC 7396) that changes the fields that a mask names: to what they are in an object, or away.
pub fn masked(object: &str, paths: &[String]) -> Result<Box<RawValue>, serde_json::Error> {
    let members: Members = serde_json::from_str(object)?;
    let mut patch = Members::new();
    let mut inner: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for path in paths {
        match path.split_once('.') {
            Some((name, rest)) => inner.entry(name).or_default().push(rest.to_string()),
            None => {
                let value = members.get(path).cloned();
                patch.insert(path.clone(), value.map_or_else(|| RawValue::from_string("null".into()), Ok)?);
            }
        }
    }
    for (name, paths) in inner {
        // Who names the whole and a part of it means the whole.
        if !patch.contains_key(name) {
            let object = members.get(name).map_or("{}", |value| value.get());
            patch.insert(name.to_string(), masked(object, &paths)?);
        }
    }
    serde_json::value::to_raw_value(&patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_field_of_a_job() {
        for (path, is_right) in [
            ("timeout", true),
            ("schedule.cron", true),
            ("target.http.url", true),
            ("target.http.headers.x-team", true),
            ("labels.team", true),
            ("links", true),
            ("nmae", false),
            ("schedule.corn", false),
            ("timeout.seconds", false),
            ("payload.a", false),
            ("links.0", false),
            ("parts", true),
            ("parts.count", false),
            ("labels.", false),
            ("", false),
            (".", false),
        ] {
            assert_eq!(is_known(PATCHED, path), is_right, "{path}");
        }
    }

    #[test]
    fn a_mask_says_what_changes_and_what_goes() {
        let object =
            r#"{"timeout":"PT1M","schedule":{"cron":"@daily","timezone":"UTC"},"payload":{"a": 1.50}}"#;
        for (paths, patch) in [
            (&["timeout"][..], r#"{"timeout":"PT1M"}"#),
            (&["timeout", "timeout"][..], r#"{"timeout":"PT1M"}"#),
            (&["retry"][..], r#"{"retry":null}"#),
            (&["schedule.cron", "schedule.end"][..], r#"{"schedule":{"cron":"@daily","end":null}}"#),
            (&["schedule", "schedule.end"][..], r#"{"schedule":{"cron":"@daily","timezone":"UTC"}}"#),
            (&["overlap.max"][..], r#"{"overlap":{"max":null}}"#),
            (&["payload"][..], r#"{"payload":{"a": 1.50}}"#),
            (&[][..], "{}"),
        ] {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_string()).collect();
            assert_eq!(masked(object, &paths).expect("a patch").get(), patch);
        }
    }
}
