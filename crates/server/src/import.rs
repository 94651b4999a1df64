//! A stream of jobs, one JSON object a line; answered while it is read.
//!
//! Three steps run beside each other and hand batches of lines on: read, parse, register. Batches keep their order, so
//! that the first of two lines with the same key wins. Promise: bounded memory, whatever is sent; what a progress line
//! counts is durable; a client that stops reading stops the import, not the server.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use punctual_api::import::{ImportCount, ImportLine, RefusedLine};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};

use crate::bulk::{Parsed, Registered};
use crate::call::Call;
use crate::error::Error;

/// Jobs in one call of the engine: large enough that a commit is shared by many, small enough to be quick.
const BATCH: usize = 2_000;

/// Bytes of a batch, so that large payloads do not add up.
const BATCH_BYTES: usize = 4 << 20;

/// Batches that wait between two steps: one is ready when the one before is done.
const AHEAD: usize = 1;

/// Refused lines that are told one by one; more are counted. A client that writes everything before it reads anything
/// would otherwise be stuck, with both sides waiting for the other to read.
const TOLD_MAX: u64 = 1_000;

/// A line of progress after so many lines.
const PROGRESS_LINES: u64 = 10_000;

pub(crate) async fn create(call: Call, request: Request) -> Result<Response, Error> {
    call.query.check()?;
    call.idempotency_key()?;
    call.note_jobs("import", &ImportCount::default()).await?;
    let (sender, channel) = Channel::<Bytes, Infallible>::new(16);
    let call = Arc::new(call);
    let (to_parse, lines) = mpsc::channel(AHEAD);
    let (to_register, parsed) = mpsc::channel(AHEAD);
    let reading = Reading::new(call.shared.limits.line_max, to_parse);
    let before = [
        tokio::spawn(reading.read(request.into_body())),
        tokio::spawn(parse(Arc::clone(&call), lines, to_register)),
    ];
    tokio::spawn(Import::new(call, sender).run(parsed, before));
    let mut response = Response::new(Body::new(channel));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Lines of a batch: all texts in one buffer, and where each ends.
#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    /// The number of the line and its place in the text; nothing for a line that was too long.
    lines: Vec<(u64, Option<Range<usize>>)>,
}

/// Nobody takes what is handed on: the answer is read no more, or the store cannot go on.
struct Stop;

/// The first step: cuts the body into lines.
struct Reading {
    line_max: usize,
    /// A batch, or why there are no more of them.
    batches: mpsc::Sender<Result<Batch, Error>>,
    /// Lines so far, empty ones included.
    line: u64,
    batch: Batch,
    /// Where the line begins that is not whole yet.
    begin: usize,
    is_too_long: bool,
}

impl Reading {
    fn new(line_max: usize, batches: mpsc::Sender<Result<Batch, Error>>) -> Self {
        Reading { line_max, batches, line: 0, batch: Batch::default(), begin: 0, is_too_long: false }
    }

    async fn read(mut self, mut body: Body) {
        // If it was stopped, whoever stopped it has told why.
        let _ = self.read_lines(&mut body).await;
    }

    async fn read_lines(&mut self, body: &mut Body) -> Result<(), Stop> {
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return self.send(Err(Error::BodyBroken(error.to_string()))).await,
            };
            let Ok(data) = frame.into_data() else { continue };
            let mut data = &data[..];
            while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
                self.take(&data[..end]);
                self.end_line();
                data = &data[end + 1..];
                if self.batch.lines.len() >= BATCH || self.batch.text.len() >= BATCH_BYTES {
                    self.hand_on().await?;
                }
            }
            self.take(data);
        }
        self.end_line();
        self.hand_on().await
    }

    /// Adds to the line that is being read.
    fn take(&mut self, part: &[u8]) {
        let length = self.batch.text.len() - self.begin;
        if self.is_too_long || length + part.len() > self.line_max {
            self.is_too_long = true;
            self.batch.text.truncate(self.begin);
            return;
        }
        self.batch.text.extend_from_slice(part);
    }

    fn end_line(&mut self) {
        self.line += 1;
        let place = self.begin..self.batch.text.len();
        if std::mem::take(&mut self.is_too_long) {
            self.batch.lines.push((self.line, None));
        } else if self.batch.text[place.clone()].iter().all(u8::is_ascii_whitespace) {
            self.batch.text.truncate(self.begin);
        } else {
            self.begin = place.end;
            self.batch.lines.push((self.line, Some(place)));
        }
    }

    async fn hand_on(&mut self) -> Result<(), Stop> {
        if self.batch.lines.is_empty() {
            return Ok(());
        }
        self.begin = 0;
        let batch = std::mem::take(&mut self.batch);
        self.send(Ok(batch)).await
    }

    async fn send(&mut self, batch: Result<Batch, Error>) -> Result<(), Stop> {
        self.batches.send(batch).await.map_err(|_| Stop)
    }
}

