//! Receivers that misbehave: what the answer says, and whether the call can have had an effect.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    LONG, Receiver, SHORT, call, client, options, read_request, reset, target, until_closed,
};
use punctual_worker::targets::http::{
    Answer, BoxFuture, Call, Cause, Client, Dialer, Headers, Method, Options, Phase, Resolver, Secret, names,
    sign,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// What the receiver does after reading the request.
#[derive(Clone)]
enum Then {
    /// Writes these bytes, then waits for us to close.
    Hang(Vec<u8>),
    /// Writes these bytes, then closes properly.
    Close(Vec<u8>),
    /// Writes these bytes, then resets.
    Reset(Vec<u8>),
    /// Writes the first bytes, then the second again and again.
    Forever(Vec<u8>, Vec<u8>),
    /// Writes the bytes one at a time, slowly, and then starts again with the last.
    Drip(Vec<u8>),
}

async fn receiver(then: Then) -> Receiver {
    Receiver::start(move |_, mut socket, tell| {
        let then = then.clone();
        async move {
            let Some(_) = read_request(&mut socket).await else { return };
            match then {
                Then::Hang(bytes) => {
                    socket.write_all(&bytes).await.unwrap();
                    until_closed(&mut socket).await;
                }
                Then::Close(bytes) => socket.write_all(&bytes).await.unwrap(),
                Then::Reset(bytes) => {
                    socket.write_all(&bytes).await.unwrap();
                    // Read by the client before the reset throws it away.
                    tokio::time::sleep(SHORT / 10).await;
                    return reset(socket);
                }
                Then::Forever(head, piece) => {
                    let _ = socket.write_all(&head).await;
                    while socket.write_all(&piece).await.is_ok() {}
                }
                Then::Drip(bytes) => {
                    for byte in bytes.iter().chain(std::iter::repeat(&b'x')) {
                        if socket.write_all(&[*byte]).await.is_err() {
                            break;
                        }
                        tokio::time::sleep(SHORT / 20).await;
                    }
                }
            }
            drop(socket);
            let _ = tell.send("closed".to_owned());
        }
    })
    .await
}

async fn answer(then: Then, timeout: Duration) -> Answer {
    let receiver = receiver(then).await;
    let target = target(&receiver.url());
    let headers = Headers::default();
    let mut call = call(&target, &headers);
    call.timeout = timeout;
    client().send(&call).await
}

#[tokio::test]
async fn each_fault_has_its_name_and_says_that_an_effect_is_possible() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let header_of = |bytes: usize| format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(bytes));
    let headers = |n: usize| format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", "x: y\r\n".repeat(n));
    let cases: Vec<(&str, Then, &str, Option<u16>)> = vec![
        ("hangs before headers", Then::Hang(vec![]), "waiting for the response", None),
        ("hangs in headers", Then::Hang("HTTP/1.1 200 OK\r\nx: ".into()), "waiting for the response", None),
        ("hangs after headers", Then::Hang(head.into()), "reading the response", Some(200)),
        ("hangs in body", Then::Hang(format!("{head}12345").into()), "reading the response", Some(200)),
        ("drips headers", Then::Drip("HTTP/1.1 200 OK\r\nx: ".into()), "waiting for the response", None),
        ("drips a body", Then::Drip(head.replace("10", "99999").into()), "the response", None),
        ("closes before headers", Then::Close(vec![]), "closed the connection", None),
        ("closes in headers", Then::Close("HTTP/1.1 200 OK\r\nx".into()), "closed the connection", None),
        ("closes in body", Then::Close(format!("{head}12345").into()), "closed the connection", Some(200)),
        (
            "closes in chunks",
            Then::Close(format!("{chunked}5\r\n123").into()),
            "closed the connection",
            Some(200),
        ),
        ("resets before headers", Then::Reset(vec![]), "closed the connection", None),
        ("resets in body", Then::Reset(format!("{head}12345").into()), "closed the connection", Some(200)),
        ("garbage", Then::Close("\x16\x03\x01 hello\r\n\r\n".into()), "not HTTP", None),
        ("SSH", Then::Close("SSH-2.0-OpenSSH_9.2\r\n\r\n".into()), "not HTTP", None),
        ("bad status", Then::Close("HTTP/1.1 2000 OK\r\n\r\n".into()), "not HTTP", None),
        ("bad header", Then::Close("HTTP/1.1 200 OK\r\nx y: z\r\n\r\n".into()), "not HTTP", None),
        ("bad chunk", Then::Close(format!("{chunked}zz\r\n").into()), "not HTTP", Some(200)),
        (
            "two lengths",
            Then::Close(head.replace("\r\n\r\n", "\r\ncontent-length: 11\r\n\r\n").into()),
            "not HTTP",
            None,
        ),
        ("huge header", Then::Hang(header_of(200 * 1024).into()), "not HTTP", None),
        (
            "endless header",
            Then::Forever("HTTP/1.1 200 OK\r\nx: ".into(), vec![b'y'; 4096]),
            "not HTTP",
            None,
        ),
        ("1000 headers", Then::Hang(headers(1000).into()), "not HTTP", None),
    ];
    for (name, then, part, status) in cases {
        let timeout = if matches!(then, Then::Hang(_) | Then::Drip(_)) { SHORT } else { LONG };
        let answer = answer(then, timeout).await;
        let failure = answer.result.unwrap_err();
        assert!(failure.to_string().contains(part), "{name}: {failure}");
        assert!(failure.is_effect_possible(), "{name}");
        if name != "drips a body" {
            assert_eq!(failure.status.map(|status| status.as_u16()), status, "{name}");
        }
        if let Cause::TimedOut { phase, .. } = failure.cause {
            assert!(answer.timings.of(phase) <= answer.timings.total(), "{name}");
            assert!(answer.timings.total() >= SHORT, "{name}");
        }
    }
}

