//! The receiver of callbacks, in a process of its own: answers and counts.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// A receiver that was started.
pub(super) struct Receiver {
    pub(super) url: String,
    child: Child,
    counts: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Receiver {
    /// Starts this program as a receiver.
    pub(super) async fn start() -> Result<Receiver> {
        let program = std::env::current_exe().context("find this program")?;
        let mut child = Command::new(program)
            .args(["bench", "receiver"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start the receiver")?;
        let stdout = child.stdout.take().context("the receiver's output")?;
        let mut counts = BufReader::new(stdout).lines();
        let url = counts.next_line().await?.context("the receiver ended at once")?;
        Ok(Receiver { url, child, counts })
    }

    /// Ends it and returns how many callbacks it received.
    pub(super) async fn stop(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let count = self.counts.next_line().await?.context("the receiver said no count")?;
        self.child.wait().await?;
        Ok(count.parse()?)
    }
}

/// Says its address, answers until its input ends, then says how many callbacks came.
pub(super) async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen on loopback")?;
    println!("http://{}/hook", listener.local_addr()?);
    let received = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counter = Arc::clone(&counter);
            // Without this, small answers wait for the other side's acknowledgement.
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(request, Arc::clone(&counter)));
                let connection = hyper::server::conn::http1::Builder::new();
                // A connection that breaks is the client's to report.
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while input.next_line().await?.is_some() {}
    println!("{}", received.load(Ordering::Relaxed));
    Ok(())
}

async fn answer(
    request: Request<Incoming>,
    counter: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    request.into_body().collect().await?;
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
}
