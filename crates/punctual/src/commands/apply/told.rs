//! The plan as people and programs read it.

use serde::Serialize;
use serde_json::value::RawValue;

use super::plan::{Action, Plan, Step};
use super::wanted::Kind;
use crate::commands::output::{self, Format, Paint};
use crate::document::diff::Change;
use crate::document::{Node, Value};
use crate::failure::Failure;

/// Longer values are cut: the rest is in the file.
const SHOWN: usize = 120;

/// Shows what is to be done.
pub(super) fn show(plan: &Plan, format: Format, is_dry: bool) -> Result<(), Failure> {
    match format {
        Format::Table | Format::Wide => output::print(&page(plan, is_dry, format == Format::Wide)),
        Format::Json | Format::Yaml => {
            let told = Told::new(plan, is_dry);
            let text = serde_json::to_string(&told).map_err(|error| Failure::Other(error.into()))?;
            output::print(&output::machine(&text, format)?)
        }
    }
}

/// Says that it is done, to people.
pub(super) fn done(plan: &Plan, format: Format) -> Result<(), Failure> {
    match format {
        Format::Table | Format::Wide => {
            let [create, change, keep, delete] = counts(plan);
            if create + change + delete == 0 {
                return Ok(());
            }
            let text =
                format!("applied: {create} created, {change} changed, {delete} deleted, {keep} unchanged\n");
            output::print(&text)
        }
        Format::Json | Format::Yaml => Ok(()),
    }
}

fn counts(plan: &Plan) -> [usize; 4] {
    [Action::Create, Action::Change(Vec::new()), Action::Keep, Action::Delete]
        .map(|action| plan.count(&action))
}

fn page(plan: &Plan, is_dry: bool, is_wide: bool) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        let (sign, paint) = match &step.action {
            Action::Create => ("+", Paint::Green),
            Action::Change(_) => ("~", Paint::Yellow),
            Action::Keep if !is_wide => continue,
            Action::Keep => ("=", Paint::Plain),
            Action::Delete => ("-", Paint::Red),
        };
        let place = step.wanted.as_ref().map(|wanted| wanted.document.place.to_string());
        let place = place.unwrap_or_else(|| "not in the files".into());
        let what = output::safe(&named(step));
        text.push_str(&format!(
            "{}  ({})\n",
            output::painted(&format!("{sign} {what}"), paint),
            output::safe(&place)
        ));
        if let Action::Change(changes) = &step.action {
            for change in changes {
                text.push_str(&format!("    {}\n", output::safe(&line(change))));
            }
        }
    }
    let [create, change, keep, delete] = counts(plan);
    if create + change + delete == 0 {
        text.push_str(&format!("nothing to change: {keep} are as they should be\n"));
    } else {
        let would = if is_dry { "would be" } else { "to be" };
        text.push_str(&format!(
            "plan: {create} {would} created, {change} changed, {delete} deleted; {keep} stay as they are\n"
        ));
    }
    text
}

fn named(step: &Step) -> String {
    match step.kind {
        Kind::Defaults => "defaults of jobs".into(),
        kind => format!("{} {}", kind.as_str(), step.name),
    }
}

/// `retry.max_attempts: 3 -> 5`
fn line(change: &Change) -> String {
    let (name, change) = (change.name(), covered(change));
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => format!("{name}: {} -> {}", value(old), value(new)),
        (None, Some(new)) => format!("{name}: set to {}", value(new)),
        (Some(old), None) => format!("{name}: no longer {}", value(old)),
        (None, None) => name,
    }
}

/// A change without what logs of a pipeline must not show: values of headers that carry keys, what follows the `?` of a URL, and where
/// alerts go, because the URL of a chat's hook is all that it takes to write there.
fn covered(change: &Change) -> Change {
    let is_alert = change.path.first().is_some_and(|name| name == "to");
    let change = covered_headers(change);
    let side = |node: Option<Node>| node.map(|node| covered_urls(node, is_alert));
    Change { old: side(change.old), new: side(change.new), path: change.path }
}

fn covered_urls(mut node: Node, is_whole: bool) -> Node {
    node.value = match node.value {
        Value::Text(text) => Value::Text(match (text.split_once("://"), text.split_once('?')) {
            (Some((scheme, _)), _) if is_whole => format!("{scheme}://(covered)"),
            (Some(_), Some((before, _))) => format!("{before}?(covered)"),
            _ => text,
        }),
        Value::List(items) => {
            Value::List(items.into_iter().map(|item| covered_urls(item, is_whole)).collect())
        }
        Value::Map(members) => {
            let member = |(name, inner)| (name, covered_urls(inner, is_whole));
            Value::Map(members.into_iter().map(member).collect())
        }
        other => other,
    };
    node
}

