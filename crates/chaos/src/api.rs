//! Requests to nodes, and what is known afterwards.
//!
//! Promise: an answer says whether a thing was done, was not done, or may have been done. Nothing is repeated here.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// What is known after a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// It was done.
    Done(Bytes),
    /// It was not done, and will not be: the status and the reason.
    Refused(u16, String),
    /// It was not done, or it was, or it will be.
    Unknown(String),
}

impl Answer {
    /// The body of what was done.
    pub(crate) fn json(&self) -> Option<Value> {
        match self {
            Answer::Done(text) => serde_json::from_slice(text).ok(),
            Answer::Refused(..) | Answer::Unknown(_) => None,
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<String>,
    /// Done once, however often it is sent.
    pub(crate) idempotency_key: Option<String>,
    /// It creates a job with a key of its own, which no other job can have.
    pub(crate) is_keyed: bool,
    /// Only if the job still has this version: a request that was given up cannot be done later.
    pub(crate) version: Option<u32>,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Call { method, path: path.into(), body: None, idempotency_key: None, is_keyed: false, version: None }
    }

    pub(crate) fn body(self, body: &Value) -> Self {
        Call { body: Some(body.to_string()), ..self }
    }

    pub(crate) fn once(self, key: impl Into<String>) -> Self {
        Call { idempotency_key: Some(key.into()), ..self }
    }

    /// The body of a job that gets a key.
    pub(crate) fn keyed(self, mut job: Value, key: &str) -> Self {
        job["key"] = key.into();
        Call { is_keyed: true, ..self.body(&job) }
    }

    /// Whether it is done once, also if it arrives at two nodes at the same time.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.idempotency_key.is_some() || self.is_keyed
    }

    pub(crate) fn of_version(self, version: u32) -> Self {
        Call { version: Some(version), ..self }
    }
}

/// Sends requests. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Api {
    http: Client<HttpConnector, Full<Bytes>>,
}

impl Api {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Api { http: Client::builder(TokioExecutor::new()).build(connector) }
    }

    pub(crate) async fn get(&self, node: SocketAddr, path: &str, within: Duration) -> Answer {
        self.send(node, &Call::new(Method::GET, path), within).await
    }

    pub(crate) async fn send(&self, node: SocketAddr, call: &Call, within: Duration) -> Answer {
        let mut request =
            Request::builder().method(call.method.clone()).uri(format!("http://{node}{}", call.path));
        if let Some(key) = &call.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(version) = call.version {
            request = request.header("if-match", format!("\"{version}\""));
        }
        if call.body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = Full::new(Bytes::from(call.body.clone().unwrap_or_default()));
        let Ok(request) = request.body(body) else {
            return Answer::Refused(0, format!("`{}` cannot be sent", call.path));
        };
        let exchange = async {
            let response = match self.http.request(request).await {
                Ok(response) => response,
                Err(error) if error.is_connect() => return Answer::Refused(0, "no connection".into()),
                Err(error) => return Answer::Unknown(error.to_string()),
            };
            let status = response.status();
            let text = match response.into_body().collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => return Answer::Unknown(error.to_string()),
            };
            let reason = || String::from_utf8_lossy(&text).into_owned();
            match status.as_u16() {
                200..300 => Answer::Done(text),
                // A server that lost its database in the middle does not know either.
                500.. => Answer::Unknown(reason()),
                status => Answer::Refused(status, reason()),
            }
        };
        match tokio::time::timeout(within, exchange).await {
            Ok(answer) => answer,
            Err(_) => Answer::Unknown("no answer in time".into()),
        }
    }
}
