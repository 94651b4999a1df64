//! CronJobs of Kubernetes.
//!
//! A pod goes to a worker, since Punctual starts no containers itself: the payload has its specification, as Kubernetes reads it.

use super::{Draft, Given, Imported, seconds, slug};
use crate::document::files::{self, Place};
use crate::document::yaml::{self, Schema};
use crate::document::{Document, Node, Unread, Value, json};

/// The documents of a text. YAML is read as Kubernetes reads it: `yes` is true, and a mode of `0644` is octal.
pub(super) fn parse(name: &str, text: &str, is_json: bool) -> Result<Vec<Document>, Unread> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // JSON leaves nothing to a schema, and YAML knows only some of its escapes.
    if is_json || (text.trim_start().starts_with(['{', '[']) && json::read_all(text).is_ok()) {
        return files::parse(name, text, true);
    }
    let nodes = yaml::read_all_by(Schema::Kubernetes, text)?;
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

/// Reads manifests, also in lists.
pub(super) fn read(documents: Vec<Document>, given: &Given) -> Imported {
    let mut imported = Imported::default();
    for document in documents {
        one(document, given, &mut imported);
    }
    imported.remarks.push(
        "pods are left to workers that pull: each job has a handler named like it (--handler gives all of them one), \
         and its payload has the pod's specification",
    );
    imported
}

fn one(document: Document, given: &Given, imported: &mut Imported) {
    let Document { place, body } = document;
    let kind = body.get("kind").and_then(Node::text).unwrap_or_default();
    if kind.ends_with("List") {
        for item in body.get("items").map(Node::items).unwrap_or_default() {
            let place = Place { line: item.line, ..place.clone() };
            one(Document { place, body: item.clone() }, given, imported);
        }
        return;
    }
    let name = body.at(&["metadata", "name"]).and_then(Node::text);
    let shown = name.unwrap_or("without a name");
    if kind != "CronJob" {
        let what = if kind.is_empty() { "a document without `kind`" } else { kind };
        return imported.left(place, format!("{what} {shown} is not a CronJob"));
    }
    let Some(name) = name else {
        return imported.left(place, "the CronJob has no metadata.name");
    };
    match draft(name, &body, given, &place, imported) {
        Ok(draft) => imported.add(place, draft.document(given)),
        Err(reason) => imported.left(place, format!("CronJob {name}: {reason}")),
    }
}

