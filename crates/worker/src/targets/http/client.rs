//! Makes calls: the one way out of the process for HTTP.

use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use ::http::header::CONTENT_TYPE;
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Incoming};
use rustls::pki_types::CertificateDer;

use super::answer::{Answer, Cause, Failure, Phase, Response, Stopwatch};
use super::call::Call;
use super::connection::{Broken, Connection};
use super::connector::{self, Connector, Dialer, Resolver, SystemDialer, SystemResolver};
use super::guard::Policy;
use super::pool::{Host, Limits, Pool};
use super::retry_after;
use super::stream::Wire;
use crate::Error;

/// How a client behaves. The defaults suit a worker of one installation.
#[derive(Clone)]
pub struct Options {
    /// What the installation lets targets reach.
    pub policy: Policy,
    /// Root certificates besides the public ones, in DER.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Calls under way to one host at a time, which is also the most HTTP/1.1 connections to it.
    pub per_host_max: usize,
    /// Connections kept for later, over all hosts.
    pub resting_max: usize,
    /// How long a connection is kept for later.
    pub rest_max: Duration,
    /// A connection that rested this long is first asked whether the receiver has closed it.
    pub probe_after: Duration,
    /// Bytes of a request's body that are sent; a longer one is refused.
    pub request_bytes_max: usize,
    /// Bytes of a response's body that are read before the connection is dropped.
    pub read_bytes_max: usize,
    /// Turns names into addresses.
    pub resolver: Arc<dyn Resolver>,
    /// Opens connections to the addresses that the guard lets through.
    pub dialer: Arc<dyn Dialer>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            policy: Policy::default(),
            extra_roots: Vec::new(),
            per_host_max: 256,
            // A quarter of the 16,384 open files that a service commonly gets.
            resting_max: 4_096,
            // Below the 60 s after which many load balancers close.
            rest_max: Duration::from_secs(45),
            // Busy connections are reused within microseconds; the question costs a system call.
            probe_after: Duration::from_millis(5),
            request_bytes_max: 256 * 1024,
            read_bytes_max: 1024 * 1024,
            resolver: Arc::new(SystemResolver),
            dialer: Arc::new(SystemDialer),
        }
    }
}

/// Makes calls. Cheap to clone; clones share their connections. Belongs to one Tokio runtime.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    policy: Policy,
    connector: Connector,
    pool: Arc<Pool>,
    request_bytes_max: usize,
    read_bytes_max: usize,
}

/// Stale connections tried for one call before a new one is opened.
const STALE_MAX: usize = 3;

/// How far a call came. It outlives the call's future, so that a timeout can tell.
struct Progress {
    stopwatch: Stopwatch,
    reused: bool,
    remote: Option<std::net::SocketAddr>,
    status: Option<StatusCode>,
    /// The socket that the request goes through, over HTTP/1.1.
    wire: Option<Arc<Wire>>,
    /// The request was given to a shared connection, over HTTP/2.
    handed_over: bool,
}

impl Progress {
    fn is_effect_possible(&self) -> bool {
        self.handed_over || self.wire.as_ref().is_some_and(|wire| wire.has_sent())
    }

    /// Notes that a request is about to be sent on this connection.
    fn begin(&mut self, connection: &Connection, reused: bool) {
        self.reused = reused;
        self.remote = Some(connection.remote());
        self.handed_over = matches!(connection, Connection::H2(_));
        self.wire = match connection {
            Connection::H1(h1) => {
                h1.wire().begin();
                Some(Arc::clone(h1.wire()))
            }
            Connection::H2(_) => None,
        };
        self.stopwatch.enter(Phase::FirstByte);
    }
}

impl Client {
    /// Makes a client. Connections are opened by calls.
    pub fn new(options: Options) -> Result<Client, Error> {
        let limits = Limits {
            per_host_max: options.per_host_max.max(1),
            resting_max: options.resting_max,
            rest_max: options.rest_max,
            probe_after: options.probe_after,
        };
        let tls = connector::tls(&options.extra_roots)?;
        Ok(Client {
            inner: Arc::new(Inner {
                policy: options.policy,
                connector: Connector { resolver: options.resolver, dialer: options.dialer, tls },
                pool: Arc::new(Pool::new(limits)),
                request_bytes_max: options.request_bytes_max,
                read_bytes_max: options.read_bytes_max,
            }),
        })
    }

    /// Makes one call. Redirects are not followed. Dropping the future ends the call and closes
    /// its connection.
    ///
    /// A resting connection that the receiver has closed meanwhile is replaced by another as long
    /// as the socket took no byte of this call; after the first byte nothing is sent twice.
    pub async fn send(&self, call: &Call<'_>) -> Answer {
        let mut progress = Progress {
            stopwatch: Stopwatch::start(),
            reused: false,
            remote: None,
            status: None,
            wire: None,
            handed_over: false,
        };
        let result = match tokio::time::timeout(call.timeout, self.inner.attempt(call, &mut progress)).await {
            Ok(result) => result,
            Err(_) => {
                let host = call.target.host();
                Err(Cause::TimedOut { host, phase: progress.stopwatch.phase, after: call.timeout })
            }
        };
        let effect_possible = progress.is_effect_possible();
        let status = progress.status;
        Answer {
            result: result.map_err(|cause| Failure { cause, status, effect_possible }),
            timings: progress.stopwatch.stop(),
            remote: progress.remote,
            reused: progress.reused,
        }
    }
}

