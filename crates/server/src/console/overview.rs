//! The overview: is everything on time, what failed and why, what comes next, what is there to do.
//!
//! Everything on it is a bounded read: the newest runs, the newest dead letters, what is raised, the next hour.

use askama::Template;
use axum::response::Response;
use jiff::SignedDuration;
use punctual_api::alert::Alarm;
use punctual_api::breaker::Breaker;
use punctual_api::dead_letter::DeadLetterGroups;
use punctual_api::node::Node;
use punctual_api::page::Page;
use punctual_api::queue::Queue;
use punctual_api::{Job, RunSummary};

use super::dead_letters::GroupView;
use super::draw::{self, Bar, Svg};
use super::form;
use super::frame::{Frame, html};
use super::shown::{self, Moment, View};
use crate::call::Call;
use crate::error::Error;
use crate::{alerts, breakers, dead_letters, jobs, nodes, queues, runs};

/// Runs that lateness is told of.
const NEWEST: &str = "100";

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    verdict: Verdict,
    lateness: Option<Lateness>,
    strip: Svg,
    succeeded: String,
    told: String,
    waiting: Vec<Waiting>,
    todos: Vec<Todo>,
    groups: Vec<GroupView>,
    hour: Svg,
    planned: String,
    peak: String,
    nodes: Vec<NodeRow>,
    checks: Vec<CheckRow>,
}

/// Whether everything is on time.
struct Verdict {
    class: &'static str,
    icon: &'static str,
    word: &'static str,
    sentence: String,
}

/// Lateness of the newest runs.
struct Lateness {
    p99: String,
    p50: String,
    p999: String,
    worst: String,
    scale: Svg,
}

struct Waiting {
    queue: String,
    waiting: String,
    /// Of the longest line, in percent.
    percent: u64,
    href: String,
}

/// What needs a person: fact, reason, one button.
struct Todo {
    icon: &'static str,
    class: &'static str,
    fact: String,
    reason: String,
    href: String,
    label: &'static str,
}

struct NodeRow {
    name: String,
    shards: usize,
    clock: String,
    since: Moment,
}

struct CheckRow {
    name: String,
    is_ok: bool,
    detail: String,
}

#[derive(Template)]
#[template(path = "first.html")]
struct First {
    frame: Frame,
    checks: Vec<CheckRow>,
    host: String,
}

pub(crate) async fn page(call: Call) -> Result<Response, Error> {
    let some: Page<Job> = jobs::list(call.asking(&[("limit", "1")])).await?.read()?;
    let newest: Page<RunSummary> = runs::list(call.asking(&[("limit", NEWEST)])).await?.read()?;
    if some.items.is_empty() && newest.items.is_empty() {
        return first(&call);
    }
    let view = View::of(&call);
    let frame = Frame::new(&call, "overview", "Overview")
        .same(format!("punctual run list --limit {NEWEST}"), format!("/v1/runs?limit={NEWEST}"))
        .live("overview");
    let groups: DeadLetterGroups = dead_letters::groups(call.asking(&[])).await?.read()?;
    let queues: Page<Queue> = queues::list(call.asking(&[])).await?.read()?;
    let next =
        super::forecast::asked(&call, call.shared.engine.now(), SignedDuration::from_hours(1), "PT1M", "0")
            .await?;
    let mut todos = asking(&call).await?;
    if frame.is_of_all {
        todos.extend(open_breakers(&call, &view).await?);
    }
    todos.extend(raised(&call, &view).await?);
    let nodes = match frame.is_of_all {
        true => node_rows(&call, &view).await?,
        false => Vec::new(),
    };
    let late: Vec<i64> = newest.items.iter().filter_map(|run| run.lateness_ms).collect();
    let bars: Vec<Bar> = newest
        .items
        .iter()
        .take(60)
        .rev()
        .map(|run| Bar::of(&run.state, run.attempt, run.lateness_ms))
        .collect();
    let peak = next.peak.map_or(String::new(), |peak| {
        format!("{} at {}", shown::number(peak.slots), view.moment(peak.at).text)
    });
    let slots: Vec<u64> = next.buckets.iter().map(|bucket| bucket.slots).collect();
    let told = format!(
        "Planned slots per minute for the next hour. Fullest: {}.",
        if peak.is_empty() { "none" } else { peak.as_str() }
    );
    html(&Overview {
        verdict: verdict(&late),
        lateness: lateness(&late),
        strip: draw::strip(&bars, true),
        succeeded: succeeded(&newest.items),
        told: draw::told(&bars),
        waiting: waiting(&queues.items),
        todos,
        groups: groups.items.iter().take(6).map(|group| GroupView::new(group, &view)).collect(),
        hour: draw::columns(&slots, u64::MAX, &told),
        planned: shown::number(next.slots),
        peak,
        nodes,
        checks: checks(&call),
        frame,
    })
}

