//! `punctual run`: what happened to slots, and what to do about it.

use clap::{Args, Subcommand, ValueEnum};
use comfy_table::Cell;
use jiff::Timestamp;
use punctual_api::bulk::{CancelRuns, OpenRunFilter};
use punctual_api::report::AttemptEnd;
use punctual_api::run::{Attempt, Output, Run, RunLogLine, RunSummary};
use punctual_api::worker::ResultError;
use punctual_client::{Client, JobRef, Many, RunFilter};

use super::asking::Ask;
use super::dead_letter::time;
use super::many::{self, Asked, How};
use super::output::Format;
use super::remote::{Paging, Remote};
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List runs, newest first
    List {
        /// Of this job: its id or key:KEY
        #[arg(long, value_name = "JOB")]
        job: Option<JobRef>,
        /// In this state
        #[arg(long, value_enum)]
        state: Option<State>,
        /// Dead letters only
        #[arg(long)]
        dead: bool,
        /// Pending runs that wait for this
        #[arg(long, value_enum)]
        waiting_for: Option<WaitingFor>,
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show a run with its attempts: when, how long, and why it failed
    Get {
        /// The run's id
        run: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Show what the attempts of a run wrote, oldest lines first
    Log {
        /// The run's id
        run: String,
        /// Of this attempt; of all
        #[arg(long, value_name = "N")]
        attempt: Option<u32>,
        /// Go on until the run is over
        #[arg(long, short)]
        follow: bool,
    },
    /// End a waiting run, or ask a running one to stop
    Cancel {
        /// The run's id
        run: String,
    },
    /// Cancel all open runs that a filter finds
    #[command(subcommand)]
    Bulk(Bulk),
    /// Let a dead run go on: the same run, its next attempt
    Retry {
        /// The run's id
        run: String,
    },
    /// Say what became of a run that waits for an answer
    #[command(after_help = "Examples:
  punctual run list --waiting-for answer
  punctual run answer RUN succeeded")]
    Answer {
        /// The run's id
        run: String,
        /// Try it again; it did its work; or it did not
        #[arg(value_enum)]
        answer: Said,
    },
    /// Say what became of a run whose receiver reports later
    #[command(after_help = "Examples:
  punctual run complete RUN succeeded --token \"$PUNCTUAL_COMPLETION_TOKEN\"
  punctual run complete RUN failed --message 'disk full'")]
    Complete {
        /// The run's id
        run: String,
        /// What became of it
        #[arg(value_enum)]
        outcome: Ended,
        /// The token that the call had
        #[arg(long, env = "PUNCTUAL_COMPLETION_TOKEN", hide_env_values = true, value_name = "TOKEN")]
        token: String,
        /// What it says, which the run keeps as its output
        #[arg(long, value_name = "TEXT")]
        result: Option<String>,
        /// Why it failed
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
        /// It failed, and another attempt would not help
        #[arg(long)]
        for_good: bool,
    },
}

/// How a receiver says that its attempt ended.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Ended {
    Succeeded,
    Failed,
    Cancelled,
}

#[derive(Subcommand)]
pub(crate) enum Bulk {
    /// End waiting runs, and ask running ones to stop
    #[command(after_help = "Examples:
  punctual run bulk cancel --queue slow --state pending --dry-run
  punctual run bulk cancel --job key:nightly")]
    Cancel {
        /// Of this job: its id or key:KEY
        #[arg(long, value_name = "JOB")]
        job: Option<JobRef>,
        /// In this state; in either, unless said otherwise
        #[arg(long, value_enum)]
        state: Option<Open>,
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        how: How,
    },
}

/// The states of runs that have not ended.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Open {
    Pending,
    Running,
}

