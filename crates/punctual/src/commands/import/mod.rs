//! `punctual import`: what other systems run, as documents that `apply` takes.
//!
//! Each reader is pure: a text becomes documents and notes. Promise: nothing is left out in silence. What has no counterpart here is a
//! note with its place and the reason, and what behaves differently is one, too.

mod cronjobs;
mod crontab;
mod eventbridge;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use punctual_api::Rules;
use punctual_api::job::{Purpose, read_job};
use punctual_schedule::{Binding, Tzdb};

use super::apply::{self, How, wanted};
use super::export::written;
use super::output;
use super::remote::{self, Remote};
use super::tzdata;
use crate::document::files::{self, Place};
use crate::document::{Document, Node, Unread};
use crate::failure::{EXIT_CODES, Failure};

/// Turn crontabs, Kubernetes CronJobs and EventBridge schedules into documents that `apply` takes
#[derive(Args)]
#[command(after_help = format!("Examples:
  punctual import crontab /etc/crontab --tz Europe/Paris > jobs.yaml
  kubectl get cronjobs -A -o yaml | punctual import cronjobs -
  aws scheduler get-schedule --name nightly | punctual import eventbridge - --apply --dry-run

What cannot be mapped is told on standard error, with the reason; the exit code is 1 if anything was left out.

{EXIT_CODES}"))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Subcommand)]
enum Command {
    /// A crontab of a user, or of the system
    Crontab {
        /// The file, or `-` for standard input
        file: PathBuf,
        /// Lines name a user before the command, as in /etc/crontab and /etc/cron.d [default: by the path]
        #[arg(long)]
        system: bool,
    },
    /// CronJob manifests of Kubernetes, YAML or JSON, also as lists
    Cronjobs {
        /// A file, or a folder with all folders in it, or `-` for standard input
        file: PathBuf,
    },
    /// Rules of EventBridge and schedules of EventBridge Scheduler, as the AWS command line writes them
    Eventbridge {
        /// The JSON file, or `-` for standard input
        file: PathBuf,
    },
}

/// Options of every import.
#[derive(Args)]
struct Common {
    /// Write the documents to a file [default: standard output]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "apply")]
    to: Option<PathBuf>,
    /// Apply the documents, as `punctual apply` does
    #[arg(long, global = true)]
    apply: bool,
    /// With --apply: only show what would change
    #[arg(long, global = true, requires = "apply")]
    dry_run: bool,
    /// The time zone of what names none [default: UTC]
    #[arg(long = "tz", global = true, value_name = "ZONE")]
    timezone: Option<String>,
    /// The queue of the jobs [default: `default`]
    #[arg(long, global = true, value_name = "QUEUE")]
    queue: Option<String>,
    /// One handler for all jobs [default: one for each, named like it]
    #[arg(long, global = true, value_name = "NAME")]
    handler: Option<String>,
    /// What the keys begin with
    #[arg(long, global = true, value_name = "PREFIX")]
    key_prefix: Option<String>,
    /// A label for all jobs, besides `source`; may be repeated
    #[arg(short, long, global = true, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// Directory with a compiled time zone database, or `bundled` [default: the system's]
    #[arg(long, global = true, value_name = "DIR", env = "PUNCTUAL_TZDATA")]
    tzdata: Option<PathBuf>,
}

/// What readers are told.
pub(crate) struct Given {
    timezone: Option<String>,
    queue: Option<String>,
    handler: Option<String>,
    key_prefix: String,
    labels: Vec<(String, String)>,
    now: Timestamp,
}

/// What became of something that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// There is no document for it.
    Left,
    /// There is one, and something about it is different.
    Different,
}

/// What somebody should know.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    /// Where: a file and line.
    place: String,
    fate: Fate,
    text: String,
}

/// What a reader made of a text.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    documents: Vec<Document>,
    notes: Vec<Note>,
    /// Of all together, once.
    remarks: Vec<&'static str>,
}

