//! Accepts connections and serves them, with TLS or without.
//!
//! Runs from when the address is bound until the server stops. Promise: there are never more connections than there are places; nobody
//! keeps one by saying nothing: a handshake, the head of a request and every next piece of its body have their time; what is being answered
//! when the server stops is answered.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, timeout};
use tower_service::Service as _;

use super::certificates::Certificates;

/// Connections at a time: below the 16,384 open files that a service commonly gets, with room for the store and for callbacks.
const CONNECTIONS_MAX: usize = 10_000;

/// Whoever connects says something, or agrees on keys, within this time.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// For the head of a request, and for the pause before it: longer than the 60 s after which load balancers give up a quiet connection,
/// so that it is they who close it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// Between two pieces of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Headers of a request; their bytes are counted again, with a problem for an answer, where requests are read.
const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Requests at a time on one connection of HTTP/2.
const STREAMS_MAX: u32 = 256;

/// How often a quiet HTTP/2 connection is asked whether it lives, and how long it may take to say so. Longer than any lease that a
/// frozen worker may come back within.
const PING_INTERVAL: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(30);

/// How a client of HTTP/2 begins that does not ask for it in a handshake.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves until it is told to stop, and then until what was begun is answered.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    certificates: Option<Arc<Certificates>>,
    mut stopping: watch::Receiver<bool>,
) {
    let (graceful, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, accept(&listener).await)
        };
        let (place, (socket, remote)) = tokio::select! {
            (place, accepted) = next => match place {
                Ok(place) => (place, accepted),
                // Nobody closes it.
                Err(_) => break,
            },
            () = told(&mut stopping) => break,
        };
        let (router, stopping) = (router.clone(), stopping.clone());
        let connection = Connection { remote, router, watcher: graceful.watcher(), stopping };
        tokio::spawn(connection.run(socket, certificates.clone(), place));
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn told(stopping: &mut watch::Receiver<bool>) {
    // Without a sender there is nobody to wait for.
    let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // The client went away first.
            Err(error) if is_clients(&error) => {}
            // Too many open files, most likely: some are closed in a moment.
            Err(error) => {
                tracing::error!(%error, "connections cannot be accepted");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn is_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

struct Connection {
    remote: SocketAddr,
    router: Router,
    watcher: Watcher,
    stopping: watch::Receiver<bool>,
}

impl Connection {
    async fn run(
        mut self,
        socket: TcpStream,
        certificates: Option<Arc<Certificates>>,
        place: OwnedSemaphorePermit,
    ) {
        // Without it the system may hold back the end of an answer. A failure costs only that.
        let _ = socket.set_nodelay(true);
        match certificates {
            Some(certificates) => {
                if let Some(stream) = self.greeted(certificates.accept(socket)).await {
                    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    self.converse(stream, is_h2).await;
                }
            }
            None => {
                if let Some(is_h2) = self.greeted(begins_as_h2(&socket)).await {
                    self.converse(socket, is_h2).await;
                }
            }
        }
        drop(place);
    }

    /// What comes of a greeting in time, unless the server stops: nobody who has said nothing is waited for.
    async fn greeted<T>(&mut self, greeting: impl Future<Output = io::Result<T>>) -> Option<T> {
        let remote = self.remote;
        let greeted = tokio::select! {
            greeted = timeout(GREETING_TIMEOUT, greeting) => greeted,
            () = told(&mut self.stopping) => return None,
        };
        match greeted {
            Ok(Ok(greeted)) => Some(greeted),
            Ok(Err(error)) => {
                tracing::debug!(%remote, %error, "the connection ended before it began");
                None
            }
            Err(_) => {
                tracing::debug!(%remote, "nothing was said in time");
                None
            }
        }
    }

    async fn converse(self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, is_h2: bool) {
        let Connection { remote, router, watcher, stopping: _ } = self;
        let service = service_fn(move |request: Request<Incoming>| answer(router.clone(), remote, request));
        let io = TokioIo::new(io);
        let ended = if is_h2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(HEAD_BYTES_MAX as u32);
            watcher.watch(builder.serve_connection(io, service)).await
        } else {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEAD_BYTES_MAX);
            watcher.watch(builder.serve_connection(io, service)).await
        };
        if let Err(error) = ended {
            tracing::debug!(%remote, %error, "the connection broke off");
        }
    }
}

async fn answer(
    mut router: Router,
    remote: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    request.extensions_mut().insert(ConnectInfo(remote));
    // A worker's stream says nothing for as long as it has nothing to say.
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_stream = kind.is_some_and(|kind| kind.starts_with(b"application/grpc"));
    let request = request.map(|body| match is_stream {
        true => Body::new(body),
        false => Body::new(Timely { body, late: None }),
    });
    router.call(request).await
}

/// Whether a client without TLS begins as HTTP/2 does. It must have said so much that it is clear.
async fn begins_as_h2(socket: &TcpStream) -> io::Result<bool> {
    let mut begin = [0; PREFACE.len()];
    loop {
        let read = socket.peek(&mut begin).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !PREFACE.starts_with(&begin[..read]) {
            return Ok(false);
        }
        if read == PREFACE.len() {
            return Ok(true);
        }
        // The rest is on its way, and what was seen is seen again: the system does not tell when there is more.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A body whose pieces come in time, or end it.
struct Timely {
    body: Incoming,
    /// Runs while nothing comes.
    late: Option<Pin<Box<Sleep>>>,
}

/// The client stopped in the middle.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("nothing came for {BODY_TIMEOUT:?}")]
    Late,
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = Unread;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Unread>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.late = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Unread::from)));
        }
        let late = this.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(BODY_TIMEOUT)));
        late.as_mut().poll(cx).map(|()| Some(Err(Unread::Late)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
