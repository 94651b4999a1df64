//! What is to be done: pure, from what is wanted and what is there.
//!
//! Promise: what is equal stays, what a document leaves unsaid about a pause stays, and jobs come after what they need: after their
//! calendars, and after the jobs that they link to.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::wanted::{Kind, Wanted, told};
use crate::document::diff::{Change, diff};
use crate::document::{Node, Value};

/// What the server has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Current {
    /// Of a job.
    pub(crate) id: Option<String>,
    /// Of what has one.
    pub(crate) version: Option<u32>,
    /// As it is shown.
    pub(crate) body: Node,
    /// Of a paused job: why.
    pub(crate) paused: Option<Node>,
}

/// What is there: of each document, and of what is not in the files.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// In the order of what is wanted.
    pub(crate) current: Vec<Option<Current>>,
    /// Jobs with the labels of the files.
    pub(crate) labelled: Vec<(String, Current)>,
}

/// What becomes of one thing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Create,
    Change(Vec<Change>),
    Keep,
    Delete,
}

/// One thing, and what becomes of it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) action: Action,
    /// The document; a deletion has none.
    pub(crate) wanted: Option<Wanted>,
    pub(crate) current: Option<Current>,
}

/// Everything, in the order of application.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
}

impl Plan {
    /// How many things an action happens to; of changes, whatever changes.
    pub(crate) fn count(&self, action: &Action) -> usize {
        let is_same = |step: &&Step| std::mem::discriminant(&step.action) == std::mem::discriminant(action);
        self.steps.iter().filter(is_same).count()
    }
}

impl Plan {
    /// The steps in groups: what is in one group needs nothing else of it, and may be done at once.
    pub(crate) fn waves(&self) -> Vec<&[Step]> {
        let mut waves = Vec::new();
        let mut start = 0;
        let mut keys: BTreeSet<&str> = BTreeSet::new();
        for (index, step) in self.steps.iter().enumerate() {
            let linked = step.wanted.as_ref().map(names).unwrap_or_default();
            let is_apart = index > 0 && self.steps[index - 1].kind != step.kind
                || step.action == Action::Delete
                    && index > 0
                    && self.steps[index - 1].action != Action::Delete
                || linked.iter().any(|(_, kind, name)| *kind == Kind::Job && keys.contains(name.as_str()));
            if is_apart {
                waves.push(&self.steps[start..index]);
                start = index;
                keys.clear();
            }
            keys.insert(&step.name);
        }
        waves.push(&self.steps[start..]);
        waves
    }
}

/// Why there is no plan.
#[derive(Debug, PartialEq)]
pub(crate) enum Refused {
    /// The documents name what is not there.
    Wrong(Vec<String>),
    /// Somebody else has changed something since the files were written.
    Conflict(Vec<String>),
}

/// A document that names something else: where, and the kind and name of what it names.
pub(crate) fn names(wanted: &Wanted) -> Vec<(String, Kind, String)> {
    if wanted.kind != Kind::Job {
        return Vec::new();
    }
    let texts = |list: Option<&Node>, member: Option<&str>, path: &str, kind: Kind| {
        let items = list.map(Node::items).unwrap_or_default();
        let named = items.iter().enumerate().filter_map(|(index, item)| {
            let node = member.map_or(Some(item), |member| item.get(member))?;
            let inner = member.map(|member| format!("/{member}")).unwrap_or_default();
            Some((format!("{path}/{index}{inner}"), kind, node.text()?.to_string()))
        });
        named.collect::<Vec<_>>()
    };
    let calendars = wanted.body.at(&["schedule", "calendars"]);
    let links = wanted.body.get("links");
    let mut named = texts(calendars, None, "/schedule/calendars", Kind::Calendar);
    named.extend(texts(links, Some("job"), "/links", Kind::Job));
    named
}