impl Imported {
    fn left(&mut self, place: impl ToString, text: impl Into<String>) {
        self.notes.push(Note { place: place.to_string(), fate: Fate::Left, text: text.into() });
    }

    fn different(&mut self, place: impl ToString, text: impl Into<String>) {
        self.notes.push(Note { place: place.to_string(), fate: Fate::Different, text: text.into() });
    }

    fn add(&mut self, place: Place, body: Node) {
        self.documents.push(Document { place, body });
    }

    /// Makes keys that are there twice different, by their order.
    fn tell_apart(&mut self) {
        fn key_of(document: &Document) -> Option<String> {
            document.body.get("key").and_then(Node::text).map(String::from)
        }
        // Also those further down: a key that was written stays with what it was written for.
        let mut taken: BTreeSet<String> = self.documents.iter().filter_map(key_of).collect();
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for document in &mut self.documents {
            let Some(key) = key_of(document) else { continue };
            let count = seen.entry(key.clone()).or_insert(0);
            *count += 1;
            if *count == 1 {
                continue;
            }
            // Ends after as many steps as there are keys.
            while !taken.insert(format!("{key}-{count}")) {
                *count += 1;
            }
            document.body.set("key", format!("{key}-{count}"));
        }
    }

    /// Leaves out what the server would refuse, with the reason.
    fn check(&mut self, tzdb: &Tzdb, now: Timestamp) {
        let reading = wanted::Reading { tenant: "default", defaults: "{}", rules: Rules::new(tzdb), now };
        for document in std::mem::take(&mut self.documents) {
            let refused = match wanted::read(vec![document.clone()], &reading) {
                Ok(jobs) => jobs.iter().find_map(|job| never(job.sent.get(), &reading.rules, now)),
                Err(lines) => {
                    let reason = |line: &String| match line.split_once(", /") {
                        Some((_, reason)) => format!("/{reason}"),
                        None => line.clone(),
                    };
                    Some(lines.iter().map(reason).collect::<Vec<String>>().join("; "))
                }
            };
            let Some(reason) = refused else {
                self.documents.push(document);
                continue;
            };
            let key = document.body.get("key").and_then(Node::text).unwrap_or_default();
            self.left(&document.place, format!("{key}: {reason}"));
        }
    }

    /// What people should know, line by line.
    fn report(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            let fate = match note.fate {
                Fate::Left => "left out",
                Fate::Different => "different",
            };
            text.push_str(&format!("{}: {fate}: {}\n", note.place, note.text));
        }
        if !self.documents.is_empty() {
            for remark in &self.remarks {
                text.push_str(&format!("note: {remark}\n"));
            }
        }
        text
    }
}

/// Why a job would never run, if it would not: the server refuses those, too.
fn never(job: &str, rules: &Rules<'_>, now: Timestamp) -> Option<String> {
    let schedule = read_job(job, Purpose::Create, rules).ok()?.schedule;
    if let Some(end) = schedule.bounds.end.filter(|end| *end <= now) {
        return Some(format!("it ended at {end}"));
    }
    let binding = Binding { registered_at: now, ..Binding::default() };
    let first = schedule.timetable(rules.tzdb, &binding).and_then(|slots| slots.must_fire_after(now));
    first.err().map(|error| error.to_string())
}

