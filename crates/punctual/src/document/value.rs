//! Values as JSON knows them, with the lines they stand on.
//!
//! Numbers are kept as their text: a payload is passed on as it is written, whatever a float would make of it.

use super::json;

/// A value and where it stands. Two are equal if they say the same, wherever they stand.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// What it says.
    pub(crate) value: Value,
    /// The line it begins on, from 1; 0 if it was not read.
    pub(crate) line: usize,
}

/// What a value says. Members are in the order they are written in; for equality the order does not count.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// As it is written in JSON.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    pub(crate) fn new(value: Value) -> Self {
        Node { value, line: 0 }
    }

    /// An object of these members.
    pub(crate) fn map<const N: usize>(members: [(&str, Node); N]) -> Self {
        Node::new(Value::Map(members.into_iter().map(|(name, node)| (name.to_string(), node)).collect()))
    }

    /// The member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.members().iter().find(|(known, _)| known == name).map(|(_, node)| node)
    }

    /// A member deeper down.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, name| node.get(name))
    }

    /// The members of an object; none of anything else.
    pub(crate) fn members(&self) -> &[(String, Node)] {
        match &self.value {
            Value::Map(members) => members,
            _ => &[],
        }
    }

    /// The items of a list; none of anything else.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is one.
    pub(crate) fn whole(&self) -> Option<u64> {
        match &self.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// True or false, if it is.
    pub(crate) fn truth(&self) -> Option<bool> {
        match &self.value {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// Takes a member out of an object.
    pub(crate) fn take(&mut self, name: &str) -> Option<Node> {
        let Value::Map(members) = &mut self.value else { return None };
        let place = members.iter().position(|(known, _)| known == name)?;
        Some(members.remove(place).1)
    }

    /// Sets a member of an object, in its place if it is there.
    pub(crate) fn set(&mut self, name: &str, node: impl Into<Node>) {
        let Value::Map(members) = &mut self.value else { return };
        let node = node.into();
        match members.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = node,
            None => members.push((name.to_string(), node)),
        }
    }

    /// As compact JSON.
    pub(crate) fn to_json(&self) -> String {
        let mut text = String::new();
        json::write(self, &mut text);
        text
    }

    /// The line of what a JSON pointer names, or of the nearest thing around it that is there.
    pub(crate) fn line_of(&self, pointer: &str) -> usize {
        let mut node = self;
        for step in pointer.split('/').skip(1) {
            let name = step.replace("~1", "/").replace("~0", "~");
            let inner = match &node.value {
                Value::List(items) => name.parse().ok().and_then(|index: usize| items.get(index)),
                _ => node.get(&name),
            };
            let Some(inner) = inner else { break };
            node = inner;
        }
        node.line
    }

    /// How many values it is made of.
    pub(crate) fn count(&self) -> usize {
        match &self.value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => 1,
            Value::List(items) => 1 + items.iter().map(Node::count).sum::<usize>(),
            Value::Map(members) => 1 + members.iter().map(|(_, node)| node.count()).sum::<usize>(),
        }
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Number(a), Value::Number(b)) | (Value::Text(a), Value::Text(b)) => a == b,
            (Value::List(a), Value::List(b)) => a == b,
            (Value::Map(a), Value::Map(b)) => {
                a.len() == b.len() && a.iter().all(|(name, node)| other.get(name) == Some(node))
            }
            _ => false,
        }
    }
}

impl From<&str> for Node {
    fn from(text: &str) -> Self {
        Node::new(Value::Text(text.into()))
    }
}

impl From<String> for Node {
    fn from(text: String) -> Self {
        Node::new(Value::Text(text))
    }
}

impl From<bool> for Node {
    fn from(truth: bool) -> Self {
        Node::new(Value::Bool(truth))
    }
}

impl From<u64> for Node {
    fn from(number: u64) -> Self {
        Node::new(Value::Number(number.to_string()))
    }
}

impl From<Vec<Node>> for Node {
    fn from(items: Vec<Node>) -> Self {
        Node::new(Value::List(items))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_members_does_not_count_and_that_of_items_does() {
        let node = |text: &str| json::read(text).expect("JSON");
        assert_eq!(node(r#"{"a":1,"b":[1,2]}"#), node(r#"{ "b": [1, 2], "a": 1 }"#));
        assert_ne!(node(r#"{"a":[1,2]}"#), node(r#"{"a":[2,1]}"#));
        assert_ne!(node(r#"{"a":1}"#), node(r#"{"a":1,"b":null}"#));
        assert_ne!(node("1.50"), node("1.5"), "numbers are what is written");
    }

    #[test]
    fn a_pointer_finds_the_nearest_line() {
        let node = json::read("{\n\"a\": {\n\"b/c\": [\n1,\n2]}}").expect("JSON");
        for (pointer, line) in [("", 1), ("/a", 2), ("/a/b~1c", 3), ("/a/b~1c/1", 5), ("/a/x/y", 2)] {
            assert_eq!(node.line_of(pointer), line, "{pointer}");
        }
    }
}
