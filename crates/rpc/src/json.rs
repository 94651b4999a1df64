//! Messages as the JSON of REST, and back.
//!
//! Names are the same, so both directions are derived (`build.rs`). Here is what is written differently: times, lengths of time, JSON that
//! stays text, masks, problems and parts. Nothing here judges: what cannot be is written as text that the reader of REST refuses, and names.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A message that is JSON of REST too.
pub trait Message: prost::Message + Default + Serialize + DeserializeOwned + 'static {}

impl<T: prost::Message + Default + Serialize + DeserializeOwned + 'static> Message for T {}

/// The members of an object, each as its text.
pub type Members = BTreeMap<String, Box<RawValue>>;

/// The fields of a message that are set; an error if one is to be JSON and is not.
pub fn members(message: &impl Message) -> Result<Members, serde_json::Error> {
    serde_json::from_str(&serde_json::to_string(message)?)
}

/// A point in time is RFC 3339.
pub(crate) mod timestamp {
    use punctual_api::time::Time;
    use serde::de::Error as _;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        at: &Option<prost_types::Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        at.as_ref().map(crate::time::time).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<prost_types::Timestamp>, D::Error> {
        let at = match Option::<Time>::deserialize(deserializer)? {
            None => return Ok(None),
            Some(Time::Text(text)) => text.parse::<jiff::Timestamp>(),
            Some(Time::Seconds(seconds)) => {
                jiff::Timestamp::from_millisecond((seconds * 1000.0).round() as i64)
            }
        };
        at.map(|at| Some(crate::time::timestamp(at))).map_err(D::Error::custom)
    }
}

/// A length of time as REST writes it; one that REST does not have, as text that it refuses.
fn length(wire: &prost_types::Duration) -> String {
    match std::time::Duration::try_from(*wire) {
        Ok(length) if length.subsec_nanos() % 1_000_000 == 0 => punctual_api::Duration(length).to_string(),
        _ => format!("{} s and {} ns", wire.seconds, wire.nanos),
    }
}

/// Also zero, which REST tells and does not take.
fn wire(text: &str) -> Result<prost_types::Duration, jiff::Error> {
    let length: jiff::SignedDuration = text.parse()?;
    Ok(crate::time::to_wire(punctual_api::Duration(length.unsigned_abs())))
}

/// A length of time is ISO 8601.
pub(crate) mod duration {
    use serde::de::Error as _;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<prost_types::Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.as_ref().map(length).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<prost_types::Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| wire(&text)).transpose().map_err(D::Error::custom)
    }
}

/// Several of them.
pub(crate) mod durations {
    use serde::de::Error as _;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        durations: &[prost_types::Duration],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(durations.iter().map(length))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<prost_types::Duration>, D::Error> {
        let texts = Option::<Vec<String>>::deserialize(deserializer)?.unwrap_or_default();
        texts.iter().map(|text| wire(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
    }
}

/// JSON as it is written: never parsed or reordered.
pub(crate) mod text {
    use serde::ser::Error as _;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(json: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = json.clone().map(RawValue::from_string).transpose().map_err(|_| {
            let shown: String = json.iter().flat_map(|text| text.chars()).take(64).collect();
            S::Error::custom(format!("`{shown}` is not JSON; payloads and checkpoints are"))
        })?;
        raw.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        Ok(Some(Box::<RawValue>::deserialize(deserializer)?.get().to_string()))
    }
}

/// A mask is a list of paths.
pub(crate) mod mask {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        mask: &Option<prost_types::FieldMask>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        mask.as_ref().map(|mask| &mask.paths).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<prost_types::FieldMask>, D::Error> {
        let paths = Option::<Vec<String>>::deserialize(deserializer)?;
        Ok(paths.map(|paths| prost_types::FieldMask { paths }))
    }
}

/// A problem names fields by pointers.
pub(crate) mod problem {
    use punctual_api::Problem;

    use super::*;
    use crate::v1;

    pub(crate) fn serialize<S: Serializer>(
        problem: &Option<v1::Problem>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        problem.clone().map(Problem::from).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<v1::Problem>, D::Error> {
        Ok(Option::<Problem>::deserialize(deserializer)?.map(v1::Problem::from))
    }
}

/// Parts are an object with a count, or a word.
pub(crate) mod parts {
    use punctual_api::parts::{PartCount, Parts};

    use super::*;
    use crate::v1;

    const BROADCAST: &str = "broadcast";

    pub(crate) fn serialize<S: Serializer>(
        parts: &Option<v1::Parts>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let parts = parts.as_ref().map(|parts| match (parts.is_broadcast, parts.count) {
            (false, count) => Parts::Count(PartCount { count }),
            (true, None) => Parts::Word(BROADCAST.into()),
            // No such word: it is refused.
            (true, Some(count)) => Parts::Word(format!("{BROADCAST} and {count}")),
        });
        parts.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<v1::Parts>, D::Error> {
        Ok(Option::<Parts>::deserialize(deserializer)?.map(|parts| match parts {
            Parts::Count(PartCount { count }) => v1::Parts { count, is_broadcast: false },
            Parts::Word(word) => v1::Parts { count: None, is_broadcast: word == BROADCAST },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    #[test]
    fn a_payload_is_the_same_text_on_both_sides() {
        let text = r#"{"b": 1.50,  "a": [1e3, null]}"#;
        let job = v1::JobSpec { payload: Some(text.into()), ..v1::JobSpec::default() };
        let json = serde_json::to_string(&job).expect("JSON");
        assert_eq!(json, format!(r#"{{"payload":{text}}}"#));
        assert_eq!(serde_json::from_str::<v1::JobSpec>(&json).expect("a message"), job);
        let null = v1::JobSpec { payload: Some("null".into()), ..v1::JobSpec::default() };
        let json = serde_json::to_string(&null).expect("JSON");
        assert_eq!(serde_json::from_str::<v1::JobSpec>(&json).expect("a message"), null, "null is a payload");
        let broken = v1::JobSpec { payload: Some("{".into()), ..v1::JobSpec::default() };
        assert!(members(&broken).unwrap_err().to_string().contains("is not JSON"));
    }

    #[test]
    fn what_is_not_set_is_not_there() {
        assert_eq!(serde_json::to_string(&v1::JobSpec::default()).expect("JSON"), "{}");
        assert_eq!(serde_json::from_str::<v1::Job>("{}").expect("a message"), v1::Job::default());
    }

    #[test]
    fn lengths_that_rest_has_not_are_no_lengths() {
        let wire = |seconds, nanos| prost_types::Duration { seconds, nanos };
        for (wire, text) in [
            (wire(90, 0), "PT1M30S"),
            (wire(0, 250_000_000), "PT0.250S"),
            (wire(-1, 0), "-1 s and 0 ns"),
            (wire(0, 1), "0 s and 1 ns"),
        ] {
            assert_eq!(length(&wire), text);
        }
    }

    #[test]
    fn parts_are_a_count_or_a_word() {
        for (count, is_broadcast, json) in
            [(Some(4), false, r#"{"parts":{"count":4}}"#), (None, true, r#"{"parts":"broadcast"}"#)]
        {
            let job =
                v1::JobSpec { parts: Some(v1::Parts { count, is_broadcast }), ..v1::JobSpec::default() };
            assert_eq!(serde_json::to_string(&job).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<v1::JobSpec>(json).expect("a message"), job);
        }
    }
}