/// A job as a reader has it.
struct Draft {
    key: String,
    name: String,
    labels: Vec<(String, String)>,
    schedule: Node,
    /// The handler, unless one was given for all.
    handler: String,
    payload: Node,
    /// Policies.
    more: Vec<(&'static str, Node)>,
}

impl Draft {
    fn document(self, given: &Given) -> Node {
        let mut body = Node::map([("kind", "job".into())]);
        body.set("key", format!("{}{}", given.key_prefix, self.key));
        body.set("name", self.name);
        let mut labels = Node::map([]);
        for (name, value) in self.labels.iter().chain(&given.labels) {
            labels.set(name, value.as_str());
        }
        body.set("labels", labels);
        if let Some(queue) = &given.queue {
            body.set("queue", queue.as_str());
        }
        body.set("schedule", self.schedule);
        let handler = given.handler.clone().unwrap_or(self.handler);
        body.set("target", Node::map([("worker", Node::map([("handler", handler.into())]))]));
        body.set("payload", self.payload);
        for (name, node) in self.more {
            body.set(name, node);
        }
        body
    }
}

/// Words for keys and handlers: letters, digits and hyphens.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars() {
        match c.is_ascii_alphanumeric() || matches!(c, '_' | '.') {
            true => slug.push(c.to_ascii_lowercase()),
            false if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            false => {}
        }
    }
    slug.truncate(60); // As long as people read.
    let slug = slug.trim_matches(['-', '.']);
    if slug.is_empty() { "job".into() } else { slug.into() }
}

/// A number of seconds as a duration.
fn seconds(count: u64) -> Node {
    format!("PT{count}S").into()
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = &arguments.common;
    let given = common.given(Timestamp::now())?;
    let mut imported = match &arguments.command {
        Command::Crontab { file, system } => {
            let folders = ["/etc/crontab", "/etc/cron.d"];
            let is_system = *system || folders.iter().any(|folder| file.starts_with(folder));
            crontab::read(&name_of(file), &text_of(file)?, is_system, &given)
        }
        Command::Cronjobs { file } => cronjobs::read(manifests(file)?, &given),
        Command::Eventbridge { file } => {
            let name = name_of(file);
            let documents = files::parse(&name, &text_of(file)?, true);
            eventbridge::read(documents.map_err(|unread| unreadable(&name, &unread))?, &given)
        }
    };
    imported.tell_apart();
    imported.check(&tzdata::open(common.tzdata.as_deref())?, given.now);
    eprint!("{}", output::safe(&imported.report()));
    let left = imported.notes.iter().filter(|note| note.fate == Fate::Left).count();
    let made = imported.documents.len();
    finish(imported.documents, arguments)?;
    match left {
        0 => Ok(()),
        left => Err(Failure::Other(anyhow::anyhow!(
            "{left} could not be mapped, see above; {made} documents were made of the others"
        ))),
    }
}

/// Applies the documents, or writes them.
fn finish(documents: Vec<Document>, arguments: &Arguments) -> Result<(), Failure> {
    let (common, remote) = (&arguments.common, &arguments.remote);
    if common.apply {
        let how = How::of_import(common.dry_run, common.tzdata.clone());
        return remote::run(apply::apply(documents, &how, remote, false));
    }
    let text = written(documents.iter().map(|document| &document.body), remote.output);
    match &common.to {
        Some(path) => {
            fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
            output::print(&format!("{} documents written to {}\n", documents.len(), path.display()))
        }
        None => output::print(&text),
    }
}

impl Common {
    fn given(&self, now: Timestamp) -> Result<Given, Failure> {
        let mut labels = Vec::new();
        for label in &self.label {
            let Some((name, value)) = label.split_once('=') else {
                return Err(Failure::Input(format!("--label {label}: write a label as name=value")));
            };
            labels.push((name.to_string(), value.to_string()));
        }
        Ok(Given {
            timezone: self.timezone.clone(),
            queue: self.queue.clone(),
            handler: self.handler.clone(),
            key_prefix: self.key_prefix.clone().unwrap_or_default(),
            labels,
            now,
        })
    }
}

/// The manifests in a file or folder, or on standard input.
fn manifests(path: &Path) -> Result<Vec<Document>, Failure> {
    let mut names = vec![name_of(path)]; // Read once: it may be a pipe.
    if path.is_dir() {
        // Finds the files, and tells everything that is wrong with any of them.
        let found = files::read(&[path.to_path_buf()]).map_err(apply::together)?;
        names = found.into_iter().map(|document| document.place.file).collect();
        names.dedup();
    }
    let mut documents = Vec::new();
    for name in names {
        let text = text_of(Path::new(&name))?;
        let read = cronjobs::parse(&name, &text, name.ends_with(".json"));
        documents.extend(read.map_err(|unread| unreadable(&name, &unread))?);
    }
    Ok(documents)
}

