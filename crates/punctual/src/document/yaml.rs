//! YAML 1.2 as documents, by its core schema; or as Kubernetes reads it.
//!
//! A number that JSON can write stays as it is written. Anchors and merge keys (`<<`) are followed within bounds; what JSON
//! has no value for (tags of one's own, `.nan`, keys that are no scalars) is refused with its line.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::value::{Node, Value};
use super::{DEPTH_MAX, Unread};

/// A text of a few lines can name billions of values through anchors.
const NODES_MAX: usize = 1_000_000;

/// What scalars without quotes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    /// What the core schema of YAML 1.2 says.
    Core,
    /// What Kubernetes takes them for, after YAML 1.1: `yes` is true, and `0644` is octal.
    Kubernetes,
}

/// Reads all documents; those that say nothing are left out.
pub(crate) fn read_all(text: &str) -> Result<Vec<Node>, Unread> {
    read_all_by(Schema::Core, text)
}

/// Reads all documents by a schema.
pub(crate) fn read_all_by(schema: Schema, text: &str) -> Result<Vec<Node>, Unread> {
    let parser = Parser::new_from_str(text);
    let mut reader = Reader { parser, text, schema, anchors: HashMap::new(), nodes: 0 };
    let mut documents = Vec::new();
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(documents),
            (Event::DocumentStart(_), _) => {
                reader.anchors.clear();
                let next = reader.next()?;
                let document = reader.node(next, 0)?;
                if !matches!(document.value, Value::Null) {
                    documents.push(document);
                }
            }
            _ => {}
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
    schema: Schema,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

type Next<'a> = (Event<'a>, Span);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Next<'a>, Unread> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn syntax(&self, error: &ScanError) -> Unread {
        let line = error.marker().line().max(1);
        // A cron expression that begins with a star is the mistake that everybody makes once.
        let here = self.text.lines().nth(line - 1).unwrap_or_default();
        let is_star = here.split(": ").nth(1).is_some_and(|value| value.trim_start().starts_with('*'));
        let hint = if is_star { "; text that begins with `*` needs quotes" } else { "" };
        Unread::new(line, format!("this is not YAML: {}{hint}", error.info()))
    }

    fn node(&mut self, (event, span): Next<'a>, depth: usize) -> Result<Node, Unread> {
        let line = span.start.line().max(1);
        self.nodes += 1;
        if depth > DEPTH_MAX {
            return Err(Unread::new(line, format!("this is deeper than {DEPTH_MAX} levels")));
        }
        if self.nodes > NODES_MAX {
            return Err(Unread::new(line, format!("this is more than {NODES_MAX} values")));
        }
        let (anchor, value) = match event {
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).cloned();
                let known = known.ok_or_else(|| {
                    Unread::new(line, "there is no such anchor; text that begins with `*` needs quotes")
                })?;
                self.nodes += known.count();
                (0, known.value)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref(), self.schema);
                (anchor, value.map_err(|reason| Unread::new(line, reason))?)
            }
            Event::SequenceStart(anchor, tag) => {
                check(tag.as_deref(), line)?;
                (anchor, self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                check(tag.as_deref(), line)?;
                (anchor, self.map(depth)?)
            }
            _ => (0, Value::Null),
        };
        let node = Node { value, line };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Unread> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(Value::List(items)),
                next => items.push(self.node(next, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Unread> {
        let mut members: Vec<(String, Node)> = Vec::new();
        let mut merged: Vec<Node> = Vec::new();
        loop {
            let (name, is_merge, line) = match self.next()? {
                (Event::MappingEnd | Event::StreamEnd, _) => break,
                (Event::Scalar(text, style, ..), span) => {
                    let is_merge = text == "<<" && style == ScalarStyle::Plain;
                    (text.into_owned(), is_merge, span.start.line().max(1))
                }
                (_, span) => {
                    return Err(Unread::new(span.start.line().max(1), "a member's name is one word or text"));
                }
            };
            let next = self.next()?;
            let node = self.node(next, depth + 1)?;
            if is_merge {
                merged.push(node);
            } else if members.iter().any(|(known, _)| *known == name) {
                return Err(Unread::new(line, format!("`{name}` is there twice")));
            } else {
                members.push((name, node));
            }
        }
        let parts = merged.into_iter().flat_map(|node| match node.value {
            Value::List(items) => items,
            value => vec![Node { value, line: node.line }],
        });
        for part in parts {
            let Value::Map(more) = part.value else {
                return Err(Unread::new(part.line, "`<<` takes an object, or a list of them"));
            };
            for (name, node) in more {
                if members.iter().all(|(known, _)| *known != name) {
                    members.push((name, node));
                }
            }
        }
        Ok(Value::Map(members))
    }
}

/// What a tag makes of an object or a list: nothing that JSON knows.
fn check(tag: Option<&Tag>, line: usize) -> Result<(), Unread> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && matches!(tag.suffix.as_str(), "map" | "seq")) => {
            Err(Unread::new(line, format!("the tag `{}{}` means nothing here", tag.handle, tag.suffix)))
        }
        _ => Ok(()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, schema: Schema) -> Result<Value, String> {
    let plain = match schema {
        Schema::Core => plain,
        Schema::Kubernetes => plain_to_kubernetes,
    };
    match tag {
        Some(tag) if tag.is_yaml_core_schema() => match tag.suffix.as_str() {
            "str" => Ok(Value::Text(text.into())),
            "null" | "bool" | "int" | "float" => plain(text),
            other => Err(format!("the tag `!!{other}` means nothing here")),
        },
        // `!` alone says that it is text.
        Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Ok(Value::Text(text.into())),
        Some(tag) => Err(format!("the tag `{}{}` means nothing here", tag.handle, tag.suffix)),
        None if style == ScalarStyle::Plain => plain(text),
        None => Ok(Value::Text(text.into())),
    }
}