/// What runs and dead letters can be narrowed by.
#[derive(Args)]
pub(crate) struct Common {
    /// Of this type of job
    #[arg(long, value_name = "TYPE")]
    pub(super) r#type: Option<String>,
    /// In this queue
    #[arg(long, value_name = "QUEUE")]
    pub(super) queue: Option<String>,
    /// Born at or after: 2026-12-24T18:00:00Z or epoch seconds
    #[arg(long, value_name = "TIME")]
    pub(super) from: Option<String>,
    /// Born before
    #[arg(long, value_name = "TIME")]
    pub(super) to: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum State {
    Pending,
    Running,
    Succeeded,
    Failed,
    TimedOut,
    Cancelled,
    Missed,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum WaitingFor {
    Time,
    Capacity,
    Retry,
    EarlierRun,
    Limit,
    Answer,
}

/// What somebody says about a run.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Said {
    Retry,
    Succeeded,
    Failed,
}

/// The word of a choice, as the API has it.
pub(super) fn word<T: ValueEnum>(choice: T) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::List { job, state, dead, waiting_for, common, paging } => {
                let job = match job {
                    Some(job) => Some(client.job_id(job).await?),
                    None => None,
                };
                let filter = RunFilter {
                    job,
                    state: state.map(word),
                    waiting_for: waiting_for.map(word),
                    dead: dead.then_some(true),
                    r#type: common.r#type.clone(),
                    queue: common.queue.clone(),
                    from: common.from.clone(),
                    to: common.to.clone(),
                    ..RunFilter::default()
                };
                remote
                    .show_list(client.runs(&filter), paging, |runs, now| table(runs, now, remote.is_wide()))
                    .await
            }
            Command::Get { run, .. } => remote.show(&client.run(run).await?, page),
            Command::Log { run, attempt, follow } => {
                let mut lines = client.run_log(run, *attempt, *follow).limit(1_000);
                while let Some(page) = lines.next_page().await? {
                    for line in &page.items {
                        let text = match remote.output {
                            Format::Json => format!("{}\n", line.text()),
                            Format::Yaml => format!("---\n{}", output::machine(line.text(), Format::Yaml)?),
                            Format::Table | Format::Wide => written(&line.value),
                        };
                        output::print(&text)?;
                    }
                }
                Ok(())
            }
            Command::Cancel { run } => remote.show(&client.cancel_run(run).await?, |run, _| {
                match run.is_cancel_requested && run.finished_at.is_none() {
                    true => format!("run {} is asked to stop\n", run.id),
                    false => format!("run {} is {}\n", run.id, run.state),
                }
            }),
            Command::Bulk(Bulk::Cancel { job, state, common, how }) => {
                let job = match job {
                    Some(job) => Some(client.job_id(job).await?),
                    None => None,
                };
                let filter = OpenRunFilter {
                    state: state.map(word),
                    job,
                    r#type: common.r#type.clone(),
                    queue: common.queue.clone(),
                    from: common.from.as_deref().map(time),
                    to: common.to.as_deref().map(time),
                };
                if filter == OpenRunFilter::default() && !how.all {
                    let way_out = "narrow by --job, --state, --type, --queue, --from or --to, or write --all";
                    return Err(Failure::Input(way_out.into()));
                }
                let cancel = CancelRuns { filter: Some(filter), ..CancelRuns::default() };
                let asked = Asked { many: Many::CancelRuns(cancel), noun: "runs", deed: "cancelled" };
                many::change(&asked, how, remote, client).await
            }
            Command::Retry { run } => remote.show(&client.retry_run(run).await?, |run, _| {
                format!("run {} is {}; its next attempt is number {}\n", run.id, run.state, run.attempt + 1)
            }),
            Command::Answer { run, answer } => {
                let answered = client.answer_run(run, &word(*answer)).await?;
                remote.show(&answered, |run, _| match answer {
                    Said::Retry => {
                        format!(
                            "run {} is {}; its next attempt is number {}\n",
                            run.id,
                            run.state,
                            run.attempt + 1
                        )
                    }
                    Said::Succeeded | Said::Failed => format!("run {} is {}\n", run.id, run.state),
                })
            }
            Command::Complete { run, outcome, token, result, message, for_good } => {
                let is_told = message.is_some() || *for_good;
                let error = is_told.then(|| ResultError {
                    message: Some(message.clone().unwrap_or_else(|| "the receiver says no more".into())),
                    is_retryable: Some(!for_good),
                    ..ResultError::default()
                });
                let (outcome, output) = (Some(word(*outcome)), result.clone());
                let end = AttemptEnd { outcome, output, error, ..AttemptEnd::default() };
                remote.show(&client.complete_run(run, token, &end).await?, |taken, _| {
                    let state = taken.state.as_deref().unwrap_or_default();
                    format!("attempt {} of run {} is over; the run is {state}\n", taken.attempt, taken.run_id)
                })
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { paging, .. } => paging.watch,
            Command::Get { watch, .. } => *watch,
            _ => Watch::default(),
        }
    }
}

