//! Jobs as people read them.

use comfy_table::Cell;
use jiff::{SignedDuration, Timestamp};
use punctual_api::backfill::BackfillSlots;
use punctual_api::job::{Job, Upcoming};
use punctual_api::ledger::LedgerEntry;
use punctual_api::link::Link;
use punctual_api::parts::Parts;
use punctual_api::policies::Retention;
use punctual_api::retry::Retry;
use punctual_api::target::Target;
use punctual_api::time::Time;
use punctual_api::{Duration, Schedule};
use punctual_client::Answer;

use crate::commands::{moment, output};

/// Slots to come that are shown.
pub(super) const SLOTS: usize = 3;

/// Entries of the ledger that are shown.
pub(super) const LEDGER: usize = 3;

/// What became of a job.
pub(super) fn one_line(deed: &str, job: &Job, now: Timestamp) -> String {
    let status = &job.status;
    let next = match status.next_fire_at {
        Some(at) if status.state == "active" => format!(", fires {}", moment::full(at, now)),
        _ => String::new(),
    };
    let mut text = format!("{deed} job {} ({}, version {}){next}\n", status.id, status.state, status.version);
    for warning in &status.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

pub(super) fn table(jobs: &[&Job], now: Timestamp, is_wide: bool) -> String {
    let columns = [
        "JOB", "NAME", "STATE", "SCHEDULE", "NEXT", "TARGET", "KEY", "QUEUE", "LANE", "LABELS", "VERSION",
        "CHANGED",
    ];
    let mut table = output::table(if is_wide { &columns } else { &columns[..6] });
    for job in jobs {
        let next = job.status.next_fire_at.map(|at| moment::relative(at, now));
        let mut row = vec![
            Cell::new(&job.status.id),
            Cell::new(output::safe(job.spec.name.as_deref().unwrap_or_default())),
            output::state(&job.status.state),
            Cell::new(job.spec.schedule.as_ref().map(schedule).unwrap_or_default()),
            Cell::new(next.unwrap_or_default()),
            Cell::new(job.spec.target.as_ref().map(target).unwrap_or_default()),
        ];
        if is_wide {
            let (spec, status) = (&job.spec, &job.status);
            let texts = [&spec.key, &spec.queue, &spec.lane];
            row.extend(texts.map(|text| Cell::new(output::safe(text.as_deref().unwrap_or_default()))));
            row.push(Cell::new(output::safe(&spec.labels.as_ref().map(output::labels).unwrap_or_default())));
            row.push(Cell::new(status.version));
            row.push(Cell::new(moment::relative(status.updated_at, now)));
        }
        table.add_row(row);
    }
    output::lines(&table)
}

pub(super) fn page(
    job: &Job,
    upcoming: &[Upcoming],
    ledger: &[Answer<LedgerEntry>],
    now: Timestamp,
) -> String {
    let (status, spec) = (&job.status, &job.spec);
    let mut facts = output::Facts::new();
    let mut fact = |name: &str, value: Option<String>| facts.add(name, value);
    fact("job", Some(status.id.clone()));
    fact("name", spec.name.clone());
    fact("key", spec.key.clone());
    let paused = status.paused.as_ref().map(|pause| {
        let by = pause.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let reason = pause.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let until =
            pause.until.map(|until| format!(" until {}", moment::full(until, now))).unwrap_or_default();
        format!("{}{by} since {}{until}{reason}", status.state, moment::full(pause.since, now))
    });
    fact("state", Some(paused.unwrap_or_else(|| status.state.clone())));
    fact("schedule", spec.schedule.as_ref().map(schedule));
    fact("calendars", spec.schedule.as_ref().and_then(calendars));
    fact("target", spec.target.as_ref().map(target));
    let told = spec.dead_letter_target.as_ref().map(|to| format!("told to {}", target(to)));
    fact("dead letters", Some(told.unwrap_or_else(|| "told to nobody".into())));
    let link = |link: &Link| Some(format!("{} -> {}", link.on.as_ref()?, link.job.as_ref()?));
    let links = spec.links.as_ref().map(|links| links.iter().filter_map(link).collect::<Vec<_>>().join(", "));
    fact("links", links);
    fact("payload", spec.payload.as_ref().map(|payload| shortened(payload.as_str())));
    fact("retry", spec.retry.as_ref().map(retry));
    let limit = |limit: Option<Duration>| Some(limit.map_or("off".into(), length));
    fact("start window", limit(spec.start_window));
    fact("timeout", spec.timeout.map(|timeout| format!("{} an attempt", length(timeout))));
    fact("deadline", limit(spec.deadline));
    fact("min duration", limit(spec.min_duration));
    fact("catch up", spec.catch_up.as_ref().and_then(|catch_up| catch_up.policy.clone()));
    fact(
        "overlap",
        spec.overlap.as_ref().and_then(|overlap| {
            let most = overlap.max.map(|most| format!(", at most {most} wait")).unwrap_or_default();
            Some(format!("{}{most}", overlap.policy.as_ref()?))
        }),
    );
    fact("on unknown", spec.on_unknown.clone());
    fact(
        "completion",
        spec.completion.as_ref().map(|how| {
            let heartbeat = spec.heartbeat.map(|every| format!(", heard of every {every}"));
            format!("by {how}{}", heartbeat.unwrap_or_default())
        }),
    );
    fact(
        "concurrency",
        spec.concurrency.as_ref().and_then(|one| {
            let across = shared(one.key.as_deref(), one.across.as_deref());
            let retries = if one.holds_retries == Some(false) { ", retries let others pass" } else { "" };
            Some(format!("{} at once{across}{retries}", one.max?))
        }),
    );
    fact(
        "rate",
        spec.rate.as_ref().and_then(|one| {
            let burst = one.burst.filter(|burst| *burst > 1);
            let burst = burst.map(|burst| format!(", bursts of {burst}")).unwrap_or_default();
            let across = shared(one.key.as_deref(), one.across.as_deref());
            Some(format!("{} in {}{burst}{across}", one.limit?, length(one.per?)))
        }),
    );
    let breaker = spec.breaker.as_ref().and_then(|breaker| breaker.failures);
    fact(
        "breaker",
        Some(breaker.map_or("off".into(), |failures| format!("opens after {failures} failures"))),
    );
    fact("retention", spec.retention.as_ref().and_then(retention));
    fact(
        "queue",
        spec.queue
            .as_ref()
            .map(|queue| format!("{queue}, lane {}", spec.lane.as_deref().unwrap_or("standard"))),
    );
    fact("items", status.batch_items.map(|items| format!("{items}, each a run of every slot")));
    fact(
        "parts",
        spec.parts.as_ref().map(|parts| match parts {
            Parts::Count(of) => format!("each slot becomes {} runs", of.count.unwrap_or(1)),
            Parts::Word(_) => "each slot becomes a run for every worker that lives".into(),
        }),
    );
    fact(
        "requires",
        spec.requires.as_ref().map(|requires| format!("a worker with {}", output::labels(requires))),
    );
    fact("type", spec.r#type.clone());
    fact("labels", spec.labels.as_ref().map(output::labels));
    fact("tenant", Some(status.tenant.clone()));
    fact("version", Some(format!("{}, of {}", status.version, moment::full(status.updated_at, now))));
    fact(
        "last run",
        Some(match &status.last_run {
            Some(run) => format!("{} {}, for {}", run.id, run.state, moment::full(run.scheduled_for, now)),
            None => "none yet".into(),
        }),
    );
    let mut page = facts.lines();
    if !upcoming.is_empty() {
        let mut table = output::table(&["NEXT SLOTS", "", "NOTE"]);
        for slot in upcoming {
            let note = slot.note.clone().unwrap_or_default();
            table.add_row(vec![slot.local.clone(), moment::relative(slot.fires_at, now), note]);
        }
        page.push_str(&format!("\n{}", output::lines(&table)));
    }
    if !ledger.is_empty() {
        let mut table = output::table(&["SLOTS THAT DID NOT RUN", "COUNT", "WHY"]);
        for entry in ledger {
            let which = match entry.slots {
                1 => moment::local(entry.from),
                _ => format!("{} to {}", moment::local(entry.from), moment::local(entry.to)),
            };
            let why = format!("{}: {}", entry.state, entry.reason);
            table.add_row(vec![which, entry.slots.to_string(), why]);
        }
        page.push_str(&format!("\n{}", output::lines(&table)));
    }
    for warning in &status.warnings {
        page.push_str(&format!("\nwarning: {warning}\n"));
    }
    page
}

/// The account of a range.
pub(super) fn ledger(rows: &[&LedgerEntry], now: Timestamp) -> String {
    let mut table = output::table(&["SLOTS", "COUNT", "WHAT", "WHY"]);
    for row in rows {
        let which = match row.from == row.to {
            true => moment::full(row.from, now),
            false => format!("{} to {}", moment::local(row.from), moment::local(row.to)),
        };
        table.add_row(vec![
            Cell::new(which),
            Cell::new(row.slots),
            output::state(&row.state),
            Cell::new(output::safe(&because(row))),
        ]);
    }
    output::lines(&table)
}

/// Why slots fared as they did, in a line.
fn because(row: &LedgerEntry) -> String {
    if let Some(run) = &row.run {
        let late = run.lateness_ms.map(|late| format!(", {} late", moment::millis(late))).unwrap_or_default();
        let waits = run.waiting_for.as_ref().map(|what| format!(", waits for {what}")).unwrap_or_default();
        let attempts = if run.attempts == 1 { "attempt" } else { "attempts" };
        let slot = match run.cause.as_str() {
            "backfill" => format!(" for {}", moment::local(run.scheduled_for)),
            _ => String::new(),
        };
        return format!("{}: run {}{slot}, {} {attempts}{late}{waits}", row.reason, run.id, run.attempts);
    }
    if let Some(pause) = &row.pause {
        let by = pause.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let reason = pause.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let end = pause.ended_at.map(|at| format!(" to {}", moment::local(at))).unwrap_or_default();
        return format!("{}: paused from {}{end}{by}{reason}", row.reason, moment::local(pause.since));
    }
    match (&row.schedule, &row.calendars) {
        (Some(schedule), _) => format!("schedule: until then `{schedule}`"),
        (None, Some(calendars)) => format!("calendar: {}", calendars.join(", ")),
        (None, None) => row.reason.clone(),
    }
}

/// What a backfill would run.
pub(super) fn backfill(slots: &BackfillSlots, now: Timestamp) -> String {
    let (first, last) = (moment::full(slots.first, now), moment::full(slots.last, now));
    match slots.slots {
        1 => format!("1 slot would run: {first}\n"),
        many => format!("{many} slots would run, from {first} to {last}\n"),
    }
}

fn length(of: Duration) -> String {
    SignedDuration::try_from(of.0).map(moment::length).unwrap_or_else(|_| of.to_string())
}

/// When attempts follow each other, in a line.
fn retry(retry: &Retry) -> String {
    let most = retry.max_attempts.unwrap_or_default();
    let mut text = match most {
        1 => "one attempt".into(),
        most => format!("at most {most} attempts, {} apart", delays(retry)),
    };
    if let Some(limit) = retry.retry_for {
        text.push_str(&format!(", none later than {} after the slot", length(limit)));
    }
    for (which, failures) in [("also on", &retry.on), ("not on", &retry.not_on)] {
        if let Some(failures) = failures {
            let statuses = failures.status.iter().flatten().map(|status| status.0.as_str());
            let words = [&failures.errors, &failures.outcomes].into_iter().flatten().flatten();
            let all: Vec<&str> = statuses.chain(words.map(String::as_str)).collect();
            text.push_str(&format!("; {which} {}", all.join(", ")));
        }
    }
    text
}

/// What is kept of runs, in a line.
fn retention(retention: &Retention) -> Option<String> {
    let days = retention.days?;
    let mut text = match (retention.failures, days) {
        (Some(true), 2..) => format!("{days} days, successes 1 day"),
        (_, 1) => "1 day".to_string(),
        _ => format!("{days} days"),
    };
    if let Some(last) = retention.last {
        text.push_str(&format!(", lists show the last {last}"));
    }
    if let Some(most) = retention.output_max {
        text.push_str(&format!(", {most} bytes of output"));
    }
    Some(text)
}

fn delays(retry: &Retry) -> String {
    let lengths = |delays: &[Duration]| delays.iter().copied().map(length).collect::<Vec<_>>().join(", ");
    match (&retry.delays, retry.base, retry.cap) {
        (Some(delays), _, _) => lengths(delays),
        (None, Some(base), Some(cap)) => match retry.backoff.as_deref() {
            Some("linear") => format!("{} to {} in steps of {}", length(base), length(cap), length(base)),
            _ => format!("{} to {}", length(base), length(cap)),
        },
        (None, base, _) => base.map(length).unwrap_or_default(),
    }
}

/// A payload is for programs; its beginning tells people which it is.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 100;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.into(),
    }
}

