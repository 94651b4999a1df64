//! Opens connections: resolves, asks the guard, dials, agrees on keys.
//!
//! Runs when the pool has no connection for a call. Promise: only an address that the guard has
//! judged is dialled, there is no second look-up, and for TLS the certificate must still be the
//! host's. Proxy settings of the environment are not read.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::answer::{Cause, Phase, Stopwatch};
use super::guard::Refusal;
use super::stream::Io;
use super::target::{Host, Origin};
use crate::Error;

/// A future without a name.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Turns a name into addresses. The guard judges whatever it says.
pub trait Resolver: Send + Sync {
    /// The addresses of a name, best first.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Opens a TCP connection to an address that the guard has let through.
pub trait Dialer: Send + Sync {
    /// Connects to exactly this address.
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The system's sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDialer;

impl Dialer for SystemDialer {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(address))
    }
}

/// Addresses dialled for one call; all are judged. More would only lengthen a failure.
const DIALS_MAX: usize = 4;

/// Nobody waits longer for a connection, and a clock cannot add much more than that.
const CONNECT_MAX: Duration = Duration::from_secs(3600);

pub(super) struct Connector {
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) dialer: Arc<dyn Dialer>,
    pub(super) tls: TlsConnector,
}

/// An open connection on which nothing was said yet.
pub(super) struct Dialled {
    pub(super) io: Io,
    pub(super) remote: SocketAddr,
    pub(super) is_h2: bool,
}

impl Connector {
    /// Opens a connection, and notes in the stopwatch how far it came.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        tls: &TlsConnector,
        guard: impl Fn(IpAddr) -> Result<(), Refusal>,
        limit: Duration,
        stopwatch: &mut Stopwatch,
    ) -> Result<Dialled, Cause> {
        let limit = limit.min(CONNECT_MAX);
        let deadline = Instant::now() + limit;
        let host = || origin.host.to_string();
        let late = |phase| Cause::TimedOut { host: host(), phase, after: limit };
        stopwatch.enter(Phase::Dns);
        let addresses = match &origin.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => match timeout(limit, self.resolver.resolve(name)).await {
                Err(_) => return Err(late(Phase::Dns)),
                Ok(Err(error)) => return Err(Cause::Dns { host: host(), reason: error.to_string() }),
                Ok(Ok(addresses)) => addresses,
            },
        };
        // One bad address refuses the name: an honest name does not mix public and inner addresses.
        for address in &addresses {
            guard(*address).map_err(Cause::Refused)?;
        }
        let mut failure = Cause::Dns { host: host(), reason: "it has no address".to_owned() };
        let dials = addresses.len().min(DIALS_MAX);
        for (n, address) in addresses.into_iter().take(dials).enumerate() {
            stopwatch.enter(Phase::Connect);
            let remote = SocketAddr::new(address, origin.port);
            // Each address gets its share of the time left, so that a silent one does not use up all.
            let share = deadline.saturating_duration_since(Instant::now()) / (dials - n) as u32;
            failure = match timeout(share, self.dialer.dial(remote)).await {
                Ok(Ok(socket)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    return match timeout(left, encrypt(origin, tls, socket, remote, stopwatch)).await {
                        Ok(result) => result,
                        Err(_) => Err(late(Phase::Tls)),
                    };
                }
                Ok(Err(error)) => Cause::Connect { host: host(), address: remote, reason: error.to_string() },
                Err(_) => late(Phase::Connect),
            };
        }
        Err(failure)
    }
}

async fn encrypt(
    origin: &Origin,
    tls: &TlsConnector,
    socket: TcpStream,
    remote: SocketAddr,
    stopwatch: &mut Stopwatch,
) -> Result<Dialled, Cause> {
    // Without it the system may hold back the end of a request. A failure costs only that.
    let _ = socket.set_nodelay(true);
    if !origin.tls {
        return Ok(Dialled { io: Io::Plain(socket), remote, is_h2: false });
    }
    stopwatch.enter(Phase::Tls);
    let wrong = |reason: String| Cause::Tls { host: origin.host.to_string(), address: remote, reason };
    let name = match &origin.host {
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|error| wrong(error.to_string()))?,
        Host::Address(address) => ServerName::from(*address),
    };
    let stream = tls.connect(name, socket).await.map_err(|error| wrong(error.to_string()))?;
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok(Dialled { io: Io::Tls(Box::new(stream)), remote, is_h2 })
}

/// TLS with the usual public roots and those given; certificates are always verified.
pub(super) fn tls(extra_roots: &[CertificateDer<'static>]) -> Result<TlsConnector, Error> {
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for (n, root) in extra_roots.iter().enumerate() {
        roots.add(root.clone()).map_err(|error| Error::Root { number: n + 1, reason: error.to_string() })?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
