//! Receivers on this machine that behave as told, and a client that can reach nothing else.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_worker::targets::http::{
    BoxFuture, Call, Client, Dialer, Headers, Method, Options, Policy, Resolver, Target,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Long enough to be reached only by a call that would never end.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// For calls that are meant to time out.
pub(crate) const SHORT: Duration = Duration::from_millis(150);

/// A listener that hands each connection, with its number from 0, to a script.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    /// What the scripts tell the test.
    pub(crate) events: mpsc::UnboundedReceiver<String>,
}

pub(crate) type Tell = mpsc::UnboundedSender<String>;

impl Receiver {
    pub(crate) async fn start<F, S>(script: S) -> Receiver
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(usize, TcpStream, Tell) -> F + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (tell, events) = mpsc::unbounded_channel();
        let count = Arc::clone(&accepted);
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let number = count.fetch_add(1, SeqCst);
                tokio::spawn(script(number, socket, tell.clone()));
            }
        });
        Receiver { address, accepted, events }
    }

    /// Answers every request on every connection with these bytes.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Receiver {
        let answer: Vec<u8> = answer.into();
        Receiver::start(move |_, mut socket, tell| {
            let answer = answer.clone();
            async move {
                while let Some(request) = read_request(&mut socket).await {
                    let _ = tell.send(request);
                    if socket.write_all(&answer).await.is_err() {
                        return;
                    }
                }
                let _ = tell.send("closed".into());
            }
        })
        .await
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) async fn event(&mut self) -> String {
        tokio::time::timeout(LONG, self.events.recv()).await.expect("an event").unwrap()
    }
}

impl Receiver {
    /// The next event that is not this one.
    pub(crate) async fn event_after(&mut self, skipped: &str) -> String {
        loop {
            let event = self.event().await;
            if event != skipped {
                return event;
            }
        }
    }
}

/// A request with its body as text; nothing when the connection ended.
pub(crate) async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let read = socket.read(&mut buffer).await.ok()?;
        if read == 0 {
            return None;
        }
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Some(text);
            }
        }
    }
}

/// Waits until the other side has closed, in whatever way.
pub(crate) async fn until_closed(socket: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while matches!(socket.read(&mut buffer).await, Ok(read) if read > 0) {}
}

/// Closes with a reset instead of an end.
pub(crate) fn reset(socket: TcpStream) {
    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Connects on this machine only: an address elsewhere is led to `instead`, or fails the test.
#[derive(Default)]
pub(crate) struct TestDialer {
    pub(crate) instead: Option<SocketAddr>,
    pub(crate) asked: Mutex<Vec<SocketAddr>>,
}

impl Dialer for TestDialer {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        self.asked.lock().unwrap().push(address);
        let to = self.instead.unwrap_or(address);
        assert!(to.ip().is_loopback(), "a test tried to reach {to}");
        Box::pin(TcpStream::connect(to))
    }
}

/// Gives the next of its answers at every question, the last one again and again.
pub(crate) struct TestResolver {
    pub(crate) answers: Vec<Vec<IpAddr>>,
    pub(crate) asked: AtomicUsize,
}

impl TestResolver {
    pub(crate) fn new(answers: &[&[&str]]) -> Arc<TestResolver> {
        let answers = answers.iter().map(|one| one.iter().map(|text| text.parse().unwrap()).collect());
        Arc::new(TestResolver { answers: answers.collect(), asked: AtomicUsize::new(0) })
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

impl Resolver for TestResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let n = self.asked.fetch_add(1, SeqCst).min(self.answers.len() - 1);
        Box::pin(async move { Ok(self.answers[n].clone()) })
    }
}

/// Options for receivers on this machine.
pub(crate) fn options() -> Options {
    Options {
        policy: Policy { allow_loopback: true, ..Policy::default() },
        dialer: Arc::new(TestDialer::default()),
        resolver: TestResolver::new(&[&["127.0.0.1"]]),
        probe_after: Duration::ZERO,
        ..Options::default()
    }
}

pub(crate) fn client() -> Client {
    Client::new(options()).unwrap()
}

pub(crate) fn target(url: &str) -> Target {
    Target::parse(url).unwrap()
}

/// A call with a small body and no secrets.
pub(crate) fn call<'a>(target: &'a Target, headers: &'a Headers) -> Call<'a> {
    Call {
        target,
        method: Method::POST,
        headers,
        own: &[],
        body: "{}".into(),
        webhook_id: "run_1",
        timestamp_s: 1_700_000_000,
        secrets: &[],
        timeout: LONG,
        connect_timeout: LONG,
        kept_bytes_max: 64 * 1024,
        tenant_policy: None,
        identity: None,
    }
}