fn covered_headers(change: &Change) -> Change {
    let is_secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["auth", "cookie", "token", "key", "secret", "password"].iter().any(|word| name.contains(word))
    };
    let cover = |node: &Node, is_whole: bool| {
        let mut node = node.clone();
        match &mut node.value {
            _ if is_whole => node.value = Value::Text("(covered)".into()),
            Value::Map(members) => {
                for (_, inner) in members.iter_mut().filter(|(name, _)| is_secret(name)) {
                    inner.value = Value::Text("(covered)".into());
                }
            }
            _ => {}
        }
        node
    };
    let Some(at) = change.path.iter().position(|name| name == "headers") else {
        // A target that comes or goes whole brings its headers.
        let deep = |node: &Node| {
            let mut node = node.clone();
            for way in [&["headers"][..], &["http", "headers"]] {
                if let Some(headers) = node.at(way).map(|headers| cover(headers, false)) {
                    set_at(&mut node, way, headers);
                }
            }
            node
        };
        let (old, new) = (change.old.as_ref().map(deep), change.new.as_ref().map(deep));
        return Change { path: change.path.clone(), old, new };
    };
    let is_whole = change.path.get(at + 1).is_some_and(|name| is_secret(name));
    let side = |node: &Option<Node>| node.as_ref().map(|node| cover(node, is_whole));
    Change { path: change.path.clone(), old: side(&change.old), new: side(&change.new) }
}

fn set_at(node: &mut Node, way: &[&str], inner: Node) {
    match way {
        [] => *node = inner,
        [name, rest @ ..] => {
            let Some(mut own) = node.get(name).cloned() else { return };
            set_at(&mut own, rest, inner);
            node.set(name, own);
        }
    }
}

fn value(node: &Node) -> String {
    let text = match &node.value {
        Value::Text(text) if !text.is_empty() && !text.contains('\n') => text.clone(),
        _ => node.to_json(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

/// The plan for programs.
#[derive(Serialize)]
struct Told {
    steps: Vec<ToldStep>,
    created: usize,
    changed: usize,
    deleted: usize,
    unchanged: usize,
    is_dry_run: bool,
}

#[derive(Serialize)]
struct ToldStep {
    action: &'static str,
    kind: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<ToldChange>,
}

#[derive(Serialize)]
struct ToldChange {
    pointer: String,
    old: Option<Box<RawValue>>,
    new: Option<Box<RawValue>>,
}

impl Told {
    fn new(plan: &Plan, is_dry_run: bool) -> Self {
        let [created, changed, unchanged, deleted] = counts(plan);
        let steps = plan.steps.iter().map(ToldStep::new).collect();
        Told { steps, created, changed, deleted, unchanged, is_dry_run }
    }
}

impl ToldStep {
    fn new(step: &Step) -> Self {
        let raw = |node: &Option<Node>| RawValue::from_string(node.as_ref()?.to_json()).ok();
        let told = |change: &Change| {
            let pointer = change.pointer();
            let change = covered(change);
            ToldChange { pointer, old: raw(&change.old), new: raw(&change.new) }
        };
        let (action, changes) = match &step.action {
            Action::Create => ("create", Vec::new()),
            Action::Change(changes) => ("change", changes.iter().map(told).collect()),
            Action::Keep => ("keep", Vec::new()),
            Action::Delete => ("delete", Vec::new()),
        };
        let place = step.wanted.as_ref().map(|wanted| &wanted.document.place);
        ToldStep {
            action,
            kind: step.kind.as_str(),
            name: step.name.clone(),
            file: place.map(|place| place.file.clone()),
            line: place.map(|place| place.line),
            changes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    #[test]
    fn a_change_is_told_from_old_to_new() {
        let node = |text: &str| Some(json::read(text).expect("JSON"));
        let change = |old, new| Change { path: vec!["retry".into(), "cap".into()], old, new };
        assert_eq!(line(&change(node("3"), node("\"PT5M\""))), "retry.cap: 3 -> PT5M");
        assert_eq!(line(&change(None, node("{\"a\":1}"))), "retry.cap: set to {\"a\":1}");
        assert_eq!(line(&change(node("\"\""), None)), "retry.cap: no longer \"\"");
        let header = |path: &[&str], old, new| {
            line(&Change { path: path.iter().map(ToString::to_string).collect(), old, new })
        };
        let one = header(
            &["target", "http", "headers", "Authorization"],
            node("\"Bearer a\""),
            node("\"Bearer b\""),
        );
        assert_eq!(one, "target.http.headers.Authorization: (covered) -> (covered)");
        let all = header(&["target", "http", "headers"], None, node(r#"{"X-Api-Key":"k","Accept":"a"}"#));
        assert_eq!(all, r#"target.http.headers: set to {"X-Api-Key":"(covered)","Accept":"a"}"#);
        let whole = header(&["target"], node(r#"{"http":{"url":"u","headers":{"Cookie":"c"}}}"#), node("7"));
        assert!(whole.contains("(covered)") && !whole.contains(":\"c\""), "{whole}");
        let url =
            header(&["target", "http", "url"], node(r#""https://a/b?token=t""#), node(r#""https://a/c""#));
        assert_eq!(url, "target.http.url: https://a/b?(covered) -> https://a/c");
        let chat = header(&["to"], None, node(r#"{"slack":{"url":"https://hooks/secret"}}"#));
        assert_eq!(chat, r#"to: set to {"slack":{"url":"https://(covered)"}}"#);
        let long = format!("\"{}\"", "x".repeat(500));
        assert!(line(&change(None, node(&long))).len() < 200);
    }
}
