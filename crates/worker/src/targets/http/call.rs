//! One call: what to send where, and for how long to wait.

use std::time::Duration;

use ::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use ::http::{HeaderName, HeaderValue, Method, Request, Version};
use bytes::Bytes;
use http_body_util::Full;

use super::guard::{Policy, Refusal};
use super::headers::{Headers, names};
use super::identity::Identity;
use super::signature::{self, Secret};
use super::target::Target;

/// A call to make. Everything that is the same for all calls of a job is borrowed.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Where.
    pub target: &'a Target,
    /// How; usually `POST`.
    pub method: Method,
    /// The user's headers.
    pub headers: &'a Headers,
    /// Our headers besides the signature: see [`names`].
    pub own: &'a [(HeaderName, HeaderValue)],
    /// What. Sent as `application/json` unless the user's headers say otherwise.
    pub body: Bytes,
    /// `webhook-id`: the same for every attempt of a run, without dots.
    pub webhook_id: &'a str,
    /// `webhook-timestamp`: the time of this attempt in Unix seconds.
    pub timestamp_s: i64,
    /// Each of them signs; with none the call is not signed.
    pub secrets: &'a [Secret],
    /// The limit of the whole attempt.
    pub timeout: Duration,
    /// The limit until a new connection is ready, within `timeout`.
    pub connect_timeout: Duration,
    /// So much of the answer's body is kept.
    pub kept_bytes_max: usize,
    /// What the tenant allows. The call must pass this and the installation's policy.
    pub tenant_policy: Option<&'a Policy>,
    /// What TLS is spoken with; the target must have been made [with](Target::with) it.
    pub identity: Option<&'a Identity>,
}

impl Call<'_> {
    /// Asks both policies.
    pub(super) fn guard(
        &self,
        installation: &Policy,
        ask: impl Fn(&Policy) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        ask(installation)?;
        self.tenant_policy.map_or(Ok(()), ask)
    }

    /// Our headers that need checking or computing, ready for every try of this call.
    pub(super) fn sign(&self) -> Result<Signed, String> {
        let is_plain = |b: u8| b.is_ascii_graphic() && b != b'.';
        if self.webhook_id.is_empty() || !self.webhook_id.bytes().all(is_plain) {
            return Err(format!("`{}` is not a webhook id", self.webhook_id.escape_debug()));
        }
        let id = HeaderValue::try_from(self.webhook_id).map_err(|error| error.to_string())?;
        let signature = if self.secrets.is_empty() {
            None
        } else {
            let value = signature::sign(self.secrets, self.webhook_id, self.timestamp_s, &self.body);
            Some(HeaderValue::try_from(value).map_err(|error| error.to_string())?)
        };
        Ok(Signed { id, signature })
    }

    /// The request as the connection's protocol wants it.
    pub(super) fn request(&self, signed: &Signed, is_h2: bool) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.headers.template);
        headers.reserve(self.own.len() + 6);
        if self.body.is_empty() {
            // Some servers ask for a length where a body is usual.
            if matches!(self.method, Method::POST | Method::PUT | Method::PATCH) {
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
        } else if !self.headers.has_content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in self.own {
            headers.insert(name, value.clone());
        }
        headers.insert(names::WEBHOOK_ID, signed.id.clone());
        headers.insert(names::WEBHOOK_TIMESTAMP, HeaderValue::from(self.timestamp_s));
        if let Some(signature) = &signed.signature {
            headers.insert(names::WEBHOOK_SIGNATURE, signature.clone());
        }
        if is_h2 {
            *request.uri_mut() = self.target.absolute.clone();
            *request.version_mut() = Version::HTTP_2;
        } else {
            request.headers_mut().insert(HOST, self.target.host_header.clone());
            *request.uri_mut() = self.target.path.clone();
        }
        request
    }
}

/// `webhook-id` and `webhook-signature` of one call.
pub(super) struct Signed {
    id: HeaderValue,
    signature: Option<HeaderValue>,
}
