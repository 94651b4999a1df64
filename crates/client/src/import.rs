//! Many jobs in one stream: lines of JSON go up while progress comes down.
//!
//! Promise: whatever the size of the import, memory stays at a chunk in each direction.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use punctual_api::import::ImportLine;
use tokio::io::{AsyncRead, ReadBuf};

use crate::answer::Answer;
use crate::client::{Call, Client, IDEMPOTENCY_KEY};
use crate::error::{Error, root};

/// Bytes sent at a time: large enough for speed, small against anybody's memory.
const CHUNK: usize = 64 << 10;

/// The longest line of an answer: a refusal with all its wrong fields is far shorter.
const LINE_MAX: usize = 1 << 20;

const NDJSON: &str = "application/x-ndjson";

/// An import under way: what the server says about it, line by line.
pub struct Import {
    client: Client,
    body: Incoming,
    text: BytesMut,
}

impl Client {
    /// Sends jobs, one JSON object in each line. Under the same key, a repeated import registers only what an
    /// earlier one that broke off did not.
    pub async fn import(
        &self,
        lines: impl AsyncRead + Send + Unpin + 'static,
        idempotency_key: Option<&str>,
    ) -> Result<Import, Error> {
        let call = Call::post("/v1/jobs/import");
        let mut head = self.request(&call)?.header(CONTENT_TYPE, NDJSON).header(ACCEPT, NDJSON);
        if let Some(key) = idempotency_key {
            head = head.header(IDEMPOTENCY_KEY, key);
        }
        let response =
            self.send(head, Lines { reader: lines, chunk: BytesMut::new() }.boxed_unsync()).await?;
        if !response.status().is_success() {
            return match self.succeeded("POST /v1/jobs/import", response).await {
                Err(error) => Err(error),
                Ok((status, _)) => Err(self.unexpected("POST /v1/jobs/import", format!("status {status}"))),
            };
        }
        Ok(Import { client: self.clone(), body: response.into_body(), text: BytesMut::new() })
    }
}

impl Import {
    /// The next line of the answer; nothing after the last.
    pub async fn next(&mut self) -> Result<Option<Answer<ImportLine>>, Error> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line = self.text.split_to(end + 1);
                match line.trim_ascii() {
                    [] => continue,
                    line => return self.client.read("POST /v1/jobs/import", line).map(Some),
                }
            }
            if self.text.len() > LINE_MAX {
                return Err(self.client.unexpected("POST /v1/jobs/import", "a line without end".into()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.text.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(self.client.broken(root(&error))),
                None if self.text.trim_ascii().is_empty() => return Ok(None),
                None => self.text.extend_from_slice(b"\n"), // The last line may lack its end.
            }
        }
    }
}

/// What is read, as a body.
struct Lines<R> {
    reader: R,
    chunk: BytesMut,
}

impl<R: AsyncRead + Unpin> Body for Lines<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        this.chunk.resize(CHUNK, 0);
        let mut buffer = ReadBuf::new(&mut this.chunk);
        let read = ready!(Pin::new(&mut this.reader).poll_read(cx, &mut buffer));
        let filled = buffer.filled().len();
        Poll::Ready(match (read, filled) {
            (Err(error), _) => Some(Err(error)),
            (Ok(()), 0) => None,
            (Ok(()), filled) => Some(Ok(Frame::data(this.chunk.split_to(filled).freeze()))),
        })
    }
}
