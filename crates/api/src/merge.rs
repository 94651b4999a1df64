//! JSON merge patch (RFC 7396) over texts, so that what a patch does not touch stays as it was written.
//!
//! One thing is kinder than the letter of the RFC: a schedule, a target and the delays of retries are of one kind, so a patch
//! that names another kind replaces the old one, where a plain merge would leave two and be refused.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::read::{At, Errors, Unread, checked, members};
use crate::{retry, schedule, target};

/// A job's body with a patch applied.
pub fn patch_job(base: &str, patch: &str) -> Result<String, Unread> {
    let patch = checked(patch)?;
    if !patch.starts_with('{') {
        let mut errors = Errors::default();
        errors.wrong_type(&At::ROOT, "an object", patch);
        return Err(Unread::Wrong(errors.into_vec()));
    }
    let mut base = object(base);
    for (name, change) in object_pairs(patch) {
        let rest = base.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_ref());
        let kept: Option<Cow<'_, str>> = match (&*name, rest) {
            ("schedule", Some(old)) => Some(without_other_kinds(old, change, &schedule::KINDS)),
            ("target" | "dead_letter_target", Some(old)) => {
                Some(without_other_kinds(old, change, &target::KINDS))
            }
            ("retry", Some(old)) => Some(without_other_backoff(old, change)),
            (_, rest) => rest.map(Cow::Borrowed),
        };
        let merged = merge(kept.as_deref(), change).map(Cow::Owned);
        set(&mut base, name, merged);
    }
    Ok(written(&base))
}

/// A member of a job's body over the default of it.
pub(crate) fn over_default(name: &str, default: &str, own: &str) -> String {
    let kept = match name {
        "retry" => without_other_backoff(default, own),
        _ => Cow::Borrowed(default),
    };
    merge(Some(&kept), own).unwrap_or_else(|| own.into())
}

/// What a value becomes under a patch; nothing if it is removed.
fn merge(base: Option<&str>, patch: &str) -> Option<String> {
    if patch == "null" {
        return None;
    }
    if !patch.starts_with('{') {
        return Some(patch.into());
    }
    let mut merged = base.map_or_else(Vec::new, object);
    for (name, change) in object_pairs(patch) {
        let old = merged.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        let new = merge(old.as_deref(), change).map(Cow::Owned);
        set(&mut merged, name, new);
    }
    Some(written(&merged))
}

/// The old object without the members that another kind brings to an end.
fn without_other_kinds<'a>(old: &'a str, patch: &str, kinds: &[&str]) -> Cow<'a, str> {
    let names = |text: &str| -> Vec<String> {
        let kinds = object_pairs(text)
            .into_iter()
            .filter(|(name, value)| kinds.contains(&&**name) && *value != "null");
        kinds.map(|(name, _)| name.into_owned()).collect()
    };
    let (was, becomes) = (names(old), names(patch));
    if becomes.is_empty() || becomes.iter().any(|kind| was.contains(kind)) {
        return Cow::Borrowed(old);
    }
    let is_gone = |name: &str| {
        was.iter().any(|kind| kind == name)
            || schedule::OF_A_KIND
                .iter()
                .any(|(member, of)| *member == name && was.iter().any(|kind| kind == of))
    };
    let kept: Vec<_> = object(old).into_iter().filter(|(name, _)| !is_gone(name)).collect();
    Cow::Owned(written(&kept))
}

/// The old retry policy without the members that another backoff brings to an end.
fn without_other_backoff<'a>(old: &'a str, patch: &str) -> Cow<'a, str> {
    let backoff = |text: &str| {
        let word = object_pairs(text).into_iter().find(|(name, _)| name == "backoff");
        word.and_then(|(_, value)| serde_json::from_str::<String>(value).ok())
    };
    let has_delays = object_pairs(patch).iter().any(|(name, value)| name == "delays" && *value != "null");
    let ended = retry::ended_by(backoff(old).as_deref(), backoff(patch).as_deref(), has_delays);
    if ended.is_empty() {
        return Cow::Borrowed(old);
    }
    let kept: Vec<_> = object(old).into_iter().filter(|(name, _)| !ended.contains(&&**name)).collect();
    Cow::Owned(written(&kept))
}

pub(crate) type Member<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The members of an object; none of anything else.
fn object(text: &str) -> Vec<Member<'_>> {
    object_pairs(text).into_iter().map(|(name, value)| (name, Cow::Borrowed(value))).collect()
}

