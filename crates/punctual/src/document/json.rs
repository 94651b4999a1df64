//! JSON as documents: read with lines, written compactly.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::value::{Node, Value};
use super::{DEPTH_MAX, Unread};

/// Reads one value that a person wrote: a member that is there twice is a mistake.
pub(crate) fn read(text: &str) -> Result<Node, Unread> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| syntax(&error))?;
    Source::new(text).node(raw.get(), 0)
}

/// Reads one value that a server has, as it is: headers and members of payloads may be there twice.
pub(crate) fn read_as_is(text: &str) -> Result<Node, Unread> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| syntax(&error))?;
    Source { is_strict: false, ..Source::new(text) }.node(raw.get(), 0)
}

/// Reads values one after the other, as in a file of lines.
pub(crate) fn read_all(text: &str) -> Result<Vec<Node>, Unread> {
    let source = Source::new(text);
    let values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    values.map(|raw| source.node(raw.map_err(|error| syntax(&error))?.get(), 0)).collect()
}

fn syntax(error: &serde_json::Error) -> Unread {
    Unread::new(error.line().max(1), format!("this is not JSON: {error}"))
}

/// The whole text, to tell lines from.
struct Source<'a> {
    text: &'a str,
    /// Where lines end.
    ends: Vec<usize>,
    /// Whether a member may be there once only.
    is_strict: bool,
}

impl<'a> Source<'a> {
    fn new(text: &'a str) -> Self {
        Source { text, ends: text.match_indices('\n').map(|(at, _)| at).collect(), is_strict: true }
    }

    /// The line on which a part of the text begins.
    fn line(&self, part: &str) -> usize {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        1 + self.ends.partition_point(|end| *end < offset)
    }

    fn node(&self, text: &str, depth: usize) -> Result<Node, Unread> {
        let line = self.line(text);
        if depth > DEPTH_MAX {
            return Err(Unread::new(line, format!("this is deeper than {DEPTH_MAX} levels")));
        }
        let wrong = |error: serde_json::Error| Unread::new(line, format!("this is not JSON: {error}"));
        let value = match text.as_bytes().first() {
            Some(b'{') => {
                let Members(pairs) = serde_json::from_str(text).map_err(wrong)?;
                let mut members: Vec<(String, Node)> = Vec::with_capacity(pairs.len());
                for (name, value) in pairs {
                    let node = self.node(value, depth + 1)?;
                    if self.is_strict && members.iter().any(|(known, _)| *known == name) {
                        return Err(Unread::new(node.line, format!("`{name}` is there twice")));
                    }
                    members.push((name.into_owned(), node));
                }
                Value::Map(members)
            }
            Some(b'[') => {
                let Items(items) = serde_json::from_str(text).map_err(wrong)?;
                let nodes: Result<_, _> = items.into_iter().map(|item| self.node(item, depth + 1)).collect();
                Value::List(nodes?)
            }
            Some(b'"') => Value::Text(serde_json::from_str(text).map_err(wrong)?),
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'n') | None => Value::Null,
            Some(_) => Value::Number(text.into()),
        };
        Ok(Node { value, line })
    }
}

/// Writes a value without a blank.
pub(crate) fn write(node: &Node, out: &mut String) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(text) => out.push_str(text),
        Value::Text(text) => out.push_str(&quoted(text)),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Map(members) => {
            out.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&quoted(name));
                out.push(':');
                write(member, out);
            }
            out.push('}');
        }
    }
}

/// A text in quotes.
pub(crate) fn quoted(text: &str) -> String {
    // A string is always written.
    serde_json::to_string(text).unwrap_or_default()
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a str)>);
struct Items<'a>(Vec<&'a str>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    let value: &'de RawValue = map.next_value()?;
                    members.push((Cow::Owned(name), value.get()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_was() {
        for text in [r#"{"a":[1,-2.50,1e400,"x\n\u0001"],"b":{},"c":null,"d":true}"#, "[]", "\"\"", "0.10"] {
            assert_eq!(read(text).expect(text).to_json(), text);
        }
    }

    #[test]
    fn what_is_wrong_has_a_line() {
        for (text, line) in [("{\n\"a\": 1,\n\"a\": 2}", 3), ("{\n\n", 3), ("[1,]", 1), ("", 1)] {
            assert_eq!(read(text).expect_err(text).line, line, "{text}");
        }
        assert!(read(&"[".repeat(100_000)).is_err());
        let deep = format!("{}{}", "[".repeat(110), "]".repeat(110));
        assert!(read(&deep).expect_err("too deep").reason.contains("deeper"));
    }

    #[test]
    fn several_values_may_follow_each_other() {
        let all = read_all("{\"a\":1}\n{\"b\":2}\n").expect("two");
        assert_eq!((all.len(), all[1].line), (2, 2));
        assert!(read_all(" \n").expect("none").is_empty());
    }
}
