//! Encrypted connections to a server with a certificate of its own.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use punctual_store_postgres::{OpenError, Options, Schema};
use punctual_testing::Postgres as Server;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Signs certificates.
struct Authority {
    root: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let root = folder.join(format!("{name}.pem"));
        std::fs::write(&root, pem(params.self_signed(&key).unwrap().der())).unwrap();
        Authority { root, issuer: Issuer::new(params, key) }
    }
}

/// As a file has it.
fn pem(der: &[u8]) -> String {
    armoured("CERTIFICATE", der)
}

fn armoured(what: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for (place, bytes) in der.chunks(3).enumerate() {
        let word =
            bytes.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - bytes.len()));
        for digit in 0..4 {
            let is_padding = digit > bytes.len();
            let index = (word >> (18 - 6 * digit)) as usize & 63;
            text.push(if is_padding { '=' } else { char::from(DIGITS[index]) });
        }
        if place % 16 == 15 {
            text.push('\n');
        }
    }
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", text.trim_end())
}

/// Whether the connection was encrypted, or why there was none.
async fn encrypted(server: &Server, host: &str, parameters: &str) -> Result<(), String> {
    let address = format!("postgres://punctual@{host}:{}/postgres?{parameters}", server.port());
    match Schema::read(&Options::new(address)).await {
        Ok(_) => Ok(()),
        Err(OpenError::Refused { reason }) => Err(reason),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn as_much_is_encrypted_and_verified_as_the_address_asks_for() {
    let server = Server::start(&["fsync=off"]);
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (Authority::new(folder.path(), "ours"), Authority::new(folder.path(), "others"));
    let ours_in = |mode: &str| format!("sslmode={mode}&sslrootcert={}", ours.root.display());

    // A server without encryption.
    assert_eq!(encrypted(&server, "localhost", "sslmode=disable").await, Ok(()));
    assert_eq!(encrypted(&server, "localhost", "").await, Ok(()), "preferred, not needed");
    let refused = encrypted(&server, "localhost", "sslmode=require").await.unwrap_err();
    assert!(refused.contains("TLS"), "{refused}");

    // One with a certificate for `localhost`, that takes encrypted connections alone.
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ours.issuer).unwrap();
    let certificate = server.write_private("server.crt", &pem(certificate.der()));
    let key = server.write_private("server.key", &armoured("PRIVATE KEY", &key.serialize_der()));
    server.psql("postgres", &format!("alter system set ssl_cert_file = '{}'", certificate.display()));
    server.psql("postgres", &format!("alter system set ssl_key_file = '{}'", key.display()));
    server.psql("postgres", "alter system set ssl = on");
    let rules = server
        .write_private("rules.conf", "hostssl all all 127.0.0.1/32 trust\nhostssl all all ::1/128 trust\n");
    server.psql("postgres", &format!("alter system set hba_file = '{}'", rules.display()));
    server.psql("postgres", "select pg_reload_conf()");
    // The file of rules is read when a server starts.
    server.crash();
    server.start_again();

    let refused = encrypted(&server, "localhost", "sslmode=disable").await.unwrap_err();
    assert!(refused.contains("no encryption"), "{refused}");
    for parameters in ["", "sslmode=prefer", "sslmode=require", &ours_in("require"), &ours_in("verify-ca")] {
        for host in ["localhost", "127.0.0.1"] {
            assert_eq!(encrypted(&server, host, parameters).await, Ok(()), "{parameters} {host}");
        }
    }
    assert_eq!(encrypted(&server, "localhost", &ours_in("verify-full")).await, Ok(()));
    let refused = encrypted(&server, "127.0.0.1", &ours_in("verify-full")).await.unwrap_err();
    assert!(refused.contains("not valid for name"), "{refused}");
    for mode in ["require", "verify-ca", "verify-full"] {
        let parameters = format!("sslmode={mode}&sslrootcert={}", others.root.display());
        let refused = encrypted(&server, "localhost", &parameters).await.unwrap_err();
        assert!(refused.contains("UnknownIssuer"), "{mode}: {refused}");
    }
    let refused = encrypted(&server, "localhost", "sslmode=verify-full").await.unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "a public root: {refused}");
}