/// The second step: reads the jobs of a batch.
async fn parse(
    call: Arc<Call>,
    mut batches: mpsc::Receiver<Result<Batch, Error>>,
    parsed: mpsc::Sender<Result<Parsed, Error>>,
) {
    while let Some(batch) = batches.recv().await {
        let read = match (batch, call.shared.engine.job_defaults(call.tenant).await) {
            (Ok(batch), Ok(defaults)) => parse_batch(&call, &batch, defaults),
            (Err(error), _) => Err(error),
            (_, Err(error)) => Err(error.into()),
        };
        if parsed.send(read).await.is_err() {
            return;
        }
    }
}

fn parse_batch(call: &Call, batch: &Batch, defaults: Option<Arc<str>>) -> Result<Parsed, Error> {
    let key = call.idempotency_key()?;
    let mut parsed = Parsed::with_capacity(batch.lines.len(), defaults);
    for (number, place) in &batch.lines {
        match place.clone().map(|place| std::str::from_utf8(&batch.text[place])) {
            Some(Ok(text)) => parsed.read(call, key, text, *number),
            Some(Err(_)) => parsed.refuse(*number, Error::BodyBroken("the line is not UTF-8".into())),
            None => parsed.refuse(*number, Error::BodyTooLarge { max: call.shared.limits.line_max }),
        }
    }
    Ok(parsed)
}

/// The third step: registers a batch, and tells what became of it.
struct Import {
    call: Arc<Call>,
    sender: Sender<Bytes, Infallible>,
    count: ImportCount,
    told: u64,
    told_lines: u64,
}

impl Import {
    fn new(call: Arc<Call>, sender: Sender<Bytes, Infallible>) -> Self {
        Import { call, sender, count: ImportCount::default(), told: 0, told_lines: 0 }
    }

    async fn run(mut self, batches: mpsc::Receiver<Result<Parsed, Error>>, before: [JoinHandle<()>; 2]) {
        let stopping = before.each_ref().map(JoinHandle::abort_handle);
        if self.register(batches, before).await.is_ok() {
            let summary = ImportLine::Summary(self.count);
            let _ = self.tell(&summary).await;
        }
        // What nobody registers is not read.
        stopping.iter().for_each(AbortHandle::abort);
        tracing::info!(lines = self.count.lines, created = self.count.created, "imported");
        // What was registered stands, and that it was asked for is written.
        if let Err(error) = self.call.note_jobs("imported", &self.count).await {
            tracing::warn!(problem = ?error.problem(), "the end of an import is not in the audit");
        }
    }

    async fn register(
        &mut self,
        mut batches: mpsc::Receiver<Result<Parsed, Error>>,
        before: [JoinHandle<()>; 2],
    ) -> Result<(), Stop> {
        while let Some(batch) = batches.recv().await {
            let registered = match batch {
                Ok(batch) => batch.register(&self.call).await,
                Err(error) => Err(error),
            };
            match registered {
                Ok(results) => self.settle(results).await?,
                Err(error) => return self.stop(error).await,
            }
        }
        // There are no more batches: because the body ended, or because a step broke.
        for step in before {
            if step.await.is_err() {
                return self.stop(Error::BodyBroken("a batch was given up".into())).await;
            }
        }
        Ok(())
    }

    /// Counts what became of a batch, and tells what was refused.
    async fn settle(&mut self, results: Vec<(u64, Registered)>) -> Result<(), Stop> {
        for (line, registered) in results {
            self.count.lines += 1;
            match registered {
                Registered::New(_) => self.count.created += 1,
                Registered::Repeated(_) => self.count.repeated += 1,
                Registered::Refused(error) => {
                    self.count.failed += 1;
                    if self.told < TOLD_MAX {
                        self.told += 1;
                        let refused = RefusedLine { line, problem: error.problem() };
                        self.tell(&ImportLine::Refused(refused)).await?;
                    }
                }
            }
        }
        if self.count.lines - self.told_lines >= PROGRESS_LINES {
            self.told_lines = self.count.lines;
            self.tell(&ImportLine::Progress(self.count)).await?;
        }
        Ok(())
    }

    async fn stop(&mut self, error: Error) -> Result<(), Stop> {
        self.tell(&ImportLine::Stopped(error.problem())).await?;
        Err(Stop)
    }

    async fn tell(&mut self, line: &ImportLine) -> Result<(), Stop> {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        self.sender.send_data(text.into()).await.map_err(|_| Stop)
    }
}
