//! Keys: create, list, revoke and rotate them; and the one that this client shows.

use std::fmt;
use std::str::FromStr;

use http::{HeaderValue, Method};
use punctual_api::key::{Key as ApiKey, KeyRotation, KeySpec, NewKey};

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::list::List;
use crate::server::escaped;

/// A key, as it was shown when it was created.
#[derive(Clone)]
pub struct Key(HeaderValue);

impl Key {
    /// What is sent as `Authorization`.
    pub(crate) fn header(&self) -> &HeaderValue {
        &self.0
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Request(
                "that is not a key: it begins with `pk_`, as it was shown when it was created".into(),
            )
        };
        let text = text.trim();
        if !text.starts_with("pk_") || text.contains(char::is_whitespace) {
            return Err(wrong()); // What else somebody put there may be a secret of its own, and is not repeated.
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok(Key(value))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Client {
    /// Creates a key. The answer is the only place where it is shown.
    pub async fn create_key(&self, spec: &KeySpec) -> Result<Answer<NewKey>, Error> {
        self.call(Call::post("/v1/keys").body(spec)?).await
    }

    /// Keys: of a tenant, of all with `*`, or what the client is for.
    pub fn keys(&self, tenant: Option<&str>) -> List<ApiKey> {
        List::new(self, "/v1/keys", &[("tenant", tenant)])
    }

    /// A key.
    pub async fn key(&self, id: &str) -> Result<Answer<ApiKey>, Error> {
        self.call(Call::get(path_of(id))).await
    }

    /// Takes a key back, within a second on every node.
    pub async fn revoke_key(&self, id: &str) -> Result<(), Error> {
        self.call_empty(Call::new(Method::DELETE, path_of(id))).await
    }

    /// Gives a key a new secret. The answer is the only place where it is shown.
    pub async fn rotate_key(&self, id: &str, rotation: &KeyRotation) -> Result<Answer<NewKey>, Error> {
        self.call(Call::post(format!("{}/rotate", path_of(id))).body(rotation)?).await
    }
}

fn path_of(id: &str) -> String {
    format!("/v1/keys/{}", escaped(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sent_as_it_was_shown_and_printed_never() {
        let key: Key = " pk_1_2\n".parse().expect("a key");
        assert_eq!(key.header().to_str().expect("text"), "Bearer pk_1_2");
        assert_eq!(format!("{key:?} {:?}", key.header()), "Key(…) Sensitive");
        for text in ["", "password", "pk_1 2", "pk_\u{7f}"] {
            let error = text.parse::<Key>().expect_err(text).to_string();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }
}
