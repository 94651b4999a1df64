//! What a worker's stream sends: attempts and answers, in messages that every client takes.
//!
//! Promise: attempts that were given and are still here when the stream ends go back.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use punctual_api::worker::ClaimedAttempt;
use punctual_domain::work::Leased;
use punctual_engine::stay::Stay;
use punctual_rpc::v1;
use tokio::sync::mpsc;
use tonic::Status;

/// Attempts of one message.
const ATTEMPTS_MAX: usize = 1_000;

/// Bytes of attempts of one message, more or less: clients take 4 MiB unless told otherwise, and one attempt has at most 350 KiB.
const BYTES_MAX: usize = 1 << 20;

/// Messages that wait for the network. Room bounds the attempts in them; the rest are answers to what the worker sent.
pub(super) const WAITING_MAX: usize = 16;

/// Something to send.
pub(super) enum Out {
    Attempts(Vec<Leased>),
    Message(v1::claim_response::Message),
    /// The last thing.
    Failed(Status),
}

/// The stream.
pub(super) struct Outbound {
    stay: Arc<Stay>,
    /// None once it was given away.
    waiting: Option<mpsc::Receiver<Out>>,
    giving: VecDeque<Leased>,
}

impl Outbound {
    pub(super) fn new(stay: Arc<Stay>, waiting: mpsc::Receiver<Out>) -> Self {
        Outbound { stay, waiting: Some(waiting), giving: VecDeque::new() }
    }

    /// The next message of attempts, if there are any.
    fn attempts(&mut self) -> Option<v1::ClaimResponse> {
        let (mut attempts, mut bytes) = (Vec::new(), 0);
        while attempts.len() < ATTEMPTS_MAX && bytes < BYTES_MAX {
            let Some(leased) = self.giving.pop_front() else { break };
            bytes += leased.payload().map_or(0, str::len);
            bytes += leased.checkpoint.as_ref().map_or(0, |json| json.len());
            attempts.push(ClaimedAttempt::from(&leased).into());
        }
        let given = |attempts| v1::claim_response::Message::Attempts(v1::Attempts { attempts });
        (!attempts.is_empty()).then(|| v1::ClaimResponse { message: Some(given(attempts)) })
    }
}

impl Stream for Outbound {
    type Item = Result<v1::ClaimResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(message) = this.attempts() {
                return Poll::Ready(Some(Ok(message)));
            }
            let Some(waiting) = &mut this.waiting else { return Poll::Ready(None) };
            match std::task::ready!(waiting.poll_recv(context)) {
                Some(Out::Attempts(leased)) => this.giving.extend(leased),
                Some(Out::Message(message)) => {
                    return Poll::Ready(Some(Ok(v1::ClaimResponse { message: Some(message) })));
                }
                Some(Out::Failed(status)) => return Poll::Ready(Some(Err(status))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        let Some(mut waiting) = self.waiting.take() else { return };
        let (stay, mut left) = (Arc::clone(&self.stay), Vec::from(std::mem::take(&mut self.giving)));
        // Closed before anything is awaited: from here on nothing more is put in.
        waiting.close();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return }; // The process ends.
        runtime.spawn(async move {
            while let Some(out) = waiting.recv().await {
                if let Out::Attempts(leased) = out {
                    left.extend(leased);
                }
            }
            stay.give_back(left).await;
        });
    }
}