impl Inner {
    async fn attempt(&self, call: &Call<'_>, progress: &mut Progress) -> Result<Response, Cause> {
        let origin = call.target.origin();
        call.guard(&self.policy, |policy| policy.check_origin(origin)).map_err(Cause::Refused)?;
        if call.body.len() > self.request_bytes_max {
            let (bytes, max) = (call.body.len(), self.request_bytes_max);
            return Err(Cause::Unsendable(format!("its body has {bytes} bytes, the limit is {max}")));
        }
        let signed = call.sign().map_err(Cause::Unsendable)?;
        let host = self.pool.host(origin);
        let place = host.places.acquire().await;
        let mut stale = 0;
        loop {
            let (mut connection, reused) = self.connection(call, &host, stale, progress).await?;
            let request = call.request(&signed, matches!(connection, Connection::H2(_)));
            progress.begin(&connection, reused);
            let response = match connection.exchange(request).await {
                Ok(response) => response,
                Err(broken) => {
                    progress.handed_over &= !matches!(broken, Broken::Unsent(_));
                    if reused && !progress.is_effect_possible() {
                        stale += 1;
                        continue;
                    }
                    return Err(broken.cause(call));
                }
            };
            progress.status = Some(response.status());
            let (head, body) = response.into_parts();
            let read = self
                .read(&mut connection, body, call.kept_bytes_max, progress)
                .await
                .map_err(|broken| broken.cause(call))?;
            if let Connection::H1(h1) = connection
                && read.is_complete
            {
                self.pool.put(&host, h1);
            }
            // A call that waits for the place finds the connection resting.
            drop(place);
            return Ok(Response {
                status: head.status,
                retry_after: retry_after::read(&head.headers, call.timestamp_s),
                content_type: head.headers.get(CONTENT_TYPE).cloned(),
                body: read.start,
                truncated: read.truncated,
            });
        }
    }

    /// A connection for the call, and whether an earlier call opened it.
    async fn connection(
        &self,
        call: &Call<'_>,
        host: &Host,
        stale: usize,
        progress: &mut Progress,
    ) -> Result<(Connection, bool), Cause> {
        let origin = call.target.origin();
        let guard = |address| call.guard(&self.policy, |policy| policy.check_address(origin, address));
        if stale < STALE_MAX
            && let Some(connection) = self.pool.take(host, |address| guard(address).is_ok())
        {
            return Ok((connection, true));
        }
        let limit = call.connect_timeout;
        let own =
            call.identity.map(|identity| identity.connector().map_err(Cause::Unsendable)).transpose()?;
        let tls = own.as_ref().unwrap_or(&self.connector.tls);
        let dialled = self.connector.connect(origin, tls, guard, limit, &mut progress.stopwatch).await?;
        progress.remote = Some(dialled.remote);
        let opened = Connection::open(dialled).await.map_err(|error| Broken::Http(error).cause(call))?;
        match opened {
            Connection::H1(h1) => Ok((Connection::H1(h1), false)),
            Connection::H2(h2) => {
                let shared = self.pool.share(host, h2, |address| guard(address).is_ok());
                Ok((Connection::H2(shared), false))
            }
        }
    }

    async fn read(
        &self,
        connection: &mut Connection,
        mut body: Incoming,
        kept_bytes_max: usize,
        progress: &mut Progress,
    ) -> Result<Read, Broken> {
        progress.stopwatch.enter(Phase::Body);
        let mut start = BytesMut::new();
        let mut bytes = 0;
        while !body.is_end_stream() {
            let Some(frame) = connection.frame(&mut body).await else { break };
            let Ok(data) = frame?.into_data() else { continue };
            bytes += data.len();
            let room = kept_bytes_max - start.len();
            start.extend_from_slice(&data[..data.len().min(room)]);
            if bytes > self.read_bytes_max {
                return Ok(Read { start: start.freeze(), truncated: true, is_complete: false });
            }
        }
        let truncated = bytes > start.len();
        Ok(Read { start: start.freeze(), truncated, is_complete: true })
    }
}

/// What was read of a body.
struct Read {
    start: Bytes,
    truncated: bool,
    is_complete: bool,
}

impl Broken {
    fn cause(self, call: &Call<'_>) -> Cause {
        let host = call.target.host();
        let error = match self {
            Broken::Ended => return Cause::Closed { host, reason: "it ended".to_owned() },
            Broken::Http(error) | Broken::Unsent(error) => error,
        };
        let io = find_io(&error);
        let root = root(&error);
        let is_end = io.is_some() || root.is_incomplete_message() || root.is_closed() || root.is_canceled();
        let reason = match io {
            Some(io) => io.to_string(),
            None => chain(&error),
        };
        if is_end { Cause::Closed { host, reason } } else { Cause::Protocol { host, reason } }
    }
}

/// The HTTP library's own first error: it says "cancelled" of requests that fall with a connection.
fn root(error: &hyper::Error) -> &hyper::Error {
    let mut root = error;
    while let Some(deeper) = std::error::Error::source(root).and_then(|source| source.downcast_ref()) {
        root = deeper;
    }
    root
}

/// The system's error below the HTTP library's, if that is the cause.
fn find_io(error: &hyper::Error) -> Option<&std::io::Error> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            // The HTTP library uses this kind for framing it cannot read.
            let is_framing =
                matches!(io.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput);
            return (!is_framing).then_some(io);
        }
        source = error.source();
    }
    None
}

/// An error with its causes, on one line.
fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
