//! What is sent to a target: any JSON, kept as the text it was given.

use punctual_domain::job::Spec;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::read::{At, Errors, Read};

/// JSON text, never parsed or reordered.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = serde_json::Value)]
pub struct Payload(Box<RawValue>);

impl Payload {
    /// From text, if it is one JSON value.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        RawValue::from_string(text.into()).ok().map(Payload)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Says so if it is larger than it may be.
    pub fn check(&self, max: usize, at: &At<'_>, errors: &mut Errors) {
        let bytes = self.as_str().len();
        if bytes > max {
            let detail = format!(
                "a payload of {bytes} bytes is too large, at most {max}; send a reference to the data instead"
            );
            errors.add(at, "too_long", detail);
        }
    }

    pub(crate) fn of(spec: &Spec) -> Option<Self> {
        Payload::new(spec.payload.as_deref()?)
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Read for Payload {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        let payload = Payload::new(text);
        if payload.is_none() {
            errors.add(at, "wrong_type", "this is not JSON");
        }
        payload
    }
}
