//! The client against a small server that says what a test wants: what the real one says is tested with it.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use punctual_api::import::{ImportCount, ImportLine};
use punctual_api::job::Trigger;
use punctual_client::{Client, Error, JobFilter, JobRef, Options};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

type Sent = UnsyncBoxBody<Bytes, io::Error>;

fn whole(text: impl Into<Bytes>) -> Sent {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

fn answer(status: u16, text: impl Into<Bytes>) -> Response<Sent> {
    Response::builder().status(status).body(whole(text)).unwrap()
}

/// Serves every request by a function, until the test ends.
async fn serve<F, A>(tls: Option<TlsAcceptor>, handler: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<Sent>> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let handler = handler.clone();
            let service = service_fn(move |request| {
                let answer = handler(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let tls = tls.clone();
            tokio::spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                match tls {
                    Some(tls) => {
                        let Ok(stream) = tls.accept(socket).await else { return };
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    }
                    None => {
                        let _ = http.serve_connection(TokioIo::new(socket), service).await;
                    }
                }
            });
        }
    });
    address
}

fn client(address: SocketAddr) -> Client {
    Client::new(format!("http://{address}").parse().unwrap(), &Options::default()).unwrap()
}

const RUN: &str = r#"{"id":"r1","job_id":"j1","tenant":"acme","job_version":1,"type":null,"queue":"default",
    "cause":"trigger","scheduled_for":"2026-11-16T00:00:00Z","state":"pending","waiting_for":"capacity",
    "available_at":"2026-11-16T00:00:00Z","attempt":0,"started_at":null,"finished_at":null,"lateness_ms":null,
    "idempotency_key":"k","colour":"red"}"#;

#[tokio::test]
async fn a_request_says_its_tenant_key_and_body_and_the_answer_keeps_its_text() {
    let address = serve(None, |request| async move {
        assert_eq!(request.method(), "POST");
        assert_eq!(request.uri().path(), "/v1/jobs/a%2Fb/trigger");
        assert_eq!(request.headers()["punctual-tenant"], "acme");
        assert_eq!(request.headers()["idempotency-key"], "once");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, r#"{"correlation_id":"c1"}"#);
        answer(202, RUN)
    });
    let client = client(address.await).tenant("acme");
    let trigger = Trigger { correlation_id: Some("c1".into()), ..Trigger::default() };
    let run = client.trigger_job("a/b", &trigger, Some("once")).await.unwrap();
    assert_eq!(run.state, "pending");
    assert_eq!(run.text(), RUN);
}

#[tokio::test]
async fn a_refusal_keeps_every_wrong_field() {
    let problem = r#"{"type":"urn:punctual:problem:invalid_request","title":"Some fields are wrong","status":422,
        "detail":"2 fields are wrong","code":"invalid_request","errors":[
        {"pointer":"/schedule/cron","code":"syntax","detail":"no such month"},
        {"pointer":"/target","code":"missing_field","detail":"`target` is missing"}]}"#;
    let client = client(serve(None, move |_| async move { answer(422, problem) }).await);
    let error = client.create_job(&serde_json::json!({}), None).await.unwrap_err();
    assert_eq!(error.problem().unwrap().errors.len(), 2);
    let text = error.to_string();
    assert!(text.contains("/schedule/cron: no such month"), "{text}");
    assert!(text.contains("/target: `target` is missing"), "{text}");
}

#[tokio::test]
async fn another_server_is_told_apart_from_ours() {
    let client = client(serve(None, |_| async { answer(502, "<html>Bad Gateway</html>") }).await);
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, Error::Unexpected { .. }), "{error:?}");
    assert!(error.to_string().contains("502"), "{error}");
}

