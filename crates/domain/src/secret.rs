//! Secrets: their names, the places of a text that name one, and what must not be seen of their values.
//!
//! A target says `{{ secret.NAME }}` in the values of its headers, in the path and query of its URL and in its payload. Checked when a job is
//! registered, filled in for one call where it is made, and taken out of what comes back. Promise: a value is written in the form of its
//! place, so that it changes neither where a call goes nor what surrounds it; nothing prints a [`Value`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::envelope::Sealed;

/// Characters of a name.
pub const NAME_MAX: usize = 64;

/// Bytes of a value: a chain of certificates fits, and a header is refused long before.
pub const VALUE_MAX: usize = 64 * 1024;

/// Shorter values are not looked for in what comes back: they would be found in everything.
pub const HIDDEN_MIN: usize = 4;

/// Secrets that one call may name: more is a mistake, and each may be a read of the store.
pub const CALL_MAX: usize = 32;

/// How a reference begins, after its braces and spaces.
const PREFIX: &str = "secret.";

/// A secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// What nobody reads without a master key.
    pub sealed: Sealed,
    /// When there was first one of its name.
    pub created_at: Timestamp,
    /// When its value was last set.
    pub set_at: Timestamp,
    /// By whom.
    pub set_by: String,
}

/// What a secret says. It is printed by nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Box<str>);

impl Value {
    /// A value of 1 to [`VALUE_MAX`] bytes without a zero byte, or why it is none.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, Wrong> {
        let text = text.into();
        match text.is_empty() || text.len() > VALUE_MAX || text.contains('\0') {
            true => Err(Wrong::Value),
            false => Ok(Value(text)),
        }
    }

    /// The text itself. Whoever asks for it must not keep it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(…)")
    }
}

/// What is wrong with a name, a value or a reference. None repeats a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The name.
    #[error("`{0}` is not the name of a secret: 1 to {NAME_MAX} letters, digits and any of . _ -")]
    Name(String),
    /// The value.
    #[error("a secret has 1 to {VALUE_MAX} bytes of text, none of them zero")]
    Value,
    /// A reference without an end.
    #[error("`{{{{ secret.` is not closed; write {{{{ secret.NAME }}}}")]
    Unclosed,
}

/// Why a secret cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The tenant has none of the name.
    #[error("there is no secret `{0}`; set it with `punctual secret set {0}`, or take it out of the job")]
    NotFound(String),
    /// It is there, and cannot be read now.
    #[error("secret `{name}` cannot be read: {reason}")]
    Unreadable {
        /// Which.
        name: String,
        /// Why, and the way out.
        reason: String,
    },
}

impl Unusable {
    /// The code of an attempt that failed by it.
    pub fn code(&self) -> &'static str {
        match self {
            Unusable::NotFound(_) => "secret_not_found",
            Unusable::Unreadable { .. } => "secret_unreadable",
        }
    }
}

/// Whether this is the name of a secret.
pub fn check_name(name: &str) -> Result<(), Wrong> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(Wrong::Name(name.chars().take(NAME_MAX).collect())),
    }
}

enum Piece<'a> {
    Text(&'a str),
    Secret(&'a str),
    Wrong(&'a str, Wrong),
}

/// A text in pieces. Other braces are text: they are somebody else's.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut begun, mut at) = (Vec::new(), 0, 0);
    while let Some(found) = text[at..].find("{{") {
        let open = at + found;
        let inner = text[open + 2..].trim_start_matches(' ');
        let Some(named) = inner.strip_prefix(PREFIX) else {
            at = open + 1;
            continue;
        };
        let (piece, end) = match named.split_once("}}") {
            None => (Piece::Wrong(&text[open..], Wrong::Unclosed), text.len()),
            Some((name, rest)) => {
                let (name, end) = (name.trim_end_matches(' '), text.len() - rest.len());
                match check_name(name) {
                    Ok(()) => (Piece::Secret(name), end),
                    Err(wrong) => (Piece::Wrong(&text[open..end], wrong), end),
                }
            }
        };
        pieces.push(Piece::Text(&text[begun..open]));
        pieces.push(piece);
        (begun, at) = (end, end);
    }
    pieces.push(Piece::Text(&text[begun..]));
    pieces
}

/// Whether all references of a text are references.
pub fn check(text: &str) -> Result<(), Wrong> {
    if !text.contains("{{") {
        return Ok(());
    }
    pieces(text).into_iter().try_for_each(|piece| match piece {
        Piece::Wrong(_, wrong) => Err(wrong),
        Piece::Text(_) | Piece::Secret(_) => Ok(()),
    })
}

/// The secrets that a text names.
pub fn names(text: &str) -> BTreeSet<String> {
    if !text.contains("{{") {
        return BTreeSet::new();
    }
    let named = |piece| match piece {
        Piece::Secret(name) => Some(name.to_owned()),
        Piece::Text(_) | Piece::Wrong(..) => None,
    };
    pieces(text).into_iter().filter_map(named).collect()
}

/// The text with an `x` for every reference: what can be judged of it before anything is filled in.
pub fn without(text: &str) -> Cow<'_, str> {
    if !text.contains("{{") {
        return Cow::Borrowed(text);
    }
    let shown = |piece| match piece {
        Piece::Text(text) | Piece::Wrong(text, _) => text,
        Piece::Secret(_) => "x",
    };
    Cow::Owned(pieces(text).into_iter().map(shown).collect())
}

