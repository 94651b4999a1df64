//! Reads JSON into wire types and names every wrong field at once.
//!
//! Used for every body the server takes. An object is split into the texts of its members, and each member is read
//! from its own text: so one wrong member does not hide the next, and a payload is never parsed at all. Promise:
//! linear time, bounded depth, at most [`ERRORS_MAX`] errors, whatever comes in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use punctual_schedule::Tzdb;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::{DEPTH_MAX, ERRORS_MAX, PAYLOAD_MAX};
use crate::problem::FieldError;

/// What a job is checked against, beyond its own text.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Where time zones are looked up.
    pub tzdb: &'a Tzdb,
    /// Bytes of a payload.
    pub payload_max: usize,
    /// Whether a target may be called at all; the reason and the way out if not.
    pub check_target: Option<&'a CheckTarget>,
}

/// Says whether a target may be called at all; the reason and the way out if not.
pub type CheckTarget = dyn Fn(&punctual_domain::Target) -> Result<(), String> + Send + Sync;

impl<'a> Rules<'a> {
    /// The default limits.
    pub fn new(tzdb: &'a Tzdb) -> Self {
        Rules { tzdb, payload_max: PAYLOAD_MAX, check_target: None }
    }
}

impl fmt::Debug for Rules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("payload_max", &self.payload_max).finish_non_exhaustive()
    }
}

/// Why a body could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is not JSON, or too deep; nothing in it can be named.
    Malformed(String),
    /// It is JSON with wrong fields.
    Wrong(Vec<FieldError>),
}

/// Reads a body.
pub fn read<T: Read>(text: &str) -> Result<T, Unread> {
    let text = checked(text)?;
    let mut errors = Errors::default();
    let value = T::read(text, &At::ROOT, &mut errors);
    match value {
        Some(value) if errors.is_empty() => Ok(value),
        _ => Err(Unread::Wrong(errors.into_vec())),
    }
}

/// The text as one JSON value without the space around it, if it is one and not too deep.
pub(crate) fn checked(text: &str) -> Result<&str, Unread> {
    check_depth(text)?;
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| Unread::Malformed(syntax(&error)))?;
    Ok(raw.get())
}

/// The parser's own words, with the place.
fn syntax(error: &serde_json::Error) -> String {
    match (error.line(), error.column()) {
        (0, _) => error.to_string(),
        _ => format!("this is not JSON: {error}"),
    }
}

/// Counts brackets outside of strings.
fn check_depth(text: &str) -> Result<(), Unread> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    let reason =
                        format!("the JSON is deeper than {DEPTH_MAX} levels; send a flatter payload");
                    return Err(Unread::Malformed(reason));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// A type that is read from JSON text. `None` says that an error was added.
pub trait Read: Sized {
    /// Reads it from the text of one JSON value.
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self>;
}

/// Where a value is; written out only when it is wrong.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    /// The whole body.
    pub const ROOT: At<'static> = At { parent: None, step: Step::Index(0) };

    /// A member of the object here.
    pub fn member(&'a self, name: &'a str) -> At<'a> {
        At { parent: Some(self), step: Step::Name(name) }
    }

    /// An item of the list here.
    pub fn item(&'a self, index: usize) -> At<'a> {
        At { parent: Some(self), step: Step::Index(index) }
    }

    /// As a JSON pointer (RFC 6901).
    pub fn pointer(&self) -> String {
        let Some(parent) = self.parent else { return String::new() };
        let mut pointer = parent.pointer();
        pointer.push('/');
        match self.step {
            Step::Name(name) => {
                let shown: String = name.chars().take(64).collect();
                pointer.push_str(&shown.replace('~', "~0").replace('/', "~1"));
            }
            Step::Index(index) => pointer.push_str(&index.to_string()),
        }
        pointer
    }
}

/// Collects what is wrong.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    /// Adds one, unless there are too many or the place is wrong already: what follows from a wrong value is noise.
    pub fn add(&mut self, at: &At<'_>, code: impl Into<Cow<'static, str>>, detail: impl Into<String>) {
        if self.0.len() >= ERRORS_MAX {
            return;
        }
        let pointer = at.pointer();
        let code = code.into();
        let is_inside = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_known = |known: &FieldError| match &*code {
            // A member that could not be read, or was misspelled, is not missing.
            "missing_field" => is_inside(&known.pointer, &pointer),
            _ => !known.pointer.is_empty() && is_inside(&pointer, &known.pointer),
        };
        if !self.0.iter().any(is_known) {
            self.0.push(FieldError::new(pointer, code, detail));
        }
    }

    /// Adds what was found wrong elsewhere, by its pointer here.
    pub(crate) fn add_at(&mut self, pointer: String, code: Cow<'static, str>, detail: String) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(FieldError::new(pointer, code, detail));
        }
    }

    /// Adds a value of the wrong type. `wanted` reads "text such as `PT5S`".
    pub fn wrong_type(&mut self, at: &At<'_>, wanted: &str, text: &str) {
        self.add(at, "wrong_type", format!("expected {wanted}, found {}", kind_of(text)));
    }

    /// Says something else about a place.
    pub(crate) fn relabel(
        &mut self,
        at: &At<'_>,
        from: &'static str,
        to: &'static str,
        detail: impl Fn() -> String,
    ) {
        if self.0.is_empty() {
            return;
        }
        let pointer = at.pointer();
        for error in self.0.iter_mut().filter(|error| error.code == from && error.pointer == pointer) {
            error.code = to.into();
            error.detail = detail();
        }
    }

    /// Whether all is well so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the order of the body.
    pub fn into_vec(self) -> Vec<FieldError> {
        self.0
    }
}