fn object_pairs(text: &str) -> Vec<(Cow<'_, str>, &str)> {
    members(text, &At::ROOT, &mut Errors::default()).unwrap_or_default()
}

fn set<'a>(members: &mut Vec<Member<'a>>, name: Cow<'a, str>, value: Option<Cow<'a, str>>) {
    let place = members.iter().position(|(known, _)| *known == name);
    match (place, value) {
        (Some(place), Some(value)) => members[place].1 = value,
        (Some(place), None) => drop(members.remove(place)),
        (None, Some(value)) => members.push((name, value)),
        (None, None) => {}
    }
}

pub(crate) fn written(members: &[Member<'_>]) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&serde_json::to_string(name).unwrap_or_default());
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    debug_assert!(serde_json::from_str::<&RawValue>(&text).is_ok());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &str, patch: &str, expected: &str) {
        assert_eq!(patch_job(base, patch).expect("patched"), expected, "{base} + {patch}");
    }

    #[test]
    fn the_cases_of_the_rfc() {
        for (base, patch, expected) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            check(base, patch, expected);
        }
    }

    #[test]
    fn another_backoff_replaces_the_old_one_and_what_belongs_to_it() {
        let exponential =
            r#"{"retry":{"max_attempts":3,"backoff":"exponential","base":"PT2S","cap":"PT5M"}}"#;
        let list = r#"{"retry":{"max_attempts":5,"backoff":"list","delays":["PT1S"],"retry_for":"PT2H"}}"#;
        for (base, patch, expected) in [
            (
                exponential,
                r#"{"backoff":"linear"}"#,
                r#"{"max_attempts":3,"backoff":"linear","base":"PT2S","cap":"PT5M"}"#,
            ),
            (exponential, r#"{"backoff":"fixed"}"#, r#"{"max_attempts":3,"backoff":"fixed","base":"PT2S"}"#),
            (exponential, r#"{"delays":["1s","2s"]}"#, r#"{"delays":["1s","2s"]}"#),
            (exponential, r#"{"backoff":"list","delays":["1s"]}"#, r#"{"backoff":"list","delays":["1s"]}"#),
            (
                exponential,
                r#"{"backoff":"list","delays":["1s"],"max_attempts":9}"#,
                r#"{"backoff":"list","delays":["1s"],"max_attempts":9}"#,
            ),
            (
                exponential,
                r#"{"max_attempts":9}"#,
                r#"{"max_attempts":9,"backoff":"exponential","base":"PT2S","cap":"PT5M"}"#,
            ),
            (list, r#"{"backoff":"fixed"}"#, r#"{"max_attempts":5,"backoff":"fixed","retry_for":"PT2H"}"#),
            (
                list,
                r#"{"delays":["PT9S"]}"#,
                r#"{"max_attempts":5,"backoff":"list","delays":["PT9S"],"retry_for":"PT2H"}"#,
            ),
            (list, r#"{"retry_for":null}"#, r#"{"max_attempts":5,"backoff":"list","delays":["PT1S"]}"#),
        ] {
            check(base, &format!(r#"{{"retry":{patch}}}"#), &format!(r#"{{"retry":{expected}}}"#));
        }
    }

    #[test]
    fn a_payload_stays_as_it_was_written() {
        check(
            r#"{"payload":{"n":1.50, "b" : [1e400]}}"#,
            r#"{"name":"x"}"#,
            r#"{"payload":{"n":1.50, "b" : [1e400]},"name":"x"}"#,
        );
    }

    #[test]
    fn another_kind_of_schedule_replaces_the_old_one_and_what_belongs_to_it() {
        check(
            r#"{"schedule":{"every":"PT5S","from":"completion","timezone":"Europe/Paris"}}"#,
            r#"{"schedule":{"cron":"0 2 * * *"}}"#,
            r#"{"schedule":{"timezone":"Europe/Paris","cron":"0 2 * * *"}}"#,
        );
        check(
            r#"{"target":{"http":{"url":"http://a","method":"PUT"}}}"#,
            r#"{"target":{"http":{"url":"http://b"}}}"#,
            r#"{"target":{"http":{"url":"http://b","method":"PUT"}}}"#,
        );
        check(
            r#"{"target":{"http":{"url":"http://a"}}}"#,
            r#"{"target":{"discard":{}}}"#,
            r#"{"target":{"discard":{}}}"#,
        );
    }
}
