//! What is hostile, end to end: URLs, redirects and names that lead where nobody may call, counted at listeners; clients that connect and
//! say nothing.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual::{Punctual, Schedule, Spec, Target};
use punctual_domain::RunState;
use punctual_domain::job::{Http, Method};
use punctual_engine::history::{PageRequest, RunFilter};
use punctual_worker::targets::http::{BoxFuture, Dialer, Options, Resolver};
use serde_json::{Value, json};

use crate::support::server::{Server, call};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A listener on every address of this machine, which counts who connects and answers.
struct Counter {
    port: u16,
    count: Arc<AtomicUsize>,
}

impl Counter {
    fn start() -> Counter {
        // Of both families, where there are both.
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
        let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                // It may have gone again, or say nothing.
                let _ = socket.set_read_timeout(Some(Duration::from_secs(5)));
                let _ = socket.read(&mut [0; 4096]);
                let _ =
                    socket.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            }
        });
        Counter { port, count }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

/// This machine, and what must not be called besides, in every way that somebody may try. `PORT` is where the listener is.
const HERE: [&str; 62] = [
    "http://127.0.0.1:PORT/",
    "HTTP://127.0.0.1:PORT/",
    "https://127.0.0.1:PORT/",
    "http://127.0.0.2:PORT/",
    "http://127.255.255.254:PORT/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://a.localhost:PORT/",
    "http://ip6-localhost:PORT/",
    "http://localhost.localdomain:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://127.000.000.001:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0x7f.0.0.1:PORT/",
    "http://0x7f.1:PORT/",
    "http://0x7f000001:PORT/",
    "http://2130706433:PORT/",
    "http://017700000001:PORT/",
    "http://0:PORT/",
    "http://0.0.0.0:PORT/",
    "http://[::]:PORT/",
    "http://[::1]:PORT/",
    "http://[0:0:0:0:0:0:0:1]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[::1%25lo]:PORT/",
    "http://[::1%lo]:PORT/",
    "http://[fe80::1]:PORT/",
    "http://[fd00::1]:PORT/",
    "http://[fd00:ec2::254]:PORT/",
    "http://169.254.169.254:PORT/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]:PORT/",
    "http://10.0.0.1:PORT/",
    "http://172.16.0.1:PORT/",
    "http://192.168.0.1:PORT/",
    "http://100.64.0.1:PORT/",
    "http://224.0.0.1:PORT/",
    "http://255.255.255.255:PORT/",
    "http://example.com@127.0.0.1:PORT/",
    "http://example.com:80@127.0.0.1:PORT/",
    "http://example.com#@127.0.0.1:PORT/",
    "http://127.0.0.1:PORT#@example.com/",
    "http://127.0.0.1:PORT\\@example.com/",
    "http://example.com\\@127.0.0.1:PORT/",
    "http://%31%32%37.0.0.1:PORT/",
    "http://127.0.0.1%00.example.com:PORT/",
    "http://127。0。0。1:PORT/",
    "http://①②⑦.⓪.⓪.①:PORT/",
    "http://１２７.0.0.1:PORT/",
    "http:127.0.0.1:PORT/",
    "http:///127.0.0.1:PORT/",
    "//127.0.0.1:PORT/",
    "gopher://127.0.0.1:PORT/_GET",
    "ftp://127.0.0.1:PORT/",
    "file:///etc/passwd",
];

/// The URLs of the worker's own table.
fn table() -> impl Iterator<Item = String> {
    let lines = include_str!("../../worker/testdata/hostile.txt").lines();
    let urls = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    urls.filter_map(|line| line.split(" | ").next()).map(|url| {
        url.replace("\\t", "\t")
            .replace("\\n", "\n")
            .replace("\\r", "\r")
            .replace("\\0", "\0")
            .replace("\\\\", "\\")
    })
}

/// Registers a job that runs now and is not tried twice; its id, unless it is refused.
fn register(server: &Server, http: &Value, more: &[(&str, Value)]) -> Option<String> {
    let mut job =
        json!({ "schedule": { "now": true }, "retry": { "max_attempts": 1 }, "target": { "http": http } });
    for (member, value) in more {
        job[*member] = value.clone();
    }
    let answer = server.post("/v1/jobs", &job.to_string());
    match answer.status {
        201 => Some(answer.json()["id"].as_str().unwrap().to_owned()),
        422 => None,
        status => panic!("{http}: {status}: {}", answer.body),
    }
}

/// How the one run of a job has ended.
fn ended(server: &Server, job: &str) -> Value {
    let mut run = Value::Null;
    wait_until("a run that has ended", || {
        run = server.get(&format!("/v1/jobs/{job}/runs"))["items"][0].clone();
        run["state"].as_str().is_some_and(|state| !["pending", "running"].contains(&state))
    });
    server.get(&format!("/v1/runs/{}", run["id"].as_str().unwrap()))
}