/// A table of runs.
pub(super) fn table(runs: &[&RunSummary], now: Timestamp, is_wide: bool) -> String {
    let columns = [
        "RUN",
        "JOB",
        "STATE",
        "CAUSE",
        "SCHEDULED FOR",
        "LATE",
        "ATTEMPT",
        "TOOK",
        "QUEUE",
        "TYPE",
        "WAITS FOR",
        "CORRELATION",
    ];
    let mut table = output::table(if is_wide { &columns } else { &columns[..8] });
    for run in runs {
        let took = match (run.started_at, run.finished_at) {
            (Some(from), Some(to)) => moment::length(to.duration_since(from)),
            _ => String::new(),
        };
        let mut row = vec![
            Cell::new(&run.id),
            Cell::new(&run.job_id),
            output::state(&run.state),
            Cell::new(&run.cause),
            Cell::new(moment::full(run.scheduled_for, now)),
            Cell::new(run.lateness_ms.map(moment::millis).unwrap_or_default()),
            Cell::new(run.attempt),
            Cell::new(took),
        ];
        if is_wide {
            let more = [
                Some(&run.queue),
                run.kind.as_ref(),
                run.waiting_for.as_ref().or(run.reason.as_ref()),
                run.correlation_id.as_ref(),
            ];
            row.extend(more.map(|text| Cell::new(output::safe(text.map_or("", |text| text)))));
        }
        table.add_row(row);
    }
    output::lines(&table)
}

/// Everything about a run, so that a person sees why it ended as it did.
fn page(run: &Run, now: Timestamp) -> String {
    let summary = &run.summary;
    let mut facts = output::facts();
    let mut fact = |name: &str, value: String| {
        facts.add_row(vec![name.to_string(), value]);
    };
    fact("run", summary.id.clone());
    fact("job", format!("{} (version {})", summary.job_id, summary.job_version));
    let state = match (&summary.waiting_for, summary.available_at) {
        (Some(_), Some(at)) if at <= now && !summary.requires.is_empty() => {
            format!("{}, waits for a worker with {}", summary.state, output::labels(&summary.requires))
        }
        (Some(what), Some(at)) => {
            let limit = summary.start_by.map(|by| format!(", to start by {}", moment::full(by, now)));
            let limit = limit.unwrap_or_default();
            format!("{}, waits for {what} until {}{limit}", summary.state, moment::full(at, now))
        }
        (Some(what), None) if what == "answer" => {
            let limit = summary.start_by.map(|by| format!(" until {}", moment::full(by, now)));
            format!("{}, waits for an answer{}", summary.state, limit.unwrap_or_default())
        }
        (Some(what), None) => format!("{}, waits for {what}", summary.state),
        _ if summary.report_by.is_some() => {
            let until = summary.report_by.map(|at| format!(" until {}", moment::full(at, now)));
            format!("{}, waits for its report{}", summary.state, until.unwrap_or_default())
        }
        _ if summary.is_cancel_requested && summary.finished_at.is_none() => {
            format!("{}, asked to stop", summary.state)
        }
        _ => summary.state.clone(),
    };
    fact("state", state);
    let caused_by = summary.caused_by.as_ref().map(|by| format!(", by the end of run {}", by.run_id));
    fact("cause", format!("{}{}", summary.cause, caused_by.unwrap_or_default()));
    fact("scheduled for", moment::full(summary.scheduled_for, now));
    if let Some(at) = summary.started_at {
        let late =
            summary.lateness_ms.map(|late| format!(", {} late", moment::millis(late))).unwrap_or_default();
        fact("started", format!("{}{late}", moment::full(at, now)));
    }
    if let Some(at) = summary.finished_at {
        fact("finished", moment::full(at, now));
    }
    if let Some(at) = summary.redriven_at {
        fact("redriven", moment::full(at, now));
    }
    if let Some(item) = &summary.item_id {
        fact("item", item.clone());
    }
    if let (Some(part), Some(of)) = (summary.part, summary.parts) {
        let worker = summary.for_worker.as_ref().map(|worker| format!(", for the worker {worker}"));
        fact("part", format!("{part} of {of}{}", worker.unwrap_or_default()));
    }
    if summary.is_tried_alone {
        fact("tried", "alone, because it was lost with its worker more than once".into());
    }
    fact("queue", summary.queue.clone());
    if !summary.requires.is_empty() {
        fact("requires", format!("a worker with {}", output::labels(&summary.requires)));
    }
    if let Some(kind) = &summary.kind {
        fact("type", kind.clone());
    }
    if let Some(id) = &summary.correlation_id {
        fact("correlation id", id.clone());
    }
    fact("idempotency key", summary.idempotency_key.clone());
    if let Some(payload) = &run.payload {
        fact("payload", output::safe(payload.as_str()));
    }
    if let Some(progress) = &run.progress {
        let percent = progress.percent.map(|percent| format!("{percent} %"));
        let message = progress.message.as_deref().map(output::safe);
        fact("progress", [percent, message].into_iter().flatten().collect::<Vec<_>>().join(", "));
    }
    if let Some(checkpoint) = &run.checkpoint {
        fact("checkpoint", output::safe(checkpoint.as_str()));
    }
    let mut page = output::lines(&facts);
    if !run.attempts.is_empty() {
        page.push('\n');
        page.push_str(&attempts(&run.attempts, summary.state == "running"));
    }
    page.push_str(&verdict(run));
    for warning in &run.warnings {
        page.push_str(&format!("\nwarning: {warning}\n"));
    }
    page
}