fn unreadable(name: &str, unread: &Unread) -> Failure {
    Failure::Input(format!("{name}:{}: {}", unread.line, unread.reason))
}

fn name_of(file: &Path) -> String {
    file.display().to_string()
}

fn text_of(file: &Path) -> Result<String, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::Input(format!("cannot read {}: {error}", file.display()));
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
        return Ok(text);
    }
    fs::read_to_string(file).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `NAME.in.*` in a folder of `testdata/import` becomes what `NAME.out` says: documents, then the report.
    fn check(folder: &str, read: impl Fn(&str, &str, &Given) -> Imported) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/import").join(folder);
        let mut names: Vec<PathBuf> =
            fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
        names.sort();
        let mut cases = 0;
        for path in names {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_string();
            let Some((stem, _)) = name.split_once(".in") else { continue };
            let now = "2026-11-18T10:00:00Z".parse().expect("a time");
            let given = Given {
                timezone: None,
                queue: None,
                handler: None,
                key_prefix: String::new(),
                labels: vec![("team".into(), "core".into())],
                now,
            };
            let mut imported = read(&name, &fs::read_to_string(&path).expect("the case"), &given);
            imported.tell_apart();
            imported.check(&Tzdb::bundled(), now);
            let documents = written(imported.documents.iter().map(|one| &one.body), output::Format::Yaml);
            let made = format!("{documents}=== report\n{}", imported.report());
            let out = folder.join(format!("{stem}.out"));
            if std::env::var_os("UPDATE_IMPORTS").is_some() {
                fs::write(&out, &made).expect("written");
            }
            let expected = fs::read_to_string(out).unwrap_or_default();
            assert!(made == expected, "{name} becomes\n{made}\ninstead of\n{expected}");
            cases += 1;
        }
        assert!(cases > 0, "no cases in {}", folder.display());
    }

    #[test]
    fn crontabs_become_what_is_written_beside_them() {
        check("crontab", |name, text, given| crontab::read(name, text, name.starts_with("system"), given));
    }

    #[test]
    fn cronjobs_become_what_is_written_beside_them() {
        check("cronjobs", |name, text, given| {
            cronjobs::read(cronjobs::parse(name, text, false).expect("documents"), given)
        });
    }

    #[test]
    fn eventbridge_becomes_what_is_written_beside_it() {
        check("eventbridge", |name, text, given| {
            eventbridge::read(files::parse(name, text, true).expect("documents"), given)
        });
    }

    #[test]
    fn keys_that_are_there_twice_are_told_apart_from_all_others() {
        for (keys, expected) in [
            (vec!["a", "b", "a", "a"], vec!["a", "b", "a-2", "a-3"]),
            (vec!["a", "a", "a-2"], vec!["a", "a-3", "a-2"]),
            (vec!["a-2", "a", "a", "a-2"], vec!["a-2", "a", "a-3", "a-2-2"]),
        ] {
            let mut imported = Imported::default();
            for key in &keys {
                let place = Place { file: "f".into(), line: 1, number: 1 };
                imported.add(place, Node::map([("key", (*key).into())]));
            }
            imported.tell_apart();
            let told: Vec<&str> =
                imported.documents.iter().filter_map(|document| document.body.get("key")?.text()).collect();
            assert_eq!(told, expected, "{keys:?}");
        }
    }

    #[test]
    fn a_slug_is_a_word_for_keys() {
        for (text, expected) in [
            ("Nightly Report!", "nightly-report"),
            ("/usr/bin/x.sh", "usr-bin-x.sh"),
            ("   ", "job"),
            ("a--b", "a-b"),
        ] {
            assert_eq!(slug(text), expected);
        }
    }
}