#[test]
fn hostile_urls_reach_nobody() {
    let (folder, counter) = (tempfile::tempdir().unwrap(), Counter::start());
    let server = Server::start_with(
        &folder.path().join("data"),
        &["--allow-loopback", "false", "--breaker-failures", "0", "--log", "warn"],
    );
    let port = counter.port.to_string();
    let urls: Vec<String> = HERE.iter().map(|url| url.replace("PORT", &port)).chain(table()).collect();
    assert!(urls.len() >= 120 + HERE.len(), "{} URLs", urls.len());
    let mut jobs = Vec::new();
    for url in &urls {
        jobs.extend(register(&server, &json!({ "url": url }), &[]).map(|id| (url, id)));
    }
    // The places where somebody is told are no other way out.
    let here = format!("http://localhost:{port}/");
    let dead = json!({ "http": { "url": here } });
    let failing = json!({ "url": "http://localhost:1/" });
    jobs.extend(register(&server, &failing, &[("dead_letter_target", dead)]).map(|id| (&here, id)));
    for (url, id) in &jobs {
        let run = ended(&server, id);
        assert_ne!(run["state"], "succeeded", "{url}: {run}");
        let code = run["attempts"][0]["error"]["code"].as_str().unwrap_or_default();
        let known = ["target_refused", "target_url_invalid", "dns_failed", "timed_out"];
        assert!(known.contains(&code), "{url}: {run}");
    }
    // Messages about dead letters are runs as well.
    wait_until("nothing is left to do", || {
        let open = server.get("/v1/runs?state=pending")["items"].as_array().unwrap().len()
            + server.get("/v1/runs?state=running")["items"].as_array().unwrap().len();
        open == 0
    });
    assert_eq!(counter.count(), 0);
    println!("{} hostile URLs, {} of them registered, 0 connections", urls.len(), jobs.len());
    drop(server);
    // The same listener does count whoever is allowed.
    let server = Server::start_with(&folder.path().join("other"), &["--allow-loopback", "true"]);
    let id = register(&server, &json!({ "url": format!("http://127.0.0.1:{port}/") }), &[]).unwrap();
    assert_eq!(ended(&server, &id)["state"], "succeeded");
    assert_eq!(counter.count(), 1);
}

/// Answers each path with where to go next.
fn redirecting(
    address: &str,
    onward: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let own = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            let read = socket.read(&mut bytes).unwrap_or(0);
            let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let path = text.split(' ').nth(1).unwrap_or("/");
            let head = match onward(path) {
                Some((status, to)) => {
                    format!("HTTP/1.1 {status} Onward\r\nlocation: {to}\r\nrefresh: 0; url={to}\r\n")
                }
                None => "HTTP/1.1 200 OK\r\n".into(),
            };
            // It may have gone again.
            let _ =
                socket.write_all(format!("{head}connection: close\r\ncontent-length: 0\r\n\r\n").as_bytes());
        }
    });
    own
}

#[test]
fn redirects_lead_nowhere_however_long_their_chain_is() {
    let (folder, counter) = (tempfile::tempdir().unwrap(), Counter::start());
    let forbidden = format!("http://127.0.0.1:{}/", counter.port);
    // The one address that may be called sends whoever comes to one that may not, at once or after some steps.
    let steps = redirecting("127.0.0.9:0", move |path| {
        let (status, left) = path.trim_start_matches('/').split_once('/')?;
        let (status, left): (u16, u32) = (status.parse().ok()?, left.parse().ok()?);
        Some((status, if left == 0 { forbidden.clone() } else { format!("/{status}/{}", left - 1) }))
    });
    let server = Server::start_with(
        &folder.path().join("data"),
        &["--allow-loopback", "false", "--allow-cidrs", "127.0.0.9/32", "--breaker-failures", "0"],
    );
    let fine = register(&server, &json!({ "url": format!("http://{steps}/") }), &[]).unwrap();
    assert_eq!(ended(&server, &fine)["state"], "succeeded", "that address may be called");
    for status in [301, 302, 303, 307, 308] {
        for left in [0, 1, 5] {
            let url = format!("http://{steps}/{status}/{left}");
            for method in ["POST", "GET"] {
                let id = register(&server, &json!({ "url": url, "method": method }), &[]).unwrap();
                let run = ended(&server, &id);
                assert_eq!(run["attempts"][0]["status"], status, "{run}");
                assert!(run.to_string().contains("redirects are not followed"), "{run}");
            }
        }
    }
    assert_eq!(counter.count(), 0);
}

/// A name that is somewhere else each time it is looked up: first where anybody may call, then here.
struct Rebinding(Mutex<usize>);

impl Resolver for Rebinding {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
        const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(8, 8, 8, 8));
        let mut asked = self.0.lock().unwrap();
        *asked += 1;
        let here: IpAddr = if *asked % 4 == 0 { "::1" } else { "127.0.0.1" }.parse().unwrap();
        let addresses = match *asked % 3 {
            1 => vec![PUBLIC],
            2 => vec![here],
            _ => vec![PUBLIC, here],
        };
        Box::pin(async move { Ok(addresses) })
    }
}

