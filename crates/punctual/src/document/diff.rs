//! What is different between two values, member by member.

use super::value::{Node, Value};

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// The names on the way to it.
    pub(crate) path: Vec<String>,
    /// What it was; nothing if it was not there.
    pub(crate) old: Option<Node>,
    /// What it becomes; nothing if it goes away.
    pub(crate) new: Option<Node>,
}

impl Change {
    /// As people write it: `schedule.cron`.
    pub(crate) fn name(&self) -> String {
        let is_simple = |name: &&String| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-/".contains(c))
        };
        let step = |name: &String| if is_simple(&name) { name.clone() } else { format!("{name:?}") };
        self.path.iter().map(step).collect::<Vec<_>>().join(".")
    }

    /// As a JSON pointer.
    pub(crate) fn pointer(&self) -> String {
        self.path.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
    }
}

/// Every difference, in the order of the new value; what goes away last. Lists are compared as a whole.
pub(crate) fn diff(old: &Node, new: &Node) -> Vec<Change> {
    let mut changes = Vec::new();
    compare(Some(old), Some(new), &mut Vec::new(), &mut changes);
    changes
}

fn compare(old: Option<&Node>, new: Option<&Node>, path: &mut Vec<String>, changes: &mut Vec<Change>) {
    if old == new {
        return;
    }
    let (Some(Value::Map(was)), Some(Value::Map(becomes))) = (old.map(|o| &o.value), new.map(|n| &n.value))
    else {
        changes.push(Change { path: path.clone(), old: old.cloned(), new: new.cloned() });
        return;
    };
    for (name, inner) in becomes {
        path.push(name.clone());
        compare(old.and_then(|old| old.get(name)), Some(inner), path, changes);
        path.pop();
    }
    for (name, inner) in was.iter().filter(|(name, _)| new.is_some_and(|new| new.get(name).is_none())) {
        path.push(name.clone());
        compare(Some(inner), None, path, changes);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn check(old: &str, new: &str, expected: &[&str]) {
        let node = |text: &str| json::read(text).expect("JSON");
        let told: Vec<String> = diff(&node(old), &node(new))
            .iter()
            .map(|change| {
                let side = |node: &Option<Node>| node.as_ref().map_or("-".into(), Node::to_json);
                format!("{} {} {}", change.name(), side(&change.old), side(&change.new))
            })
            .collect();
        assert_eq!(told, expected, "{old} {new}");
    }

    #[test]
    fn members_are_told_one_by_one_and_lists_whole() {
        check(r#"{"a":1}"#, r#"{"a":1}"#, &[]);
        check(r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"b":3,"d":4}}"#, &["a.b 1 3", "a.d - 4", "a.c 2 -"]);
        check(r#"{"l":[1,2]}"#, r#"{"l":[2]}"#, &["l [1,2] [2]"]);
        check(r#"{"t":{"http":{}}}"#, r#"{"t":7}"#, &[r#"t {"http":{}} 7"#]);
        check(r#"{"l":{"a.b":1}}"#, r#"{"l":{"a.b":2}}"#, &["l.\"a.b\" 1 2"]);
    }
}
