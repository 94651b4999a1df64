//! CronJobs of Kubernetes.
//!
//! A pod goes to a worker, since Punctual starts no containers itself: the payload has its specification, as it is written.

use super::{Draft, Given, Imported, seconds, slug};
use crate::document::files::Place;
use crate::document::{Document, Node, Value};

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
    let number = |node: &Node, member: &str| node.get(member).and_then(Node::whole);
    let mut more = Vec::new();

    let overlap = match spec.get("concurrencyPolicy").and_then(Node::text) {
        None | Some("Allow") => None,
        Some("Forbid") => Some("skip"),
        Some("Replace") => Some("cancel_running"),
        Some(other) => return Err(format!("its concurrencyPolicy `{other}` is not known")),
    };
    if let Some(policy) = overlap {
        more.push(("overlap", Node::map([("policy", policy.into())])));
    }
    if let Some(late) = number(spec, "startingDeadlineSeconds") {
        more.push(("start_window", seconds(late.max(1))));
        more.push(("catch_up", Node::map([("policy", "latest".into()), ("window", seconds(late.max(1)))])));
    }
    let attempts = number(job, "backoffLimit").unwrap_or(6) + 1;
    let retry =
        [("max_attempts", attempts.min(1_000).into()), ("base", "PT10S".into()), ("cap", "PT6M".into())];
    // One attempt is followed by none.
    more.push((
        "retry",
        if attempts == 1 { Node::map([("max_attempts", 1.into())]) } else { Node::map(retry) },
    ));
    match number(job, "activeDeadlineSeconds") {
        Some(limit) => {
            more.push(("timeout", seconds(limit.clamp(1, 86_400))));
            more.push((
                "deadline",
                seconds(limit.max(1) + number(spec, "startingDeadlineSeconds").unwrap_or(0)),
            ));
            let why = "activeDeadlineSeconds counts from the start of the pod, `deadline` from the slot and what it may be late";
            imported.different(place, format!("CronJob {name}: {why}"));
        }
        None => more.push(("timeout", "PT24H".into())),
    }
    let limits = ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"].map(|member| number(spec, member));
    if limits.iter().any(Option::is_some) {
        let last = limits[0].unwrap_or(3) + limits[1].unwrap_or(1);
        more.push(("retention", Node::map([("last", last.clamp(1, 1_000).into())])));
        let why = "history limits count successes and failures apart; `retention.last` counts them together";
        imported.different(place, format!("CronJob {name}: {why}"));
    }
    parts(name, job, place, &mut more, imported);
    if spec.get("suspend").and_then(Node::truth) == Some(true) {
        let paused = Node::map([("reason", "suspended in Kubernetes".into())]);
        more.push(("paused", paused));
    }
    for (node, member) in [
        (job, "podFailurePolicy"),
        (job, "successPolicy"),
        (job, "ttlSecondsAfterFinished"),
        (job, "managedBy"),
        (job, "podReplacementPolicy"),
    ] {
        if node.get(member).is_some() {
            imported.different(
                place,
                format!("CronJob {name}: {member} has no counterpart; the worker must see to it"),
            );
        }
    }

    let pod = job.at(&["template", "spec"]).ok_or("it has no pod (spec.jobTemplate.spec.template.spec)")?;
    let mut payload = Node::map([("pod", pod.clone())]);
    if let Some(namespace) = namespace {
        payload.set("namespace", namespace);
    }
    let mut labels: Vec<(String, String)> = vec![("source".into(), "kubernetes".into())];
    for (name, value) in body.at(&["metadata", "labels"]).map(Node::members).unwrap_or_default() {
        labels.push((name.clone(), value.text().map_or_else(|| value.to_json(), String::from)));
    }
    let key = namespace.map_or_else(|| name.to_string(), |namespace| format!("{namespace}/{name}"));
    let schedule = when(spec, given)?;
    Ok(Draft { key, name: name.into(), labels, schedule, handler: slug(name), payload, more })
}

/// The schedule: five fields, a nickname or `@every 1h`, in a zone.
fn when(spec: &Node, given: &Given) -> Result<Node, String> {
    let text = spec.get("schedule").and_then(Node::text).ok_or("it has no spec.schedule")?.trim();
    // Older ones have their zone before the fields.
    let (zone, text) = match text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) {
        Some(rest) => {
            let (zone, rest) = rest.split_once(' ').ok_or("its schedule has a zone and nothing else")?;
            (Some(zone.to_string()), rest.trim())
        }
        None => (None, text),
    };
    if let Some(period) = text.strip_prefix("@every ") {
        return Ok(Node::map([("every", period.trim().into())]));
    }
    let zone = spec.get("timeZone").and_then(Node::text).map(String::from).or(zone);
    let zone = zone.or_else(|| given.timezone.clone()).unwrap_or_else(|| "UTC".into());
    Ok(Node::map([("cron", text.into()), ("timezone", zone.into())]))
}

/// Pods that each do a part, if each has its number.
fn parts(
    name: &str,
    job: &Node,
    place: &Place,
    more: &mut Vec<(&'static str, Node)>,
    imported: &mut Imported,
) {
    let number = |member: &str| job.get(member).and_then(Node::whole).unwrap_or(1);
    let (completions, parallelism) = (number("completions"), number("parallelism"));
    if completions <= 1 && parallelism <= 1 {
        return;
    }
    let is_indexed = job.get("completionMode").and_then(Node::text) == Some("Indexed");
    let overlaps = more.iter().any(|(name, _)| *name == "overlap");
    if !is_indexed || overlaps {
        let why = "only Indexed jobs whose runs may overlap become `parts`; this one has one run a slot";
        imported.different(place, format!("CronJob {name}: completions and parallelism: {why}"));
        return;
    }
    more.push(("parts", Node::map([("count", completions.into())])));
    if parallelism < completions {
        more.push(("concurrency", Node::new(Value::Map(vec![("max".into(), parallelism.into())]))));
    }
}
