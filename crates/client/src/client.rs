//! One request and its answer; every method of the client goes through here.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, IF_MATCH, USER_AGENT};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use punctual_api::report::TOKEN_HEADER;
use punctual_api::{Problem, tenant};
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::Answer;
use crate::connector::Connector;
use crate::error::{Error, root};
use crate::keys::Key;
use crate::server::Server;

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longer than any single request takes a healthy server, and short enough for a person to wait.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The largest answer: a page of a thousand jobs, each as large as it may be, does not fit; ask for shorter pages.
const BYTES_MAX: usize = 256 << 20;

/// What is sent: whole, or in a stream.
pub(crate) type Upload = UnsyncBoxBody<Bytes, std::io::Error>;

/// No body.
pub(crate) fn nothing() -> Upload {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// How a client works.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The tenant of every request; the server's default, if none.
    pub tenant: Option<String>,
    /// Shown with every request; none, for a server that asks for none.
    pub key: Option<Key>,
    /// Root certificates to trust besides the public ones.
    pub roots: Vec<CertificateDer<'static>>,
}

/// A client of one server. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    server: Server,
    tenant: Option<String>,
    key: Option<Key>,
    connector: Connector,
    http: legacy::Client<Connector, Upload>,
}

/// A request before it is sent.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) idempotency_key: Option<&'a str>,
    pub(crate) version: Option<u32>,
    pub(crate) token: Option<&'a str>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Call { method, path: path.into(), body: None, idempotency_key: None, version: None, token: None }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Call::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Call::new(Method::POST, path)
    }

    pub(crate) fn body(self, body: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let text = serde_json::to_vec(body).map_err(|error| Error::Request(error.to_string()))?;
        Ok(Call { body: Some(text.into()), ..self })
    }

    pub(crate) fn under(self, idempotency_key: Option<&'a str>) -> Self {
        Call { idempotency_key, ..self }
    }

    /// With the token of an attempt.
    pub(crate) fn with_token(self, token: &'a str) -> Self {
        Call { token: Some(token), ..self }
    }

    /// Only if the job still has this version.
    pub(crate) fn of_version(self, version: Option<u32>) -> Self {
        Call { version, ..self }
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Client {
    /// A client of a server. Nothing is sent yet.
    pub fn new(server: Server, options: &Options) -> Result<Self, Error> {
        let connector = Connector::new(&options.roots)?;
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector.clone());
        let (tenant, key) = (options.tenant.clone(), options.key.clone());
        Ok(Client { server, tenant, key, connector, http })
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn tenant_name(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    pub(crate) fn key_shown(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The same server for another tenant.
    #[must_use]
    pub fn tenant(&self, name: impl Into<String>) -> Self {
        Client { tenant: Some(name.into()), ..self.clone() }
    }

    /// The same client with connections of its own.
    pub(crate) fn apart(&self) -> Self {
        let http = legacy::Client::builder(TokioExecutor::new()).build(self.connector.clone());
        Client { http, ..self.clone() }
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<Answer<T>, Error> {
        let name = call.name();
        let (_, text) = self.exchange(call).await?;
        self.read(&name, &text)
    }

    /// Sends a request whose answer has nothing in it.
    pub(crate) async fn call_empty(&self, call: Call<'_>) -> Result<(), Error> {
        self.exchange(call).await.map(drop)
    }

    /// Reads an answer's text as a value.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str, text: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(text).map_err(|error| self.unexpected(name, error.to_string()))
    }

    /// Sends a request; its status and text, if it succeeded.
    pub(crate) async fn exchange(&self, call: Call<'_>) -> Result<(StatusCode, Bytes), Error> {
        let name = call.name();
        let work = async {
            let body = match &call.body {
                Some(text) => Full::new(text.clone()).map_err(|never| match never {}).boxed_unsync(),
                None => nothing(),
            };
            let response = self.send(self.request(&call)?, body).await?;
            self.succeeded(&name, response).await
        };
        match tokio::time::timeout(ANSWER_MAX, work).await {
            Ok(answer) => answer,
            Err(_) => Err(self.broken(format!("no answer to {name} within {} s", ANSWER_MAX.as_secs()))),
        }
    }

    /// The head of a request.
    pub(crate) fn request(&self, call: &Call<'_>) -> Result<http::request::Builder, Error> {
        let uri = self.server.uri(&call.path)?;
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(uri)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("punctual-client/", env!("CARGO_PKG_VERSION")));
        if let Some(tenant) = &self.tenant {
            request = request.header(tenant::HEADER, tenant);
        }
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.header());
        }
        if let Some(token) = call.token {
            request = request.header(TOKEN_HEADER, token);
        }
        if let Some(key) = call.idempotency_key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(version) = call.version {
            request = request.header(IF_MATCH, format!("\"{version}\""));
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        Ok(request)
    }

    /// Sends a request; the answer's head.
    pub(crate) async fn send(
        &self,
        head: http::request::Builder,
        body: Upload,
    ) -> Result<Response<Incoming>, Error> {
        let request = head.body(body).map_err(|error| Error::Request(error.to_string()))?;
        self.http.request(request).await.map_err(|error| match error.is_connect() {
            true => Error::Unreachable { server: self.server.to_string(), reason: root(&error) },
            false => self.broken(root(&error)),
        })
    }

    /// The status and text of an answer, or what the server refused.
    pub(crate) async fn succeeded(
        &self,
        name: &str,
        response: Response<Incoming>,
    ) -> Result<(StatusCode, Bytes), Error> {
        let (status, text) = self.whole(response).await?;
        if status.is_success() {
            return Ok((status, text));
        }
        match serde_json::from_slice::<Problem>(&text) {
            Ok(problem) => Err(Error::Refused(Box::new(problem))),
            Err(_) => Err(Error::Unexpected {
                server: self.server.to_string(),
                request: name.into(),
                status: Some(status.as_u16()),
                reason: format!("status {status} without a reason"),
            }),
        }
    }

    /// The status and text of an answer, whatever it says.
    pub(crate) async fn whole(&self, response: Response<Incoming>) -> Result<(StatusCode, Bytes), Error> {
        let status = response.status();
        let body = Limited::new(response.into_body(), BYTES_MAX);
        let text = body.collect().await.map_err(|error| self.broken(root(&*error)))?;
        Ok((status, text.to_bytes()))
    }

    pub(crate) fn broken(&self, reason: String) -> Error {
        Error::Broken { server: self.server.to_string(), reason }
    }

    pub(crate) fn unexpected(&self, request: &str, reason: String) -> Error {
        Error::Unexpected { server: self.server.to_string(), request: request.into(), status: None, reason }
    }
}
