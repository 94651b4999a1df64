//! Encrypted connections, as libpq has them: `sslmode` and `sslrootcert` in the address.
//!
//! | sslmode | the connection | the server's certificate |
//! |---|---|---|
//! | `disable` | plain | |
//! | `prefer` (default) | encrypted if the server can | not looked at |
//! | `require` | encrypted | not looked at, unless `sslrootcert` is given: as `verify-ca` |
//! | `verify-ca` | encrypted | signed by a root of `sslrootcert`, or a public one |
//! | `verify-full` | encrypted | also made for the host of the address |

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// How much of the server is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// What an address says about encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    mode: Mode,
    roots: Option<PathBuf>,
}

impl Tls {
    /// Takes what is about encryption out of an address.
    pub(crate) fn of(address: &str) -> Result<(String, Tls), String> {
        let mut tls = Tls { mode: Mode::Prefer, roots: None };
        let Some((base, query)) = address.split_once('?') else { return Ok((address.into(), tls)) };
        let mut rest = Vec::new();
        for parameter in query.split('&') {
            match parameter.split_once('=') {
                Some(("sslmode", mode)) => {
                    tls.mode = match mode {
                        "disable" => Mode::Disable,
                        "prefer" => Mode::Prefer,
                        "require" => Mode::Require,
                        "verify-ca" => Mode::VerifyCa,
                        "verify-full" => Mode::VerifyFull,
                        _ => {
                            return Err(format!(
                                "sslmode is one of disable, prefer, require, verify-ca and verify-full, not `{mode}`"
                            ));
                        }
                    }
                }
                Some(("sslrootcert", path)) => tls.roots = Some(decoded(path)?.into()),
                _ => rest.push(parameter),
            }
        }
        let rest = rest.join("&");
        Ok((if rest.is_empty() { base.into() } else { format!("{base}?{rest}") }, tls))
    }

    /// What the client library needs to know of it.
    pub(crate) fn ssl_mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// Makes encrypted connections.
    pub(crate) fn connector(&self) -> Result<Connector, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = self.roots()?;
        let inner = match (self.mode, &self.roots) {
            (Mode::Disable | Mode::Prefer, _) | (Mode::Require, None) => None,
            (Mode::Require | Mode::VerifyCa | Mode::VerifyFull, _) => {
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
                Some(verifier.build().map_err(|error| error.to_string())?)
            }
        };
        let verifier =
            Verifier { inner, is_full: self.mode == Mode::VerifyFull, provider: Arc::clone(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Connector { tls: TlsConnector::from(Arc::new(config)), host: String::new() })
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let Some(path) = &self.roots else {
            return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
        };
        let wrong = |reason: String| format!("sslrootcert {}: {reason}", path.display());
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        match roots.is_empty() {
            true => Err(wrong("there is no certificate in it".into())),
            false => Ok(roots),
        }
    }
}

/// A value of an address without its escapes.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is not escaped as a URL is");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
                let digits = std::str::from_utf8(&digits).map_err(|_| wrong())?;
                u8::from_str_radix(digits, 16).map_err(|_| wrong())?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Verifies as much as the mode asks for.
#[derive(Debug)]
struct Verifier {
    /// None looks at nothing: the connection is encrypted, to whomever.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// The host's name counts too.
    is_full: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // The name is looked at last: the rest was in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.is_full => Ok(ServerCertVerified::assertion()),
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes encrypted connections to a host.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Stream<S>;
    type TlsConnect = Connector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connector> {
        Ok(Connector { tls: self.tls.clone(), host: host.into() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connector {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(Stream(self.tls.connect(name, stream).await?))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Stream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_encryption_is_taken_out_of_the_address() {
        let (address, tls) = Tls::of("postgres://me@db/jobs").unwrap();
        assert_eq!((address.as_str(), tls.mode, tls.roots), ("postgres://me@db/jobs", Mode::Prefer, None));
        let text = "postgres://me@db/jobs?sslmode=verify-full&application_name=x&sslrootcert=/a%20b/root.pem";
        let (address, tls) = Tls::of(text).unwrap();
        assert_eq!(address, "postgres://me@db/jobs?application_name=x");
        assert_eq!((tls.mode, tls.roots), (Mode::VerifyFull, Some("/a b/root.pem".into())));
        let wrong = Tls::of("postgres://db/jobs?sslmode=sometimes").unwrap_err();
        assert!(wrong.contains("verify-full") && wrong.contains("sometimes"), "{wrong}");
        assert!(Tls::of("postgres://db/jobs?sslrootcert=%zz").is_err());
    }

    #[test]
    fn roots_that_cannot_be_read_are_named() {
        let tls = Tls { mode: Mode::VerifyFull, roots: Some("/nowhere/root.pem".into()) };
        assert!(tls.connector().is_err_and(|reason| reason.contains("/nowhere/root.pem")));
    }
}