/// What a JSON text is, for people.
fn kind_of(text: &str) -> &'static str {
    match text.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "text",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// The members of an object, each with its text, in order.
pub(crate) fn members<'a>(
    text: &'a str,
    at: &At<'_>,
    errors: &mut Errors,
) -> Option<Vec<(Cow<'a, str>, &'a str)>> {
    match serde_json::from_str::<Members<'a>>(text) {
        Ok(Members(members)) => Some(members),
        Err(_) if text.starts_with('{') => {
            errors.add(at, "wrong_type", "a member's name is not valid text");
            None
        }
        Err(_) => {
            errors.wrong_type(at, "an object", text);
            None
        }
    }
}

/// The items of a list, each with its text.
pub(crate) fn items<'a>(text: &'a str, at: &At<'_>, errors: &mut Errors) -> Option<Vec<&'a str>> {
    match serde_json::from_str::<Items<'a>>(text) {
        Ok(Items(items)) => Some(items),
        Err(_) => {
            errors.wrong_type(at, "a list", text);
            None
        }
    }
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a str)>);
struct Items<'a>(Vec<&'a str>);
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some(Name(name)) = map.next_key()? {
                    let value: &'de RawValue = map.next_value()?;
                    members.push((name, value.get()));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(value) = seq.next_element::<&'de RawValue>()? {
                    items.push(value.get());
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(InOrder)
    }
}

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed;
        impl<'de> Visitor<'de> for Borrowed {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_string())))
            }
        }
        deserializer.deserialize_str(Borrowed)
    }
}

impl Read for String {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        match serde_json::from_str(text) {
            Ok(value) => Some(value),
            Err(_) if text.starts_with('"') => {
                errors.add(at, "wrong_type", "the text has half of a surrogate pair; write whole characters");
                None
            }
            Err(_) => {
                errors.wrong_type(at, "text", text);
                None
            }
        }
    }
}

impl Read for bool {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                errors.wrong_type(at, "true or false", text);
                None
            }
        }
    }
}

macro_rules! read_integer {
    ($($integer:ty),*) => {$(
        impl Read for $integer {
            fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
                if let Ok(number) = text.parse() {
                    return Some(number);
                }
                let (least, most) = (<$integer>::MIN, <$integer>::MAX);
                match text.as_bytes().first() {
                    Some(b'-' | b'0'..=b'9') => {
                        let detail = format!("expected a whole number from {least} to {most}");
                        errors.add(at, "out_of_range", detail);
                    }
                    _ => errors.wrong_type(at, "a whole number", text),
                }
                None
            }
        }
    )*};
}

read_integer!(i16, u16, u32, u64);

impl Read for f64 {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        match serde_json::from_str(text) {
            Ok(number) => Some(number),
            Err(_) => {
                errors.wrong_type(at, "a number", text);
                None
            }
        }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        let items = items(text, at, errors)?;
        let read: Vec<T> = items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| T::read(item, &at.item(index), errors))
            .collect();
        Some(read)
    }
}

impl<T: Read> Read for BTreeMap<String, T> {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        let mut read = BTreeMap::new();
        for (name, value) in members(text, at, errors)? {
            if let Some(value) = T::read(value, &at.member(&name), errors) {
                read.insert(name.into_owned(), value);
            }
        }
        Some(read)
    }
}

/// Says that a field is not known, and which one may be meant.
pub(crate) fn unknown(at: &At<'_>, name: &str, known: &[&str], errors: &mut Errors) {
    errors.add(&at.member(name), "unknown_field", unknown_name("field", name, known));
}

/// Says that a name is not known, and which one may be meant.
pub fn unknown_name(what: &str, name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(64).collect();
    match nearest(name, known) {
        Some(near) => format!("unknown {what} `{shown}`; did you mean `{near}`?"),
        None => format!("unknown {what} `{shown}`; known are {}", list(known)),
    }
}

/// A word from a list of words, or the nearest in the error.
pub(crate) fn one_of<T: Copy>(
    word: &str,
    known: &[(&'static str, T)],
    at: &At<'_>,
    errors: &mut Errors,
) -> Option<T> {
    if let Some((_, value)) = known.iter().find(|(name, _)| *name == word) {
        return Some(*value);
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let shown: String = word.chars().take(64).collect();
    let detail = match nearest(word, &names) {
        Some(near) => format!("`{shown}` is not known; did you mean `{near}`?"),
        None => format!("`{shown}` is not known; write {}", list(&names)),
    };
    errors.add(at, "unknown_value", detail);
    None
}

/// `a`, `b` and `c`, in backticks.
fn list(names: &[&str]) -> String {
    let ticked: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match ticked.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => "none".into(),
    }
}

/// The known name that may be meant: a few letters off, or one inside the other.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    const WORD: usize = 4; // Shorter ones are inside too many.
    let name: String = name.chars().take(40).collect::<String>().to_lowercase();
    let letters: Vec<char> = name.chars().collect();
    let reach = (letters.len() / 2).clamp(1, 3);
    let away = |other: &str| {
        let lower = other.to_lowercase();
        let is_inside =
            (name.len() >= WORD && lower.contains(&name)) || (lower.len() >= WORD && name.contains(&lower));
        if is_inside { 1 } else { distance(&letters, &lower) }
    };
    let near = known.iter().map(|other| (away(other), *other)).min()?;
    (near.0 <= reach).then_some(near.1)
}

/// How many letters to change, add, remove or swap.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let one = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    if is_swap { one.min(rows[i - 2][j - 2] + 1) } else { one }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}
