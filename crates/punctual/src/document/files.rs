//! Finds documents in files and folders.
//!
//! A folder is read with all folders in it, in the order of names; files that end in `.yaml`, `.yml` and `.json`, none that
//! begin with a dot. Promise: every file is read before anything is said, so that all that cannot be read is told at once.

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::value::{Node, Value};
use super::{Unread, json, yaml};

/// Where a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file, as it was named.
    pub(crate) file: String,
    /// The line it begins on.
    pub(crate) line: usize,
    /// Its number in the file, from 1.
    pub(crate) number: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A document and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) place: Place,
    pub(crate) body: Node,
}

impl Document {
    /// Something that is wrong with it, by a JSON pointer; in one line with the place.
    pub(crate) fn wrong(&self, pointer: &str, detail: &str) -> String {
        let Place { file, number, .. } = &self.place;
        let line = self.body.line_of(pointer).max(1);
        let pointer = if pointer.is_empty() { String::new() } else { format!(", {pointer}") };
        format!("{file}:{line}: document {number}{pointer}: {detail}")
    }
}

/// The endings of files that a folder is searched for.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// More than anybody reads; a wrong folder, such as `/`, would be searched for hours.
const FILES_MAX: usize = 100_000;

/// Folders in folders; links may lead round in circles.
const FOLDERS_MAX: usize = 50;

/// Reads all documents of files and folders, `-` being standard input; or everything that cannot be read.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Document>, Vec<String>> {
    let (mut documents, mut wrong) = (Vec::new(), Vec::new());
    for path in paths {
        let mut files = Vec::new();
        if path.as_os_str() == "-" {
            files.push(path.clone());
        } else if let Err(reason) = collect(path, 0, &mut files) {
            wrong.push(reason);
        } else if files.is_empty() {
            wrong.push(format!(
                "{}: there is no file in it that ends in .yaml, .yml or .json",
                path.display()
            ));
        }
        for file in files {
            match documents_of(&file) {
                Ok(found) => documents.extend(found),
                Err(reason) => wrong.push(reason),
            }
        }
    }
    if wrong.is_empty() { Ok(documents) } else { Err(wrong) }
}

fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let unreadable = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    if depth > FOLDERS_MAX {
        return Err(format!(
            "{}: folders in folders, {FOLDERS_MAX} deep; does a link lead back?",
            path.display()
        ));
    }
    let entries: Result<Vec<PathBuf>, _> =
        fs::read_dir(path).map_err(unreadable)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut entries = entries.map_err(unreadable)?;
    entries.sort();
    for entry in entries {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_ours =
            entry.extension().and_then(|ending| ending.to_str()).is_some_and(|e| ENDINGS.contains(&e));
        if name.starts_with('.') || !(is_ours || entry.is_dir()) {
            continue;
        }
        if files.len() >= FILES_MAX {
            return Err(format!("{}: more than {FILES_MAX} files; name a smaller folder", path.display()));
        }
        collect(&entry, depth + 1, files)?;
    }
    Ok(())
}

fn documents_of(path: &Path) -> Result<Vec<Document>, String> {
    let (name, text) = match path.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| format!("cannot read standard input: {error}"))?;
            ("-".to_string(), text)
        }
        false => {
            let name = path.display().to_string();
            let text = fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
            (name, text)
        }
    };
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    parse(&name, &text, is_json).map_err(|Unread { line, reason }| format!("{name}:{line}: {reason}"))
}

/// The documents of a text. What may be JSON is read as JSON, since YAML knows only some of its escapes.
pub(crate) fn parse(name: &str, text: &str, is_json: bool) -> Result<Vec<Document>, Unread> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let nodes = match is_json {
        true => json::read_all(text)?,
        false if text.trim_start().starts_with(['{', '[']) => match json::read_all(text) {
            Ok(nodes) => nodes,
            Err(_) => yaml::read_all(text)?,
        },
        false => yaml::read_all(text)?,
    };
    // A list of documents is as good as documents one after the other.
    let single = nodes.into_iter().flat_map(|node| match node.value {
        Value::List(items) => items,
        value => vec![Node { value, line: node.line }],
    });
    let at = |(index, body): (usize, Node)| {
        let place = Place { file: name.into(), line: body.line, number: index + 1 };
        Document { place, body }
    };
    Ok(single.enumerate().map(at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_documents_one_after_the_other_or_in_a_list() {
        for text in
            ["kind: a\n---\nkind: b\n", "- kind: a\n- kind: b\n", "[{\"kind\":\"a\"},\n{\"kind\":\"b\"}]"]
        {
            let documents = parse("f", text, false).expect(text);
            assert_eq!(documents.len(), 2, "{text}");
            assert_eq!((documents[1].place.number, documents[1].body.get("kind")), (2, Some(&"b".into())));
        }
        let surrogates = parse("f", r#"{"a":"\ud83d\ude00"}"#, false).expect("JSON");
        assert_eq!(surrogates[0].body.get("a"), Some(&"😀".into()));
    }

    #[test]
    fn folders_are_read_in_order_and_everything_wrong_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        put("b.yaml", "kind: b");
        put("a/x.yml", "kind: a");
        put("c.json", "{\"kind\":\"c\"}");
        put("notes.txt", "not: ours: at all");
        put(".hidden.yaml", "kind: hidden");
        let kinds = |found: Vec<Document>| -> Vec<String> {
            found.iter().filter_map(|document| document.body.get("kind")?.text().map(String::from)).collect()
        };
        assert_eq!(kinds(read(&[folder.path().into()]).expect("read")), ["a", "b", "c"]);
        put("a/y.yaml", "a: 1\n b: 2");
        put("d.json", "{");
        let wrong = read(&[folder.path().into(), "nowhere".into()]).expect_err("three are wrong");
        assert_eq!(wrong.len(), 3, "{wrong:#?}");
        assert!(wrong[0].contains("y.yaml:2:") && wrong[2].starts_with("cannot read nowhere"), "{wrong:#?}");
    }
}
