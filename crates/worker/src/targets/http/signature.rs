//! Signs calls and verifies signatures as Standard Webhooks 1.0 says.
//!
//! A call carries `webhook-id`, `webhook-timestamp` and `webhook-signature`. The signature covers
//! all three parts that matter: `id.timestamp.body`. During a rotation old and new secret both
//! sign, so that no delivery is rejected at any moment of it.
//! Promise: a secret is printed only by [`Secret::reveal`].

use std::fmt;

use ::http::{HeaderMap, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;

use super::headers::names;
use crate::Error;

const PREFIX: &str = "whsec_";
const SECRET_BYTES_MIN: usize = 24; // Both bounds are the specification's.
const SECRET_BYTES_MAX: usize = 64;

/// How far a timestamp may be from the receiver's clock, in seconds: older ones may be replays.
pub const TOLERANCE_S: i64 = 300;

/// Signatures tried per request: a rotation has two, and an attacker may send thousands.
const SIGNATURES_MAX: usize = 8;

/// A signing secret: 24 to 64 random bytes, written `whsec_` and base64.
#[derive(Clone)]
pub struct Secret {
    bytes: Box<[u8]>,
    key: hmac::Key,
}

impl Secret {
    /// Makes a secret of random bytes, which the caller brings.
    pub fn from_random(bytes: &[u8]) -> Result<Secret, Error> {
        match bytes.len() {
            SECRET_BYTES_MIN..=SECRET_BYTES_MAX => {
                Ok(Secret { bytes: bytes.into(), key: hmac::Key::new(hmac::HMAC_SHA256, bytes) })
            }
            _ => Err(Error::Secret("has a wrong length; it has 24 to 64 random bytes")),
        }
    }

    /// Reads `whsec_...`.
    pub fn parse(text: &str) -> Result<Secret, Error> {
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            return Err(Error::Secret("does not start with `whsec_`"));
        };
        let bytes = BASE64.decode(encoded).map_err(|_| Error::Secret("is not base64 after `whsec_`"))?;
        Secret::from_random(&bytes)
    }

    /// The secret as text, for the one time it is shown.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", BASE64.encode(&self.bytes))
    }

    fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            context.update(part);
        }
        context.sign()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(whsec_…)")
    }
}

/// The value of `webhook-signature`: one signature per secret, separated by spaces.
///
/// ```
/// use punctual_worker::targets::http::{Secret, sign};
///
/// let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let signature = sign(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, br#"{"test": 2432232314}"#);
/// assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
/// # Ok::<(), punctual_worker::Error>(())
/// ```
pub fn sign(secrets: &[Secret], id: &str, timestamp_s: i64, body: &[u8]) -> String {
    const SIGNATURE_LEN: usize = 48; // `v1,`, 44 characters of base64, a space.
    let timestamp = timestamp_s.to_string();
    let mut value = String::with_capacity(secrets.len() * SIGNATURE_LEN);
    for secret in secrets {
        if !value.is_empty() {
            value.push(' ');
        }
        value.push_str("v1,");
        BASE64.encode_string(secret.sign(id, &timestamp, body), &mut value);
    }
    value
}

/// Verifies a received call: one of its signatures was made with one of the secrets, not longer
/// than five minutes from `now_s`. For receivers, and for our own tests.
pub fn verify(secrets: &[Secret], headers: &HeaderMap, body: &[u8], now_s: i64) -> Result<(), Error> {
    let id = header(headers, &names::WEBHOOK_ID).ok_or(Error::Signature("has no `webhook-id`"))?;
    let timestamp =
        header(headers, &names::WEBHOOK_TIMESTAMP).ok_or(Error::Signature("has no `webhook-timestamp`"))?;
    let signatures =
        header(headers, &names::WEBHOOK_SIGNATURE).ok_or(Error::Signature("has no `webhook-signature`"))?;
    let sent_s: i64 =
        timestamp.parse().map_err(|_| Error::Signature("has a timestamp that is not a number"))?;
    match now_s.saturating_sub(sent_s) {
        age if age > TOLERANCE_S => return Err(Error::Signature("is older than five minutes")),
        age if age < -TOLERANCE_S => return Err(Error::Signature("is from more than five minutes ahead")),
        _ => {}
    }
    // The text as sent, not the number: `+1` and `01` sign differently.
    let message = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let given = signatures.split(' ').filter_map(|one| one.strip_prefix("v1,")).take(SIGNATURES_MAX);
    for tag in given.filter_map(|encoded| BASE64.decode(encoded).ok()) {
        // The comparison inside takes the same time wherever the tags differ.
        if secrets.iter().any(|secret| hmac::verify(&secret.key, &message, &tag).is_ok()) {
            return Ok(());
        }
    }
    Err(Error::Signature("has no signature made with a known secret"))
}