/// The first start: a form, and a command to copy.
fn first(call: &Call) -> Result<Response, Error> {
    let host =
        call.headers.get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
    html(&First {
        frame: Frame::new(call, "overview", "Nothing is scheduled yet")
            .same("punctual job list", "/v1/jobs")
            .live("jobs"),
        checks: checks(call),
        host: host.to_string(),
    })
}

fn checks(call: &Call) -> Vec<CheckRow> {
    let checks = call.shared.health.ready();
    checks
        .into_iter()
        .map(|check| CheckRow {
            name: check.name,
            is_ok: check.is_ok,
            detail: check.detail.unwrap_or_default(),
        })
        .collect()
}

/// On time is a promise about 999 of 1000 runs; of a hundred, one may be later.
fn verdict(late: &[i64]) -> Verdict {
    let over = late.iter().filter(|late| **late > draw::PROMISE_MS).count();
    let runs = late.len();
    match (runs, over) {
        (0, _) => Verdict {
            class: "t-ok",
            icon: "clock",
            word: "Nothing has run yet",
            sentence: "Lateness is told as soon as there are runs.".into(),
        },
        (_, 0) => Verdict {
            class: "t-ok",
            icon: "ok",
            word: "On time",
            sentence: format!("All of the newest {runs} runs started within 1 s of their slot."),
        },
        (_, over) if over * 100 <= runs => Verdict {
            class: "t-ok",
            icon: "ok",
            word: "On time",
            sentence: format!("All but {over} of the newest {runs} runs started within 1 s of their slot."),
        },
        (_, over) => Verdict {
            class: "t-warn",
            icon: "clock",
            word: "Late",
            sentence: format!(
                "{over} of the newest {runs} runs started more than 1 s after their slot. Queues and nodes say what holds them up."
            ),
        },
    }
}

fn lateness(late: &[i64]) -> Option<Lateness> {
    let mut sorted = late.to_vec();
    sorted.sort_unstable();
    let worst = *sorted.last()?;
    let at = |per_mille: usize| {
        let place = (sorted.len() * per_mille).div_ceil(1000).saturating_sub(1);
        shown::millis(sorted.get(place).copied().unwrap_or(worst))
    };
    Some(Lateness {
        p99: at(990),
        p50: at(500),
        p999: at(999),
        worst: shown::millis(worst),
        scale: draw::scale(late),
    })
}

/// Of those that have ended.
fn succeeded(runs: &[RunSummary]) -> String {
    let ended = runs.iter().filter(|run| run.finished_at.is_some()).count();
    let fine = runs.iter().filter(|run| run.state == "succeeded").count();
    match ended {
        0 => "none has ended".into(),
        ended => format!("{} %", fine * 100 / ended),
    }
}

