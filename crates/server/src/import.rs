//! A stream of jobs, one JSON object a line; answered while it is read.
//!
//! Lines are registered in batches, one of which is committed while the next is read. Promise: bounded memory, whatever
//! is sent; what a progress line counts is durable; a client that stops reading stops the import, not the server.

use std::convert::Infallible;
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
use tokio::task::JoinHandle;

use crate::bulk::{self, Registered};
use crate::call::Call;
use crate::error::Error;

/// Jobs in one call of the engine: large enough that a commit is shared by many, small enough to be quick.
const BATCH: usize = 1_000;

/// Bytes of a batch, so that large payloads do not add up.
const BATCH_BYTES: usize = 4 << 20;

/// Refused lines that are told one by one; more are counted. A client that writes everything before it reads anything
/// would otherwise be stuck, with both sides waiting for the other to read.
const TOLD_MAX: u64 = 1_000;

/// A line of progress after so many lines.
const PROGRESS_LINES: u64 = 10_000;

pub(crate) async fn create(call: Call, request: Request) -> Result<Response, Error> {
    call.query.check()?;
    call.idempotency_key()?;
    let (sender, channel) = Channel::<Bytes, Infallible>::new(16);
    tokio::spawn(Import::new(call, sender).run(request.into_body()));
    let mut response = Response::new(Body::new(channel));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Lines of a batch: all texts in one buffer, and where each ends.
#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    /// The number of the line and its place in the text; nothing for a line that was too long.
    lines: Vec<(u64, Option<std::ops::Range<usize>>)>,
}

struct Import {
    call: Arc<Call>,
    sender: Sender<Bytes, Infallible>,
    count: ImportCount,
    told: u64,
    told_lines: u64,
    /// Lines so far, empty ones included.
    line: u64,
    batch: Batch,
    /// The line that is not whole yet.
    rest: Vec<u8>,
    is_too_long: bool,
    /// The batch before, being committed.
    under_way: Option<UnderWay>,
}

/// A batch that is being committed: each line's number and what became of it.
type UnderWay = JoinHandle<Result<Vec<(u64, Registered)>, Error>>;

/// Nobody reads the answer any more, or the store cannot go on.
struct Stop;

impl Import {
    fn new(call: Call, sender: Sender<Bytes, Infallible>) -> Self {
        Import {
            call: Arc::new(call),
            sender,
            count: ImportCount::default(),
            told: 0,
            told_lines: 0,
            line: 0,
            batch: Batch::default(),
            rest: Vec::new(),
            is_too_long: false,
            under_way: None,
        }
    }

    async fn run(mut self, mut body: Body) {
        let ended = self.read(&mut body).await;
        if ended.is_ok() {
            let summary = ImportLine::Summary(self.count);
            let _ = self.tell(&summary).await;
        }
        tracing::info!(lines = self.count.lines, created = self.count.created, "imported");
    }

    async fn read(&mut self, body: &mut Body) -> Result<(), Stop> {
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return self.stop(Error::BodyBroken(error.to_string())).await,
            };
            let Ok(data) = frame.into_data() else { continue };
            let mut data = &data[..];
            while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
                self.take(&data[..end]);
                self.end_line();
                data = &data[end + 1..];
                if self.batch.lines.len() >= BATCH || self.batch.text.len() >= BATCH_BYTES {
                    self.commit().await?;
                }
            }
            self.take(data);
        }
        self.end_line();
        self.commit().await?;
        self.settle().await
    }

    /// Adds to the line that is being read.
    fn take(&mut self, part: &[u8]) {
        let max = self.call.shared.limits.line_max;
        if self.is_too_long || self.rest.len() + part.len() > max {
            self.is_too_long = true;
            self.rest = Vec::new();
            return;
        }
        self.rest.extend_from_slice(part);
    }

    fn end_line(&mut self) {
        self.line += 1;
        let place = match std::mem::take(&mut self.is_too_long) {
            true => None,
            false if self.rest.iter().all(u8::is_ascii_whitespace) => {
                self.rest.clear();
                return;
            }
            false => {
                let start = self.batch.text.len();
                self.batch.text.extend_from_slice(&self.rest);
                self.rest.clear();
                Some(start..self.batch.text.len())
            }
        };
        self.batch.lines.push((self.line, place));
    }

    /// Hands the batch over, once the one before is durable.
    async fn commit(&mut self) -> Result<(), Stop> {
        self.settle().await?;
        if self.batch.lines.is_empty() {
            return Ok(());
        }
        let (call, batch) = (Arc::clone(&self.call), std::mem::take(&mut self.batch));
        self.under_way = Some(tokio::spawn(async move { register(&call, batch).await }));
        Ok(())
    }

    /// Waits for the batch that is being committed, and tells what became of it.
    async fn settle(&mut self) -> Result<(), Stop> {
        let Some(under_way) = self.under_way.take() else { return Ok(()) };
        let results = match under_way.await {
            Ok(Ok(results)) => results,
            Ok(Err(error)) => return self.stop(error).await,
            Err(_) => return self.stop(Error::BodyBroken("a batch was given up".into())).await,
        };
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

async fn register(call: &Call, batch: Batch) -> Result<Vec<(u64, Registered)>, Error> {
    let max = call.shared.limits.line_max;
    let mut results: Vec<(u64, Option<Registered>)> = Vec::with_capacity(batch.lines.len());
    let mut texts: Vec<(usize, &str)> = Vec::with_capacity(batch.lines.len());
    for (index, (line, place)) in batch.lines.iter().enumerate() {
        let text = place.clone().map(|place| std::str::from_utf8(&batch.text[place]));
        let refused = match text {
            Some(Ok(text)) => {
                texts.push((index, text));
                None
            }
            Some(Err(_)) => Some(Registered::Refused(Error::BodyBroken("the line is not UTF-8".into()))),
            None => Some(Registered::Refused(Error::BodyTooLarge { max })),
        };
        results.push((*line, refused));
    }
    let numbers: Vec<u64> = texts.iter().map(|(index, _)| batch.lines[*index].0).collect();
    let only: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
    let registered = bulk::register(call, &only, &numbers).await?;
    for ((index, _), registered) in texts.into_iter().zip(registered) {
        results[index].1 = Some(registered);
    }
    Ok(results.into_iter().filter_map(|(line, registered)| Some((line, registered?))).collect())
}
