//! The guard as the only way out: hostile URLs, rebinding names, tenants. Nothing here can reach
//! another machine: the dialer leads every address to a listener of the test.

use std::collections::HashSet;
use std::sync::Arc;

use crate::support::{Receiver, TestDialer, TestResolver, call, target};
use punctual_worker::targets::http::{Cause, Client, Headers, Options, Policy, Target};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const OK_AND_CLOSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A row of `hostile.txt`: what it resolves to, and the expected refusal.
struct Row {
    url: String,
    addresses: Vec<String>,
    code: &'static str,
    part: &'static str,
}

fn rows() -> Vec<Row> {
    include_str!("../testdata/hostile.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let columns: Vec<&str> = line.split(" | ").collect();
            let [url, addresses, code, part] = columns[..] else { panic!("columns of {line}") };
            let addresses = addresses.split(' ').filter(|word| *word != "-").map(str::to_owned).collect();
            Row { url: unescape(url), addresses, code, part }
        })
        .collect()
}

fn unescape(text: &str) -> String {
    let text = text.replace("\\\\", "\u{1}").replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r");
    let mut text = text.replace("\\0", "\0").replace('\u{1}', "\\");
    while let Some(at) = text.find("\\u{") {
        let end = at + text[at..].find('}').unwrap();
        let c = char::from_u32(u32::from_str_radix(&text[at + 3..end], 16).unwrap()).unwrap();
        text.replace_range(at..=end, &c.to_string());
    }
    text
}

#[tokio::test]
async fn hostile_urls_lead_to_no_connection() {
    let receiver = Receiver::answering(OK).await;
    let headers = Headers::default();
    let rows = rows();
    for row in &rows {
        let dialer = Arc::new(TestDialer { instead: Some(receiver.address), ..TestDialer::default() });
        let addresses: Vec<&str> = row.addresses.iter().map(String::as_str).collect();
        let resolver = TestResolver::new(&[&addresses]);
        let client =
            Client::new(Options { dialer: dialer.clone(), resolver: resolver.clone(), ..Options::default() });
        let (code, message) = match Target::parse(&row.url) {
            Err(error) => (error.code(), error.to_string()),
            Ok(target) => {
                let failure = client.unwrap().send(&call(&target, &headers)).await.result.unwrap_err();
                assert!(!failure.is_effect_possible(), "{}", row.url);
                (failure.cause.code(), failure.to_string())
            }
        };
        assert_eq!(code, row.code, "{:?}: {message}", row.url);
        assert!(message.contains(row.part), "{:?}: {message}", row.url);
        assert!(!message.contains(['\r', '\n', '\0']), "{message:?}");
        assert_eq!(resolver.asked() == 0, addresses.is_empty(), "{}", row.url);
        assert_eq!(*dialer.asked.lock().unwrap(), [], "{}", row.url);
    }
    assert_eq!(receiver.accepted(), 0);
    let distinct: HashSet<&str> = rows.iter().map(|row| row.url.as_str()).collect();
    assert!(distinct.len() >= 120 && distinct.len() == rows.len(), "{} rows", rows.len());
    println!("hostile URLs: {} rows, 0 connections", rows.len());
}

