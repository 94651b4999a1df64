//! The server's certificate, and who else may connect: read from files, and again when these change.
//!
//! Loaded when the server starts, where a wrong file ends it, and looked at every two seconds after that. Promise: new files count for new
//! connections and disturb no open one; files that cannot be used change nothing, and are told once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the files are looked at: whoever renews a certificate does so weeks before its end.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paths {
    /// The chain, the server's own certificate first.
    pub(crate) cert: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// Who signs the certificates of clients, if they need one.
    pub(crate) client_ca: Option<PathBuf>,
}

/// What is in them.
#[derive(Clone, PartialEq, Eq)]
struct Files {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// See the module.
pub(super) struct Certificates {
    paths: Paths,
    acceptor: RwLock<TlsAcceptor>,
}

impl Certificates {
    /// Reads the files, or says what is wrong with which, and sees to it that they are read again.
    pub(super) fn start(paths: Paths) -> Result<Arc<Certificates>, String> {
        let files = Files::read(&paths)?;
        let acceptor = RwLock::new(files.acceptor(&paths)?);
        let certificates = Arc::new(Certificates { paths, acceptor });
        tokio::spawn(Arc::clone(&certificates).follow(files));
        Ok(certificates)
    }

    /// Agrees on keys with a client.
    pub(super) async fn accept(&self, socket: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone();
        acceptor.accept(socket).await
    }

    async fn follow(self: Arc<Self>, mut seen: Files) {
        let mut told = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let paths = self.paths.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || Files::read(&paths)).await else { return };
            let taken = read.and_then(|files| match files == seen {
                true => Ok(None),
                false => files.acceptor(&self.paths).map(|acceptor| Some((files, acceptor))),
            });
            match taken {
                Ok(None) => told = None,
                Ok(Some((files, acceptor))) => {
                    *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
                    (seen, told) = (files, None);
                    tracing::info!(cert = %self.paths.cert.display(), "the certificate is a new one");
                }
                // The same reason again is no news.
                Err(reason) => {
                    if told.as_ref() != Some(&reason) {
                        tracing::error!(reason, "the certificate stays the old one");
                        told = Some(reason);
                    }
                }
            }
        }
    }
}

impl Files {
    fn read(paths: &Paths) -> Result<Files, String> {
        let read = |setting: &str, path: &Path| {
            std::fs::read(path).map_err(|error| format!("{setting}: {}: {error}", path.display()))
        };
        Ok(Files {
            cert: read("tls-cert", &paths.cert)?,
            key: read("tls-key", &paths.key)?,
            client_ca: paths.client_ca.as_deref().map(|path| read("tls-client-ca", path)).transpose()?,
        })
    }

    fn acceptor(&self, paths: &Paths) -> Result<TlsAcceptor, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates("tls-cert", &paths.cert, &self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| format!("tls-key: {}: no key in PEM: {error}", paths.key.display()))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("set up TLS: {error}"))?;
        let builder = match (&self.client_ca, &paths.client_ca) {
            (Some(bytes), Some(path)) => {
                let wrong = |error: String| format!("tls-client-ca: {}: {error}", path.display());
                let mut roots = RootCertStore::empty();
                for root in certificates("tls-client-ca", path, bytes)? {
                    roots.add(root).map_err(|error| wrong(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong(error.to_string()))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            let (cert, key) = (paths.cert.display(), paths.key.display());
            format!("tls-key: {key} does not fit the certificate in {cert}: {error}")
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(setting: &str, path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |reason: String| format!("{setting}: {}: {reason}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(wrong("there is no certificate in it".into())),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(format!("no certificates in PEM: {error}"))),
    }
}
