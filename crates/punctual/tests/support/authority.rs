//! Signs certificates for tests, and speaks TLS with them: one request on a connection, as often as it is asked.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, both in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = pem("CERTIFICATE", params.self_signed(&key).unwrap().der());
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// For this machine, under a name by which it is told from others.
    pub(crate) fn sign(&self, name: &str) -> Pair {
        let mut params =
            CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let cert = pem("CERTIFICATE", params.signed_by(&key, &self.issuer).unwrap().der());
        Pair { cert, key: pem("PRIVATE KEY", &key.serialize_der()) }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.der()).unwrap();
        roots
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()
    }
}

impl Pair {
    /// Writes both, the certificate first.
    pub(crate) fn write(&self, cert: &Path, key: &Path) {
        std::fs::write(cert, &self.cert).unwrap();
        std::fs::write(key, &self.key).unwrap();
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap()
    }

    pub(crate) fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

/// A connection that was agreed on.
pub(crate) struct Secure(StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    /// Agrees on keys, speaking one of these protocols.
    pub(crate) fn open(
        address: SocketAddr,
        authority: &Authority,
        client: Option<&Pair>,
        alpn: &[&str],
    ) -> std::io::Result<Secure> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(authority.roots());
        let mut config = match client {
            Some(pair) => builder.with_client_auth_cert(vec![pair.der()], pair.key_der()).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::from(address.ip());
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Secure(StreamOwned::new(connection, socket)))
    }

    /// Who answers.
    pub(crate) fn peer(&self) -> CertificateDer<'static> {
        self.0.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }

    pub(crate) fn protocol(&self) -> &[u8] {
        self.0.conn.alpn_protocol().unwrap_or_default()
    }

    /// The status of an answer; the connection stays.
    pub(crate) fn get(&mut self, path: &str) -> std::io::Result<u16> {
        self.0.write_all(format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").as_bytes())?;
        let mut seen = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let read = self.0.read(&mut bytes)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            seen.extend_from_slice(&bytes[..read]);
            let text = String::from_utf8_lossy(&seen);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return Ok(head.split(' ').nth(1).unwrap().parse().unwrap());
            }
        }
    }
}
