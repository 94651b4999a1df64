//! `punctual export`: what the server has, as the documents that `apply` takes.
//!
//! Promise: what is exported and applied again changes nothing. What a job has because nobody said otherwise is left out, so that a file
//! says what somebody meant; `--full` writes it all.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use punctual_api::{Job, Rules};
use punctual_client::{Client, JobFilter};
use punctual_domain::message;

use super::apply::wanted::{self, Kind, Reading, node};
use super::output::{self, Format};
use super::remote::{self, Remote};
use super::tzdata;
use crate::document::files::Place;
use crate::document::{Document, Node, Value, write};
use crate::failure::{EXIT_CODES, Failure};

/// Write jobs, calendars, limits, alerts and defaults as documents that `apply` takes
#[derive(Args)]
#[command(after_help = format!("Examples:
  punctual export > everything.yaml
  punctual export -f jobs/ --label team=billing

{EXIT_CODES}"))]
pub(crate) struct Arguments {
    /// A folder for one file a document; it is made if it is not there [default: standard output]
    #[arg(short, long, value_name = "DIR")]
    file: Option<PathBuf>,
    /// Only jobs with this label, and nothing else; given several times, with all of them
    #[arg(short, long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// Also what a job has because nobody said otherwise
    #[arg(long)]
    full: bool,
    /// Directory with a compiled time zone database, or `bundled` [default: the system's]
    #[arg(long, value_name = "DIR", env = "PUNCTUAL_TZDATA")]
    tzdata: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

/// A document and its place in a folder.
struct Exported {
    kind: Kind,
    name: String,
    body: Node,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    remote::run(execute(arguments))
}

async fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let client = arguments.remote.client()?;
    let tzdb = tzdata::open(arguments.tzdata.as_deref())?;
    let tenant = arguments.remote.tenant_name()?;
    let defaults = client.defaults(&tenant).await.map_err(|error| arguments.remote.of_tenant(error))?;
    let reading = Reading {
        tenant: &tenant,
        defaults: defaults.text(),
        rules: Rules::new(&tzdb),
        now: Timestamp::UNIX_EPOCH,
    };
    let mut all = Vec::new();
    if arguments.label.is_empty() {
        let body = read(&defaults.value)?;
        if !body.members().is_empty() {
            all.push(exported(Kind::Defaults, "", body));
        }
        calendars_and_limits(&client, &mut all).await?;
    }
    jobs(&client, arguments, &reading, &mut all).await?;
    if arguments.label.is_empty() {
        for alert in &client.alerts().await?.value.items {
            all.push(exported(Kind::Alert, &alert.name, read(&alert.spec)?));
        }
    }
    match &arguments.file {
        Some(folder) => to_folder(folder, &all),
        None => output::print(&written(all.iter().map(|one| &one.body), arguments.remote.output)),
    }
}

/// Documents one after the other.
pub(crate) fn written<'a>(documents: impl Iterator<Item = &'a Node>, format: Format) -> String {
    let mut text = String::new();
    for document in documents {
        match format {
            Format::Json => text.push_str(&format!("{}\n", document.to_json())),
            Format::Yaml | Format::Table | Format::Wide => {
                text.push_str("---\n");
                text.push_str(&write::yaml(document));
            }
        }
    }
    text
}

/// A document: its kind and name, then what it says.
fn exported(kind: Kind, name: &str, body: Node) -> Exported {
    let mut document = Node::map([("kind", kind.as_str().into())]);
    match kind {
        Kind::Defaults => {}
        Kind::Job => document.set("key", name),
        Kind::Calendar | Kind::Limit | Kind::Alert => document.set("name", name),
    }
    for (member, inner) in body.members() {
        document.set(member, inner.clone());
    }
    Exported { kind, name: name.into(), body: document }
}

