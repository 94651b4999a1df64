//! `punctual job`: register, read and change jobs.

mod bulk;
mod export;
mod import;
mod limits;
mod page;
mod retention;
mod sharing;
mod spec;

pub(crate) use spec::read_json;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use punctual_api::Time;
use punctual_api::backfill::Backfill;
use punctual_api::job::{Job, Pause, Trigger};
use punctual_client::{Answer, Client, JobFilter, JobRef};

use self::spec::Flags;
use super::asking::Ask;
use super::dead_letter::time;
use super::output;
use super::remote::{Paging, Remote};
use super::run::word;
use super::watch::Watch;
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Register a job
    #[command(after_help = "Examples:
  punctual job create nightly --cron '0 2 * * *' --tz Europe/Paris --url http://127.0.0.1:9000/hook --payload '{\"n\":7}'
  punctual job create tick --every 5s --discard
  punctual job create --key report --upsert -f job.json")]
    Create {
        /// Free text for people
        name: Option<String>,
        /// The job as JSON or YAML, from a file or `-` for standard input; flags go over it
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Chosen by you, unique in the tenant
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// If there is a job with the key, change it
        #[arg(long, requires = "key", conflicts_with = "idempotency_key")]
        upsert: bool,
        #[command(flatten)]
        flags: Box<Flags>,
        /// Repeated under the same key, the job is registered once
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
    },
    /// Show a job: its state, next slots, last run and warnings
    Get {
        /// The job's id, or key:KEY
        job: JobRef,
        #[command(flatten)]
        watch: Watch,
    },
    /// List jobs
    List {
        #[command(flatten)]
        narrow: Narrow,
        #[command(flatten)]
        paging: Paging,
    },
    /// Change a job: flags change what they name, a file replaces the job
    Update {
        /// The job's id, or key:KEY
        job: JobRef,
        /// The whole job as JSON or YAML, from a file or `-`; what `job get -o yaml` writes is taken. Flags go over it
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// The file is a JSON merge patch: it changes only what it names
        #[arg(long, requires = "file")]
        merge: bool,
        /// Only if the job still has this version [default: the one in the file, or the one just read]
        #[arg(long, value_name = "N")]
        if_version: Option<u32>,
        /// Whatever the version
        #[arg(long, conflicts_with = "if_version")]
        force: bool,
        /// Free text for people
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Delete a job: its pending runs are cancelled, running ones end, its history stays
    Delete {
        /// The job's id, or key:KEY
        job: JobRef,
        /// Only if the job still has this version
        #[arg(long, value_name = "N")]
        if_version: Option<u32>,
    },
    /// List the versions of a job, newest first, with who brought them
    Versions {
        /// The job's id, or key:KEY
        job: JobRef,
        #[command(flatten)]
        paging: Paging,
    },
    /// Stop a job from firing
    Pause {
        /// The job's id, or key:KEY
        job: JobRef,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Who
        #[arg(long, value_name = "NAME", env = "USER")]
        by: Option<String>,
        /// When it fires again by itself, such as 2026-12-24T18:00:00Z
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
    },
    /// Let a paused job fire again; the slots in between are skipped
    Resume {
        /// The job's id, or key:KEY
        job: JobRef,
    },
    /// Run a job now, outside its schedule
    Trigger {
        /// The job's id, or key:KEY
        job: JobRef,
        /// Follows the run through logs and callbacks
        #[arg(long, value_name = "ID")]
        correlation_id: Option<String>,
        /// What is sent instead of the job's payload: JSON, or @FILE
        #[arg(long, value_name = "JSON")]
        payload: Option<String>,
        /// Repeated under the same key, the job is run once
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
    },
    /// Run the slots of a time that has passed, oldest first
    Backfill {
        /// The job's id, or key:KEY
        job: JobRef,
        /// Slots at or after, such as 2026-12-01T00:00:00Z
        #[arg(long, value_name = "TIME")]
        from: String,
        /// Slots before; not in the future
        #[arg(long, value_name = "TIME")]
        to: String,
        /// How many per second at most [default: 50]
        #[arg(long, value_name = "N")]
        rate: Option<u32>,
        /// Instead of the job's policy: allow, skip, queue_one, queue_all or cancel_running
        #[arg(long, value_name = "POLICY")]
        overlap: Option<String>,
        /// With --overlap queue_all: how many runs wait at most [default: 100]
        #[arg(long, value_name = "N", requires = "overlap")]
        overlap_max: Option<u32>,
        /// Only say how many slots there are
        #[arg(long)]
        dry_run: bool,
        /// Repeated under the same key, it is done once
        #[arg(long, value_name = "KEY", conflicts_with = "dry_run")]
        idempotency_key: Option<String>,
    },
    /// Say why a job did or did not run at a time
    #[command(after_help = "Examples:
  punctual job why key:report
  punctual job why key:report --at 2026-12-24T18:00")]
    Why {
        /// The job's id, or key:KEY
        job: JobRef,
        /// When: 2026-12-24T18:00:00Z, epoch seconds, or 2026-12-24T18:00 on the job's clock [default: the latest slot]
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
    },
    /// Account for every slot of a range, newest first: what ran, what did not and why
    Ledger {
        /// The job's id, or key:KEY; of a deleted job its id
        job: JobRef,
        /// Slots at or after, such as 2026-12-01T00:00:00Z [default: when the job was registered]
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Slots before; may be in the future [default: now]
        #[arg(long, value_name = "TIME")]
        to: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Register many jobs from lines of JSON
    Import {
        /// One job in each line (NDJSON); `-` is standard input
        file: PathBuf,
        /// Repeats an import that broke off: lines it has registered are not registered again
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
    },
    /// Pause, resume, edit, move or delete all jobs that a filter finds
    #[command(
        subcommand,
        after_help = "Examples:
  punctual job bulk pause --label team=a --reason 'the database moves' --dry-run
  punctual job bulk move --queue slow --to fast
  punctual job bulk delete --state ended --yes"
    )]
    Bulk(bulk::Command),
    /// Write jobs as lines of JSON that `job import` takes
    Export {
        /// Where to; `-` is standard output
        #[arg(default_value = "-")]
        file: PathBuf,
        #[command(flatten)]
        narrow: Narrow,
    },
}

