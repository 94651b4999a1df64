//! A worker's stream: what it says goes out under a number, and comes back answered.
//!
//! There is one stream at a time. Promise: who waits for an answer is told when its stream has ended, and may say it again on the next; while there
//! is none, signs of life and reports are calls by themselves.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::unfold;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use punctual_api::worker::{HeartbeatAnswer, Results, ResultsTaken, WorkerHeartbeat};
use punctual_api::{Problem, tenant};
use punctual_rpc::v1::claim_request::Message as Said;
use punctual_rpc::v1::claim_response::Message;
use punctual_rpc::v1::workers_client::WorkersClient;
use punctual_rpc::{status, v1};
use tokio::sync::{mpsc, oneshot};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status, Streaming};

use super::lock;
use crate::client::Client;
use crate::connector::Connector;
use crate::error::Error;

/// What waits to be sent. A worker says little; what it says is large, if anything.
const WAITING_MAX: usize = 16;

/// As long as a call of REST.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A connection that is silent for so long is asked whether it lives.
const PING_EVERY: Duration = Duration::from_secs(3);

/// It has so long to say so. A node that is gone without a word is left after both, while there is still time for a sign of life on
/// another connection before the lease is over.
const PING_MAX: Duration = Duration::from_secs(3);

/// The largest message of a server: a mebibyte of attempts and one more.
const MESSAGE_MAX: usize = 16 << 20;

type Http2 = legacy::Client<Connector, tonic::body::Body>;
type Answered = Result<Message, Box<Problem>>;

/// See the module.
pub(super) struct Line {
    service: WorkersClient<Http2>,
    client: Client,
    /// The stream, and whose it is.
    current: Mutex<Option<(String, mpsc::Sender<v1::ClaimRequest>)>>,
    awaited: Mutex<HashMap<u64, oneshot::Sender<Answered>>>,
    numbers: AtomicU64,
}

/// A stream that a server has taken.
pub(super) struct Opened {
    pub(super) welcome: v1::Welcome,
    pub(super) said: mpsc::Sender<v1::ClaimRequest>,
    pub(super) told: Streaming<v1::ClaimResponse>,
}

pub(super) fn saying(message: Said) -> v1::ClaimRequest {
    v1::ClaimRequest { message: Some(message) }
}