fn header<'a>(headers: &'a HeaderMap, name: &::http::HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Secret, id, timestamp, body, signature: from the specification's reference libraries.
    const VECTORS: [(&str, &str, i64, &str, &str); 2] = [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            1_649_367_553,
            r#"{"email":"test@example.com","username":"test_user"}"#,
            "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        ),
    ];

    fn headers(id: &str, timestamp: &str, signature: &str) -> HeaderMap {
        [
            (&names::WEBHOOK_ID, id),
            (&names::WEBHOOK_TIMESTAMP, timestamp),
            (&names::WEBHOOK_SIGNATURE, signature),
        ]
        .into_iter()
        .map(|(name, value)| (name.clone(), value.parse().unwrap()))
        .collect()
    }

    #[test]
    fn the_vectors_of_the_specification_hold_both_ways() {
        for (secret, id, at, body, signature) in VECTORS {
            let secrets = [Secret::parse(secret).unwrap()];
            assert_eq!(sign(&secrets, id, at, body.as_bytes()), signature);
            let sent = headers(id, &at.to_string(), signature);
            assert_eq!(verify(&secrets, &sent, body.as_bytes(), at), Ok(()));
            assert_eq!(secrets[0].reveal(), secret);
        }
    }

    #[test]
    fn a_change_of_any_part_is_noticed() {
        let (secret, id, at, body, signature) = VECTORS[0];
        let secrets = [Secret::parse(secret).unwrap()];
        let at_text = at.to_string();
        let other = (at + 1).to_string();
        let cases = [
            (headers("msg_other", &at_text, signature), body),
            (headers(id, &other, signature), body),
            (headers(id, &format!("+{at}"), signature), body),
            (headers(id, &at_text, signature), "{}"),
            (headers(id, &at_text, &signature.replace("v1,", "v1a,")), body),
            (headers(id, &at_text, &signature[..40]), body),
            (headers(id, &at_text, ""), body),
            (headers(id, "soon", signature), body),
        ];
        for (sent, body) in cases {
            assert!(verify(&secrets, &sent, body.as_bytes(), at).is_err(), "{sent:?}");
        }
        for name in [names::WEBHOOK_ID, names::WEBHOOK_TIMESTAMP, names::WEBHOOK_SIGNATURE] {
            let mut sent = headers(id, &at_text, signature);
            sent.remove(name);
            assert!(verify(&secrets, &sent, body.as_bytes(), at).is_err());
        }
    }

    #[test]
    fn a_replay_after_five_minutes_is_refused() {
        let (secret, id, at, body, signature) = VECTORS[0];
        let secrets = [Secret::parse(secret).unwrap()];
        let sent = headers(id, &at.to_string(), signature);
        for (now, accepted) in [
            (at + TOLERANCE_S, true),
            (at - TOLERANCE_S, true),
            (at + TOLERANCE_S + 1, false),
            (at - TOLERANCE_S - 1, false),
            (i64::MAX, false),
            (i64::MIN, false),
        ] {
            assert_eq!(verify(&secrets, &sent, body.as_bytes(), now).is_ok(), accepted, "{now}");
        }
    }

    #[test]
    fn a_rotation_rejects_no_delivery() {
        let old = Secret::from_random(&[1; 24]).unwrap();
        let new = Secret::from_random(&[2; 64]).unwrap();
        let both = sign(&[new.clone(), old.clone()], "msg_1", 1_000, b"x");
        assert_eq!(both.split(' ').count(), 2);
        let sent = headers("msg_1", "1000", &both);
        for receiver in [&old, &new] {
            assert_eq!(verify(std::slice::from_ref(receiver), &sent, b"x", 1_000), Ok(()));
        }
        let stranger = Secret::from_random(&[3; 32]).unwrap();
        assert!(verify(&[stranger], &sent, b"x", 1_000).is_err());
    }

    #[test]
    fn a_secret_has_24_to_64_bytes_and_is_not_printed_by_accident() {
        for (bytes, good) in [(23, false), (24, true), (64, true), (65, false), (0, false)] {
            let made = Secret::from_random(&vec![7; bytes]);
            assert_eq!(made.is_ok(), good, "{bytes}");
            if let Ok(secret) = made {
                assert_eq!(Secret::parse(&secret.reveal()).unwrap().bytes, secret.bytes);
                assert_eq!(format!("{secret:?}"), "Secret(whsec_…)");
            }
        }
        for wrong in
            ["", "whsec_", "whsec_***", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8I"]
        {
            let message = Secret::parse(wrong).unwrap_err().to_string();
            assert!(!message.contains("MfKQ"), "{message}");
        }
    }
}