/// Decides. `missing` are things that documents name and nobody has: neither the files nor the server.
pub(crate) fn plan(
    wanted: Vec<Wanted>,
    looked: Looked,
    missing: &BTreeSet<(Kind, String)>,
) -> Result<Plan, Refused> {
    let mut wrong = Vec::new();
    for one in &wanted {
        for (pointer, kind, name) in names(one) {
            if missing.contains(&(kind, name.clone())) {
                let what = told(kind, &name);
                let detail = format!("there is no {what}, here or on the server; add a document for it");
                wrong.push(one.document.wrong(&pointer, &detail));
            }
        }
    }
    let kept: BTreeSet<String> =
        wanted.iter().filter(|one| one.kind == Kind::Job).map(|one| one.name.clone()).collect();
    let is_deleted = |name: &String| {
        !kept.contains(name)
            && looked.labelled.iter().any(|(key, job)| key == name || job.id.as_ref() == Some(name))
    };
    for one in &wanted {
        for (pointer, kind, name) in names(one) {
            if kind == Kind::Job && is_deleted(&name) {
                let detail = format!(
                    "job `{name}` would be deleted, because it has the label and no document; add one, or leave the link out"
                );
                wrong.push(one.document.wrong(&pointer, &detail));
            }
        }
    }
    let order = order(&wanted).map_err(|(index, path)| {
        let detail = format!("the links lead back: {}; leave one out", path.join(" -> "));
        wrong.push(wanted[index].document.wrong("/links", &detail));
    });
    let Ok(order) = order else { return Err(Refused::Wrong(wrong)) };
    if !wrong.is_empty() {
        return Err(Refused::Wrong(wrong));
    }
    let mut conflicts = Vec::new();
    let mut steps: Vec<Option<Step>> = Vec::new();
    for (one, current) in wanted.into_iter().zip(looked.current) {
        let stale =
            one.version.filter(|version| current.as_ref().and_then(|now| now.version) != Some(*version));
        if let Some(version) = stale {
            let now = current.as_ref().and_then(|now| now.version);
            let now = now.map_or("it is not there".into(), |now| format!("it has version {now} now"));
            let what = told(one.kind, &one.name);
            let detail = format!(
                "{what} was read as version {version}, and {now}; read it again, or leave `version` out"
            );
            conflicts.push(one.document.wrong("/version", &detail));
        }
        let action = decide(&one, current.as_ref());
        let (kind, name) = (one.kind, one.name.clone());
        steps.push(Some(Step { kind, name, action, wanted: Some(one), current }));
    }
    if !conflicts.is_empty() {
        return Err(Refused::Conflict(conflicts));
    }
    let mut in_order: Vec<Step> = order.into_iter().filter_map(|index| steps[index].take()).collect();
    for (name, current) in looked.labelled {
        let key = current.body.get("key").and_then(Node::text);
        if key.is_some_and(|key| kept.contains(key)) {
            continue;
        }
        in_order.push(Step {
            kind: Kind::Job,
            name,
            action: Action::Delete,
            wanted: None,
            current: Some(current),
        });
    }
    Ok(Plan { steps: in_order })
}

/// What becomes of one document.
fn decide(wanted: &Wanted, current: Option<&Current>) -> Action {
    let Some(current) = current else { return Action::Create };
    let (mut old, mut new) = (current.body.clone(), wanted.body.clone());
    if let Some(paused) = &wanted.paused {
        let was = current.paused.clone().unwrap_or_else(|| false.into());
        // That it is paused, and until when, is what counts: the reason is that of whoever paused it.
        let is_so = current.paused.as_ref().is_some_and(|now| match &paused.value {
            Value::Bool(is_wanted) => *is_wanted,
            _ => until(now) == until(paused),
        });
        let becomes = if is_so { was.clone() } else { paused.clone() };
        old.set("paused", was);
        new.set("paused", becomes);
    }
    let changes = diff(&old, &new);
    if changes.is_empty() { Action::Keep } else { Action::Change(changes) }
}

/// When a pause ends, as milliseconds, which is what the server counts in.
fn until(paused: &Node) -> Option<Result<i64, &str>> {
    let text = paused.get("until")?.text().unwrap_or_default();
    Some(text.parse().map(|at: Timestamp| at.as_millisecond()).map_err(|_| text))
}

