//! Secrets of targets, as the bodies of their documents: sealed, and which master key opens them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use punctual_domain::Document;
use punctual_domain::envelope::Sealed;
use punctual_domain::secret::Secret;
use serde::{Deserialize, Serialize};

use super::{damaged, millis, timestamp};
use crate::error::Error;

/// Raised when a field changes its meaning; adding one does not need it.
const FORM: u8 = 1;

#[derive(Serialize, Deserialize)]
struct SecretRecord {
    v: u8,
    master: String,
    key: String,
    value: String,
    created: i64,
    set: i64,
    by: String,
}

/// Writes a secret. Its name and tenant are members of the document.
pub fn encode_secret(secret: &Secret) -> Result<Box<str>, Error> {
    let record = SecretRecord {
        v: FORM,
        master: secret.sealed.master.to_string(),
        key: STANDARD.encode(&secret.sealed.key),
        value: STANDARD.encode(&secret.sealed.value),
        created: millis(secret.created_at),
        set: millis(secret.set_at),
        by: secret.set_by.clone(),
    };
    let text = serde_json::to_string(&record).map_err(|error| damaged(format!("a secret: {error}")))?;
    Ok(text.into())
}

/// Reads a secret.
pub fn decode_secret(document: &Document) -> Result<Secret, Error> {
    let wrong = |what: String| damaged(format!("secret `{}`: {what}", document.name));
    let record: SecretRecord =
        serde_json::from_str(&document.body).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if record.v != FORM {
        return Err(wrong(format!("has form {}, which is not known", record.v)));
    }
    let bytes = |text: &str| STANDARD.decode(text).map_err(|_| wrong("what is sealed cannot be read".into()));
    Ok(Secret {
        sealed: Sealed {
            master: record.master.parse().map_err(|_| wrong("its master key has no id".into()))?,
            key: bytes(&record.key)?,
            value: bytes(&record.value)?,
        },
        created_at: timestamp(record.created)?,
        set_at: timestamp(record.set)?,
        set_by: record.by,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use jiff::Timestamp;
    use punctual_domain::TenantId;
    use punctual_domain::document::Kind;

    use super::*;

    fn document(body: &str) -> Document {
        Document {
            kind: Kind::Secret,
            tenant: TenantId::DEFAULT,
            name: "token".into(),
            version: 1,
            body: body.into(),
            updated_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn secret() -> Secret {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        Secret {
            sealed: Sealed {
                master: "00112233445566ff".parse().unwrap(),
                key: vec![1, 2, 3],
                value: vec![0, 255, 7],
            },
            created_at: at(5),
            set_at: at(9),
            set_by: "key 0000000000000001".into(),
        }
    }

    #[test]
    fn a_secret_reads_back() {
        assert_eq!(decode_secret(&document(&encode_secret(&secret()).unwrap())), Ok(secret()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let good = encode_secret(&secret()).unwrap();
        for body in [
            "{}".to_string(),
            good.replace(r#""v":1"#, r#""v":2"#),
            good.replace("00112233445566ff", "0011"),
            good.replace("AQID", "%%%%"),
        ] {
            let error = decode_secret(&document(&body)).unwrap_err().to_string();
            assert!(error.contains("secret `token`"), "{error}");
        }
    }
}
