//! What the server said: the value, and the very text it was read from.

use std::fmt;
use std::ops::Deref;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A value with its text, which may say more than this version of the client knows.
#[derive(Clone)]
pub struct Answer<T> {
    /// The value.
    pub value: T,
    text: Box<RawValue>,
}

impl<T> Answer<T> {
    /// The JSON, as the server wrote it.
    pub fn text(&self) -> &str {
        self.text.get()
    }
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl<T> Serialize for Answer<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Answer<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let value = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Answer { value, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_what_this_version_does_not_know() {
        #[derive(Deserialize)]
        struct Known {
            id: String,
        }
        let text = r#"{"colour": "red",  "id":"7"}"#;
        let answer: Answer<Known> = serde_json::from_str(text).expect("an answer");
        assert_eq!(answer.id, "7");
        assert_eq!(answer.text(), text);
        assert_eq!(serde_json::to_string(&answer).expect("JSON"), text);
    }
}