fn waiting(queues: &[Queue]) -> Vec<Waiting> {
    let mut longest: Vec<&Queue> = queues.iter().filter(|queue| queue.waiting > 0).collect();
    longest.sort_by_key(|queue| std::cmp::Reverse(queue.waiting));
    let most = longest.first().map_or(1, |queue| queue.waiting.max(1));
    let row = |queue: &&Queue| Waiting {
        queue: queue.queue.clone(),
        waiting: format!("{}{}", if queue.is_more { "more than " } else { "" }, shown::number(queue.waiting)),
        percent: queue.waiting * 100 / most,
        href: format!(
            "/console/runs{}",
            form::query(&[("state", "pending"), ("queue", queue.queue.as_str())])
        ),
    };
    longest.iter().take(5).map(row).collect()
}

/// Runs of which nobody knows what they did.
async fn asking(call: &Call) -> Result<Vec<Todo>, Error> {
    let pairs = [("state", "pending"), ("waiting_for", "answer"), ("limit", "5")];
    let page: Page<RunSummary> = runs::list(call.asking(&pairs)).await?.read()?;
    let todo = |run: RunSummary| Todo {
        icon: "info",
        class: "t-warn",
        fact: "Did a run do its work?".into(),
        reason: "Its worker died in the middle. The job says ask, so the run waits for an answer.".into(),
        href: format!("/console/runs/{}", run.id),
        label: "Decide",
    };
    Ok(page.items.into_iter().map(todo).collect())
}

async fn open_breakers(call: &Call, view: &View) -> Result<Vec<Todo>, Error> {
    let page: Page<Breaker> = breakers::list(call.asking(&[])).await?.read()?;
    let todo = |breaker: Breaker| {
        let probe = view
            .maybe(breaker.probe_by)
            .map_or(String::new(), |probe| format!(" Next probe {}.", probe.away));
        Todo {
            icon: "breaker",
            class: "t-bad",
            fact: format!("Breaker {}: {}", breaker.state, breaker.name),
            reason: format!("{}{probe}", breaker.cause.unwrap_or_default()),
            href: "/console/nodes".into(),
            label: "Open",
        }
    };
    Ok(page.items.into_iter().take(5).map(todo).collect())
}

/// What alerts have raised: silent jobs, late runs, missed slots.
async fn raised(call: &Call, view: &View) -> Result<Vec<Todo>, Error> {
    let page: Page<Alarm> = alerts::alarms(call.asking(&[("limit", "10")])).await?.read()?;
    let todo = |alarm: Alarm| {
        let href = match &alarm.job {
            Some(job) => format!("/console/jobs/{}", form::encoded(job)),
            None => "/console/alerts".into(),
        };
        Todo {
            icon: if alarm.on == "silent" { "silent" } else { "bell" },
            class: "t-warn",
            fact: format!("{}: {}", alarm.on.replace('_', " "), alarm.name),
            reason: format!("{} Since {}.", alarm.detail, view.moment(alarm.since).text),
            href,
            label: "Open",
        }
    };
    Ok(page.items.into_iter().map(todo).collect())
}

async fn node_rows(call: &Call, view: &View) -> Result<Vec<NodeRow>, Error> {
    let page: Page<Node> = nodes::list(call.asking(&[])).await?.read()?;
    let row = |node: Node| NodeRow {
        name: node.name,
        shards: node.shards,
        clock: shown::millis(node.clock_ahead_ms),
        since: view.moment(node.started_at),
    };
    Ok(page.items.into_iter().take(20).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_run_of_a_hundred_is_on_time_and_two_are_late() {
        let late = |over: usize| verdict(&[vec![5; 100 - over], vec![2000; over]].concat()).word;
        assert_eq!((late(0), late(1), late(2)), ("On time", "On time", "Late"));
        assert_eq!(verdict(&[]).word, "Nothing has run yet");
    }

    #[test]
    fn lateness_is_told_by_rank() {
        let late: Vec<i64> = (1..=100).rev().collect();
        let told = lateness(&late).map(|told| (told.p50, told.p99, told.p999, told.worst));
        let words = ("50 ms".to_string(), "99 ms".to_string(), "100 ms".to_string(), "100 ms".to_string());
        assert_eq!(told, Some(words));
    }
}
