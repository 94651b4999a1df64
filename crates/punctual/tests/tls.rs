//! TLS with the real binary: certificates that change under it, clients that need one, targets with an authority of their own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use punctual_client::{Client, Options, Worker};
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::authority::{Authority, Pair, Secure};
use crate::support::server::{Server, call, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Files of a server, and how it is started with them.
struct Place {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Place {
    fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap(), authority: Authority::new("ours") };
        std::fs::write(place.path("ca.pem"), &place.authority.pem).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn renew(&self, pair: &Pair) {
        pair.write(&self.path("cert.pem"), &self.path("key.pem"));
    }

    fn serve(&self, more: &[&str]) -> Server {
        let (cert, key) = (self.text("cert.pem"), self.text("key.pem"));
        let arguments = [&["--tls-cert", cert.as_str(), "--tls-key", key.as_str()][..], more].concat();
        Server::start_with(&self.path("data"), &arguments)
    }

    fn open(&self, server: &Server, client: Option<&Pair>) -> std::io::Result<Secure> {
        Secure::open(server.address, &self.authority, client, &["http/1.1"])
    }

    /// A command that trusts our authority.
    fn asked(&self, server: &Server, arguments: &[&str]) -> Output {
        let url = format!("https://{}", server.address);
        let ca = self.text("ca.pem");
        command().args(arguments).args(["--server", &url, "--ca-file", &ca]).output().unwrap()
    }
}

#[test]
fn a_new_certificate_counts_for_new_connections_and_a_wrong_one_for_none() {
    let place = Place::new();
    let [first, second, third] = ["first", "second", "third"].map(|name| place.authority.sign(name));
    place.renew(&first);
    let server = place.serve(&[]);
    let peer = || place.open(&server, None).unwrap().peer();
    assert_eq!(peer(), first.der());
    let mut old = place.open(&server, None).unwrap();
    assert_eq!(old.get("/livez").unwrap(), 200);
    let listed = place.asked(&server, &["job", "list"]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let url = format!("https://{}", server.address);
    let stranger = command().args(["job", "list", "--server", &url]).output().unwrap();
    assert!(!stranger.status.success(), "nobody public signed it");
    // Whoever speaks without TLS is not answered.
    assert!(call(server.address, "GET", "/livez", &[], "").is_err());
    let alpn = Secure::open(server.address, &place.authority, None, &["h2", "http/1.1"]).unwrap();
    assert_eq!(alpn.protocol(), b"h2");

    place.renew(&second);
    wait_until("the second certificate", || peer() == second.der());
    assert_eq!(old.get("/livez").unwrap(), 200, "what is open goes on");
    // A certificate without its key, as it is while somebody copies files; and no certificate at all.
    std::fs::write(place.path("cert.pem"), &third.cert).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(peer(), second.der());
    std::fs::write(place.path("cert.pem"), "nonsense").unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(peer(), second.der());
    place.renew(&third);
    wait_until("the third certificate", || peer() == third.der());
    assert_eq!(old.get("/livez").unwrap(), 200);
    let (status, log) = server.stop();
    assert!(status.success());
    assert_eq!(log.matches("the certificate stays the old one").count(), 2, "each reason once: {log}");
    assert!(log.contains("does not fit") && log.contains("no certificate"), "{log}");
}

#[test]
fn a_worker_pulls_over_grpc_with_tls() {
    let place = Place::new();
    place.renew(&place.authority.sign("server"));
    let server = place.serve(&["--log", "warn"]);
    let url = format!("https://{}", server.address);
    let options = Options { roots: vec![place.authority.der()], ..Options::default() };
    let client = Client::new(url.parse().unwrap(), &options).unwrap();
    let job = json!({
        "key": "pulled", "schedule": { "now": true }, "queue": "tls",
        "target": { "worker": { "handler": "quick" } },
    });
    let file = place.path("job.json");
    std::fs::write(&file, job.to_string()).unwrap();
    let created = place.asked(&server, &["job", "create", "-f", file.to_str().unwrap()]);
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (done, is_done) = oneshot::channel();
    let done = Arc::new(Mutex::new(Some(done)));
    let worker = Worker::new(client, ["tls"]).grpc().handler("quick", move |_| {
        let done = Arc::clone(&done);
        async move {
            // The one run of the job.
            if let Some(done) = done.lock().unwrap().take() {
                let _ = done.send(());
            }
            Ok(None)
        }
    });
    let stop = async {
        let _ = is_done.await;
    };
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, worker.run_until(stop)).await })
        .unwrap()
        .unwrap();
}

#[test]
fn a_client_without_a_certificate_gets_no_connection() {
    let place = Place::new();
    place.renew(&place.authority.sign("server"));
    let ca = place.text("ca.pem");
    let server = place.serve(&["--tls-client-ca", &ca]);
    let known = place.authority.sign("client");
    let stranger = Authority::new("others").sign("client");
    assert_eq!(place.open(&server, Some(&known)).and_then(|mut one| one.get("/livez")).unwrap(), 200);
    // In TLS 1.3 a client hears of it with the first answer.
    for client in [None, Some(&stranger)] {
        assert!(place.open(&server, client).and_then(|mut one| one.get("/livez")).is_err());
    }
    assert_eq!(place.open(&server, Some(&known)).and_then(|mut one| one.get("/livez")).unwrap(), 200);
}

