//! One connection on which calls are made, HTTP/1.1 or HTTP/2.
//!
//! An HTTP/1.1 connection is driven by the call that holds it, in the same task: no hand-over
//! between tasks, and dropping the call closes the socket. An HTTP/2 connection is shared by many
//! calls, so a task of its own drives it until the last call and the pool have let go.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::connector::Dialled;
use super::stream::{Stream, Wire};

/// Bytes of response headers that are read: 64 KiB is far above what servers send.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How often a quiet HTTP/2 connection with calls under way is asked whether it lives, and how
/// long it may take to say so.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) enum Connection {
    H1(Box<H1>),
    H2(H2),
}

pub(super) struct H1 {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<Stream>, Full<Bytes>>,
    /// The driver must not be polled after its end.
    ended: bool,
    wire: Arc<Wire>,
    remote: SocketAddr,
}

#[derive(Clone)]
pub(super) struct H2 {
    sender: http2::SendRequest<Full<Bytes>>,
    remote: SocketAddr,
}

/// Why a connection gave no (complete) response.
#[derive(Debug)]
pub(super) enum Broken {
    /// What the HTTP library says.
    Http(hyper::Error),
    /// The connection ended without a word.
    Ended,
    /// An HTTP/2 connection that was closing gave the request back unsent.
    Unsent(hyper::Error),
}

impl Connection {
    /// Speaks HTTP on a new connection.
    pub(super) async fn open(dialled: Dialled) -> Result<Connection, hyper::Error> {
        let Dialled { io, remote, is_h2 } = dialled;
        let wire = Arc::new(Wire::default());
        let io = TokioIo::new(Stream::new(io, Arc::clone(&wire)));
        if !is_h2 {
            let (sender, driver) = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(io).await?;
            return Ok(Connection::H1(Box::new(H1 { sender, driver, ended: false, wire, remote })));
        }
        let (sender, driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .handshake(io)
            .await?;
        // Its errors reach the calls that it carries.
        tokio::spawn(async move { driver.await.unwrap_or_default() });
        Ok(Connection::H2(H2 { sender, remote }))
    }

    pub(super) fn remote(&self) -> SocketAddr {
        match self {
            Connection::H1(h1) => h1.remote,
            Connection::H2(h2) => h2.remote,
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Broken> {
        match self {
            Connection::H1(h1) => h1.exchange(request).await,
            Connection::H2(h2) => match h2.sender.try_send_request(request).await {
                Ok(response) => Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(_) => Err(Broken::Unsent(error.into_error())),
                    None => Err(Broken::Http(error.into_error())),
                },
            },
        }
    }

    /// The next piece of a response's body; nothing at its end.
    pub(super) async fn frame(&mut self, body: &mut Incoming) -> Option<Result<Frame<Bytes>, Broken>> {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame.map(|frame| frame.map_err(Broken::Http)));
            }
            let Connection::H1(h1) = self else { return Poll::Pending };
            h1.drive(cx);
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Broken::Http))),
                Poll::Pending if h1.ended => Poll::Ready(Some(Err(Broken::Ended))),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

impl H1 {
    pub(super) fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Broken> {
        let response = self.sender.try_send_request(request);
        let mut response = pin!(response);
        let (driver, ended) = (&mut self.driver, &mut self.ended);
        poll_fn(|cx| {
            // The driver first: it writes the request and reads what the next line waits for.
            *ended = *ended || Pin::new(&mut *driver).poll(cx).is_ready();
            match response.as_mut().poll(cx) {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Ready(Err(error)) => Poll::Ready(Err(Broken::Http(error.into_error()))),
                Poll::Pending if *ended => Poll::Ready(Err(Broken::Ended)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        self.ended = self.ended || Pin::new(&mut self.driver).poll(cx).is_ready();
    }

    /// Whether another request may be sent. Lets the driver finish the last one first, and forget
    /// the task that it would wake: the next call may come from another.
    pub(super) fn settle(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }
}

impl H2 {
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }
}