fn draft(
    name: &str,
    body: &Node,
    given: &Given,
    place: &Place,
    imported: &mut Imported,
) -> Result<Draft, String> {
    let spec = body.get("spec").ok_or("it has no spec")?;
    let job = spec.at(&["jobTemplate", "spec"]).ok_or("it has no spec.jobTemplate.spec")?;
    let namespace = body.at(&["metadata", "namespace"]).and_then(Node::text);
    let mut more = Vec::new();

    let overlap = match text(spec, "concurrencyPolicy")? {
        None | Some("Allow") => "allow",
        Some("Forbid") => "skip",
        Some("Replace") => "cancel_running",
        Some(other) => return Err(format!("its concurrencyPolicy `{other}` is not known")),
    };
    more.push(("overlap", Node::map([("policy", overlap.into())])));
    let late = number(spec, "startingDeadlineSeconds")?;
    if let Some(late) = late {
        more.push(("start_window", seconds(late.max(1))));
        more.push(("catch_up", Node::map([("policy", "latest".into()), ("window", seconds(late.max(1)))])));
    }
    let attempts = number(job, "backoffLimit")?.unwrap_or(6).saturating_add(1);
    let retry =
        [("max_attempts", attempts.min(1_000).into()), ("base", "PT10S".into()), ("cap", "PT6M".into())];
    // One attempt is followed by none.
    more.push((
        "retry",
        if attempts == 1 { Node::map([("max_attempts", 1.into())]) } else { Node::map(retry) },
    ));
    match number(job, "activeDeadlineSeconds")? {
        Some(limit) => {
            more.push(("timeout", seconds(limit.clamp(1, 86_400))));
            more.push(("deadline", seconds(limit.max(1).saturating_add(late.unwrap_or(0)))));
            let why = "activeDeadlineSeconds counts from the start of the pod, `deadline` from the slot and what it may be late";
            imported.different(place, format!("CronJob {name}: {why}"));
        }
        None => more.push(("timeout", "PT24H".into())),
    }
    let successes = number(spec, "successfulJobsHistoryLimit")?;
    let failures = number(spec, "failedJobsHistoryLimit")?;
    if successes.or(failures).is_some() {
        let last = successes.unwrap_or(3).saturating_add(failures.unwrap_or(1));
        more.push(("retention", Node::map([("last", last.clamp(1, 1_000).into())])));
        let why = "history limits count successes and failures apart; `retention.last` counts them together";
        imported.different(place, format!("CronJob {name}: {why}"));
    }
    parts(name, spec, job, place, &mut more, imported)?;
    if truth(spec, "suspend")? == Some(true) {
        let paused = Node::map([("reason", "suspended in Kubernetes".into())]);
        more.push(("paused", paused));
    }
    for member in without_counterpart(body, spec, job) {
        let why = "has no counterpart; the worker must see to it";
        imported.different(place, format!("CronJob {name}: {member} {why}"));
    }

    let pod = job.at(&["template", "spec"]).ok_or("it has no pod (spec.jobTemplate.spec.template.spec)")?;
    let mut payload = Node::map([("pod", pod.clone())]);
    if let Some(namespace) = namespace {
        payload.set("namespace", namespace);
    }
    for (member, owner) in [("pod_metadata", job.get("template")), ("job_metadata", spec.get("jobTemplate"))]
    {
        if let Some(metadata) = owner.and_then(metadata_of) {
            payload.set(member, metadata);
        }
    }
    let mut labels: Vec<(String, String)> = vec![("source".into(), "kubernetes".into())];
    for (name, value) in body.at(&["metadata", "labels"]).map(Node::members).unwrap_or_default() {
        labels.push((name.clone(), value.text().map_or_else(|| value.to_json(), String::from)));
    }
    let key = namespace.map_or_else(|| name.to_string(), |namespace| format!("{namespace}/{name}"));
    let schedule = when(spec, given)?;
    Ok(Draft { key, name: name.into(), labels, schedule, handler: slug(name), payload, more })
}

/// The members that become something here; all others are told.
const OF_CRONJOB: [&str; 8] = [
    "schedule",
    "timeZone",
    "suspend",
    "concurrencyPolicy",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
    "jobTemplate",
];
const OF_JOB: [&str; 6] =
    ["backoffLimit", "activeDeadlineSeconds", "completions", "parallelism", "completionMode", "template"];

/// What is said and becomes nothing here.
fn without_counterpart(body: &Node, spec: &Node, job: &Node) -> Vec<String> {
    let mut names = Vec::new();
    for (node, known) in [(spec, &OF_CRONJOB[..]), (job, &OF_JOB[..])] {
        let said = node.members().iter().filter(|(_, node)| !matches!(node.value, Value::Null));
        names.extend(said.map(|(name, _)| name.clone()).filter(|name| !known.contains(&name.as_str())));
    }
    for name in ["annotations", "finalizers", "ownerReferences"] {
        let node = body.at(&["metadata", name]);
        // `kubectl apply` keeps what it was given; it is the CronJob itself.
        let is_own = |name: &str| name == "kubectl.kubernetes.io/last-applied-configuration";
        if node.is_some_and(|node| {
            !node.items().is_empty() || node.members().iter().any(|(name, _)| !is_own(name))
        }) {
            names.push(format!("metadata.{name}"));
        }
    }
    names
}

