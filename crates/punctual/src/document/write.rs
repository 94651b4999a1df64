//! Values as YAML, in blocks, as people would write them.
//!
//! Promise: what is written reads back as the same value, here and with readers of YAML 1.1.

use super::json::quoted;
use super::value::{Node, Value};
use super::yaml;

/// A document, without the line that begins it.
pub(crate) fn yaml(node: &Node) -> String {
    let mut out = String::new();
    match &node.value {
        Value::Map(members) if !members.is_empty() => map(members, 0, &mut out),
        Value::List(items) if !items.is_empty() => list(items, 0, &mut out),
        _ => {
            scalar(node, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

fn map(members: &[(String, Node)], indent: usize, out: &mut String) {
    for (index, (name, node)) in members.iter().enumerate() {
        // The first member of an item stands beside its dash.
        if index > 0 || !out.ends_with("- ") {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(&if is_plain(name) { name.clone() } else { quoted_for_yaml(name) });
        out.push(':');
        match &node.value {
            Value::Map(inner) if !inner.is_empty() => {
                out.push('\n');
                map(inner, indent + 2, out);
            }
            Value::List(items) if !items.is_empty() => {
                out.push('\n');
                list(items, indent + 2, out);
            }
            _ => {
                out.push(' ');
                scalar(node, indent + 2, out);
                out.push('\n');
            }
        }
    }
}

fn list(items: &[Node], indent: usize, out: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 || !out.ends_with("- ") {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str("- ");
        match &item.value {
            Value::Map(inner) if !inner.is_empty() => map(inner, indent + 2, out),
            Value::List(inner) if !inner.is_empty() => list(inner, indent + 2, out),
            _ => {
                scalar(item, indent + 2, out);
                out.push('\n');
            }
        }
    }
}

/// One line, but for texts of several: those end before their last line break.
fn scalar(node: &Node, indent: usize, out: &mut String) {
    match &node.value {
        Value::Text(text) if is_block(text) => block(text, indent.max(2), out),
        Value::Text(text) if is_plain(text) => out.push_str(text),
        Value::Text(text) => out.push_str(&quoted_for_yaml(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
            out.push_str(&node.to_json());
        }
    }
}

/// Whether a text reads as itself without quotes, also by YAML 1.1.
fn is_plain(text: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '(' | '$' | '+');
    let goes_on = |c: char| c == ' ' || (c.is_alphanumeric() || c.is_ascii_punctuation());
    // Words and numbers of YAML 1.1: `no`, `12:30`, `1_000`, `2026-12-24`.
    let is_word = |word: &str| text.eq_ignore_ascii_case(word);
    let is_numeric = text.chars().all(|c| c.is_ascii_digit() || "+-.:_eExXoTZabcdfABCDF".contains(c))
        && !is_word("default");
    let has_digit_first = text.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '.');
    text.starts_with(begins)
        && text.chars().all(goes_on)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !["yes", "no", "on", "off", "null", "true", "false"].into_iter().any(is_word)
        && !(is_numeric && has_digit_first)
        && matches!(yaml::plain(text), Ok(Value::Text(_)))
}

/// Whether a text of several lines may stand as it is.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && text.trim_end_matches('\n').lines().all(|line| !line.ends_with([' ', '\t', '\r']))
        && text.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
        && !text.lines().any(|line| line.starts_with('\t'))
}

fn block(text: &str, indent: usize, out: &mut String) {
    let body = text.trim_end_matches('\n');
    out.push_str(match text.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&" ".repeat(indent));
            out.push_str(line);
        }
    }
    for _ in 1..text.len() - body.len() {
        out.push('\n');
    }
}

fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// In double quotes, with everything escaped that YAML does not print.
fn quoted_for_yaml(text: &str) -> String {
    let mut escaped = String::new();
    for c in quoted(text).chars() {
        match is_printable(c) {
            true => escaped.push(c),
            false => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn check(text: &str) -> String {
        let node = json::read(text).expect("JSON");
        let written = yaml(&node);
        let read = yaml::read_all(&written).unwrap_or_else(|error| panic!("{written}: {error:?}"));
        let expected: &[Node] = if text == "null" { &[] } else { std::slice::from_ref(&node) };
        assert_eq!(read, expected, "{written}");
        written
    }

    #[test]
    fn it_reads_as_people_would_write_it() {
        let text = r#"{"key":"nightly","schedule":{"cron":"0 2 * * *","timezone":"Europe/Paris"},
            "links":[{"on":"succeeded","job":"b"},{"on":"failed","job":"c"}],"payload":{"n":1.50,"list":[],"note":"a\nb\n"},
            "every":"*/5 * * * *","word":"no","labels":{"team":"core","12":"13"}}"#;
        let expected = "key: nightly
schedule:
  cron: 0 2 * * *
  timezone: Europe/Paris
links:
  - on: succeeded
    job: b
  - on: failed
    job: c
payload:
  n: 1.50
  list: []
  note: |
    a
    b
every: \"*/5 * * * *\"
word: \"no\"
labels:
  team: core
  \"12\": \"13\"
";
        // `on` is true for readers of YAML 1.1, so that it is in quotes.
        assert_eq!(check(text), expected.replace("- on:", "- \"on\":"));
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "null",
            "true",
            "1e5",
            "[]",
            "{}",
            "[[1,[2]],[],{}]",
            r#"[{"a":{"b":[{"c":1}]}}]"#,
            r#"{"":""}"#,
            r#""""#,
            r#"" a""#,
            r#""a ""#,
            r#""a: b""#,
            r#""a #b""#,
            r#""a:""#,
            r#""- a""#,
            r#""12:30""#,
            r#""2026-12-24""#,
            r#""1_000""#,
            r#""0x1f""#,
            r#""~""#,
            r#""=""#,
            r#""<<""#,
            r#"{"<<":{"a":1}}"#,
            r#""a\n""#,
            r#""a\n\n\n""#,
            r#""\na""#,
            r#""a\n\n  b\nc""#,
            r#""a \nb""#,
            r#""a\r\nb""#,
            r#""\ttab""#,
            r#""a\n\tb""#,
            r#""\u0000\u0007\u007f\u0085\u2028\ufeff""#,
            r#""😀 ümlaut""#,
            r#"{"a":"x\ny","b":["p\nq"]}"#,
            r#"[["a\nb"]]"#,
            r#""@daily""#,
            r#""%x""#,
            r#""{a}""#,
            r#""[a]""#,
            r#""a, b""#,
            r#""it's""#,
            r#""---""#,
            r#""... ""#,
            r#""|""#,
            r#""a\\b""#,
            r#"{"a b":1,"a: b":2,"? c":3}"#,
            r#""PT5M""#,
            r#""e5""#,
            r#""..""#,
            r#"".5""#,
        ] {
            check(text);
        }
    }
}