fn schedule(schedule: &Schedule) -> String {
    let time = |time: &Time| match time {
        Time::Text(text) => text.clone(),
        Time::Seconds(seconds) => seconds.to_string(),
    };
    let kind = if let Some(cron) = &schedule.cron {
        cron.clone()
    } else if let Some(every) = &schedule.every {
        let from = schedule.from.as_ref().map(|from| format!(" from {from}")).unwrap_or_default();
        format!("every {every}{from}")
    } else if let Some(at) = &schedule.at {
        format!("at {}", time(at))
    } else if let Some(after) = &schedule.after {
        format!("once, after {after}")
    } else if let Some(interval) = &schedule.interval {
        interval.clone()
    } else {
        "once, now".into()
    };
    match &schedule.timezone {
        Some(zone) => format!("{kind} {zone}"),
        None => kind,
    }
}

/// The calendars of a schedule, and what becomes of slots that they exclude.
fn calendars(schedule: &Schedule) -> Option<String> {
    let names = schedule.calendars.as_ref()?.join(", ");
    Some(match schedule.on_excluded.as_deref() {
        Some(word) => format!("{names}; an excluded slot moves to the {word} allowed day"),
        None => names,
    })
}

fn target(target: &Target) -> String {
    match (&target.http, &target.function) {
        (Some(http), _) => {
            let (method, url) = (http.method.as_deref().unwrap_or("POST"), http.url.as_deref().unwrap_or(""));
            format!("{method} {url}")
        }
        (None, Some(function)) => format!("function {}", function.name.as_deref().unwrap_or("")),
        (None, None) => "discard".into(),
    }
}
/// What a limit counts apart, and with whom.
fn shared(key: Option<&str>, across: Option<&str>) -> String {
    let key = key.map(|key| format!(" for each {key}")).unwrap_or_default();
    let across = across.filter(|across| *across != "job").map(|across| format!(" across the {across}"));
    format!("{key}{}", across.unwrap_or_default())
}
