//! A worker's stream: attempts are pushed as soon as they are due, what the worker says is answered.
//!
//! Runs from hello until either side ends it. Promise: at most [`IN_FLIGHT`] of the worker's messages are being answered, and what waits to be
//! sent is bounded, so that a worker that does not read is not read either; cancellations are told within a second; however it ends, what was not delivered goes back.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use punctual_api::duration::Duration;
use punctual_api::worker::{HeartbeatAnswer, ResultsTaken};
use punctual_domain::id::RunId;
use punctual_engine::keys::Pass;
use punctual_engine::stay::{Stay, Word};
use punctual_engine::{Engine, Error as EngineError};
use punctual_rpc::{status, v1};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tonic::{Status, Streaming};
use v1::claim_request::Message as Said;
use v1::claim_response::Message;

use super::outbound::Out;
use super::workers::heartbeat_of;
use crate::error::Error;
use crate::workers::{BEATS, beaten, change, reported, taken};

/// Heartbeats and reports of one worker that are being answered: enough to fill group commits, and a bound.
const IN_FLIGHT: usize = 8;

/// A stream, once the worker has said hello.
pub(super) struct Session {
    engine: Engine,
    /// The key under which it was opened: the stream ends with it.
    pass: Option<Pass>,
    pub(super) stay: Arc<Stay>,
    out: mpsc::Sender<Out>,
    /// Room that was granted and not given yet.
    room: AtomicUsize,
    concurrency: usize,
    /// Nothing more is given.
    leaving: watch::Sender<bool>,
}

/// So long the last answers of a stream may take to be written.
const LAST_ANSWERS: std::time::Duration = std::time::Duration::from_secs(5);

/// Why a stream ended.
enum End {
    /// The worker has no more to say.
    Said,
    /// The worker is not there any more.
    Gone,
    /// It is told why.
    Failed(Status),
}

impl Session {
    pub(super) fn new(
        engine: Engine,
        stay: Stay,
        pass: Option<Pass>,
        concurrency: u32,
        out: mpsc::Sender<Out>,
    ) -> Self {
        Session {
            engine,
            pass,
            stay: Arc::new(stay),
            out,
            room: AtomicUsize::new(0),
            concurrency: concurrency as usize,
            leaving: watch::Sender::new(false),
        }
    }

    /// Serves the stream to its end.
    pub(super) async fn serve(self, capacity: u32, inbound: Streaming<v1::ClaimRequest>) {
        let welcome = v1::Welcome {
            worker: self.stay.worker().to_string(),
            lease: Some(punctual_rpc::duration(Duration(self.engine.lease()))),
            heartbeat_every: Some(punctual_rpc::duration(Duration(self.engine.lease() / BEATS))),
        };
        let mut answering = JoinSet::new();
        let end = match self.send(Message::Welcome(welcome)).await {
            Err(end) => end,
            Ok(()) => {
                let granted = if capacity > 0 { self.grant(capacity) } else { Ok(()) };
                match granted {
                    Err(status) => End::Failed(status),
                    Ok(()) => tokio::select! {
                        end = self.listen(inbound, &mut answering) => end,
                        end = self.give() => end,
                        end = self.watch() => end,
                        () = self.out.closed() => End::Gone,
                        denied = self.engine.denied(self.pass) => End::Failed(status::of(&Error::Key(denied).problem())),
                    },
                }
            }
        };
        // What was being given goes to others before the last answers are waited for.
        self.stay.leave().await;
        // One who has stopped reading is not waited for: what is left goes with the set.
        let answered = async { while answering.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
        match end {
            End::Failed(status) => {
                // A worker that does not read it finds out when it writes.
                let _ = self.out.try_send(Out::Failed(status));
            }
            End::Said | End::Gone => {}
        }
    }

    async fn send(&self, message: Message) -> Result<(), End> {
        self.out.send(Out::Message(message)).await.map_err(|_| End::Gone)
    }

    fn grant(&self, capacity: u32) -> Result<(), Status> {
        let capacity = capacity as usize;
        let room = self.room.fetch_add(capacity, Ordering::AcqRel).saturating_add(capacity);
        if capacity == 0 || room > self.concurrency {
            let most = self.concurrency;
            let detail = format!(
                "expected at least 1, and with the room that is there at most {most}, its concurrency"
            );
            return Err(status::of(&Error::wrong("/capacity", "out_of_range", detail).problem()));
        }
        self.stay.grant(capacity);
        Ok(())
    }

    /// Pushes attempts.
    async fn give(&self) -> End {
        let mut leaving = self.leaving.subscribe();
        let mut is_left = pin!(async move {
            // The sender is in the session.
            let _ = leaving.wait_for(|is_leaving| *is_leaving).await;
        });
        loop {
            // There is a place for what is given before it is taken: nothing is lost in between.
            let Ok(place) = self.out.reserve().await else { return End::Gone };
            let leased = tokio::select! {
                biased;
                () = &mut is_left => break,
                leased = self.stay.next() => leased,
            };
            // The closure always returns a value, so the update cannot fail.
            let _ = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, |room| {
                Some(room.saturating_sub(leased.len()))
            });
            if !leased.is_empty() {
                place.send(Out::Attempts(leased));
            }
        }
        // A task of its own: what has been taken from the seat goes back, also if the stream ends meanwhile.
        let stay = Arc::clone(&self.stay);
        let _ = tokio::spawn(async move { stay.leave().await }).await;
        std::future::pending().await
    }

