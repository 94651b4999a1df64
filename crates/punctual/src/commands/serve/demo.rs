//! Something to look at: sample jobs, and a receiver inside the process that they call.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use punctual_domain::TenantId;
use punctual_domain::job::{Http, Method, Spec, Target};
use punctual_engine::Engine;
use punctual_schedule::Schedule;
use tokio::net::TcpListener;

/// The sample jobs: key, name, schedule, path of the receiver, attempts.
const JOBS: [(&str, &str, &str, &str, u32); 5] = [
    ("demo-heartbeat", "A heartbeat every five seconds", "@every 5s", "/ok", 3),
    ("demo-report", "A report every minute", "* * * * *", "/ok", 3),
    ("demo-slow", "A slow one every 15 seconds", "@every 15s", "/slow", 3),
    ("demo-flaky", "Fails twice, then works", "@every 20s", "/flaky", 5),
    ("demo-broken", "Fails for good", "@every 30s", "/broken", 2),
];

/// Starts the receiver and registers the jobs; a restart finds them again by their keys.
pub(super) async fn start(engine: &Arc<Engine>) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for the sample jobs")?;
    let address = listener.local_addr().context("the address of the receiver")?;
    tokio::spawn(receive(listener));
    for (key, name, schedule, path, max_attempts) in JOBS {
        let target = Target::Http(Http {
            url: format!("http://{address}{path}"),
            method: Method::Post,
            headers: Vec::new(),
            tls: None,
        });
        let mut spec = Spec::new(name, Schedule::parse(schedule)?, target);
        spec.kind = Some("demo".into());
        spec.payload = Some(format!("{{\"sample\":\"{key}\"}}").into());
        spec.policies.retry.max_attempts = max_attempts;
        engine.upsert(TenantId::DEFAULT, key, None, spec).await?;
    }
    Ok(())
}

async fn receive(listener: TcpListener) {
    let calls = Arc::new(AtomicU64::new(0));
    while let Ok((stream, _)) = listener.accept().await {
        let calls = Arc::clone(&calls);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&calls)));
            // A connection that breaks is the caller's to report.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    calls: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    // What was sent comes back, so that it can be seen in the run's output.
    let body =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let (status, body) = match path.as_str() {
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(2)).await;
            (StatusCode::OK, body)
        }
        "/flaky" if !calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) => {
            (StatusCode::SERVICE_UNAVAILABLE, Bytes::from_static(b"try again later"))
        }
        "/broken" => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(b"broken on purpose")),
        _ => (StatusCode::OK, body),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}