/// Connects where it is told if that is this machine, and notes everything: nothing leaves it.
struct Noting(Mutex<Vec<SocketAddr>>);

impl Dialer for Noting {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, std::io::Result<tokio::net::TcpStream>> {
        self.0.lock().unwrap().push(address);
        Box::pin(async move {
            match address.ip().is_loopback() {
                true => tokio::net::TcpStream::connect(address).await,
                false => Err(std::io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_rebinds_is_called_where_it_was_judged_or_not_at_all() {
    let (folder, counter) = (tempfile::tempdir().unwrap(), Counter::start());
    let (resolver, dialer) = (Arc::new(Rebinding(Mutex::new(0))), Arc::new(Noting(Mutex::new(Vec::new()))));
    let options = Options { resolver: resolver.clone(), dialer: dialer.clone(), ..Options::default() };
    let punctual = Punctual::builder(folder.path()).http(options).start().await.unwrap();
    for n in 0..60 {
        let url = format!("http://rebind{n}.example:{}/", counter.port);
        let target = Target::Http(Http { url, method: Method::Post, headers: Vec::new(), tls: None });
        let mut spec = Spec::new("rebind", Schedule::parse("@now").unwrap(), target);
        spec.policies.retry.max_attempts = 2;
        punctual.schedule(spec).await.unwrap();
    }
    let begun = Instant::now();
    loop {
        let page = punctual.engine().runs(&RunFilter::default(), PageRequest::first(1_000)).await.unwrap();
        assert!(page.items.iter().all(|run| run.state != RunState::Succeeded));
        if page.items.len() == 60 && page.items.iter().all(|run| run.state.is_ended()) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", page.items);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let dialled = dialer.0.lock().unwrap().clone();
    assert!(!dialled.is_empty() && dialled.iter().all(|address| !address.ip().is_loopback()), "{dialled:?}");
    assert!(*resolver.0.lock().unwrap() >= 60);
    assert_eq!(counter.count(), 0);
    punctual.stop(Duration::from_secs(5)).await.unwrap();
}

#[test]
fn a_client_that_says_nothing_is_let_go_and_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"));
    // Silent ones, one that begins as HTTP/2 and stops, and one that stops in the middle of a head.
    let mut silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let mut half = TcpStream::connect(server.address).unwrap();
    half.write_all(b"PRI * HT").unwrap();
    silent.push(half);
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ").unwrap();
    assert_eq!(call(server.address, "GET", "/livez", &[], "").unwrap().status, 200);
    for mut one in silent {
        one.set_read_timeout(Some(PATIENCE)).unwrap();
        // Closed, or reset: in any case over.
        assert_eq!(one.read(&mut [0; 16]).unwrap_or(0), 0);
    }
    assert_eq!(call(server.address, "GET", "/livez", &[], "").unwrap().status, 200);
    // More headers than anybody sends, and longer ones.
    let many: Vec<(String, String)> = (0..200).map(|n| (format!("x-{n}"), "1".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(call(server.address, "GET", "/v1/jobs", &many, "").unwrap().status, 431);
    let long = "x".repeat(40_000);
    assert_eq!(call(server.address, "GET", "/v1/jobs", &[("x-long", &long)], "").unwrap().status, 431);
    drop(slow);
    let (status, _) = server.stop();
    assert!(status.success());
}

#[test]
fn a_tenant_that_is_held_to_hosts_reaches_no_other() {
    let (folder, counter) = (tempfile::tempdir().unwrap(), Counter::start());
    let server = Server::start_with(&folder.path().join("data"), &["--breaker-failures", "0"]);
    let here = json!({ "url": format!("http://127.0.0.1:{}/", counter.port) });
    let named = json!({ "url": format!("http://localhost:{}/", counter.port) });
    let state = |http: &Value| {
        let run = ended(&server, &register(&server, http, &[]).unwrap());
        let code = run["attempts"][0]["error"]["code"].as_str().unwrap_or("none").to_owned();
        (run["state"].as_str().unwrap().to_owned(), code)
    };
    assert_eq!((state(&here).0.as_str(), counter.count()), ("succeeded", 1));
    let path = "/v1/tenants/default/network";
    let put =
        call(server.address, "PUT", path, &[], r#"{"only_hosts":["example.com","localhost"]}"#).unwrap();
    assert_eq!(put.status, 200, "{}", put.body);
    assert_eq!(state(&here), ("failed".to_owned(), "target_refused".to_owned()));
    assert_eq!(counter.count(), 1);
    assert_eq!(state(&named).0, "succeeded");
    assert_eq!(counter.count(), 2);
    for body in [r#"{"only_hosts":[]}"#, r#"{"only_hosts":["http://a/"]}"#, "{}"] {
        assert_eq!(call(server.address, "PUT", path, &[], body).unwrap().status, 422, "{body}");
    }
    assert_eq!(server.get(path)["only_hosts"], json!(["example.com", "localhost"]));
    assert_eq!(call(server.address, "DELETE", path, &[], "").unwrap().status, 204);
    assert_eq!(state(&here).0, "succeeded");
}
