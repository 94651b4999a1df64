//! Rules of EventBridge and schedules of EventBridge Scheduler, in the JSON that the AWS command line and CloudFormation write.
//!
//! A target in AWS goes to a worker, since Punctual calls no services of AWS itself: the payload has its ARN and its input.

use jiff::Timestamp;
use punctual_api::Schedule as Wire;
use punctual_schedule::cron::Dialect;
use punctual_schedule::{Kind, Schedule};

use super::{Draft, Given, Imported, seconds, slug};
use crate::commands::apply::wanted::node;
use crate::document::files::Place;
use crate::document::{Document, Node, Value, json};

/// Reads what is in a file: single ones, lists, `{"Rules": []}`, `{"Schedules": []}`, or a template of CloudFormation.
pub(super) fn read(documents: Vec<Document>, given: &Given) -> Imported {
    let mut imported = Imported::default();
    for Document { place, body } in documents {
        found(&body, &place, given, &mut imported);
    }
    imported.remarks.push(
        "targets in AWS are left to workers that pull: each job has a handler named like it (--handler gives all of them one), \
         and its payload has the ARN and the input",
    );
    imported
        .remarks
        .push("a rate() counts from the creation of a rule; here it counts from midnight UTC of 1970-01-01");
    imported.remarks.push(
        "AWS retries what it cannot deliver, 185 times within 24 hours unless a RetryPolicy says otherwise; here each attempt that \
         fails is retried as often; as there, runs may overlap; an attempt ends after 24 hours",
    );
    imported
}

fn found(body: &Node, place: &Place, given: &Given, imported: &mut Imported) {
    let here = |node: &Node| Place { line: node.line, ..place.clone() };
    let mut is_list = false;
    for member in ["Rules", "Schedules"] {
        if let Some(list) = body.get(member) {
            is_list = true;
            list.items().iter().for_each(|item| found(item, &here(item), given, imported));
        }
    }
    for (name, resource) in body.get("Resources").map(Node::members).unwrap_or_default() {
        is_list = true;
        let kind = resource.get("Type").and_then(Node::text).unwrap_or_default();
        let Some(properties) = resource
            .get("Properties")
            .filter(|_| matches!(kind, "AWS::Events::Rule" | "AWS::Scheduler::Schedule"))
        else {
            continue; // A template has much that is no schedule.
        };
        let mut properties = properties.clone();
        if properties.get("Name").and_then(Node::text).is_none() {
            properties.set("Name", name.as_str());
        }
        found(&properties, &here(resource), given, imported);
    }
    if is_list {
        return;
    }
    let Some(name) = body.get("Name").and_then(Node::text) else {
        return imported.left(place, "this is no rule and no schedule: it has no Name");
    };
    let Some(expression) = body.get("ScheduleExpression").and_then(Node::text) else {
        let why = match body.get("EventPattern") {
            Some(_) => "it starts on events, not at times",
            None => "it has no ScheduleExpression; `list-schedules` leaves it out, `get-schedule` has it",
        };
        return imported.left(place, format!("{name}: {why}"));
    };
    let when = match when(body, expression, given) {
        Ok(when) => when,
        Err(reason) => return imported.left(place, format!("{name}: {reason}")),
    };
    let targets: Vec<&Node> = match (body.get("Target"), body.get("Targets")) {
        (Some(target), _) => vec![target],
        (None, Some(targets)) => targets.items().iter().collect(),
        (None, None) => Vec::new(),
    };
    if targets.is_empty() {
        let hint = "`list-targets-by-rule` has them: put its Targets into the rule";
        return imported.left(place, format!("{name}: it has no targets; {hint}"));
    }
    let pattern = body.get("EventPattern").filter(|pattern| !matches!(pattern.value, Value::Null));
    if pattern.is_some() {
        let why =
            "only its schedule is imported; it starts on events, too, and EventPattern has no counterpart";
        imported.different(place, format!("{name}: {why}"));
    }
    for target in &targets {
        let apart = (targets.len() > 1).then(|| target.get("Id").and_then(Node::text).unwrap_or("target"));
        let draft = draft(name, apart, body, target, when.clone(), place, imported);
        imported.add(here(target), draft.document(given));
    }
}

/// The schedule in our words.
fn when(body: &Node, expression: &str, given: &Given) -> Result<Node, String> {
    let schedule = Schedule::parse_dialect(expression, Dialect::Aws).map_err(|error| error.to_string())?;
    let mut wire = node(&Wire::from(&schedule)).map_err(|unread| format!("{unread:?}"))?;
    let zone = body.get("ScheduleExpressionTimezone").and_then(Node::text).map(String::from);
    let zone = zone.or_else(|| given.timezone.clone()).unwrap_or_else(|| "UTC".into());
    if matches!(schedule.kind, Kind::Cron(_) | Kind::At(_)) {
        wire.set("timezone", zone.as_str());
    }
    if let Kind::At(moment) = &schedule.kind {
        let is_past = moment
            .to_string()
            .parse::<jiff::civil::DateTime>()
            .ok()
            .and_then(|local| local.to_zoned(jiff::tz::TimeZone::get(&zone).ok()?).ok())
            .is_some_and(|at| at.timestamp() < given.now);
        if is_past {
            return Err(format!("{expression} is over"));
        }
    }
    for (from, to) in [("StartDate", "start"), ("EndDate", "end")] {
        if let Some(date) = body.get(from) {
            wire.set(to, instant(date).ok_or_else(|| format!("{from} {} is not a time", date.to_json()))?);
        }
    }
    if let Some(minutes) = window_minutes(body)? {
        wire.set("spread", format!("PT{minutes}M"));
    }
    Ok(wire)
}