#[tokio::test]
async fn ninety_nine_headers_are_read() {
    let many = "x: y\r\n".repeat(99);
    let then = Then::Hang(format!("HTTP/1.1 204 No Content\r\n{many}\r\n").into());
    assert_eq!(answer(then, LONG).await.result.unwrap().status, 204);
}

#[tokio::test]
async fn an_endless_body_is_cut_and_its_connection_dropped() {
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut receiver = receiver(Then::Forever(head.into(), chunk)).await;
    let target = target(&receiver.url());
    let client = client();
    let answer = client.send(&call(&target, &Headers::default())).await;
    let response = answer.result.unwrap();
    assert_eq!((response.status.as_u16(), response.body.len(), response.truncated), (200, 64 * 1024, true));
    assert_eq!(receiver.event().await, "closed", "the receiver could not go on writing");
}

#[tokio::test]
async fn a_body_is_kept_up_to_the_limit_and_its_connection_too() {
    for (bytes, kept, truncated, reused) in [
        (0, 0, false, true),
        (1, 1, false, true),
        (64 * 1024, 64 * 1024, false, true),
        (64 * 1024 + 1, 64 * 1024, true, true),
        (1024 * 1024, 64 * 1024, true, true),
        (1024 * 1024 + 1, 64 * 1024, true, false),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n{}", "z".repeat(bytes));
        let receiver = Receiver::answering(text).await;
        let (target, client, headers) = (target(&receiver.url()), client(), Headers::default());
        for first in [true, false] {
            let answer = client.send(&call(&target, &headers)).await;
            let response = answer.result.unwrap();
            assert_eq!((response.body.len(), response.truncated), (kept, truncated), "{bytes}");
            assert_eq!(answer.reused, !first && reused, "{bytes}");
        }
    }
}