/// Which jobs.
#[derive(Args)]
pub(crate) struct Narrow {
    /// In this state
    #[arg(long, value_enum)]
    state: Option<State>,
    /// With this label; given several times, with all of them
    #[arg(short, long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// With this text in their names
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// With keys that begin like this
    #[arg(long, value_name = "PREFIX")]
    key_prefix: Option<String>,
    /// In this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Of this type
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum State {
    Active,
    Paused,
    Ended,
}

impl Narrow {
    fn filter(&self) -> JobFilter {
        JobFilter {
            state: self.state.map(word),
            labels: self.label.clone(),
            name: self.name.clone(),
            key_prefix: self.key_prefix.clone(),
            queue: self.queue.clone(),
            r#type: self.r#type.clone(),
        }
    }
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::Create { name, file, key, upsert, flags, idempotency_key } => {
                let body = spec::body(file.as_deref(), flags.over(name.clone(), key.clone())?)?;
                let job = match key {
                    Some(key) if *upsert => client.put_job(key, &*body).await?,
                    _ => client.create_job(&*body, idempotency_key.as_deref()).await?,
                };
                remote.show(&job, |job, now| page::one_line("registered", job, now))
            }
            Command::Get { job, .. } => get(job, remote, client).await,
            Command::List { narrow, paging } => {
                remote
                    .show_list(client.jobs(&narrow.filter()), paging, |jobs, now| {
                        page::table(jobs, now, remote.is_wide())
                    })
                    .await
            }
            Command::Update { job, file, merge, if_version, force, name, flags } => {
                let change = spec::Change {
                    file: file.as_deref(),
                    is_patch: *merge,
                    version: *if_version,
                    is_forced: *force,
                    flags: flags.over(name.clone(), None)?,
                };
                let job = change.apply(job, client).await?;
                remote.show(&job, |job, now| page::one_line("changed", job, now))
            }
            Command::Versions { job, paging } => {
                let id = client.job_id(job).await?;
                remote.show_list(client.job_versions(&id), paging, super::audit::versions).await
            }
            Command::Delete { job, if_version } => {
                client.delete_job(&client.job_id(job).await?, *if_version).await?;
                match remote.output.is_for_programs() {
                    true => Ok(()), // The server says nothing either.
                    false => output::print(&format!("deleted job {job}\n")),
                }
            }
            Command::Pause { job, reason, by, until } => {
                let until = until.clone().map(Time::Text);
                let pause = Pause { reason: reason.clone(), by: by.clone(), until };
                let job = client.pause_job(&client.job_id(job).await?, &pause).await?;
                remote.show(&job, |job, now| page::one_line("paused", job, now))
            }
            Command::Resume { job } => {
                let job = client.resume_job(&client.job_id(job).await?).await?;
                remote.show(&job, |job, now| page::one_line("resumed", job, now))
            }
            Command::Trigger { job, correlation_id, payload, idempotency_key } => {
                let payload = payload.as_deref().map(spec::payload).transpose()?;
                let trigger = Trigger { correlation_id: correlation_id.clone(), payload };
                let id = client.job_id(job).await?;
                let run = client.trigger_job(&id, &trigger, idempotency_key.as_deref()).await?;
                remote.show(&run, |run, _| {
                    format!("run {} is {}\nto see it: punctual run get {}\n", run.id, run.state, run.id)
                })
            }
            Command::Backfill { job, from, to, rate, overlap, overlap_max, dry_run, idempotency_key } => {
                let backfill = Backfill {
                    from: Some(time(from)),
                    to: Some(time(to)),
                    rate: *rate,
                    overlap: spec::overlap(overlap.as_deref(), *overlap_max),
                    dry_run: None,
                };
                let id = client.job_id(job).await?;
                if *dry_run {
                    let slots = client.backfill_slots(&id, &backfill).await?;
                    return remote.show(&slots, page::backfill);
                }
                let operation = client.backfill_job(&id, &backfill, idempotency_key.as_deref()).await?;
                remote.show(&operation, |operation, _| {
                    let (id, total) = (&operation.id, operation.total.unwrap_or_default());
                    format!(
                        "backfilling {total} slots: operation {id}\nto see it: punctual operation get {id}\n"
                    )
                })
            }
            Command::Why { job, at } => {
                let why = client.why(&client.job_id(job).await?, at.as_deref()).await?;
                remote.show(&why, |why, _| format!("{}\n", output::safe(&why.text)))
            }
            Command::Ledger { job, from, to, paging } => {
                // Without a range the server tells only of slots that did not run.
                let now = Timestamp::now().to_string();
                let to = to.as_deref().or(from.is_none().then_some(now.as_str()));
                let rows = client.account(&client.job_id(job).await?, from.as_deref(), to);
                remote.show_list(rows, paging, page::ledger).await
            }
            Command::Import { file, idempotency_key } => {
                import::run(file, idempotency_key.as_deref(), remote, client).await
            }
            Command::Bulk(command) => bulk::run(command, remote, client).await,
            Command::Export { file, narrow } => export::run(file, &narrow.filter(), client).await,
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List { paging, .. }
            | Command::Ledger { paging, .. }
            | Command::Versions { paging, .. } => paging.watch,
            Command::Get { watch, .. } => *watch,
            _ => Watch::default(),
        }
    }
}

async fn get(job: &JobRef, remote: &Remote, client: &Client) -> Result<(), Failure> {
    let job: Answer<Job> = client.job(job).await?;
    if remote.output.is_for_programs() {
        return remote.show(&job, |_, _| String::new());
    }
    let id = &job.status.id;
    let upcoming = client.upcoming(id, page::SLOTS).await?;
    let ledger = client.ledger(id).limit(page::LEDGER).next_page().await?;
    let ledger = ledger.map(|page| page.value.items).unwrap_or_default();
    remote.show(&job, |job, now| page::page(job, &upcoming.items, &ledger, now))
}
