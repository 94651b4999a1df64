//! Keys with the real binary, on both stores: the first one locks the door and opens others, a rotated one is good for its overlap, a
//! revoked one is refused by every node, and what proves a key is nowhere but where it was given.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use punctual_client::{Client, Options, Worker};
use punctual_testing::Postgres;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::support::server::{Answer, Server, call, command};

/// Nothing here takes nearly so long.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Where an installation is: a folder, and how the commands are told.
struct Place {
    folder: PathBuf,
    /// Of `serve`, beside its folder.
    serve: Vec<String>,
    /// Of `key create`, without a server.
    direct: Vec<String>,
}

impl Place {
    fn embedded(folder: &Path) -> Self {
        let data = folder.join("data");
        let direct = vec!["--data".into(), data.to_str().unwrap().into()];
        Place { folder: folder.into(), serve: Vec::new(), direct }
    }

    fn postgres(folder: &Path) -> Self {
        let store = vec!["--store".to_string(), Postgres::shared().database()];
        Place { folder: folder.into(), serve: store.clone(), direct: store }
    }

    fn try_serve(&self, listen: &str, more: &[&str]) -> Result<Server, String> {
        let arguments: Vec<&str> =
            self.serve.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Server::try_start_on(listen, &self.folder.join("data"), &arguments)
    }

    fn serve(&self) -> Server {
        self.try_serve("127.0.0.1:0", &[]).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_string()
    }

    /// What is in a file.
    fn key(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap().trim().to_string()
    }
}

fn get(server: &Server, path: &str, key: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    call(server.address, "GET", path, &[("authorization", &bearer)], "").unwrap()
}

fn code(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_string())
}