    /// Tells the worker what others want of it.
    async fn watch(&self) -> End {
        let mut is_drained = false;
        loop {
            let told = match self.stay.word(is_drained).await {
                Word::Stop(attempts) => {
                    let named = |(run, attempt): (RunId, u32)| v1::Held { run_id: run.to_string(), attempt };
                    let attempts = attempts.into_iter().map(named).collect();
                    self.send(Message::Cancelled(v1::Cancelled { attempts })).await
                }
                Word::Drain => {
                    is_drained = true;
                    self.leaving.send_replace(true);
                    self.send(Message::Drain(v1::Drain {})).await
                }
                Word::Silent => {
                    let lost = Error::from(EngineError::WorkerLost(self.stay.worker()));
                    return End::Failed(status::of(&lost.problem()));
                }
            };
            if let Err(end) = told {
                return end;
            }
        }
    }

    /// Takes what the worker says.
    async fn listen(
        &self,
        mut inbound: Streaming<v1::ClaimRequest>,
        answering: &mut JoinSet<Option<Status>>,
    ) -> End {
        loop {
            let said = tokio::select! {
                said = inbound.message(), if answering.len() < IN_FLIGHT => said,
                Some(answered) = answering.join_next(), if !answering.is_empty() => match answered {
                    Ok(Some(status)) => return End::Failed(status),
                    _ => continue,
                },
            };
            let message = match said {
                Ok(Some(message)) => message.message,
                Ok(None) => return End::Said,
                // A message that cannot be read is the worker's; one that broke off has nobody to be told.
                Err(status) if status.code() == tonic::Code::OutOfRange => return End::Failed(status),
                Err(_) => return End::Gone,
            };
            match message {
                Some(Said::Grant(grant)) => {
                    if let Err(status) = self.grant(grant.capacity) {
                        return End::Failed(status);
                    }
                }
                Some(Said::Heartbeat(heartbeat)) => {
                    self.stay.heard();
                    let (stay, out, engine) = (Arc::clone(&self.stay), self.out.clone(), self.engine.clone());
                    answering.spawn(async move {
                        let number = heartbeat.number;
                        let answer = beat(&engine, &stay, &heartbeat)
                            .await
                            .map(|answer| Message::HeartbeatTaken(v1::HeartbeatTaken::of(number, answer)));
                        tell(&out, number, answer).await
                    });
                }
                Some(Said::Report(report)) => {
                    let (stay, out) = (Arc::clone(&self.stay), self.out.clone());
                    answering.spawn(async move {
                        let number = report.number;
                        let answer = take(&stay, &report)
                            .await
                            .map(|taken| Message::ReportTaken(v1::ReportTaken::of(number, taken)));
                        tell(&out, number, answer).await
                    });
                }
                Some(Said::Leave(v1::Leave {})) => {
                    self.leaving.send_replace(true);
                }
                Some(Said::Hello(_)) | None => {
                    let detail = "after hello come grants, heartbeats, reports and leave";
                    return End::Failed(status::of(&Error::wrong("/message", "conflict", detail).problem()));
                }
            }
        }
    }
}

/// Answers a message; a status if that ends the stream.
async fn tell(out: &mpsc::Sender<Out>, number: u64, answer: Result<Message, Error>) -> Option<Status> {
    let message = match answer {
        Ok(message) => message,
        // Who was taken for dead begins anew, with another stream.
        Err(Error::Engine(lost @ EngineError::WorkerLost(_))) => {
            return Some(status::of(&Error::Engine(lost).problem()));
        }
        Err(error) => Message::Refused(v1::Refused { number, problem: Some(error.problem().into()) }),
    };
    // Without a receiver the stream is at its end.
    let _ = out.send(Out::Message(message)).await;
    None
}

async fn beat(engine: &Engine, stay: &Stay, heartbeat: &v1::Heartbeat) -> Result<HeartbeatAnswer, Error> {
    let beat = heartbeat_of(heartbeat)?;
    let answer = stay.heartbeat(|about| change(about, &beat), &beat.held).await?;
    beaten(engine, stay.worker(), beat, answer).await
}

async fn take(stay: &Stay, report: &v1::Report) -> Result<ResultsTaken, Error> {
    let (names, ends) = reported(&report.to_api())?;
    Ok(taken(names, stay.report(ends).await?))
}
