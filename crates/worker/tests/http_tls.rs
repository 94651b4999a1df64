//! Encrypted receivers: HTTP/2, certificates that are wrong, handshakes that hang.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::support::{LONG, Receiver, SHORT, call, options, target, until_closed};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use punctual_worker::Error;
use punctual_worker::targets::http::{Cause, Client, Headers, Options, Phase, Target};
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio_rustls::TlsAcceptor;

/// Signs certificates for receivers.
struct Authority {
    root: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        Authority { root, issuer: Issuer::new(params, key) }
    }

    fn acceptor(&self, names: &[&str], expired: bool, alpn: &[&str]) -> TlsAcceptor {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        if expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    fn client(&self) -> Client {
        Client::new(Options { extra_roots: vec![self.root.clone()], ..options() }).unwrap()
    }
}

/// Answers with the protocol, the name the client asked for and the host it named.
async fn receiver(acceptor: TlsAcceptor) -> Receiver {
    Receiver::start(move |number, socket, tell| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(socket).await else {
                tell.send("refused".to_owned()).unwrap();
                return;
            };
            let server_name = stream.get_ref().1.server_name().unwrap_or("-").to_owned();
            let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let asked = tell.clone();
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let host = request.uri().host().map(str::to_owned).or_else(|| {
                    request.headers().get("host").map(|value| value.to_str().unwrap().to_owned())
                });
                let text = format!("{number} {:?} {server_name} {}", request.version(), host.unwrap());
                let hangs = request.uri().path() == "/hang";
                asked.send("asked".to_owned()).unwrap();
                async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Infallible>(hyper::Response::new(Full::new(Bytes::from(text))))
                }
            });
            let io = TokioIo::new(stream);
            let ended = if is_h2 {
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(io, service)
                    .await
            } else {
                hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
            };
            let _ = tell.send(format!("closed {}", ended.is_ok()));
        }
    })
    .await
}

fn secure(host: &str, address: SocketAddr, path: &str) -> Target {
    target(&format!("https://{host}:{}{path}", address.port()))
}

#[tokio::test]
async fn many_calls_share_one_http2_connection() {
    let authority = Authority::new("ours");
    let receiver = receiver(authority.acceptor(&["receiver.example"], false, &["h2", "http/1.1"])).await;
    let client = authority.client();
    let target = Arc::new(secure("receiver.example", receiver.address, "/"));
    let first = client.send(&call(&target, &Headers::default())).await;
    assert_eq!(first.result.unwrap().body, "0 HTTP/2.0 receiver.example receiver.example");
    assert!(first.timings.of(Phase::Tls) > std::time::Duration::ZERO && !first.reused);
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let (client, target) = (client.clone(), Arc::clone(&target));
            tokio::spawn(async move { client.send(&call(&target, &Headers::default())).await })
        })
        .collect();
    for call in calls {
        let answer = call.await.unwrap();
        assert!(answer.reused);
        assert_eq!(answer.result.unwrap().body, "0 HTTP/2.0 receiver.example receiver.example");
    }
    assert_eq!(receiver.accepted(), 1);
}

#[tokio::test]
async fn calls_that_race_to_open_http2_end_on_one_connection() {
    let authority = Authority::new("ours");
    let receiver = receiver(authority.acceptor(&["receiver.example"], false, &["h2"])).await;
    let (client, target) = (authority.client(), Arc::new(secure("receiver.example", receiver.address, "/")));
    let race: Vec<_> = (0..8)
        .map(|_| {
            let (client, target) = (client.clone(), Arc::clone(&target));
            tokio::spawn(async move { client.send(&call(&target, &Headers::default())).await })
        })
        .collect();
    for call in race {
        assert!(call.await.unwrap().result.is_ok());
    }
    let opened = receiver.accepted();
    assert!(client.send(&call(&target, &Headers::default())).await.reused);
    assert_eq!(receiver.accepted(), opened);
}

