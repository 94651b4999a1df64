//! What a call costs: our client beside a bare hyper-util client, against a receiver in a process
//! of its own, in one run. `cargo bench -p punctual-worker --bench http [seconds]`.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use punctual_worker::targets::http::{Call, Client, Headers, Method, Options, Policy, Secret, Target, names};

const RECEIVER: &str = "--receiver";
/// Calls under way at once: enough to keep two cores busy.
const CALLS: usize = 64;
const BODY: &str = r#"{"job":"nightly-report","run":"01938f4e-7c1a-7d2b-9e10-4f5a6b7c8d9e"}"#;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == RECEIVER) {
        return receive();
    }
    let seconds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(3);
    let receiver = Receiver::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("{CALLS} calls at once, {} bytes of body, {seconds} s each:", BODY.len());
    let time = Duration::from_secs(seconds);
    for _ in 0..2 {
        runtime.block_on(async {
            measure("bare hyper-util", time, bare(receiver.address)).await;
            measure("ours, unsigned", time, ours(receiver.address, false)).await;
            measure("ours, signed, 6 own headers", time, ours(receiver.address, true)).await;
        });
    }
}

/// Runs clones of a call loop side by side; prints rate and the CPU time of this process per call.
async fn measure<F>(name: &str, time: Duration, make: impl Fn(Arc<Counter>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let counter = Arc::new(Counter::default());
    let (start, cpu) = (Instant::now(), cpu_time());
    let tasks: Vec<_> = (0..CALLS).map(|_| tokio::spawn(make(Arc::clone(&counter)))).collect();
    tokio::time::sleep(time).await;
    counter.stop.store(true, Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let calls = counter.calls.load(Relaxed) as f64;
    let rate = calls / start.elapsed().as_secs_f64();
    let us = (cpu_time() - cpu).as_secs_f64() * 1e6 / calls;
    println!("  {name:<28} {rate:>9.0} calls/s {us:>6.2} us CPU/call");
}

#[derive(Default)]
struct Counter {
    calls: AtomicU64,
    stop: AtomicBool,
}

fn ours(
    address: SocketAddr,
    full: bool,
) -> impl Fn(Arc<Counter>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    let policy = Policy { allow_loopback: true, ..Policy::default() };
    let client = Client::new(Options { policy, ..Options::default() }).unwrap();
    move |counter| {
        let client = client.clone();
        Box::pin(async move {
            let target = Target::parse(&format!("http://{address}/hook")).unwrap();
            let headers = Headers::default();
            let secrets = [Secret::from_random(&[7; 32]).unwrap()];
            let own = [
                (names::IDEMPOTENCY_KEY, "5f2b8c0e1d3a4f6b".parse().unwrap()),
                (names::RUN_ID, "01938f4e-7c1a-7d2b-9e10-4f5a6b7c8d9e".parse().unwrap()),
                (names::JOB_ID, "01938f4e-7c1a-7d2b-9e10-4f5a6b7c8d9e".parse().unwrap()),
                (names::SCHEDULED_FOR, "2026-11-15T22:00:00Z".parse().unwrap()),
                (names::ATTEMPT, "1".parse().unwrap()),
                (names::DEADLINE, "2026-11-15T22:00:30Z".parse().unwrap()),
            ];
            while !counter.stop.load(Relaxed) {
                let call = Call {
                    target: &target,
                    method: Method::POST,
                    headers: &headers,
                    own: if full { &own } else { &[] },
                    body: Bytes::from_static(BODY.as_bytes()),
                    webhook_id: "01938f4e-7c1a-7d2b-9e10-4f5a6b7c8d9e",
                    timestamp_s: 1_700_000_000,
                    secrets: if full { &secrets } else { &[] },
                    timeout: Duration::from_secs(30),
                    connect_timeout: Duration::from_secs(5),
                    kept_bytes_max: 64 * 1024,
                    tenant_policy: None,
                    identity: None,
                };
                let answer = client.send(&call).await;
                assert_eq!(answer.result.unwrap().status, 200);
                counter.calls.fetch_add(1, Relaxed);
            }
        })
    }
}

fn bare(address: SocketAddr) -> impl Fn(Arc<Counter>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: legacy::Client<HttpConnector, Full<Bytes>> =
        legacy::Client::builder(TokioExecutor::new()).build(connector);
    move |counter| {
        let client = client.clone();
        Box::pin(async move {
            let uri: hyper::Uri = format!("http://{address}/hook").parse().unwrap();
            while !counter.stop.load(Relaxed) {
                let request = hyper::Request::post(uri.clone())
                    .header("content-type", "application/json")
                    .body(Full::new(Bytes::from_static(BODY.as_bytes())))
                    .unwrap();
                let response = client.request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                response.into_body().collect().await.unwrap();
                counter.calls.fetch_add(1, Relaxed);
            }
        })
    }
}

/// User and system time of this process, from the kernel.
fn cpu_time() -> Duration {
    const TICK: Duration = Duration::from_millis(10); // USER_HZ is 100 on every Linux.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>().unwrap() + fields[12].parse::<u32>().unwrap();
    TICK * ticks
}

/// The receiver's process; it ends with this one.
struct Receiver {
    child: Child,
    address: SocketAddr,
}

impl Receiver {
    fn start() -> Receiver {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(RECEIVER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Receiver { child, address: line.trim().parse().unwrap() }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers 200 to everything, until the standard input ends.
fn receive() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let _ = socket.set_nodelay(true);
            tokio::spawn(async move {
                let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async {
                    request.into_body().collect().await.unwrap();
                    Ok::<_, Infallible>(hyper::Response::new(Full::new(Bytes::from_static(b"ok"))))
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service)
                    .await;
            });
        }
    });
}