#[tokio::test]
async fn nobody_there_is_unreachable_by_name() {
    // Bound and closed again: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = client(address).version().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("http://{address}")) && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_list_goes_on_through_empty_pages_to_its_end() {
    let address = serve(None, |request| async move {
        let query = request.uri().query().unwrap_or("").to_string();
        assert!(query.starts_with("state=failed"), "{query}");
        let cursor = query.split("cursor=").nth(1).unwrap_or("");
        answer(
            200,
            match cursor {
                "" => format!(r#"{{"items":[{RUN},{RUN}],"next_cursor":"b+/="}}"#),
                "b%2B%2F%3D" => r#"{"items":[],"next_cursor":"c"}"#.into(),
                _ => format!(r#"{{"items":[{RUN}],"next_cursor":null}}"#),
            },
        )
    });
    let filter = punctual_client::RunFilter { state: Some("failed".into()), ..Default::default() };
    let mut list = client(address.await).runs(&filter);
    let mut found = 0;
    while let Some(run) = list.next().await.unwrap() {
        assert_eq!(run.id, "r1");
        found += 1;
    }
    assert_eq!(found, 3);
    assert!(list.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_job_is_found_by_its_key() {
    let address = serve(None, |request| async move {
        assert_eq!(request.uri().path(), "/v1/jobs/key/nightly%20report");
        answer(404, r#"{"type":"t","title":"No such job","status":404,"detail":"no","code":"job_not_found"}"#)
    });
    let job: JobRef = "key:nightly report".parse().unwrap();
    let error = client(address.await).job_id(&job).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, "job_not_found");
}

/// A body that a test writes bit by bit.
struct Written(mpsc::Receiver<Bytes>);

impl Body for Written {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

#[tokio::test]
async fn an_import_goes_up_while_its_progress_comes_down() {
    const LINES: usize = 1_000_000;
    let line = format!("{}\n", r#"{"name":"n","schedule":{"now":true},"target":{"discard":{}}}"#);
    let length = line.len();
    let sent = Arc::new(AtomicUsize::new(0));
    let received = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (counted, seen, held) = (Arc::clone(&sent), Arc::clone(&received), Arc::clone(&most));
    let address = serve(None, move |request| {
        let (counted, seen, held) = (Arc::clone(&counted), Arc::clone(&seen), Arc::clone(&held));
        async move {
            assert_eq!(request.headers()["content-type"], "application/x-ndjson");
            let (writer, body) = mpsc::channel(1);
            tokio::spawn(async move {
                let mut upload = request.into_body();
                while let Some(frame) = upload.frame().await {
                    let bytes = frame.unwrap().into_data().unwrap().len();
                    let total = seen.fetch_add(bytes, Ordering::SeqCst) + bytes;
                    held.fetch_max(counted.load(Ordering::SeqCst) - total, Ordering::SeqCst);
                    let count = ImportCount { lines: (total / length) as u64, ..ImportCount::default() };
                    // A progress line may be cut anywhere.
                    let text = serde_json::to_string(&ImportLine::Progress(count)).unwrap() + "\n";
                    let (head, tail) = text.split_at(5);
                    writer.send(Bytes::from(head.to_string())).await.unwrap();
                    writer.send(Bytes::from(tail.to_string())).await.unwrap();
                }
                let count =
                    ImportCount { lines: LINES as u64, created: LINES as u64, ..ImportCount::default() };
                let text = serde_json::to_string(&ImportLine::Summary(count)).unwrap();
                writer.send(Bytes::from(text)).await.unwrap();
            });
            Response::new(Written(body).boxed_unsync())
        }
    });
    let reader = Repeated { text: line.into_bytes(), length: LINES * length, sent };
    let mut import = client(address.await).import(reader, Some("k")).await.unwrap();
    let (mut progress, mut last) = (0, None);
    while let Some(line) = import.next().await.unwrap() {
        match line.value {
            ImportLine::Progress(_) => progress += 1,
            line => last = Some(line),
        }
    }
    assert!(progress > 1, "{progress}");
    assert!(matches!(last, Some(ImportLine::Summary(count)) if count.created == LINES as u64), "{last:?}");
    assert_eq!(received.load(Ordering::SeqCst), LINES * length);
    // What is under way fits the buffers of the two processes and of the system (which may grow to 10 MB on a
    // connection), not the 61 MB of the file.
    assert!(most.load(Ordering::SeqCst) < 31 << 20, "{}", most.load(Ordering::SeqCst));
}

/// The same text again and again up to a length, counted as it is read.
struct Repeated {
    text: Vec<u8>,
    length: usize,
    sent: Arc<AtomicUsize>,
}

impl tokio::io::AsyncRead for Repeated {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let mut at = self.sent.load(Ordering::SeqCst);
        while at < self.length && buf.remaining() > 0 {
            let rest = &self.text[at % self.text.len()..];
            let taken = &rest[..rest.len().min(buf.remaining())];
            buf.put_slice(taken);
            at += taken.len();
        }
        self.sent.store(at, Ordering::SeqCst);
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn an_import_that_breaks_off_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = [0; 64];
        socket.read_exact(&mut head).await.unwrap();
        let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"pro\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut socket, answer.as_bytes()).await.unwrap();
    });
    let mut import = client(address).import(&b"{}\n"[..], None).await.unwrap();
    let error = import.next().await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
}

#[tokio::test]
async fn https_trusts_only_known_roots() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let root = certified.cert.der().clone();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::clone(&root)], key)
            .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    let address = serve(Some(tls), |_| async { answer(200, r#"{"version":"9.9.9"}"#) }).await;
    let with = |roots| {
        let options = Options { roots, ..Options::default() };
        Client::new(format!("https://localhost:{}", address.port()).parse().unwrap(), &options).unwrap()
    };
    assert_eq!(with(vec![root]).version().await.unwrap().value.version, "9.9.9");
    let error = with(Vec::new()).version().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn filters_of_jobs_are_parameters() {
    let address = serve(None, |request| async move {
        assert_eq!(request.uri().query(), Some("state=paused&label=team%3Dops&limit=2"));
        answer(200, r#"{"items":[],"next_cursor":null}"#)
    });
    let filter =
        JobFilter { state: Some("paused".into()), labels: vec!["team=ops".into()], ..Default::default() };
    let mut list = client(address.await).jobs(&filter).limit(2);
    assert!(list.next().await.unwrap().is_none());
}