/// The places of the documents in the order of application; or which document's links lead back to itself, and how.
fn order(wanted: &[Wanted]) -> Result<Vec<usize>, (usize, Vec<String>)> {
    let by_key: BTreeMap<&str, usize> = wanted
        .iter()
        .enumerate()
        .filter(|(_, one)| one.kind == Kind::Job)
        .map(|(index, one)| (one.name.as_str(), index))
        .collect();
    let mut by_kind: Vec<usize> = (0..wanted.len()).collect();
    by_kind.sort_by_key(|index| wanted[*index].kind);
    let mut order = Vec::with_capacity(wanted.len());
    let mut is_done = vec![false; wanted.len()];
    for start in by_kind {
        // Down the links until one has none left, without recursion: a chain may be long.
        let mut way = vec![start];
        while let Some(index) = way.last().copied() {
            let open = names(&wanted[index])
                .into_iter()
                .filter(|(_, kind, _)| *kind == Kind::Job)
                .filter_map(|(_, _, name)| by_key.get(name.as_str()).copied())
                .find(|linked| !is_done[*linked]);
            match open {
                Some(linked) if way.contains(&linked) => {
                    let from = way.iter().position(|known| *known == linked).unwrap_or(0);
                    let mut path: Vec<String> =
                        way[from..].iter().map(|at| wanted[*at].name.clone()).collect();
                    path.push(wanted[linked].name.clone());
                    return Err((index, path));
                }
                Some(linked) => way.push(linked),
                None => {
                    if !std::mem::replace(&mut is_done[index], true) {
                        order.push(index);
                    }
                    way.pop();
                }
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::super::wanted::tests::wanted;
    use super::*;
    use crate::document::json;

    fn job(key: &str, more: &str) -> String {
        format!(
            "kind: job\nkey: {key}\nschedule: {{cron: '0 2 * * *'}}\ntarget: {{discard: {{}}}}\n{more}\n---\n"
        )
    }

    /// The server as an earlier text made it.
    fn there(text: &str) -> Vec<Option<Current>> {
        let current = |one: Wanted| {
            Some(Current { id: Some("id".into()), version: Some(3), body: one.body, paused: one.paused })
        };
        wanted(text).expect("right").into_iter().map(current).collect()
    }

    fn planned(text: &str, current: Vec<Option<Current>>) -> Result<Vec<String>, Refused> {
        let looked = Looked { current, labelled: Vec::new() };
        let plan = plan(wanted(text).expect("right"), looked, &BTreeSet::new())?;
        let told = |step: &Step| match &step.action {
            Action::Create => format!("+ {}", step.name),
            Action::Keep => format!("= {}", step.name),
            Action::Delete => format!("- {}", step.name),
            Action::Change(changes) => {
                let names: Vec<String> = changes.iter().map(Change::name).collect();
                format!("~ {} {}", step.name, names.join(" "))
            }
        };
        Ok(plan.steps.iter().map(told).collect())
    }

    #[test]
    fn what_is_new_is_made_what_differs_changes_and_the_rest_stays() {
        let old = job("a", "") + &job("b", "timeout: 1m");
        assert_eq!(planned(&old, vec![None, None]).expect("a plan"), ["+ a", "+ b"]);
        assert_eq!(planned(&old, there(&old)).expect("a plan"), ["= a", "= b"]);
        let new = job("a", "retry: {max_attempts: 9}") + &job("b", "");
        assert_eq!(planned(&new, there(&old)).expect("a plan"), ["~ a retry.max_attempts", "~ b timeout"]);
    }

    #[test]
    fn a_pause_that_is_not_spoken_of_stays() {
        let (says_nothing, says_no) = (job("a", ""), job("a", "paused: false"));
        let (says_yes, says_why) = (job("a", "paused: true"), job("a", "paused: {reason: move}"));
        let paused = there(&says_why);
        assert_eq!(planned(&says_nothing, paused.clone()).expect("a plan"), ["= a"]);
        assert_eq!(planned(&says_yes, paused.clone()).expect("a plan"), ["= a"]);
        assert_eq!(planned(&says_why, paused.clone()).expect("a plan"), ["= a"]);
        assert_eq!(planned(&says_no, paused).expect("a plan"), ["~ a paused"]);
        assert_eq!(planned(&says_yes, there(&says_nothing)).expect("a plan"), ["~ a paused"]);
        assert_eq!(planned(&says_no, there(&says_nothing)).expect("a plan"), ["= a"]);
        let until = |time: &str| job("a", &format!("paused: {{reason: other, until: '{time}'}}"));
        let paused = there(&until("2030-01-01T00:00:00Z"));
        assert_eq!(planned(&until("2030-01-01T01:00:00+01:00"), paused.clone()).expect("a plan"), ["= a"]);
        assert_eq!(planned(&until("2031-01-01T00:00:00Z"), paused).expect("a plan"), ["~ a paused.until"]);
    }

    #[test]
    fn jobs_come_after_what_they_need() {
        let text = job("a", "links: [{on: succeeded, job: b}, {on: failed, job: c}]")
            + &job("b", "links: [{on: succeeded, job: c}]")
            + &job("c", "")
            + "kind: calendar\nname: cal\n---\nkind: alert\nname: al\non: dead_letter\nto: {webhook: {url: 'http://x'}}\n---\n"
            + "kind: defaults\ntimeout: 2m\n";
        let steps = planned(&text, vec![None; 6]).expect("a plan");
        assert_eq!(steps, ["+ ", "+ cal", "+ c", "+ b", "+ a", "+ al"]);
        let text = text + "---\n" + &job("d", "");
        let looked = Looked { current: vec![None; 7], labelled: Vec::new() };
        let plan = plan(wanted(&text).expect("right"), looked, &BTreeSet::new()).expect("a plan");
        let waves: Vec<Vec<&str>> =
            plan.waves().iter().map(|wave| wave.iter().map(|step| &*step.name).collect()).collect();
        assert_eq!(waves, [vec![""], vec!["cal"], vec!["c"], vec!["b"], vec!["a", "d"], vec!["al"]]);
    }

    #[test]
    fn links_that_lead_back_are_refused() {
        let link = |to: &str| format!("links: [{{on: succeeded, job: {to}}}]");
        let text = job("a", &link("b")) + &job("b", &link("c")) + &job("c", &link("b"));
        let Err(Refused::Wrong(lines)) = planned(&text, vec![None; 3]) else { panic!("refused") };
        assert!(lines[0].contains("b -> c -> b"), "{lines:?}");
    }

    #[test]
    fn what_nobody_has_is_told_for_every_document() {
        let text = job("a", "links: [{on: succeeded, job: lost}]");
        let text = text + &job("b", "").replace("cron: '0 2 * * *'", "every: 5s, calendars: [gone]");
        let missing = [(Kind::Job, "lost".to_string()), (Kind::Calendar, "gone".to_string())].into();
        let looked = Looked { current: vec![None, None], labelled: Vec::new() };
        let Err(Refused::Wrong(lines)) = plan(wanted(&text).expect("right"), looked, &missing) else {
            panic!("refused")
        };
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("/links/0/job: there is no job `lost`"), "{lines:?}");
    }

    #[test]
    fn a_version_that_is_not_there_any_more_is_a_conflict() {
        let text = job("a", "version: 2");
        let Err(Refused::Conflict(lines)) = planned(&text, there(&text)) else { panic!("refused") };
        assert!(lines[0].contains("version 2") && lines[0].contains("version 3 now"), "{lines:?}");
    }

    #[test]
    fn what_has_the_label_and_no_document_is_deleted_last() {
        let text = job("a", "");
        let named = |key: &str| Current {
            id: Some(key.into()),
            version: Some(1),
            body: json::read(&format!(r#"{{"key":"{key}"}}"#)).expect("JSON"),
            paused: None,
        };
        let labelled = vec![("a".to_string(), named("a")), ("old".to_string(), named("old"))];
        let looked = Looked { current: vec![None], labelled };
        let plan = plan(wanted(&text).expect("right"), looked, &BTreeSet::new()).expect("a plan");
        let names: Vec<(&str, &Action)> = plan.steps.iter().map(|step| (&*step.name, &step.action)).collect();
        assert_eq!(names, [("a", &Action::Create), ("old", &Action::Delete)]);
        assert_eq!((plan.count(&Action::Delete), plan.count(&Action::Keep)), (1, 0));
    }

    #[test]
    fn what_a_document_links_to_is_not_deleted() {
        let text = job("a", "links: [{on: succeeded, job: old}]");
        let old = Current {
            id: Some("id".into()),
            version: Some(1),
            body: json::read(r#"{"key":"old"}"#).expect("JSON"),
            paused: None,
        };
        let looked = Looked { current: vec![None], labelled: vec![("old".to_string(), old)] };
        let Err(Refused::Wrong(lines)) = plan(wanted(&text).expect("right"), looked, &BTreeSet::new()) else {
            panic!("refused")
        };
        assert!(lines[0].contains("job `old` would be deleted"), "{lines:?}");
    }
}