/// What a scalar without quotes is, by the core schema of YAML 1.2.
pub(super) fn plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match number(text)? {
            Some(number) => Value::Number(number),
            None => Value::Text(text.into()),
        },
    })
}

/// What a scalar without quotes is to Kubernetes: by YAML 1.1, without its numbers to the base of 60.
fn plain_to_kubernetes(text: &str) -> Result<Value, String> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Ok(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Ok(Value::Bool(false)),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')) => {}
        _ => return plain(text),
    }
    let joined = text.replace('_', "");
    let (sign, digits) = match joined.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", joined.strip_prefix('+').unwrap_or(&joined)),
    };
    let bases = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2), ("0", 8)];
    for (prefix, radix) in bases {
        if let Some(rest) = digits.strip_prefix(prefix).filter(|rest| !rest.is_empty())
            && rest.chars().all(|c| c.is_digit(radix))
        {
            let number = u128::from_str_radix(rest, radix).map_err(|_| format!("`{text}` is too large"))?;
            return Ok(Value::Number(format!("{sign}{number}")));
        }
    }
    match plain(&joined)? {
        number @ Value::Number(_) => Ok(number),
        _ => plain(text),
    }
}

/// A number as JSON writes it, if the text is one.
fn number(text: &str) -> Result<Option<String>, String> {
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'-') => ("-", &text[1..]),
        Some(b'+') => ("", &text[1..]),
        _ => ("", text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("JSON has no number `{text}`; write it in quotes if it is text"));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(rest) = text.strip_prefix(prefix).filter(|rest| !rest.is_empty())
            && rest.chars().all(|c| c.is_digit(radix))
        {
            let number = u128::from_str_radix(rest, radix).map_err(|_| format!("`{text}` is too large"))?;
            return Ok(Some(number.to_string()));
        }
    }
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], Some(&digits[at..])),
        None => (digits, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = all_digits(whole)
        && fraction.is_none_or(all_digits)
        && !(whole.is_empty() && fraction.is_none_or(str::is_empty))
        && exponent.is_none_or(|exponent| {
            let power = exponent[1..].trim_start_matches(['+', '-']);
            !power.is_empty() && exponent.len() - power.len() <= 2 && all_digits(power)
        });
    if !is_number {
        return Ok(None);
    }
    let trimmed = whole.trim_start_matches('0');
    let whole = if trimmed.is_empty() { "0" } else { trimmed };
    let fraction = fraction.filter(|fraction| !fraction.is_empty());
    let fraction = fraction.map(|fraction| format!(".{fraction}")).unwrap_or_default();
    Ok(Some(format!("{sign}{whole}{fraction}{}", exponent.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str, json: &str) {
        let documents = read_all(yaml).unwrap_or_else(|error| panic!("{yaml}: {error:?}"));
        let texts: Vec<String> = documents.iter().map(Node::to_json).collect();
        assert_eq!(texts.join(" "), json, "{yaml}");
    }

    #[test]
    fn scalars_are_what_the_core_schema_says() {
        for (yaml, json) in [
            ("a: 1", r#"{"a":1}"#),
            ("a: 1.50", r#"{"a":1.50}"#),
            ("a: 1e400", r#"{"a":1e400}"#),
            ("a: 12345678901234567890123", r#"{"a":12345678901234567890123}"#),
            ("a: +7", r#"{"a":7}"#),
            ("a: 007", r#"{"a":7}"#),
            ("a: .5", r#"{"a":0.5}"#),
            ("a: 5.", r#"{"a":5}"#),
            ("a: -0.0", r#"{"a":-0.0}"#),
            ("a: 0x1F", r#"{"a":31}"#),
            ("a: 0o17", r#"{"a":15}"#),
            ("a: '1'", r#"{"a":"1"}"#),
            ("a: !!str 1", r#"{"a":"1"}"#),
            ("a: true", r#"{"a":true}"#),
            ("on: yes", r#"{"on":"yes"}"#),
            ("a: ~\nb:\nc: null", r#"{"a":null,"b":null,"c":null}"#),
            ("a: 2026-12-24", r#"{"a":"2026-12-24"}"#),
            ("a: 09:00-17:30", r#"{"a":"09:00-17:30"}"#),
            ("a: 0 2 * * *", r#"{"a":"0 2 * * *"}"#),
            ("a: 1.2.3", r#"{"a":"1.2.3"}"#),
            ("a: 1e", r#"{"a":"1e"}"#),
            ("a: .", r#"{"a":"."}"#),
            ("a: e5", r#"{"a":"e5"}"#),
            ("a: |\n  one\n  two\n", r#"{"a":"one\ntwo\n"}"#),
            ("a: >-\n  one\n  two\n", r#"{"a":"one two"}"#),
            ("{\"a\": [1, \"x\", {\"b\": null}]}", r#"{"a":[1,"x",{"b":null}]}"#),
        ] {
            check(yaml, json);
        }
    }

    #[test]
    fn scalars_are_what_kubernetes_takes_them_for() {
        for (yaml, json) in [
            ("a: [yes, On, y, TRUE]", r#"{"a":[true,true,true,true]}"#),
            ("a: [no, Off, N, false]", r#"{"a":[false,false,false,false]}"#),
            ("a: ['yes', yEs, yesterday, !!str on]", r#"{"a":["yes","yEs","yesterday","on"]}"#),
            ("a: [0644, -0644, +010, 0, 00]", r#"{"a":[420,-420,8,0,0]}"#),
            ("a: [08, 0.5, 0x1F, 0b101, 0o17]", r#"{"a":[8,0.5,31,5,15]}"#),
            ("a: [1_000, 1_a, '0644', 1.50]", r#"{"a":[1000,"1_a","0644",1.50]}"#),
            ("a: [~, 2026-12-24, e_5]", r#"{"a":[null,"2026-12-24","e_5"]}"#),
            ("a: 12:30", r#"{"a":"12:30"}"#),
            ("on: 1", r#"{"on":1}"#),
        ] {
            let documents = read_all_by(Schema::Kubernetes, yaml).expect(yaml);
            let texts: Vec<String> = documents.iter().map(Node::to_json).collect();
            assert_eq!(texts.join(" "), json, "{yaml}");
        }
    }

    #[test]
    fn documents_anchors_and_merge_keys_are_followed() {
        check("---\na: 1\n---\n---\nb: 2\n...\n", r#"{"a":1} {"b":2}"#);
        check("# nothing\n", "");
        check("a: &x {n: 1, m: 2}\nb:\n  <<: *x\n  n: 3\n", r#"{"a":{"n":1,"m":2},"b":{"n":3,"m":2}}"#);
        check("- &x 1\n- *x\n", "[1,1]");
    }

    #[test]
    fn what_is_wrong_has_a_line_and_a_way_out() {
        for (yaml, line, words) in [
            ("a: 1\na: 2", 2, "twice"),
            ("a: 1\nb: * * * * *", 2, "needs quotes"),
            ("a: 1\nb: *here", 2, "needs quotes"),
            ("a:\n  b: .nan", 2, "in quotes"),
            ("a: !mine x", 1, "means nothing"),
            ("a: 1\n? [b]\n: 2", 2, "name"),
            ("a: [1,\nb: 2", 2, "not YAML"),
        ] {
            let wrong = read_all(yaml).expect_err(yaml);
            assert_eq!(wrong.line, line, "{yaml}: {wrong:?}");
            assert!(wrong.reason.contains(words), "{yaml}: {wrong:?}");
        }
    }

    #[test]
    fn a_few_lines_do_not_become_billions_of_values() {
        let mut yaml = String::from("a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n");
        for level in 1..12 {
            let list = vec![format!("*a{}", level - 1); 10].join(", ");
            yaml.push_str(&format!("a{level}: &a{level} [{list}]\n"));
        }
        assert!(read_all(&yaml).expect_err("too many").reason.contains("more than"));
        let deep = "[".repeat(5_000);
        assert!(read_all(&deep).is_err());
    }
}