#[tokio::test]
async fn each_call_says_how_much_of_a_body_is_kept() {
    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    let (target, client, headers) = (target(&receiver.url()), client(), Headers::default());
    for (most, kept, truncated) in [(0, "", true), (2, "he", true), (5, "hello", false), (9, "hello", false)]
    {
        let call = Call { kept_bytes_max: most, ..call(&target, &headers) };
        let response = client.send(&call).await.result.unwrap();
        assert_eq!((&*response.body, response.truncated), (kept.as_bytes(), truncated), "{most}");
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let elsewhere = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    for status in [301, 302, 303, 307, 308] {
        let location = elsewhere.url();
        let text = format!("HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let receiver = Receiver::answering(text).await;
        let target = target(&receiver.url());
        let answer = client().send(&call(&target, &Headers::default())).await;
        assert_eq!(answer.result.unwrap().status, status);
    }
    assert_eq!(elsewhere.accepted(), 0);
}

#[tokio::test]
async fn what_the_receiver_says_besides_its_status_is_read() {
    let text = "HTTP/1.1 429 Slow down\r\nretry-after: 17\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\nwait";
    let receiver = Receiver::answering(text).await;
    let target = target(&receiver.url());
    let response = client().send(&call(&target, &Headers::default())).await.result.unwrap();
    assert_eq!(response.status, 429);
    assert_eq!(response.retry_after, Some(Duration::from_secs(17)));
    assert_eq!(response.content_type.unwrap(), "text/plain");
    assert_eq!(response.body, "wait");
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_complete() {
    let then = Then::Close("HTTP/1.0 200 OK\r\n\r\nuntil the end".into());
    assert_eq!(answer(then, LONG).await.result.unwrap().body, "until the end");
    let early =
        Then::Close("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\ny".into());
    assert_eq!(answer(early, LONG).await.result.unwrap().body, "y");
}

#[tokio::test]
async fn nothing_can_have_happened_when_nothing_was_sent() {
    // A port that nobody listens on: bound, and given back.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = target(&format!("http://{free}/"));
    let headers = Headers::default();
    let failure = client().send(&call(&refused, &headers)).await.result.unwrap_err();
    assert!(matches!(failure.cause, Cause::Connect { address, .. } if address == free), "{failure}");
    assert!(!failure.is_effect_possible());

    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let target = target(&receiver.url());
    let mut large = call(&target, &headers);
    large.body = vec![b'x'; 256 * 1024 + 1].into();
    let failure = client().send(&large).await.result.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "the call cannot be sent: its body has 262145 bytes, the limit is 262144"
    );
    assert!(!failure.is_effect_possible());
    for id in ["", "a.b", "a b", "a\r\nb", "ä"] {
        let mut wrong = call(&target, &headers);
        wrong.webhook_id = id;
        let failure = client().send(&wrong).await.result.unwrap_err();
        assert!(matches!(failure.cause, Cause::Unsendable(_)) && !failure.is_effect_possible(), "{id:?}");
    }
    assert_eq!(receiver.accepted(), 0);
}

#[tokio::test]
async fn a_name_without_an_address_and_a_silent_resolver_are_told_apart() {
    struct Silent;
    impl Resolver for Silent {
        fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            Box::pin(std::future::pending())
        }
    }
    let (target, headers) = (target("http://nowhere.example:8080/"), Headers::default());
    let nobody = Client::new(Options { resolver: crate::support::TestResolver::new(&[&[]]), ..options() });
    let failure = nobody.unwrap().send(&call(&target, &headers)).await.result.unwrap_err();
    assert_eq!(failure.to_string(), "look up `nowhere.example`: it has no address");

    let silent = Client::new(Options { resolver: Arc::new(Silent), ..options() }).unwrap();
    for (timeout, connect_timeout) in [(LONG, SHORT), (SHORT, LONG)] {
        let mut call = call(&target, &headers);
        (call.timeout, call.connect_timeout) = (timeout, connect_timeout);
        let failure = silent.send(&call).await.result.unwrap_err();
        assert!(
            matches!(failure.cause, Cause::TimedOut { phase: Phase::Dns, after: SHORT, .. }),
            "{failure}"
        );
        assert!(!failure.is_effect_possible());
    }
}

#[tokio::test]
async fn the_request_is_what_the_call_says() {
    let mut receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let target = target(&format!("{}?a=b%20c", receiver.url()));
    let headers = Headers::parse([("X-Team", "billing"), ("Content-Type", "text/plain")]).unwrap();
    let secret = Secret::from_random(&[9; 32]).unwrap();
    let own = [(names::IDEMPOTENCY_KEY, "key-1".parse().unwrap())];
    let mut call = call(&target, &headers);
    (call.own, call.secrets, call.body) = (&own, std::slice::from_ref(&secret), "hello".into());
    assert_eq!(client().send(&call).await.result.unwrap().status, 200);

    let request = receiver.event().await;
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().skip(1).collect();
    lines.sort_unstable();
    let host = format!("host: {}", receiver.address);
    let signature = sign(call.secrets, "run_1", 1_700_000_000, b"hello");
    let signature = format!("webhook-signature: {signature}");
    assert_eq!(head.lines().next(), Some("POST /hook?a=b%20c HTTP/1.1"));
    assert_eq!(
        lines,
        [
            "content-length: 5",
            "content-type: text/plain",
            host.as_str(),
            "idempotency-key: key-1",
            "user-agent: punctual/0.1.0",
            "webhook-id: run_1",
            signature.as_str(),
            "webhook-timestamp: 1700000000",
            "x-team: billing",
        ]
    );
    assert_eq!(body, "hello");

    for (method, expected) in [(Method::POST, true), (Method::GET, false), (Method::DELETE, false)] {
        (call.method, call.body) = (method, "".into());
        client().send(&call).await.result.unwrap();
        assert_eq!(receiver.event_after("closed").await.contains("content-length: 0"), expected);
    }
}

#[tokio::test]
async fn a_body_at_the_limit_is_sent_whole() {
    let mut receiver = Receiver::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let (target, headers) = (target(&receiver.url()), Headers::default());
    let mut large = call(&target, &headers);
    large.body = vec![b'x'; 256 * 1024].into();
    (large.timeout, large.connect_timeout) = (Duration::MAX, Duration::MAX);
    assert_eq!(client().send(&large).await.result.unwrap().status, 200);
    let request = receiver.event().await;
    assert_eq!(request.split_once("\r\n\r\n").unwrap().1.len(), 256 * 1024);
}

#[tokio::test]
async fn an_answer_before_the_question_is_no_answer() {
    /// Connects, and waits for the receiver to speak first.
    struct Patient;
    impl Dialer for Patient {
        fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
            assert!(address.ip().is_loopback());
            Box::pin(async move {
                let socket = TcpStream::connect(address).await?;
                socket.readable().await?;
                Ok(socket)
            })
        }
    }
    let mut receiver = Receiver::start(|_, mut socket, tell| async move {
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        tell.send(read_request(&mut socket).await.unwrap_or_default()).unwrap();
    })
    .await;
    let client = Client::new(Options { dialer: Arc::new(Patient), ..options() }).unwrap();
    let (target, headers) = (target(&receiver.url()), Headers::default());
    let failure = client.send(&call(&target, &headers)).await.result.unwrap_err();
    assert!(matches!(failure.cause, Cause::Protocol { .. }), "{failure}");
    assert!(!failure.is_effect_possible());
    assert_eq!(receiver.event().await, "", "no request was sent");
}