#[test]
fn wrong_files_end_the_start_with_a_reason() {
    let place = Place::new();
    let (one, other) = (place.authority.sign("one"), place.authority.sign("other"));
    place.renew(&Pair { key: other.key, ..one });
    let (cert, key) = (place.text("cert.pem"), place.text("key.pem"));
    for (arguments, part) in [
        (vec!["--tls-cert", cert.as_str(), "--tls-key", key.as_str()], "does not fit"),
        (vec!["--tls-cert", cert.as_str(), "--tls-key", "/nowhere"], "/nowhere"),
        (vec!["--tls-cert", key.as_str(), "--tls-key", key.as_str()], "no certificate"),
        (vec!["--tls-cert", cert.as_str()], "tls-key: where"),
    ] {
        let log = Server::try_start(&place.path("data"), &arguments).map(drop).unwrap_err();
        assert!(log.contains(part), "{arguments:?}: {log}");
    }
}

/// A receiver that lets in whoever has a certificate of its authority, and notes which.
fn receiver(authority: &Authority, own: &Pair) -> (String, Arc<Mutex<Vec<Vec<u8>>>>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(authority.roots());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own.der()], own.key_der())
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("https://{}/hook", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (config, all) = (Arc::clone(&config), Arc::clone(&all));
            std::thread::spawn(move || {
                let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
                // Whoever is refused goes away.
                let _ = answer(&mut stream, &all);
            });
        }
    });
    (url, seen)
}

fn answer(
    stream: &mut StreamOwned<ServerConnection, std::net::TcpStream>,
    all: &Mutex<Vec<Vec<u8>>>,
) -> std::io::Result<()> {
    use std::io::{Read as _, Write as _};
    let mut seen = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes)?;
        if read == 0 {
            return Ok(());
        }
        seen.extend_from_slice(&bytes[..read]);
        // Calls here have no body.
        if seen.ends_with(b"\r\n\r\n") {
            seen.clear();
            let peer = stream.conn.peer_certificates().map(|chain| chain[0].to_vec());
            all.lock().unwrap().push(peer.unwrap_or_default());
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        }
    }
}

/// The one run of a job that runs now, when it has ended.
fn run(server: &Server, url: &str, tls: Option<Value>) -> Value {
    let mut http = json!({ "url": url });
    if let Some(tls) = tls {
        http["tls"] = tls;
    }
    let job =
        json!({ "schedule": { "now": true }, "retry": { "max_attempts": 1 }, "target": { "http": http } });
    let answer = server.post("/v1/jobs", &job.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    let path = format!("/v1/jobs/{}/runs", answer.json()["id"].as_str().unwrap());
    let mut ended = Value::Null;
    wait_until("a run that has ended", || {
        ended = server.get(&path)["items"][0].clone();
        ended["state"].as_str().is_some_and(|state| !["pending", "running"].contains(&state))
    });
    server.get(&format!("/v1/runs/{}", ended["id"].as_str().unwrap()))
}

fn set(server: &Server, name: &str, value: &str) {
    let body = json!({ "value": value }).to_string();
    let answer = call(server.address, "PUT", &format!("/v1/secrets/{name}"), &[], &body).unwrap();
    assert!([200, 201].contains(&answer.status), "{}", answer.body);
}

#[test]
fn a_target_is_called_with_the_authority_and_the_certificate_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_secrets(folder.path());
    let authority = Authority::new("private");
    let (one, two) = (authority.sign("one"), authority.sign("two"));
    let (url, seen) = receiver(&authority, &authority.sign("receiver"));
    set(&server, "ca", &authority.pem);
    set(&server, "other-ca", &Authority::new("other").pem);
    for (name, pair) in [("one", &one), ("two", &two)] {
        set(&server, &format!("{name}-cert"), &pair.cert);
        set(&server, &format!("{name}-key"), &pair.key);
    }
    let tls = |ca: &str, name: &str| json!({ "ca": ca, "client_cert": format!("{name}-cert"), "client_key": format!("{name}-key") });
    // One after the other and back again: connections rest meanwhile, and each is used by its own.
    for (name, pair) in [("one", &one), ("two", &two), ("one", &one), ("two", &two)] {
        let ended = run(&server, &url, Some(tls("ca", name)));
        assert_eq!(ended["state"], "succeeded", "{ended}");
        assert_eq!(seen.lock().unwrap().pop().unwrap(), pair.der().to_vec(), "{name}");
    }
    for tls in [None, Some(json!({ "ca": "ca" })), Some(tls("other-ca", "one"))] {
        let ended = run(&server, &url, tls.clone());
        assert_eq!(ended["state"], "failed", "{tls:?}: {ended}");
    }
    assert!(seen.lock().unwrap().is_empty(), "nobody else was let in");
    set(&server, "one-key", &two.key);
    let ended = run(&server, &url, Some(tls("ca", "one")));
    assert_eq!(ended["attempts"][0]["error"]["code"], "call_unsendable", "{ended}");
    assert!(ended["attempts"][0]["error"]["message"].as_str().unwrap().contains("tls.client_key"), "{ended}");
    let ended = run(&server, &url, Some(json!({ "ca": "nothing" })));
    assert_eq!(ended["attempts"][0]["error"]["code"], "secret_not_found", "{ended}");
    let job = json!({ "schedule": { "now": true }, "target": { "http": { "url": "http://a.test/", "tls": { "client_cert": "x" } } } });
    let refused = server.post("/v1/jobs", &job.to_string());
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(refused.body.contains("client_key") && refused.body.contains("`https`"), "{}", refused.body);
    let (_, log) = server.stop();
    assert!(!log.contains("PRIVATE KEY"), "{log}");
}

fn with_secrets(folder: &Path) -> Server {
    let key = folder.join("secrets.key");
    std::fs::write(&key, "5a".repeat(32)).unwrap();
    let arguments = ["--breaker-failures", "0", "--secrets-key-file", key.to_str().unwrap()];
    Server::start_with(&folder.join("data"), &arguments)
}