#[tokio::test]
async fn a_receiver_without_http2_gets_http1_and_keeps_its_connection() {
    let authority = Authority::new("ours");
    for alpn in [&["http/1.1"][..], &[]] {
        let receiver = receiver(authority.acceptor(&["receiver.example"], false, alpn)).await;
        let (client, headers) = (authority.client(), Headers::default());
        let target = secure("receiver.example", receiver.address, "/");
        for n in 0..3 {
            let answer = client.send(&call(&target, &headers)).await;
            let host = format!("receiver.example:{}", receiver.address.port());
            assert_eq!(answer.result.unwrap().body, format!("0 HTTP/1.1 receiver.example {host}"));
            assert_eq!(answer.reused, n > 0);
        }
        assert_eq!(receiver.accepted(), 1);
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_the_hosts_is_refused() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("a stranger"));
    let cases = [
        ("another name", &authority, "receiver.example", vec!["other.example"], false, "not valid for name"),
        ("expired", &authority, "receiver.example", vec!["receiver.example"], true, "expired"),
        ("unknown root", &stranger, "receiver.example", vec!["receiver.example"], false, "UnknownIssuer"),
        (
            "a name for an address",
            &authority,
            "127.0.0.1",
            vec!["receiver.example"],
            false,
            "not valid for name",
        ),
        ("wildcard two levels", &authority, "a.b.example", vec!["*.example"], false, "not valid for name"),
    ];
    for (name, signer, host, names, expired, part) in cases {
        let mut receiver = receiver(signer.acceptor(&names, expired, &["h2", "http/1.1"])).await;
        let target = secure(host, receiver.address, "/");
        let failure = authority.client().send(&call(&target, &Headers::default())).await.result.unwrap_err();
        assert!(matches!(failure.cause, Cause::Tls { .. }), "{name}: {failure}");
        assert!(failure.to_string().contains(part), "{name}: {failure}");
        assert!(!failure.is_effect_possible(), "{name}");
        assert_eq!(receiver.event().await, "refused", "{name}");
    }
    let receiver = receiver(authority.acceptor(&["127.0.0.1", "a.example"], false, &["h2"])).await;
    for host in ["127.0.0.1", "a.example"] {
        let target = secure(host, receiver.address, "/");
        assert!(authority.client().send(&call(&target, &Headers::default())).await.result.is_ok());
    }
}

#[tokio::test]
async fn a_receiver_that_speaks_no_tls_or_says_nothing_has_seen_nothing() {
    let authority = Authority::new("ours");
    let plain = Receiver::answering("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let silent = Receiver::start(|_, mut socket, _| async move { until_closed(&mut socket).await }).await;
    let speaks = Receiver::start(|_, mut socket, _| async move {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut socket, b"220 mail.example ESMTP\r\n").await;
        until_closed(&mut socket).await;
    })
    .await;
    let headers = Headers::default();
    let there = secure("receiver.example", speaks.address, "/");
    let failure = authority.client().send(&call(&there, &headers)).await.result.unwrap_err();
    assert!(matches!(failure.cause, Cause::Tls { .. }) && !failure.is_effect_possible(), "{failure}");

    for (receiver, timeout, connect_timeout) in
        [(&silent, LONG, SHORT), (&silent, SHORT, LONG), (&plain, SHORT, LONG)]
    {
        let target = secure("receiver.example", receiver.address, "/");
        let mut call = call(&target, &headers);
        (call.timeout, call.connect_timeout) = (timeout, connect_timeout);
        let failure = authority.client().send(&call).await.result.unwrap_err();
        assert!(
            matches!(failure.cause, Cause::TimedOut { phase: Phase::Tls, after: SHORT, .. }),
            "{failure}"
        );
        assert!(!failure.is_effect_possible());
    }
}

#[tokio::test]
async fn a_call_given_up_on_http2_leaves_the_connection_to_the_others() {
    let authority = Authority::new("ours");
    let mut receiver = receiver(authority.acceptor(&["receiver.example"], false, &["h2"])).await;
    let (client, headers) = (authority.client(), Headers::default());
    let (hang, quick) = (
        secure("receiver.example", receiver.address, "/hang"),
        secure("receiver.example", receiver.address, "/"),
    );
    assert!(client.send(&call(&quick, &headers)).await.result.is_ok());
    let mut hanging = call(&hang, &headers);
    hanging.timeout = SHORT;
    let failure = client.send(&hanging).await.result.unwrap_err();
    assert!(matches!(failure.cause, Cause::TimedOut { phase: Phase::FirstByte, .. }), "{failure}");
    assert!(failure.is_effect_possible());
    assert!(client.send(&call(&quick, &headers)).await.reused);
    assert_eq!(receiver.accepted(), 1);
    // The pool and the last client let go, and the connection ends.
    drop(client);
    assert_eq!(receiver.event_after("asked").await, "closed true");
}

#[test]
fn a_root_that_is_no_certificate_is_refused_by_its_number() {
    let good = Authority::new("ours").root;
    let extra_roots = vec![good, CertificateDer::from(b"not a certificate".to_vec())];
    let error = Client::new(Options { extra_roots, ..Options::default() }).err().unwrap();
    assert!(matches!(error, Error::Root { number: 2, .. }), "{error}");
}
