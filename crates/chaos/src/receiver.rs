//! The receiver of callbacks: answers, and keeps a record of every delivery.
//!
//! There are two of them on one record: one that always answers, and one that a fault may take down or let hang.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

use crate::schedule::Millis;

/// One request, as it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) run: u128,
    pub(crate) job: u128,
    pub(crate) attempt: u32,
    pub(crate) slot: Millis,
    pub(crate) began_at: Millis,
    /// When it was answered with success; nothing if it never was.
    pub(crate) answered_at: Option<Millis>,
}

/// What a receiver does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    Up = 0,
    Down = 1,
    Hang = 2,
}

/// A receiver.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    mode: Arc<AtomicU8>,
    record: Record,
}

/// Every delivery, in the order of arrival.
pub(crate) type Record = Arc<Mutex<Vec<Delivery>>>;

/// What hangs is looked at this often: has the fault ended?
const LOOK: Duration = Duration::from_millis(50);

/// Connections that wait to be accepted. A node that just started opens all of its own at once; one that finds no place
/// comes again a second later, and its callback would be late through no fault of the node.
const BACKLOG: u32 = 4_096;

impl Receiver {
    /// Listens on a free port.
    pub(crate) async fn start(record: Record) -> Result<Receiver> {
        let socket = TcpSocket::new_v4().context("a socket for callbacks")?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("an address for callbacks")?;
        let listener = socket.listen(BACKLOG).context("listen for callbacks")?;
        let address: SocketAddr = listener.local_addr().context("the receiver's address")?;
        let receiver =
            Receiver { url: format!("http://{address}"), mode: Arc::new(AtomicU8::new(0)), record };
        let accepting = receiver.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                if accepting.is(Mode::Down) {
                    continue; // It is closed at once.
                }
                let _ = stream.set_nodelay(true);
                let receiver = accepting.clone();
                tokio::spawn(async move {
                    let watch = receiver.clone();
                    let service = service_fn(move |request| {
                        let receiver = receiver.clone();
                        async move { Ok::<_, Infallible>(receiver.answer(request).await) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    tokio::select! {
                        // One that breaks off is the caller's to report.
                        _ = connection => {}
                        () = watch.until_down() => {}
                    }
                });
            }
        });
        Ok(receiver)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Release);
    }

    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::Acquire) == mode as u8
    }

    async fn until_down(&self) {
        while !self.is(Mode::Down) {
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let began_at = now();
        let delay = match request.uri().path() {
            "/slow" => Duration::from_millis(400),
            "/slower" => Duration::from_secs(2),
            // Longer than a lease: it is still under way when somebody else is given its run.
            "/slowest" => Duration::from_secs(7),
            _ => Duration::ZERO,
        };
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let id = |name: &str| header(name).and_then(|text| text.parse::<uuid::Uuid>().ok());
        let slot = header("punctual-scheduled-for").and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let attempt = header("punctual-attempt").and_then(|text| text.parse().ok());
        let (Some(run), Some(job), Some(slot), Some(attempt)) =
            (id("punctual-run-id"), id("punctual-job-id"), slot, attempt)
        else {
            return status(StatusCode::BAD_REQUEST);
        };
        let delivery = Delivery {
            run: run.as_u128(),
            job: job.as_u128(),
            attempt,
            slot: slot.as_millisecond(),
            began_at,
            answered_at: None,
        };
        let place = {
            let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            record.push(delivery);
            record.len() - 1
        };
        let _ = request.into_body().collect().await;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.is(Mode::Hang) {
            while self.is(Mode::Hang) {
                tokio::time::sleep(LOOK).await;
            }
            return status(StatusCode::SERVICE_UNAVAILABLE);
        }
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record[place].answered_at = Some(now());
        status(StatusCode::OK)
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

pub(crate) fn now() -> Millis {
    jiff::Timestamp::now().as_millisecond()
}