#[tokio::test]
async fn the_listener_of_the_hostile_test_does_count() {
    let receiver = Receiver::answering(OK).await;
    let dialer = Arc::new(TestDialer { instead: Some(receiver.address), ..TestDialer::default() });
    let resolver = TestResolver::new(&[&["93.184.215.14"]]);
    let client = Client::new(Options { dialer, resolver, ..Options::default() }).unwrap();
    let target = target("http://example.com/");
    let answer = client.send(&call(&target, &Headers::default())).await;
    assert_eq!(answer.result.unwrap().status, 200);
    assert_eq!(receiver.accepted(), 1);
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_dialled_only_where_it_was_judged() {
    let receiver = Receiver::answering(OK_AND_CLOSE).await;
    let dialer = Arc::new(TestDialer { instead: Some(receiver.address), ..TestDialer::default() });
    let resolver = TestResolver::new(&[&["8.8.8.8"], &["127.0.0.1"]]);
    let client =
        Client::new(Options { dialer: dialer.clone(), resolver: resolver.clone(), ..Options::default() })
            .unwrap();
    let (target, headers) = (target("http://rebind.example/"), Headers::default());

    let first = client.send(&call(&target, &headers)).await;
    assert_eq!(first.remote.unwrap().to_string(), "8.8.8.8:80");
    assert_eq!(first.result.unwrap().status, 200);
    assert_eq!(resolver.asked(), 1, "one look-up per connection");

    // The connection is gone; the name is looked up again, judged again, and refused.
    let second = client.send(&call(&target, &headers)).await.result.unwrap_err();
    assert!(
        matches!(&second.cause, Cause::Refused(refusal) if refusal.host() == "rebind.example"),
        "{second}"
    );
    assert_eq!(resolver.asked(), 2);
    assert_eq!(*dialer.asked.lock().unwrap(), ["8.8.8.8:80".parse().unwrap()]);
    assert_eq!(receiver.accepted(), 1);
}

#[tokio::test]
async fn a_tenant_cannot_use_a_connection_that_only_another_may_open() {
    let receiver = Receiver::answering(OK).await;
    let client = crate::support::client();
    let (target, headers) = (target(&receiver.url()), Headers::default());
    assert_eq!(client.send(&call(&target, &headers)).await.result.unwrap().status, 200);

    let strict = Policy { name: "tenant", ..Policy::default() };
    let mut second = call(&target, &headers);
    second.tenant_policy = Some(&strict);
    let failure = client.send(&second).await.result.unwrap_err();
    assert!(failure.to_string().starts_with("the tenant policy refuses `127.0.0.1`"), "{failure}");

    // The same for a name, where only the connection's address can tell.
    let url = format!("http://inner.example:{}/", receiver.address.port());
    let by_name = crate::support::target(&url);
    assert!(client.send(&call(&by_name, &headers)).await.result.is_ok());
    let mut second = call(&by_name, &headers);
    second.tenant_policy = Some(&strict);
    let failure = client.send(&second).await.result.unwrap_err();
    assert!(matches!(failure.cause, Cause::Refused(_)), "{failure}");
    assert_eq!(receiver.accepted(), 2);

    let only = Policy::tenant_with_only(vec!["inner.example".parse().unwrap()]);
    second.tenant_policy = Some(&only);
    assert!(client.send(&second).await.reused, "a tenant that leaves addresses to its installation");
}

#[tokio::test]
async fn all_addresses_are_judged_and_the_next_is_tried_when_one_is_dead() {
    let receiver = Receiver::answering(OK).await;
    // Nobody listens on 127.0.0.2.
    let resolver = TestResolver::new(&[&["127.0.0.2", "127.0.0.1"]]);
    let client = Client::new(Options { resolver, ..crate::support::options() }).unwrap();
    let target = target(&format!("http://two.example:{}/", receiver.address.port()));
    let answer = client.send(&call(&target, &Headers::default())).await;
    assert_eq!(answer.remote, Some(receiver.address));
    assert_eq!(answer.result.unwrap().status, 200);
}

#[tokio::test]
async fn proxy_settings_of_the_environment_are_not_read() {
    // A process cannot safely change its own environment: this test runs itself again with one.
    const TARGET: &str = "PUNCTUAL_TEST_TARGET";
    if let Ok(url) = std::env::var(TARGET) {
        let target = target(&url);
        let answer = crate::support::client().send(&call(&target, &Headers::default())).await;
        assert_eq!(answer.result.unwrap().status, 200);
        return;
    }
    let (receiver, proxy) = (Receiver::answering(OK).await, Receiver::answering(OK).await);
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "http_guard::proxy_settings_of_the_environment_are_not_read"])
        .env(TARGET, receiver.url());
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, format!("http://{}", proxy.address));
    }
    let output = child.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((receiver.accepted(), proxy.accepted()), (1, 0));
}
