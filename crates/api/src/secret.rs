//! Secrets of targets on the wire: a value goes in, and only what is about it comes out.

use std::fmt;

use jiff::Timestamp;
use punctual_domain::secret::{Value, Wrong};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::read::{At, Errors, Read, Unread, read};

object! {
    /// What a secret is set to.
    pub struct SecretSpec {
        /// The value: 1 to 65536 bytes of text. It is sealed, and never shown again.
        #[schema(required = true)]
        pub value: SecretText,
    }
}

/// A value on its way in; printed by nothing.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, example = "s3cr3t")]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl Read for SecretText {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        String::read(text, at, errors).map(SecretText)
    }
}

impl SecretSpec {
    /// Reads a body. What is wrong is told without the value.
    pub fn from_text(text: &str) -> Result<Value, Unread> {
        read::<SecretSpec>(text)?.to_domain()
    }

    /// As it can be set.
    pub fn to_domain(&self) -> Result<Value, Unread> {
        let (here, mut errors) = (At::ROOT.member("value"), Errors::default());
        let value = match &self.value {
            None => {
                errors.add(&here, "missing_field", "`value` is missing: what the secret says");
                None
            }
            Some(SecretText(text)) => Value::new(text.as_str())
                .map_err(|wrong: Wrong| errors.add(&here, "out_of_range", wrong.to_string()))
                .ok(),
        };
        value.ok_or_else(|| Unread::Wrong(errors.into_vec()))
    }
}

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// What targets call it: `{{ secret.NAME }}`.
    pub name: String,
    /// Counts its changes, rotations of the master key too.
    pub version: u64,
    /// When there was first one of its name.
    pub created_at: Timestamp,
    /// When its value was last set.
    pub set_at: Timestamp,
    /// By whom: `key` and an id, or where it came from.
    pub set_by: String,
    /// The id of the master key that sealed it.
    pub master_key: String,
}

/// What a rotation of the master key did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SecretsRotated {
    /// The id of the master key that seals them now.
    pub master_key: String,
    /// Sealed anew.
    pub resealed: u64,
    /// Were sealed with it already.
    pub already: u64,
    /// Could not be read, and are as they were.
    pub unreadable: u64,
    /// Some of these.
    pub examples: Vec<UnreadableSecret>,
}

/// A secret that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnreadableSecret {
    /// Its name.
    pub name: String,
    /// Why, and the way out.
    pub reason: String,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_and_what_is_wrong_is_told_without_it() {
        assert_eq!(SecretSpec::from_text(r#"{"value":"hunter2"}"#).unwrap().reveal(), "hunter2");
        for text in [
            "{}",
            r#"{"value":""}"#,
            r#"{"value":"hunter2\u0000"}"#,
            r#"{"value":{"a":"hunter2"}}"#,
            r#"{"value":["hunter2"]}"#,
            r#"{"value":"hunter2","value":"hunter2"}"#,
            r#"{"valeu":"hunter2"}"#,
            r#"{"value":"hunter2"#,
            r#"{"value":hunter2}"#,
        ] {
            let wrong = SecretSpec::from_text(text).unwrap_err();
            assert!(!format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
        }
        let spec = SecretSpec { value: Some(SecretText("hunter2".into())) };
        assert!(!format!("{spec:?}").contains("hunter2"));
    }
}