fn punctual(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

/// Standard output of a command that succeeds.
fn done(arguments: &[&str]) -> String {
    let output = punctual(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a command says that fails.
fn failed(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_first_key_locks_the_door_of_a_data_directory() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::embedded(folder.path());
    let secrets = first_key(&place);
    // Not in the store, not in its log, not in a file beside it.
    let mut files = vec![place.folder.join("data")];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for secret in &secrets {
            let secret = secret.rsplit('_').next().unwrap().as_bytes();
            assert!(!bytes.windows(secret.len()).any(|window| window == secret), "{}", path.display());
        }
    }
    let checked = punctual_store_embedded::check(&place.folder.join("data"), jiff::Timestamp::now()).unwrap();
    assert!(checked.is_sound(), "{:#?}", checked.findings);
}

#[test]
fn the_first_key_locks_the_door_of_a_database() {
    let folder = tempfile::tempdir().unwrap();
    first_key(&Place::postgres(folder.path()));
}

/// Gives all that proved a key.
fn first_key(place: &Place) -> Vec<String> {
    // Without a key nobody else is served.
    let refused = place.try_serve("0.0.0.0:0", &[]).err().expect("it must not listen there");
    assert!(refused.contains("there is no key yet") && refused.contains("punctual key create"), "{refused}");
    let server = place.serve();
    assert_eq!(call(server.address, "GET", "/v1/jobs", &[], "").unwrap().status, 200);
    let (url, file) = (server.url(), place.file("ops.key"));
    // The first one makes the others, or nobody would.
    for locks_out in [&["--role", "operator"][..], &["--role", "admin", "--expires", "1h"]] {
        let create = ["key", "create", "ops", "--save", &file, "--server", &url];
        let (_, said) = failed(&punctual(&[&create[..], locks_out].concat()));
        assert!(said.contains("the first key") && !Path::new(&file).exists(), "{said}");
    }
    let said = done(&["key", "create", "ops", "--role", "admin", "--save", &file, "--server", &url]);
    let ops = place.key("ops.key");
    assert!(said.contains("ops") && !said.contains(&ops), "{said}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // From then on everybody needs one, also from here.
    let refused = call(server.address, "GET", "/v1/jobs", &[], "").unwrap();
    assert_eq!(code(&refused), (401, "unauthenticated".into()));
    assert_eq!(refused.header("www-authenticate"), "Bearer");
    let (exit, said) = failed(&punctual(&["job", "list", "--server", &url]));
    assert!(exit == 1 && said.contains("--key-file") && said.contains("PUNCTUAL_KEY"), "{said}");
    // A key that was not made leaves no file.
    let unmade = place.file("unmade.key");
    let refused = punctual(&["key", "create", "x", "--role", "viewer", "--save", &unmade, "--server", &url]);
    assert!(failed(&refused).0 == 1 && !Path::new(&unmade).exists(), "{}", failed(&refused).1);
    done(&["job", "list", "--server", &url, "--key-file", &file]);
    for (name, value) in [("PUNCTUAL_KEY", &ops), ("PUNCTUAL_KEY_FILE", &file)] {
        let output = command().args(["job", "list", "--server", &url]).env(name, value).output().unwrap();
        assert!(output.status.success(), "{name}: {}", failed(&output).1);
    }
    let wrong =
        command().args(["job", "list", "--server", &url]).env("PUNCTUAL_KEY", "hunter2").output().unwrap();
    let (exit, said) = failed(&wrong);
    assert!(exit == 2 && said.contains("PUNCTUAL_KEY") && !said.contains("hunter2"), "{said}");

    // It is still there after a restart, and others may call now.
    let (status, log) = server.stop();
    assert!(status.success() && !log.contains(&ops), "{log}");
    let server = place.try_serve("0.0.0.0:0", &[]).unwrap_or_else(|log| panic!("{log}"));
    assert_eq!(get(&server, "/v1/jobs", &ops).status, 200);
    let url = format!("http://127.0.0.1:{}", server.address.port());
    let ask = |arguments: &[&str]| done(&[arguments, &["--server", &url, "--key-file", &file]].concat());

    // A key of a tenant, rotated with an overlap and without.
    ask(&["tenant", "create", "shop"]);
    let create = ["key", "create", "the shop", "--role", "operator", "--tenant", "shop", "--expires", "720h"];
    let made: Value = serde_json::from_str(&ask(&[&create[..], &["-o", "json"]].concat())).unwrap();
    let (id, first) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap().to_string());
    assert_eq!((&made["tenant"], &made["role"]), (&"shop".into(), &"operator".into()));
    let rotated: Value =
        serde_json::from_str(&ask(&["key", "rotate", id, "--overlap", "1h", "-o", "json"])).unwrap();
    let second = rotated["key"].as_str().unwrap().to_string();
    assert_eq!(
        (get(&server, "/v1/jobs", &first).status, get(&server, "/v1/jobs", &second).status),
        (200, 200)
    );
    ask(&["key", "rotate", id, "--save", &place.file("third.key")]);
    let third = place.key("third.key");
    for old in [&first, &second] {
        assert_eq!(code(&get(&server, "/v1/jobs", old)), (401, "key_expired".into()));
    }
    assert_eq!(get(&server, "/v1/jobs", &third).status, 200);
    assert_eq!(code(&get(&server, "/v1/keys", &third)), (403, "forbidden".into()));
    let page = ask(&["key", "get", id]);
    assert!(page.contains("the shop") && page.contains("last used") && page.contains("expires"), "{page}");
    ask(&["key", "revoke", id]);
    assert_eq!(code(&get(&server, "/v1/jobs", &third)), (401, "key_revoked".into()));
    let list = ask(&["key", "list"]);
    assert!(list.contains("revoked") && list.contains("active") && !list.contains(&third), "{list}");
    let (exit, said) =
        failed(&punctual(&["key", "get", "0000000000000000", "--server", &url, "--key-file", &file]));
    assert!(exit == 3 && said.contains("not found"), "{said}");
    works(&url, &ops);

    // Whoever has the store needs no key for another, for the day when all are lost.
    let (status, log) = server.stop();
    assert!(status.success(), "{log}");
    for secret in [&ops, &first, &second, &third] {
        assert!(!log.contains(secret.as_str()), "{log}");
    }
    let direct: Vec<&str> = place.direct.iter().map(String::as_str).collect();
    // What a context says is meant for its server.
    std::fs::create_dir_all(place.folder.join("config/punctual")).unwrap();
    let context = "current = \"prod\"\n[contexts.prod]\nserver = \"https://prod\"\ntenant = \"shop\"\n";
    std::fs::write(place.folder.join("config/punctual/config.toml"), context).unwrap();
    let rescue = place.file("rescue.key");
    let create = ["key", "create", "rescue", "--role", "admin", "--save", &rescue, "-o", "json"];
    let output = command()
        .args([&create[..], &direct].concat())
        .env("XDG_CONFIG_HOME", place.folder.join("config"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", failed(&output).1);
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&made["tenant"], &made["created_by"]), (&Value::Null, &"command line".into()));
    let server = place.serve();
    assert_eq!(get(&server, "/v1/keys", &place.key("rescue.key")).status, 200);
    vec![ops, first, second, third, place.key("rescue.key")]
}

/// A worker with a key executes a run, over REST and over gRPC.
fn works(url: &str, key: &str) {
    let options = Options { key: Some(key.parse().unwrap()), ..Options::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(url.parse().unwrap(), &options).unwrap();
        for over_grpc in [false, true] {
            let count = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&count);
            let worker = Worker::new(client.clone(), ["keyed"]).grace(Duration::from_secs(5)).handler(
                "count",
                move |_| {
                    let counted = Arc::clone(&counted);
                    async move {
                        counted.fetch_add(1, Ordering::SeqCst);
                        Ok(None)
                    }
                },
            );
            let worker = if over_grpc { worker.grpc() } else { worker };
            let (stop, stopped) = oneshot::channel::<()>();
            let working = tokio::spawn(worker.run_until(async {
                let _ = stopped.await;
            }));
            let spec = serde_json::json!({
                "schedule": {"now": true}, "queue": "keyed", "target": {"worker": {"handler": "count"}}
            });
            client.create_job(&spec, None).await.unwrap();
            let begun = Instant::now();
            while count.load(Ordering::SeqCst) == 0 {
                assert!(begun.elapsed() < PATIENCE, "the run is not executed");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            stop.send(()).unwrap();
            working.await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_key_that_was_revoked_on_one_node_is_refused_by_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::postgres(folder.path());
    let direct: Vec<&str> = place.direct.iter().map(String::as_str).collect();
    done(
        &[&["key", "create", "ops", "--role", "admin", "--save", &place.file("ops.key")][..], &direct]
            .concat(),
    );
    let (one, two) = (place.serve(), place.serve());
    let ops = place.key("ops.key");
    let bearer = format!("Bearer {ops}");
    // Made on one node, found by the other; through a few of them.
    for _ in 0..3 {
        let made = call(
            one.address,
            "POST",
            "/v1/keys",
            &[("authorization", &bearer)],
            r#"{"name":"short-lived","role":"viewer"}"#,
        )
        .unwrap()
        .json();
        let key = made["key"].as_str().unwrap();
        assert_eq!(get(&one, "/v1/jobs", key).status, 200);
        wait_until("the other node knows it", || get(&two, "/v1/jobs", key).status == 200);
        let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
        let other = two.address;
        let (revoked_at, seen) = std::thread::scope(|scope| {
            let callers: Vec<_> =
                (0..4).map(|_| scope.spawn(move || show_until_refused(other, key))).collect();
            let gone = call(one.address, "DELETE", &path, &[("authorization", &bearer)], "").unwrap();
            let revoked_at = Instant::now();
            assert_eq!(gone.status, 204);
            assert_eq!(code(&get(&one, "/v1/jobs", key)), (401, "key_revoked".into()));
            let seen: Vec<Seen> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
            (revoked_at, seen)
        });
        let refused_at = seen.iter().filter(|one| !one.is_let_in).map(|one| one.ended_at).min().unwrap();
        // No time is asserted: the machine may be busy. It is there to be read.
        println!("revoked: {} ms", refused_at.saturating_duration_since(revoked_at).as_millis());
        let accepted = seen.iter().filter(|one| one.is_let_in && one.began_at > refused_at).count();
        assert_eq!(accepted, 0, "of {} requests: once refused, always refused", seen.len());
    }
}

/// A request with a key.
struct Seen {
    began_at: Instant,
    ended_at: Instant,
    is_let_in: bool,
}

/// Shows a key until it was refused fifty times.
fn show_until_refused(address: SocketAddr, key: &str) -> Vec<Seen> {
    let bearer = format!("Bearer {key}");
    let (begun, mut seen, mut refused) = (Instant::now(), Vec::new(), 0);
    while refused < 50 {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: the key is refused");
        let began_at = Instant::now();
        let answer = call(address, "GET", "/v1/jobs", &[("authorization", &bearer)], "").unwrap();
        let is_let_in = answer.status == 200;
        if !is_let_in {
            assert_eq!(code(&answer), (401, "key_revoked".into()));
            refused += 1;
        }
        seen.push(Seen { began_at, ended_at: Instant::now(), is_let_in });
    }
    seen
}

#[test]
fn a_key_of_a_file_is_there_when_the_server_has_started() {
    let folder = tempfile::tempdir().unwrap();
    for place in [Place::embedded(folder.path()), Place::postgres(folder.path())] {
        let (file, key) = (place.file("admin.key"), format!("pk_{}_{}", "0123456789abcdef", "5a".repeat(32)));
        std::fs::write(&file, format!("{key}\n")).unwrap();
        let given = ["--admin-key-file", file.as_str()];
        let server = place.try_serve("0.0.0.0:0", &given).unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(get(&server, "/v1/keys", &key).status, 200);
        drop(server);
        let server = place.try_serve("127.0.0.1:0", &given).unwrap_or_else(|log| panic!("{log}"));
        let url = server.url();
        assert_eq!(get(&server, "/v1/keys", &key).json()["items"].as_array().unwrap().len(), 1);
        done(&["key", "revoke", "0123456789abcdef", "--server", &url, "--key-file", &file]);
        drop(server);
        let refused = place.try_serve("127.0.0.1:0", &given).err().expect("the key was revoked");
        assert!(refused.contains("revoked") && !refused.contains(&key), "{refused}");
        for (text, said) in [("hunter2", "openssl rand"), ("", "openssl rand")] {
            std::fs::write(&file, text).unwrap();
            let refused = place.try_serve("127.0.0.1:0", &given).err().expect("that is no key");
            assert!(refused.contains(said) && !refused.contains("hunter2"), "{refused}");
        }
    }
}