/// What the metadata of a template say; `kubectl` writes an empty `creationTimestamp`.
fn metadata_of(template: &Node) -> Option<Node> {
    let said = template.get("metadata")?.members().iter();
    let said: Vec<_> = said.filter(|(_, node)| !matches!(node.value, Value::Null)).cloned().collect();
    (!said.is_empty()).then(|| Node::new(Value::Map(said)))
}

/// A member that is there; `null` is as good as none.
fn member<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    node.get(name).filter(|node| !matches!(node.value, Value::Null))
}

/// A text, if it is there. What is there and cannot be read is refused: a default in its place would be another job.
fn text<'a>(node: &'a Node, name: &str) -> Result<Option<&'a str>, String> {
    let refused = |node: &Node| format!("its {name} {} is not text", node.to_json());
    member(node, name).map(|node| node.text().ok_or_else(|| refused(node))).transpose()
}

/// A whole number, if it is there.
fn number(node: &Node, name: &str) -> Result<Option<u64>, String> {
    let refused = |node: &Node| format!("its {name} {} is not a whole number", node.to_json());
    member(node, name).map(|node| node.whole().ok_or_else(|| refused(node))).transpose()
}

/// True or false, if it is there; also in the words of YAML 1.1, however they are written.
fn truth(node: &Node, name: &str) -> Result<Option<bool>, String> {
    let Some(node) = member(node, name) else { return Ok(None) };
    let is = |word: &str| node.text().is_some_and(|text| text.eq_ignore_ascii_case(word));
    match node.truth() {
        Some(truth) => Ok(Some(truth)),
        None if is("yes") || is("on") => Ok(Some(true)),
        None if is("no") || is("off") => Ok(Some(false)),
        None => Err(format!("its {name} {} is neither true nor false", node.to_json())),
    }
}

/// The schedule: five fields, a nickname or `@every 1h`, in a zone.
fn when(spec: &Node, given: &Given) -> Result<Node, String> {
    let written = text(spec, "schedule")?.ok_or("it has no spec.schedule")?.trim();
    // Older ones have their zone before the fields.
    let (zone, times) = match written.strip_prefix("CRON_TZ=").or_else(|| written.strip_prefix("TZ=")) {
        Some(rest) => {
            let (zone, rest) = rest.split_once(' ').ok_or("its schedule has a zone and nothing else")?;
            (Some(zone.to_string()), rest.trim())
        }
        None => (None, written),
    };
    if let Some(period) = times.strip_prefix("@every ") {
        return Ok(Node::map([("every", period.trim().into())]));
    }
    let zone = text(spec, "timeZone")?.map(String::from).or(zone);
    let zone = zone.or_else(|| given.timezone.clone()).unwrap_or_else(|| "UTC".into());
    Ok(Node::map([("cron", times.into()), ("timezone", zone.into())]))
}

/// Pods that each do a part, if each has its number.
fn parts(
    name: &str,
    spec: &Node,
    job: &Node,
    place: &Place,
    more: &mut Vec<(&'static str, Node)>,
    imported: &mut Imported,
) -> Result<(), String> {
    let completions = number(job, "completions")?.unwrap_or(1);
    let parallelism = number(job, "parallelism")?.unwrap_or(1);
    if completions <= 1 && parallelism <= 1 {
        return Ok(());
    }
    let is_indexed = text(job, "completionMode")? == Some("Indexed");
    let may_overlap = text(spec, "concurrencyPolicy")?.is_none_or(|policy| policy == "Allow");
    if !is_indexed || !may_overlap {
        let why = "only Indexed jobs whose runs may overlap become `parts`; this one has one run a slot";
        imported.different(place, format!("CronJob {name}: completions and parallelism: {why}"));
        return Ok(());
    }
    more.push(("parts", Node::map([("count", completions.into())])));
    if parallelism < completions {
        more.push(("concurrency", Node::new(Value::Map(vec![("max".into(), parallelism.into())]))));
    }
    Ok(())
}
