//! A request as the handlers see it: whose it is, its parameters, its conditions, its body.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, Method, Uri};
use http_body_util::BodyExt;
use punctual_api::tenant;
use punctual_domain::{TenantId, TenantName, Version};
use punctual_engine::history::Subject;

use crate::access::Caller;
use crate::error::Error;
use crate::query::Query;
use crate::routes::Endpoint;
use crate::state::Shared;

/// Longer keys are somebody's payload.
const IDEMPOTENCY_KEY_MAX: usize = 200;

/// Everything about a request but its body.
pub(crate) struct Call {
    pub(crate) shared: Shared,
    pub(crate) tenant: TenantId,
    pub(crate) tenant_name: Arc<str>,
    pub(crate) caller: Caller,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    method: Method,
    uri: Uri,
}

impl FromRequestParts<Shared> for Call {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Error> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let endpoint = parts.extensions.get::<&'static Endpoint>().copied();
        let (Some(caller), Some(endpoint)) = (caller, endpoint) else {
            return Err(Error::Forbidden("this route is in no table".into())); // No gate, no way in.
        };
        let (tenant, tenant_name) = tenant_of(shared, &caller, &parts.headers).await?;
        Ok(Call {
            tenant,
            tenant_name,
            query: Query::new(&parts.uri, endpoint.query),
            headers: parts.headers.clone(),
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            shared: shared.clone(),
            caller,
        })
    }
}

/// Whose request it is: what its header says, as far as its caller may.
pub(crate) async fn tenant_of(
    shared: &Shared,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<(TenantId, Arc<str>), Error> {
    let named = match headers.get(tenant::HEADER).map(|value| value.to_str()) {
        Some(Ok(name)) => Some(name),
        Some(Err(_)) => {
            return Err(Error::wrong("Punctual-Tenant", "bad_character", "a tenant's name is ASCII"));
        }
        None => None,
    };
    let name = match (&caller.tenant, named) {
        (Some(own), Some(named)) if own.as_str() != named => {
            // Another tenant's name is not there, whether it exists or not.
            let unknown = punctual_engine::Error::TenantNotFound(named.chars().take(64).collect());
            return Err(Error::Engine(unknown));
        }
        (Some(own), _) => own.as_str(),
        (None, named) => named.unwrap_or(TenantName::DEFAULT),
    };
    Ok((shared.tenant(name).await?, name.into()))
}

impl Call {
    /// The same caller asks for something else: what the console reads and changes goes through the handlers of REST.
    pub(crate) fn asking(&self, pairs: &[(&str, &str)]) -> Call {
        Call {
            shared: self.shared.clone(),
            tenant: self.tenant,
            tenant_name: Arc::clone(&self.tenant_name),
            caller: self.caller.clone(),
            query: Query::of(pairs),
            headers: HeaderMap::new(),
            method: self.method.clone(),
            uri: self.uri.clone(),
        }
    }

    /// The path and the query, as the caller wrote them.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Does what takes long, unless the caller's key is not good any more meanwhile.
    pub(crate) async fn while_good<T>(
        &self,
        work: impl Future<Output = Result<T, punctual_engine::Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            done = work => Ok(done?),
            denied = self.shared.engine.denied(self.caller.pass) => Err(Error::Key(denied)),
        }
    }

    /// The version that `If-Match` expects.
    pub(crate) fn expected(&self) -> Result<Option<Version>, Error> {
        let Some(value) = self.headers.get(IF_MATCH) else { return Ok(None) };
        let text = value.to_str().unwrap_or("").trim();
        if text == "*" {
            return Ok(None);
        }
        let version =
            text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).and_then(|v| v.parse().ok());
        let detail = "`If-Match` takes the `ETag` of the job, such as \"3\" in quotes";
        version.map(|version| Some(Version(version))).ok_or_else(|| Error::wrong("If-Match", "etag", detail))
    }

    /// Whether `If-None-Match` is this.
    pub(crate) fn if_none_match(&self, wanted: &str) -> bool {
        self.headers.get(IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == wanted.as_bytes())
    }

    /// The `Idempotency-Key`.
    pub(crate) fn idempotency_key(&self) -> Result<Option<&str>, Error> {
        let Some(value) = self.headers.get("idempotency-key") else { return Ok(None) };
        let key = value.to_str().unwrap_or("").trim();
        let is_right = (1..=IDEMPOTENCY_KEY_MAX).contains(&key.len()) && !key.contains(' ');
        let detail =
            format!("a key has 1 to {IDEMPOTENCY_KEY_MAX} printable ASCII characters without spaces");
        is_right
            .then_some(Some(key))
            .ok_or_else(|| Error::wrong("Idempotency-Key", "idempotency_key", detail))
    }

    /// The request, to be remembered under its key: with what it asks for, so that another one is told apart.
    pub(crate) fn request(&self, body: &str) -> Result<Option<Subject>, Error> {
        let key = self.idempotency_key()?.map(str::to_string);
        Ok(key.map(|key| self.shared.engine.request(self.tenant, key, self.fingerprint(body))))
    }

    /// A hash of the route and a body.
    pub(crate) fn fingerprint(&self, body: &str) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        for part in [self.method.as_str(), self.uri.path(), self.uri.query().unwrap_or("")] {
            hasher.update(part.as_bytes());
            hasher.update(&[0]);
        }
        hasher.update(body.as_bytes());
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        fingerprint
    }
}

