//! An answer before it becomes a response, so that it can also be remembered and given again.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::Error;

/// Marks an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A successful answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(skip)]
    is_replayed: bool,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, body: &impl Serialize) -> Self {
        // Our types have nothing that JSON cannot say.
        let body = serde_json::value::to_raw_value(body).ok();
        Answer { status: status.as_u16(), location: None, etag: None, body, is_replayed: false }
    }

    pub(crate) fn ok(body: &impl Serialize) -> Self {
        Answer::new(StatusCode::OK, body)
    }

    /// Without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Answer { status: status.as_u16(), location: None, etag: None, body: None, is_replayed: false }
    }

    pub(crate) fn at(self, location: String) -> Self {
        Answer { location: Some(location), ..self }
    }

    pub(crate) fn version(self, version: u32) -> Self {
        Answer { etag: Some(format!("\"{version}\"")), ..self }
    }

    /// What it says, for a page of the console.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        let text = self.body.as_ref().map_or("null", |body| body.get());
        serde_json::from_str(text).map_err(|error| Error::Unwritten(format!("an answer of our own: {error}")))
    }

    /// As text, to be remembered.
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What was remembered.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Answer::replayed)
    }

    pub(crate) fn replayed(self) -> Self {
        Answer { is_replayed: true, ..self }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let has_body = self.body.is_some();
        let text: String = self.body.map(|body| Box::<str>::from(body).into()).unwrap_or_default();
        let mut response = Response::new(Body::from(text));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if has_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in [(LOCATION, self.location), (ETAG, self.etag)] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(name, value);
            }
        }
        if self.is_replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}