/// How a value is written in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is, in a header.
    Plain,
    /// Percent-encoded, in a URL.
    Url,
    /// Inside the quotes of a JSON text.
    Json,
}

impl Form {
    fn write(self, value: &str) -> Cow<'_, str> {
        match self {
            Form::Plain => Cow::Borrowed(value),
            Form::Url => Cow::Owned(percent_encoded(value)),
            Form::Json => Cow::Owned(json_escaped(value)),
        }
    }
}

fn percent_encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn json_escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c < ' ' => text.push_str(&format!("\\u{:04x}", c as u32)),
            c => text.push(c),
        }
    }
    text
}

/// The secrets of one call, open. Dropped with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(BTreeMap<String, Value>);

impl FromIterator<(String, Value)> for Values {
    fn from_iter<T: IntoIterator<Item = (String, Value)>>(values: T) -> Self {
        Values(values.into_iter().collect())
    }
}

impl Values {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Fills in every reference whose value is here.
    pub fn fill<'a>(&self, text: &'a str, form: Form) -> Cow<'a, str> {
        if self.is_empty() || !text.contains("{{") {
            return Cow::Borrowed(text);
        }
        let mut filled = String::with_capacity(text.len());
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) | Piece::Wrong(text, _) => filled.push_str(text),
                Piece::Secret(name) => match self.get(name) {
                    Some(value) => filled.push_str(&form.write(value.reveal())),
                    None => filled.push_str(&format!("{{{{ {PREFIX}{name} }}}}")),
                },
            }
        }
        Cow::Owned(filled)
    }

    /// The text without any of the values: `[secret NAME]` stands for them.
    pub fn hide(&self, text: &str) -> String {
        // What is put in is text, and what is taken out begins and ends where characters do.
        String::from_utf8_lossy(&self.hide_bytes(text.as_bytes(), false)).into_owned()
    }

    /// The same of bytes. Of some that were cut off, an end that begins like a value goes as well.
    pub fn hide_bytes(&self, bytes: &[u8], is_cut: bool) -> Vec<u8> {
        let needles = self.needles();
        let mut begins = [false; 256];
        for (needle, _) in &needles {
            begins[usize::from(needle[0])] = true;
        }
        let (mut kept, mut at) = (Vec::with_capacity(bytes.len()), 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            let found = match begins[usize::from(rest[0])] {
                true => needles.iter().find(|(needle, _)| rest.starts_with(needle)),
                false => None,
            };
            if let Some((needle, name)) = found {
                kept.extend_from_slice(format!("[secret {name}]").as_bytes());
                at += needle.len();
                continue;
            }
            let is_begun = is_cut
                && rest.len() >= HIDDEN_MIN
                && begins[usize::from(rest[0])]
                && needles.iter().any(|(needle, _)| needle.starts_with(rest));
            if is_begun {
                break;
            }
            kept.push(rest[0]);
            at += 1;
        }
        kept
    }

    /// What is looked for, the longest first: one value may begin like another.
    fn needles(&self) -> Vec<(Vec<u8>, &str)> {
        let mut needles = Vec::new();
        for (name, value) in self.0.iter().filter(|(_, value)| value.reveal().len() >= HIDDEN_MIN) {
            for form in [Form::Plain, Form::Url, Form::Json] {
                let needle = form.write(value.reveal()).into_owned().into_bytes();
                if !needles.iter().any(|(known, _)| *known == needle) {
                    needles.push((needle, name.as_str()));
                }
            }
        }
        needles.sort_by_key(|(needle, _)| std::cmp::Reverse(needle.len()));
        needles
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| ((*name).into(), Value::new(*value).unwrap())).collect()
    }

    #[test]
    fn a_reference_is_found_and_other_braces_are_text() {
        for (text, found) in [
            ("Bearer {{ secret.token }}", "token"),
            ("{{secret.a}}{{ secret.b-2 }}", "a b-2"),
            ("{{{ secret.a }}}", "a"),
            ("{{ name }} {{ secrets.a }} {secret.a} { { secret.a } }", ""),
            (r#"{"a":{"b":{"c":"{{ secret.x.y_z }}"}}}"#, "x.y_z"),
            ("{{ secret.a", ""),
            ("{{ secret.not a name }} {{ secret.b }}", "b"),
            ("{{ secret. }}", ""),
            ("ü{{ secret.a }}ü", "a"),
        ] {
            assert_eq!(names(text).into_iter().collect::<Vec<_>>().join(" "), found, "{text}");
        }
        assert_eq!(without("/a/{{ secret.a }}?b={{ x }}"), "/a/x?b={{ x }}");
    }

    #[test]
    fn what_is_almost_a_reference_is_refused_by_name() {
        for (text, part) in [
            ("{{ secret.a", "not closed"),
            ("{{ secret.a b }}", "`a b`"),
            ("{{ secret. }}", "``"),
            ("{{ secret.ä }}", "`ä`"),
        ] {
            assert!(check(text).unwrap_err().to_string().contains(part), "{text}");
        }
        for text in ["", "{{", "{{ a }}", "{{ secret.a }} {{ secret.b }}"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        assert!(check_name(&"a".repeat(NAME_MAX)).is_ok() && check_name(&"a".repeat(NAME_MAX + 1)).is_err());
    }

    #[test]
    fn a_value_is_written_in_the_form_of_its_place() {
        let values = values(&[("p", "a/b?c=\"ü\"\n")]);
        let fill = |form| values.fill("<{{ secret.p }}>", form).into_owned();
        assert_eq!(fill(Form::Plain), "<a/b?c=\"ü\"\n>");
        assert_eq!(fill(Form::Url), "<a%2Fb%3Fc%3D%22%C3%BC%22%0A>");
        assert_eq!(fill(Form::Json), "<a/b?c=\\\"ü\\\"\\n>");
        assert_eq!(values.fill("{{secret.q}}", Form::Plain), "{{ secret.q }}", "what is not here stays");
    }

    #[test]
    fn a_value_that_says_a_reference_is_not_filled_in_again() {
        let values = values(&[("a", "{{ secret.b }}"), ("b", "hidden")]);
        assert_eq!(values.fill("{{ secret.a }}", Form::Plain), "{{ secret.b }}");
    }

    #[test]
    fn values_are_taken_out_in_every_form_and_the_longest_first() {
        let values = values(&[("short", "abcd"), ("long", "abcd/efg\""), ("pin", "123")]);
        for (text, hidden) in [
            ("it was abcd", "it was [secret short]"),
            ("abcd/efg\"!", "[secret long]!"),
            ("abcd%2Fefg%22", "[secret long]"),
            ("{\"a\":\"abcd/efg\\\"\"}", "{\"a\":\"[secret long]\"}"),
            ("abcdabcd", "[secret short][secret short]"),
            ("abc 123", "abc 123"),
        ] {
            assert_eq!(values.hide(text), hidden);
        }
    }

    #[test]
    fn an_end_that_begins_like_a_value_is_cut_off() {
        let values = values(&[("a", "s3cret-value")]);
        let hide =
            |text: &str, is_cut| String::from_utf8(values.hide_bytes(text.as_bytes(), is_cut)).unwrap();
        assert_eq!(hide("echo: s3cret-val", true), "echo: ");
        assert_eq!(hide("echo: s3cret-val", false), "echo: s3cret-val");
        assert_eq!(hide("echo: s3c", true), "echo: s3c", "three bytes say little");
    }

    #[test]
    fn nothing_prints_a_value() {
        let values = values(&[("a", "s3cret")]);
        assert!(!format!("{values:?} {:?}", values.get("a")).contains("s3cret"));
        for wrong in ["", "a\0b", &"x".repeat(VALUE_MAX + 1)] {
            assert_eq!(Value::new(wrong), Err(Wrong::Value));
        }
    }
}