impl Line {
    pub(super) fn new(client: Client) -> Result<Self, Error> {
        let http = legacy::Client::builder(TokioExecutor::new())
            .http2_only(true)
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_MAX)
            .http2_keep_alive_while_idle(true)
            .build(client.connector().over_http2());
        let service =
            WorkersClient::with_origin(http, client.server().uri("")?).max_decoding_message_size(MESSAGE_MAX);
        Ok(Line {
            service,
            client,
            current: Mutex::default(),
            awaited: Mutex::default(),
            numbers: AtomicU64::new(1),
        })
    }

    fn request<T>(&self, message: T) -> Result<Request<T>, Error> {
        let mut request = Request::new(message);
        if let Some(name) = self.client.tenant_name() {
            let name: MetadataValue<_> = name.parse().map_err(|_| {
                Error::Request(format!("`{name}` cannot be the name of a tenant: it is not ASCII"))
            })?;
            request.metadata_mut().insert(tenant::HEADER, name);
        }
        if let Some(key) = self.client.key_shown() {
            let mut value = MetadataValue::try_from(key.header().as_bytes())
                .map_err(|_| Error::Request("the key cannot be sent".into()))?;
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }

    /// Says hello. The stream is the current one from then on.
    pub(super) async fn open(&self, hello: v1::Hello) -> Result<Opened, Error> {
        let (said, waiting) = mpsc::channel(WAITING_MAX);
        // There is room for the first.
        let _ = said.try_send(saying(Said::Hello(hello)));
        let outgoing =
            unfold(
                waiting,
                |mut waiting| async move { waiting.recv().await.map(|message| (message, waiting)) },
            );
        let opening = async {
            let mut told = self
                .service
                .clone()
                .claim(self.request(outgoing)?)
                .await
                .map_err(|status| self.error(&status))?
                .into_inner();
            let first = told.message().await.map_err(|status| self.error(&status))?;
            match first.and_then(|first| first.message) {
                Some(Message::Welcome(welcome)) => Ok(Opened { welcome, said: said.clone(), told }),
                _ => Err(self.client.unexpected("Workers/Claim", "the first message is no welcome".into())),
            }
        };
        let opened = match tokio::time::timeout(ANSWER_MAX, opening).await {
            Ok(opened) => opened?,
            Err(_) => return Err(self.client.broken("nobody answers hello".into())),
        };
        *lock(&self.current) = Some((opened.welcome.worker.clone(), said));
        Ok(opened)
    }

    /// The current stream is over: who waits for an answer is told.
    pub(super) fn close(&self) {
        *lock(&self.current) = None;
        lock(&self.awaited).clear();
    }

    /// An answer has come.
    pub(super) fn answered(&self, number: u64, answer: Answered) {
        if let Some(waiting) = lock(&self.awaited).remove(&number) {
            // Who does not wait any more has given it up.
            let _ = waiting.send(answer);
        }
    }

    /// Where a worker says things, while it has a stream.
    fn stream_of(&self, worker: &str) -> Option<mpsc::Sender<v1::ClaimRequest>> {
        lock(&self.current).as_ref().filter(|(whose, _)| whose == worker).map(|(_, said)| said.clone())
    }

    async fn ask(
        &self,
        said: mpsc::Sender<v1::ClaimRequest>,
        number: u64,
        message: Said,
        within: Duration,
    ) -> Result<Message, Error> {
        let no_stream = || self.client.broken("there is no stream to say it on".into());
        let (sender, answer) = oneshot::channel();
        lock(&self.awaited).insert(number, sender);
        // It may have been closed in between, and then nobody would answer.
        if lock(&self.current).is_none() {
            lock(&self.awaited).remove(&number);
            return Err(no_stream());
        }
        let asking = async {
            said.send(saying(message)).await.map_err(|_| no_stream())?;
            answer.await.map_err(|_| self.client.broken("the stream has ended".into()))
        };
        let answered = tokio::time::timeout(within, asking).await;
        lock(&self.awaited).remove(&number);
        match answered {
            Ok(answer) => answer?.map_err(Error::Refused),
            Err(_) => Err(self.client.broken("no answer came on the stream".into())),
        }
    }

    /// Without a stream it is a call by itself: a worker that finds no node to stay with lives all the same.
    pub(super) async fn heartbeat(
        &self,
        worker: &str,
        heartbeat: &WorkerHeartbeat,
        within: Duration,
    ) -> Result<HeartbeatAnswer, Error> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let heartbeat = v1::Heartbeat::of(number, heartbeat);
        let Some(said) = self.stream_of(worker) else {
            let request = v1::HeartbeatRequest { worker: worker.into(), heartbeat: Some(heartbeat) };
            let request = self.request(request)?;
            let taken = self.call(self.service.clone().heartbeat(request), within).await?;
            return Ok(taken.into_api());
        };
        match self.ask(said, number, Said::Heartbeat(heartbeat), within).await? {
            Message::HeartbeatTaken(taken) => Ok(taken.into_api()),
            _ => Err(self.client.unexpected("a heartbeat", "it is no answer to one".into())),
        }
    }

    /// Without a stream, and for a life of the worker that is over, it is a call by itself.
    pub(super) async fn report(&self, worker: &str, results: &Results) -> Result<ResultsTaken, Error> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let report = v1::Report::of(number, results);
        let Some(said) = self.stream_of(worker) else {
            let request = self.request(v1::ReportRequest { worker: worker.into(), report: Some(report) })?;
            let taken = self.call(self.service.clone().report(request), ANSWER_MAX).await?;
            return Ok(taken.into_api());
        };
        match self.ask(said, number, Said::Report(report), ANSWER_MAX).await? {
            Message::ReportTaken(taken) => Ok(taken.into_api()),
            _ => Err(self.client.unexpected("a report", "it is no answer to one".into())),
        }
    }

    pub(super) async fn dismiss(&self, worker: &str) -> Result<(), Error> {
        let request = self.request(v1::DismissRequest { worker: worker.into() })?;
        self.call(self.service.clone().dismiss(request), ANSWER_MAX).await.map(drop)
    }

    /// A call outside of a stream.
    async fn call<T>(
        &self,
        answer: impl Future<Output = Result<Response<T>, Status>>,
        within: Duration,
    ) -> Result<T, Error> {
        match tokio::time::timeout(within, answer).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(|status| self.error(&status)),
            Err(_) => Err(self.client.broken("no answer came".into())),
        }
    }

    /// What a status says, as calls of REST say it.
    pub(super) fn error(&self, told: &Status) -> Error {
        match status::problem(told) {
            Some(problem) => Error::Refused(Box::new(problem)),
            None if told.code() == Code::Unimplemented => {
                self.client.unexpected("Workers/Claim", "it does not speak gRPC".into())
            }
            None => self.client.broken(told.message().into()),
        }
    }
}