/// How much later than their slots its runs may begin.
fn window_minutes(body: &Node) -> Result<Option<u64>, String> {
    let Some(window) = body.get("FlexibleTimeWindow") else { return Ok(None) };
    if window.get("Mode").and_then(Node::text) != Some("FLEXIBLE") {
        return Ok(None);
    }
    let minutes = window.get("MaximumWindowInMinutes").and_then(Node::whole);
    minutes.map(Some).ok_or_else(|| "its FlexibleTimeWindow has no MaximumWindowInMinutes".into())
}

/// A time as the command line writes it: RFC 3339, or seconds since 1970.
fn instant(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => {
            let at = text.parse::<Timestamp>().ok();
            // `+0000`, as some tools write it.
            let at = at.or_else(|| Timestamp::strptime("%Y-%m-%dT%H:%M:%S%z", text).ok());
            at.map(|at| at.to_string())
        }
        Value::Number(text) => {
            let whole = text.split('.').next()?.parse().ok()?;
            Timestamp::from_second(whole).ok().map(|at| at.to_string())
        }
        _ => None,
    }
}

fn draft(
    name: &str,
    apart: Option<&str>,
    body: &Node,
    target: &Node,
    schedule: Node,
    place: &Place,
    imported: &mut Imported,
) -> Draft {
    let group = body.get("GroupName").and_then(Node::text).filter(|group| *group != "default");
    let mut key = group.map_or_else(|| name.to_string(), |group| format!("{group}/{name}"));
    if let Some(apart) = apart {
        key = format!("{key}-{}", slug(apart));
    }
    let arn = target
        .get("Arn")
        .map_or_else(String::new, |arn| arn.text().map_or_else(|| arn.to_json(), String::from));
    let mut payload = Node::map([("target", arn.as_str().into())]);
    if let Some(input) = target.get("Input") {
        let text = input.text().map_or_else(|| input.to_json(), String::from);
        if text.contains("<aws.") {
            imported.different(
                place,
                format!("{name}: the worker must fill in what is between < and > of its input"),
            );
        }
        // A text of JSON becomes what it says.
        payload.set("input", json::read(&text).unwrap_or_else(|_| text.into()));
    }
    let known =
        ["Id", "Arn", "Input", "RoleArn", "RetryPolicy", "DeadLetterConfig", "InputPath", "InputTransformer"];
    let parameters: Vec<(String, Node)> =
        target.members().iter().filter(|(member, _)| !known.contains(&member.as_str())).cloned().collect();
    if !parameters.is_empty() {
        payload.set("parameters", Node::new(Value::Map(parameters)));
    }
    for (member, why) in [
        ("InputPath", "there is no event to take a part of"),
        ("InputTransformer", "there is no event to take parts of; write the payload"),
        ("DeadLetterConfig", "give the job a `dead_letter_target`, or set an alert"),
    ] {
        if target.get(member).is_some() {
            imported.different(place, format!("{name}: {member} has no counterpart; {why}"));
        }
    }
    let policy = target.get("RetryPolicy");
    for member in ["MaximumRetryAttempts", "MaximumEventAgeInSeconds"] {
        if let Some(node) = policy.and_then(|policy| policy.get(member)).filter(|node| node.whole().is_none())
        {
            let why =
                format!("its {member} {} is not a number; it has what AWS takes without one", node.to_json());
            imported.different(place, format!("{name}: {why}"));
        }
    }
    let spread_s = window_minutes(body).ok().flatten().unwrap_or(0).saturating_mul(60);
    let mut more = vec![
        ("timeout", "PT24H".into()),
        ("retry", retry(policy, spread_s)),
        // Also what is usual: a default of the tenant may say otherwise.
        ("overlap", Node::map([("policy", "allow".into())])),
    ];
    if body.get("ActionAfterCompletion").and_then(Node::text) == Some("DELETE") {
        imported
            .different(place, format!("{name}: a job that is over goes with its history, and not at once"));
    }
    if body.get("State").and_then(Node::text).is_some_and(|state| state.starts_with("DISABLED")) {
        more.push(("paused", Node::map([("reason", "disabled in EventBridge".into())])));
    }
    let mut labels = vec![("source".to_string(), "eventbridge".to_string())];
    labels.extend(group.map(|group| ("group".to_string(), group.to_string())));
    let description = body.get("Description").and_then(Node::text).filter(|text| !text.is_empty());
    Draft {
        name: description.unwrap_or(name).chars().take(200).collect(),
        handler: slug(&apart.map_or_else(|| name.to_string(), |apart| format!("{name}-{apart}"))),
        key,
        labels,
        schedule,
        payload,
        more,
    }
}

/// What AWS does unless a policy says otherwise.
const RETRIES: u64 = 185;
const AGE_S: u64 = 86_400;

/// AWS counts from when it calls first, and `retry_for` from the slot, up to the whole spread before that.
fn retry(policy: Option<&Node>, spread_s: u64) -> Node {
    let number = |member: &str| policy.and_then(|policy| policy.get(member)).and_then(Node::whole);
    let attempts = number("MaximumRetryAttempts").unwrap_or(RETRIES).saturating_add(1).min(1_000);
    let mut retry = Node::map([("max_attempts", attempts.into())]);
    if attempts > 1 {
        let age = number("MaximumEventAgeInSeconds").unwrap_or(AGE_S);
        retry.set("retry_for", seconds(age.saturating_add(spread_s)));
    }
    retry
}