fn attempts(attempts: &[Attempt], is_running: bool) -> String {
    let mut table = output::table(&["ATTEMPT", "OUTCOME", "STARTED", "TOOK", "STATUS", "PHASES", "ERROR"]);
    for (place, attempt) in attempts.iter().enumerate() {
        // Only the last one can be under way.
        let unreported = if is_running && place + 1 == attempts.len() { "running" } else { "given back" };
        let phases: Vec<String> =
            attempt.phases.iter().map(|phase| format!("{} {:.1}ms", phase.name, phase.duration_ms)).collect();
        let error = attempt.error.as_ref().map(|error| {
            let last = if error.is_retryable { "" } else { " (not retried)" };
            format!("{}: {}{last}", error.code, output::safe(&error.message))
        });
        table.add_row(vec![
            Cell::new(attempt.number),
            output::state(attempt.outcome.as_deref().unwrap_or(unreported)),
            Cell::new(moment::local(attempt.started_at.unwrap_or(attempt.claimed_at))),
            Cell::new(attempt.duration_ms.map(moment::millis).unwrap_or_default()),
            Cell::new(attempt.status.map(|status| status.to_string()).unwrap_or_default()),
            Cell::new(phases.join(", ")),
            Cell::new(error.unwrap_or_default()),
        ]);
    }
    let mut text = output::lines(&table);
    if let Some(output) = attempts.last().and_then(|attempt| attempt.output.as_ref()) {
        text.push_str(&format!("\noutput of attempt {}:\n{}\n", attempts.len(), shown(output)));
    }
    attempts.last().map(log).into_iter().for_each(|log| text.push_str(&log));
    text
}

/// What an attempt wrote.
fn log(attempt: &Attempt) -> String {
    if attempt.log.is_empty() {
        return String::new();
    }
    let older = match attempt.log_dropped {
        0 => String::new(),
        count => format!(" ({count} older lines were left out)"),
    };
    let mut text = format!("\nlog of attempt {}{older}:\n", attempt.number);
    for line in &attempt.log {
        text.push_str(&format!("{} {}\n", moment::local(line.at), output::safe(&line.text)));
    }
    text
}

/// A line of the log of a run: which attempt, when, what.
fn written(line: &RunLogLine) -> String {
    format!("{} {} {}\n", line.attempt, moment::local(line.at), output::safe(&line.text))
}

fn shown(output: &Output) -> String {
    let text = match (&output.text, &output.base64) {
        (Some(text), _) => text.trim_end().to_string(),
        (None, Some(bytes)) => format!("(base64) {bytes}"),
        (None, None) => String::new(),
    };
    let safe = output::safe(&text);
    match output.is_truncated {
        true => format!("{safe}\n(there was more)"),
        false => safe,
    }
}

/// Why it failed and what can be done, in a sentence.
fn verdict(run: &Run) -> String {
    let limit = run.summary.reason.as_deref().map(|reason| match reason {
        "start_window" => "it had not started within its start window",
        "retry_for" => "`retry_for` allows no later attempt",
        "deadline" => "its deadline was over",
        other => other,
    });
    if run.summary.state == "missed" {
        return limit.map(|limit| format!("\nmissed: {limit}\n")).unwrap_or_default();
    }
    let is_asking = run.summary.waiting_for.as_deref() == Some("answer");
    if !is_asking && !matches!(run.summary.state.as_str(), "failed" | "timed_out") {
        return String::new();
    }
    let why = run.attempts.last().and_then(|attempt| attempt.error.as_ref());
    let why = why.map(|error| format!(": {}", output::safe(&error.message))).unwrap_or_default();
    let (state, number, id) = (&run.summary.state, run.summary.attempt, &run.summary.id);
    if is_asking {
        return format!(
            "\nattempt {number} is unknown{why}\nto answer: punctual run answer {id} retry, succeeded or failed\n"
        );
    }
    let limit = limit.map(|limit| format!("; {limit}")).unwrap_or_default();
    format!("\n{state} after attempt {number}{why}{limit}\nto try again: punctual run retry {id}\n")
}
