//! A node behind a real listener, and workers of the Rust client that pull from it, all in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use punctual::wire::Running;
use punctual_api::health::{Check, Version};
use punctual_client::{Client, Options, Worker};
use punctual_server::{Health, Limits, Loopback, State};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How workers pull.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Transport {
    /// One stream for each worker.
    Grpc,
    /// Long polls.
    Rest,
}

impl Transport {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Transport::Grpc => "gRPC",
            Transport::Rest => "REST",
        }
    }

    /// A worker of a queue that says nothing but what its handlers do.
    pub(super) fn worker(self, client: Client, queue: &str) -> Worker {
        let worker = Worker::new(client, [queue]).grace(Duration::from_secs(30));
        match self {
            Transport::Grpc => worker.grpc(),
            Transport::Rest => worker,
        }
    }
}

/// The API of a node on a free port.
pub(super) struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

struct Well;

impl Health for Well {
    fn ready(&self) -> Vec<Check> {
        Vec::new()
    }
}

impl Served {
    pub(super) async fn start(running: &Running) -> Result<Served> {
        let state = State {
            engine: (**running.engine()).clone(),
            health: Arc::new(Well),
            access: Arc::new(Loopback),
            version: Version::default(),
            metrics: running.metrics(),
            check_target: None,
            has_mail: false,
            limits: Limits::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for workers")?;
        let address = listener.local_addr().context("the address of the server")?;
        let (stop, stopped) = oneshot::channel();
        let service = punctual_server::router(state).into_make_service_with_connect_info::<SocketAddr>();
        let told = async move {
            // Without a sender there is nobody to wait for.
            let _ = stopped.await;
        };
        let serving = tokio::spawn(axum::serve(listener, service).with_graceful_shutdown(told).into_future());
        Ok(Served { address, stop, serving })
    }

    pub(super) fn client(&self) -> Result<Client> {
        Ok(Client::new(format!("http://{}", self.address).parse()?, &Options::default())?)
    }

    pub(super) async fn stop(self) {
        // It waits for who is connected, but not for who does not go.
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(Duration::from_secs(5), self.serving).await;
    }
}
