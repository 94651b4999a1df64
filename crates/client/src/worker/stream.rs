//! The life of a worker over gRPC: one stream after the other, each for as long as it lasts.

use std::sync::Arc;

use punctual_rpc::v1;
use punctual_rpc::v1::claim_request::Message as Said;
use punctual_rpc::v1::claim_response::Message;
use tokio::sync::{oneshot, watch};

use super::line::{Line, Opened, saying};
use super::{CLAIM_MAX, Identity, PAUSE, PAUSE_MAX, Shared, Stop, is_lost};
use crate::error::Error;

/// How a stream ended.
enum End {
    /// The worker has ended.
    Stopped,
    /// The worker was taken for dead.
    Lost,
    /// Another one is opened.
    Over,
}

/// Opens streams until the worker ends. Fails only if the first hello is refused.
pub(super) async fn work(
    shared: Arc<Shared>,
    line: Arc<Line>,
    mut stop: watch::Receiver<Stop>,
    refuse: oneshot::Sender<Error>,
) {
    let (mut refuse, mut pause) = (Some(refuse), PAUSE);
    loop {
        let is_stopping = *stop.borrow() > Stop::No;
        let granted = if is_stopping { 0 } else { shared.free().min(CLAIM_MAX) };
        let asked_as = shared.worker_now();
        let hello = hello(&shared, asked_as.clone(), granted);
        let opened = tokio::select! {
            opened = line.open(hello) => opened,
            _ = stop.wait_for(|stop| *stop == Stop::Everything) => return,
        };
        let failed = match opened {
            Ok(opened) => {
                (refuse, pause) = (None, PAUSE);
                let worker = opened.welcome.worker.clone();
                let every = opened.welcome.heartbeat_every.and_then(|every| every.try_into().ok());
                let told = Identity { worker: worker.clone(), heartbeat_every: every.unwrap_or(PAUSE) };
                let end = match shared.accept(asked_as.as_deref(), told, Vec::new()) {
                    true => attend(&shared, &line, opened, granted, &mut stop).await,
                    false => End::Lost,
                };
                line.close();
                match end {
                    End::Stopped => return,
                    End::Lost => {
                        shared.begin_anew(&worker);
                        continue;
                    }
                    End::Over => None,
                }
            }
            Err(error) => Some(error),
        };
        if let (Some(error), Some(asked_as)) = (&failed, &asked_as)
            && is_lost(error)
        {
            shared.begin_anew(asked_as);
            continue;
        }
        match (failed, refuse.take()) {
            (Some(error), Some(first)) if error.problem().is_some_and(|problem| problem.status < 500) => {
                // Whoever runs the worker waits for it.
                let _ = first.send(error);
                return;
            }
            (_, not_yet) => refuse = not_yet,
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            _ = stop.wait_for(|stop| *stop == Stop::Everything) => return,
        }
    }
}

fn hello(shared: &Shared, asked_as: Option<String>, granted: usize) -> v1::Hello {
    let worker = &shared.worker;
    v1::Hello {
        worker: asked_as.unwrap_or_default(),
        name: worker.name.clone(),
        queues: worker.queues.clone(),
        labels: worker.labels.clone().into_iter().collect(),
        concurrency: worker.concurrency as u32,
        capacity: granted as u32,
    }
}

/// Takes what comes on a stream, and grants room as it comes free.
async fn attend(
    shared: &Arc<Shared>,
    line: &Line,
    opened: Opened,
    mut granted: usize,
    stop: &mut watch::Receiver<Stop>,
) -> End {
    let Opened { welcome, said, mut told } = opened;
    let worker = welcome.worker;
    // What it holds is told at once: the server may not be the one that gave it.
    shared.beat_now.notify_one();
    let (mut is_leaving, mut has_left) = (*stop.borrow() > Stop::No, false);
    loop {
        let changed = shared.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        // Never more than fits, counting what is on its way.
        let free = if is_leaving { 0 } else { shared.free().saturating_sub(granted) };
        let has_word = free > 0 || (is_leaving && !has_left);
        let told_to = if is_leaving { Stop::Everything } else { Stop::Claiming };
        tokio::select! {
            message = told.message() => match message {
                Ok(Some(v1::ClaimResponse { message: Some(message) })) => match message {
                    Message::Attempts(given) => {
                        granted = granted.saturating_sub(given.attempts.len());
                        shared.take(&worker, given.attempts.into_iter().map(Into::into).collect());
                    }
                    Message::Cancelled(cancelled) => {
                        for one in cancelled.attempts {
                            shared.cancel(&worker, &(one.run_id, one.attempt));
                        }
                    }
                    Message::Refused(refused) => {
                        let problem = refused.problem.unwrap_or_default();
                        line.answered(refused.number, Err(Box::new(problem.into())));
                    }
                    Message::HeartbeatTaken(ref taken) => {
                        let number = taken.number;
                        line.answered(number, Ok(message));
                    }
                    Message::ReportTaken(ref taken) => {
                        let number = taken.number;
                        line.answered(number, Ok(message));
                    }
                    Message::Drain(_) => return End::Over,
                    Message::Welcome(_) => {}
                },
                Ok(Some(_)) => {} // A newer server says more.
                Ok(None) => return End::Over,
                Err(status) if is_lost(&line.error(&status)) => return End::Lost,
                Err(_) => return End::Over,
            },
            // Waited for beside what comes, so that neither side waits for the other.
            place = said.reserve(), if has_word => match place {
                Ok(place) if is_leaving => {
                    has_left = true;
                    place.send(saying(Said::Leave(v1::Leave {})));
                }
                Ok(place) => {
                    granted += free;
                    place.send(saying(Said::Grant(v1::Grant { capacity: free as u32 })));
                }
                Err(_) => return End::Over,
            },
            // Somebody else may have heard that it was taken for dead.
            () = changed => if shared.worker_now().as_deref() != Some(worker.as_str()) {
                return End::Lost;
            },
            _ = stop.wait_for(|stop| *stop >= told_to) => match is_leaving {
                false => is_leaving = true,
                true => return End::Stopped,
            },
        }
    }
}