/// A whole body, at most as large as a job may be.
pub(crate) struct Text(pub(crate) String);

impl FromRequest<Shared> for Text {
    type Rejection = Error;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Error> {
        check_type(request.headers(), request.method())?;
        read(request, shared.limits.body_max).await.map(Text)
    }
}

/// A whole body of many jobs.
pub(crate) struct LongText(pub(crate) String);

impl FromRequest<Shared> for LongText {
    type Rejection = Error;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Error> {
        check_type(request.headers(), request.method())?;
        read(request, shared.limits.bulk_max).await.map(LongText)
    }
}

/// JSON is taken under any name, since `curl -d` gives it another, but not what surely is something else.
fn check_type(headers: &HeaderMap, method: &Method) -> Result<(), Error> {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = text.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json-patch+json" if method == Method::PATCH => Err(Error::WrongContentType(
            "a patch is a JSON merge patch, `application/merge-patch+json`".into(),
        )),
        "multipart/form-data"
        | "application/yaml"
        | "application/x-yaml"
        | "application/xml"
        | "text/xml" => {
            Err(Error::WrongContentType(format!("`{essence}` is not taken; send `application/json`")))
        }
        _ => Ok(()),
    }
}

async fn read(request: Request, max: usize) -> Result<String, Error> {
    let headers = request.headers();
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let is_asking = headers.contains_key(EXPECT);
    let mut body: Body = request.into_body();
    if announced.is_some_and(|bytes| bytes > max) {
        // Whoever asks first sends nothing; whoever does not would meet a closed connection and not the answer.
        if !is_asking && announced.is_some_and(|bytes| bytes <= DRAINED_MAX) {
            drain(&mut body, 0).await;
        }
        return Err(Error::BodyTooLarge { max });
    }
    let mut bytes = Vec::with_capacity(announced.unwrap_or(0));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::BodyBroken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > max {
            drain(&mut body, bytes.len()).await;
            return Err(Error::BodyTooLarge { max });
        }
        bytes.extend_from_slice(&data);
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::Unread(punctual_api::read::Unread::Malformed("the body is not UTF-8".into())))
}

/// Bytes that are read and thrown away, so that a client that is still writing gets to the answer.
const DRAINED_MAX: usize = 64 << 20;

async fn drain(body: &mut Body, mut read: usize) {
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, bytes::Bytes::len);
        if read > DRAINED_MAX {
            return;
        }
    }
}