async fn calendars_and_limits(client: &Client, all: &mut Vec<Exported>) -> Result<(), Failure> {
    let mut calendars = client.calendars().limit(1_000);
    while let Some(calendar) = calendars.next().await? {
        all.push(exported(Kind::Calendar, &calendar.name, read(&calendar.spec)?));
    }
    match client.limits().await {
        Ok(limits) => {
            for limit in &limits.value.items {
                all.push(exported(Kind::Limit, &limit.name, read(&limit.spec)?));
            }
        }
        // Limits are of the whole installation; whoever has one tenant has none.
        Err(error) if error.status() == Some(403) => {
            eprintln!("note: limits are left out; only an admin of all tenants reads them");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn jobs(
    client: &Client,
    arguments: &Arguments,
    reading: &Reading<'_>,
    all: &mut Vec<Exported>,
) -> Result<(), Failure> {
    let filter = JobFilter { labels: arguments.label.clone(), ..JobFilter::default() };
    let mut list = client.jobs(&filter).limit(1_000);
    let (mut keyless, mut over, mut batches) = (0, 0, 0);
    let mut found = Vec::new();
    while let Some(job) = list.next().await? {
        if message::is_reserved(job.spec.r#type.as_deref()) {
            continue; // The system's own.
        }
        match &job.spec.key {
            _ if job.status.batch_items.is_some() => batches += 1,
            // What is over would fire again elsewhere.
            _ if job.status.state == "ended" => over += 1,
            None => keyless += 1,
            Some(key) => found.push(exported(Kind::Job, key, document(&job.value, arguments.full, reading)?)),
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    all.extend(found);
    for (count, why) in [
        (keyless, "have no key, by which `apply` would find them; `job export` writes those"),
        (over, "are over"),
        (batches, "are batches; `copy` moves them with their items"),
    ] {
        if count > 0 {
            eprintln!("note: {count} jobs are left out: they {why}");
        }
    }
    Ok(())
}

/// What a job's owner meant. A job of which that cannot be said is told.
fn document(job: &Job, is_full: bool, reading: &Reading<'_>) -> Result<Node, Failure> {
    let whole = read(&job.spec)?;
    let mut body =
        if is_full { without_defaults(whole.clone(), &whole, reading) } else { minimal(&whole, reading) };
    if shown(&body, reading).as_ref() != Some(&whole) {
        let key = job.spec.key.as_deref().unwrap_or_default();
        eprintln!(
            "note: job `{key}` would not be the same if it were applied; look at what `apply --dry-run` says of it"
        );
    }
    body.take("key");
    if job.status.state == "paused" {
        let mut paused = job.status.paused.as_ref().map(read).transpose()?.unwrap_or_else(|| true.into());
        paused.take("since");
        body.set("paused", if paused.members().is_empty() { true.into() } else { paused });
    }
    Ok(body)
}

/// A job without what it has anyway. Whatever cannot be left out without a difference stays.
fn minimal(whole: &Node, reading: &Reading<'_>) -> Node {
    const MEANT: [&str; 6] = ["key", "labels", "schedule", "target", "payload", "links"];
    let shown = |body: &Node| shown(body, reading);
    let is_meant = |name: &str| MEANT.contains(&name);
    let mut least = whole.clone();
    let unsaid: Vec<String> =
        whole.members().iter().map(|(name, _)| name.clone()).filter(|name| !is_meant(name)).collect();
    for name in &unsaid {
        least.take(name);
    }
    let Some(given) = shown(&least) else { return whole.clone() };
    for name in &unsaid {
        let (own, default) = (whole.get(name), given.get(name));
        let Some(own) = own.filter(|own| default != Some(*own)) else { continue };
        // Only the members that differ, unless something else follows from leaving the others out.
        let Value::Map(members) = &own.value else {
            least.set(name, own.clone());
            continue;
        };
        let differs =
            |member: &&(String, Node)| default.and_then(|node| node.get(&member.0)) != Some(&member.1);
        let some = Node::new(Value::Map(members.iter().filter(differs).cloned().collect()));
        let mut tried = least.clone();
        tried.set(name, some.clone());
        let is_same = shown(&tried).is_some_and(|tried| tried.get(name) == Some(own));
        least.set(name, if is_same { some } else { own.clone() });
    }
    let least = without_defaults(least, whole, reading);
    if shown(&least).as_ref() == Some(whole) {
        least
    } else {
        without_defaults(whole.clone(), whole, reading)
    }
}

/// A document as the server would show it; nothing if it would refuse it.
fn shown(body: &Node, reading: &Reading<'_>) -> Option<Node> {
    let mut body = body.clone();
    body.set("kind", Kind::Job.as_str());
    let place = Place { file: String::new(), line: 1, number: 1 };
    let read = wanted::read(vec![Document { place, body }], reading).ok()?;
    read.into_iter().next().map(|wanted| wanted.body)
}

/// A document that says `null` where the tenant's defaults would give the job something that it does not have: jobs keep what they have
/// when defaults change.
fn without_defaults(mut body: Node, whole: &Node, reading: &Reading<'_>) -> Node {
    let Some(given) = shown(&body, reading) else { return body };
    for (name, inner) in given.members() {
        let Some(own) = whole.get(name) else {
            body.set(name, Node::new(Value::Null));
            continue;
        };
        for (member, _) in inner.members().iter().filter(|(member, _)| own.get(member).is_none()) {
            let mut object = body.get(name).unwrap_or(own).clone();
            object.set(member, Node::new(Value::Null));
            body.set(name, object);
        }
    }
    body
}

fn read(value: &impl serde::Serialize) -> Result<Node, Failure> {
    node(value).map_err(|unread| Failure::Other(anyhow::anyhow!("read what the server has: {unread:?}")))
}

fn to_folder(folder: &Path, all: &[Exported]) -> Result<(), Failure> {
    let unwritable = |path: &Path| format!("write {}", path.display());
    let mut ours = BTreeSet::new();
    for one in all {
        let path = folder.join(file_of(one.kind, &one.name));
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| unwritable(parent))?;
        fs::write(&path, write::yaml(&one.body)).with_context(|| unwritable(&path))?;
        ours.insert(path);
    }
    fs::create_dir_all(folder).with_context(|| unwritable(folder))?;
    output::print(&format!("{} documents written to {}\n", all.len(), folder.display()))?;
    // A file of what is gone would bring it back.
    for kind in Kind::ALL {
        let Ok(entries) = fs::read_dir(folder.join(format!("{}s", kind.as_str()))) else { continue };
        let mut others: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        others.retain(|path| !ours.contains(path));
        others.sort();
        for other in others {
            eprintln!(
                "note: {} is not part of this export; delete it if it is from an earlier one",
                other.display()
            );
        }
    }
    Ok(())
}

/// The file of a document in a folder.
fn file_of(kind: Kind, name: &str) -> String {
    const LONGEST: usize = 200; // Names of files end at 255 bytes.
    if kind == Kind::Defaults {
        return "defaults.yaml".into();
    }
    let mut file = String::new();
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'.' if index == 0 => file.push_str("%2E"),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => file.push(byte as char),
            _ => file.push_str(&format!("%{byte:02X}")),
        }
    }
    if file.len() > LONGEST {
        // FNV-1a: names that begin alike stay apart.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        file.truncate(LONGEST - 20);
        file.push_str(&format!("-{hash:016x}"));
    }
    format!("{}s/{file}.yaml", kind.as_str())
}

#[cfg(test)]
mod tests {
    use punctual_schedule::Tzdb;

    use super::*;
    use crate::document::{files, yaml};

    /// What a job becomes when it is exported under defaults.
    fn check(job: &str, defaults: &str, expected: &str) {
        let tzdb = Tzdb::bundled();
        let reading =
            Reading { tenant: "default", defaults, rules: Rules::new(&tzdb), now: Timestamp::UNIX_EPOCH };
        let text = format!("kind: job\nkey: a\nschedule: {{every: PT5S}}\ntarget: {{discard: {{}}}}\n{job}");
        let documents = files::parse("f", &text, false).expect("a document");
        let whole = wanted::read(documents, &reading).expect("right").remove(0).body;
        let least = minimal(&whole, &reading);
        let mut expected_node = yaml::read_all(&format!(
            "key: a\nschedule: {{every: PT5S}}\ntarget: {{discard: {{}}}}\n{expected}"
        ))
        .expect("YAML")
        .remove(0);
        expected_node.line = 0;
        assert_eq!(least, expected_node, "{job}: {}", write::yaml(&least));
    }

    #[test]
    fn what_a_job_has_anyway_is_left_out() {
        check("", "{}", "");
        check("name: a\nqueue: default\nlane: standard", "{}", "");
        check("name: Other\nretry: {max_attempts: 5}", "{}", "name: Other\nretry: {max_attempts: 5}");
        check(
            "retry: {backoff: list, delays: [PT1S]}",
            "{}",
            "retry: {backoff: list, delays: [PT1S], max_attempts: 2}",
        );
        check("payload: {n: 1.50}\nlabels: {a: b}", "{}", "payload: {n: 1.50}\nlabels: {a: b}");
    }

    #[test]
    fn what_a_job_has_from_its_tenant_is_left_out_and_what_it_has_instead_is_not() {
        let defaults = r#"{"timeout":"PT1M","retention":{"days":30}}"#;
        check("", defaults, "");
        check("timeout: 5m", defaults, "timeout: PT5M");
        check("retention: {days: 30, last: 5}", defaults, "retention: {last: 5}");
    }

    #[test]
    fn what_a_job_does_not_have_is_not_given_to_it_by_defaults() {
        let defaults = r#"{"deadline":"PT2H","retention":{"last":7},"schedule":{"spread":"PT1M"}}"#;
        let (nothing, tzdb) = ("{}", Tzdb::bundled());
        let reading = |defaults: &'static str| Reading {
            tenant: "default",
            defaults,
            rules: Rules::new(&tzdb),
            now: Timestamp::UNIX_EPOCH,
        };
        let text = "kind: job\nkey: a\nschedule: {every: PT5S}\ntarget: {discard: {}}\n";
        let documents = files::parse("f", text, false).expect("a document");
        // Made before there were defaults.
        let whole = wanted::read(documents, &reading(nothing)).expect("right").remove(0).body;
        assert_ne!(shown(&whole, &reading(defaults)).as_ref(), Some(&whole), "the defaults would change it");
        for exported in
            [minimal(&whole, &reading(defaults)), without_defaults(whole.clone(), &whole, &reading(defaults))]
        {
            assert_eq!(
                shown(&exported, &reading(defaults)).as_ref(),
                Some(&whole),
                "{}",
                write::yaml(&exported)
            );
        }
    }

    #[test]
    fn a_name_becomes_a_file_that_every_system_takes() {
        assert_eq!(file_of(Kind::Job, "team/nightly report"), "jobs/team%2Fnightly%20report.yaml");
        assert_eq!(file_of(Kind::Calendar, ".hidden"), "calendars/%2Ehidden.yaml");
        assert_eq!(file_of(Kind::Defaults, ""), "defaults.yaml");
        let (a, b) = (format!("{}a", "/".repeat(199)), format!("{}b", "/".repeat(199)));
        assert_ne!(file_of(Kind::Job, &a), file_of(Kind::Job, &b));
        assert!(file_of(Kind::Job, &a).len() < 220);
    }
}
