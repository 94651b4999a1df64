//! One change of many jobs or runs by filter: an operation, or a dry run that counts.

use punctual_api::bulk::{BulkExample, BulkPreview, CancelRuns, EditJobs, PauseJobs, SelectJobs};
use punctual_api::read;
use punctual_domain::bulk::{self, Change};
use punctual_domain::job::Job;
use punctual_domain::operation::Kind;
use punctual_domain::run::Run;
use punctual_engine::bulk::Preview;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::operations;

type Outcome = Result<Answer, Error>;

pub(crate) async fn pause(call: Call, Text(text): Text) -> Outcome {
    let body: PauseJobs = read::read(&text)?;
    let asked = body.to_domain(call.shared.engine.now())?;
    change(call, &text, asked, Dry::of(body.dry_run, body.cursor)).await
}

pub(crate) async fn resume(call: Call, Text(text): Text) -> Outcome {
    let body: SelectJobs = read::read(&text)?;
    let asked = body.to_domain(Change::Resume)?;
    change(call, &text, asked, Dry::of(body.dry_run, body.cursor)).await
}

pub(crate) async fn delete(call: Call, Text(text): Text) -> Outcome {
    let body: SelectJobs = read::read(&text)?;
    let asked = body.to_domain(Change::Delete)?;
    change(call, &text, asked, Dry::of(body.dry_run, body.cursor)).await
}

pub(crate) async fn edit(call: Call, Text(text): Text) -> Outcome {
    let body: EditJobs = read::read(&text)?;
    let asked = body.to_domain()?;
    change(call, &text, asked, Dry::of(body.dry_run, body.cursor)).await
}

pub(crate) async fn cancel(call: Call, Text(text): Text) -> Outcome {
    call.query.check()?;
    let body: CancelRuns = read::read(&text)?;
    let which = body.to_domain()?;
    let dry = Dry::of(body.dry_run, body.cursor);
    match dry.after()? {
        Some(below) => {
            let preview = call.shared.engine.preview_cancel(call.tenant, &which, below).await?;
            Ok(shown(preview, of_run))
        }
        None => operations::start(&call, &text, Kind::CancelRuns(which)).await,
    }
}

async fn change(call: Call, text: &str, asked: bulk::ChangeJobs, dry: Dry) -> Outcome {
    call.query.check()?;
    match dry.after()? {
        Some(after) => {
            let preview = call.shared.engine.preview_jobs(call.tenant, &asked, after).await?;
            Ok(shown(preview, |job| of_job(&job)))
        }
        None => operations::start(&call, text, Kind::ChangeJobs(Box::new(asked))).await,
    }
}

/// Whether only to count, and from where.
struct Dry {
    is_dry: bool,
    cursor: Option<String>,
}

impl Dry {
    fn of(dry_run: Option<bool>, cursor: Option<String>) -> Self {
        Dry { is_dry: dry_run == Some(true), cursor }
    }

    /// Where a dry run begins; nothing if it is none.
    fn after<C: Cursor>(&self) -> Result<Option<Option<C>>, Error> {
        match (self.is_dry, &self.cursor) {
            (true, None) => Ok(Some(None)),
            (true, Some(text)) => match C::decode(text) {
                Some(cursor) => Ok(Some(Some(cursor))),
                None => {
                    let detail = "this cursor is not of this dry run; start again without one";
                    Err(Error::wrong("/cursor", "cursor", detail))
                }
            },
            (false, None) => Ok(None),
            (false, Some(_)) => {
                Err(Error::wrong("/cursor", "conflict", "only a dry run has a cursor; leave it out"))
            }
        }
    }
}

fn shown<T, C: Cursor>(preview: Preview<T, C>, example: impl Fn(T) -> BulkExample) -> Answer {
    Answer::ok(&BulkPreview {
        matched: preview.matched,
        changes: preview.changes,
        failed: preview.failed,
        failure: preview.failure,
        examples: preview.examples.into_iter().map(example).collect(),
        next_cursor: preview.next.map(|next| next.encode()),
    })
}

fn of_job(job: &Job) -> BulkExample {
    let (key, name) = (job.spec.key.clone(), Some(job.spec.name.clone()));
    BulkExample { id: job.id.to_string(), key, name, job_id: None }
}

fn of_run(run: Run) -> BulkExample {
    BulkExample { id: run.id().to_string(), key: None, name: None, job_id: Some(run.job.to_string()) }
}
