//! What TLS is spoken with, for targets that need more than the public authorities.
//!
//! Made for one call from secrets, and used when it opens a connection. Promise: a connection that was opened with one identity carries no
//! call of another, because the pool knows hosts by it; certificates are verified, by the private authority if there is one.

use std::fmt;
use std::sync::Arc;

use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// Names an identity, and says nothing about it.
pub(super) type Print = [u8; 32];

/// See the module. Each in PEM.
#[derive(Clone, Default)]
pub struct Identity {
    /// Who must have signed the target's certificate; the public authorities, if nobody is named.
    pub ca: Option<Box<str>>,
    /// What is shown to the target: a certificate with those above it, and its key.
    pub client: Option<(Box<str>, Box<str>)>,
}

/// A key is printed by nothing.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(…)")
    }
}

impl Identity {
    pub(super) fn print(&self) -> Print {
        let mut context = digest::Context::new(&digest::SHA256);
        let (cert, key) = self.client.as_ref().map(|(cert, key)| (&**cert, &**key)).unwrap_or_default();
        for part in [self.ca.as_deref().unwrap_or_default(), cert, key] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut print = [0; 32];
        print.copy_from_slice(context.finish().as_ref());
        print
    }

    /// As connections are opened with it, or what is wrong with it. The reason names no secret.
    pub(super) fn connector(&self) -> Result<TlsConnector, String> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(pem) => {
                for root in certificates("tls.ca", pem)? {
                    roots.add(root).map_err(|error| format!("tls.ca: {error}"))?;
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("set up TLS: {error}"))?
            .with_root_certificates(roots);
        let mut config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates("tls.client_cert", cert)?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|_| "tls.client_key: there is no key in PEM in it".to_owned())?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("tls.client_key: it does not fit the certificate: {error}"))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn certificates(place: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("{place}: there is no certificate in PEM in it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_pem_is_told_by_its_place_and_not_repeated() {
        let wrong = |identity: Identity| identity.connector().err().unwrap_or_default();
        let told = wrong(Identity { ca: Some("hunter2".into()), client: None });
        assert!(told.contains("tls.ca") && !told.contains("hunter2"), "{told}");
        let told = wrong(Identity { ca: None, client: Some(("hunter2".into(), "hunter2".into())) });
        assert!(told.contains("tls.client_cert") && !told.contains("hunter2"), "{told}");
    }

    #[test]
    fn identities_are_told_apart_by_every_part() {
        let with = |ca: Option<&str>, client: Option<(&str, &str)>| {
            let client = client.map(|(cert, key)| (cert.into(), key.into()));
            Identity { ca: ca.map(Into::into), client }.print()
        };
        let prints = [
            with(Some("a"), None),
            with(Some("b"), None),
            with(None, Some(("a", ""))),
            with(None, Some(("", "a"))),
            with(Some("a"), Some(("b", "c"))),
            with(Some("ab"), Some(("", "c"))),
        ];
        for (n, print) in prints.iter().enumerate() {
            assert!(!prints[n + 1..].contains(print), "{n}");
        }
    }
}
