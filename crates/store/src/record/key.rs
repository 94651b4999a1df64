//! Keys of the API, as the bodies of their documents: hashes of secrets, never a secret.

use jiff::Timestamp;
use punctual_domain::key::{Key, Right, Role, Secret};
use punctual_domain::{Document, TenantId};
use serde::{Deserialize, Serialize};

use super::{damaged, millis, timestamp};
use crate::error::Error;

/// Raised when a field changes its meaning; adding one does not need it.
const FORM: u8 = 1;

#[derive(Serialize, Deserialize)]
struct KeyRecord {
    v: u8,
    name: String,
    role: String,
    secrets: Vec<SecretRecord>,
    created: i64,
    by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct SecretRecord {
    hash: String,
    since: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct UseRecord {
    at: i64,
}

/// Writes a key. Its id and tenant are members of the document.
pub fn encode_key(key: &Key) -> Result<Box<str>, Error> {
    let secret = |secret: &Secret| SecretRecord {
        hash: secret.hash.to_string(),
        since: millis(secret.since),
        until: secret.until.map(millis),
    };
    let record = KeyRecord {
        v: FORM,
        name: key.name.clone(),
        role: key.right.role.as_str().into(),
        secrets: key.secrets.iter().map(secret).collect(),
        created: millis(key.created_at),
        by: key.created_by.clone(),
        expires: key.right.expires_at.map(millis),
        revoked: key.revoked_at.map(millis),
    };
    let text = serde_json::to_string(&record).map_err(|error| damaged(format!("a key: {error}")))?;
    Ok(text.into())
}

/// Reads a key.
pub fn decode_key(document: &Document) -> Result<Key, Error> {
    let wrong = |what: String| damaged(format!("key `{}`: {what}", document.name));
    let record: KeyRecord =
        serde_json::from_str(&document.body).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if record.v != FORM {
        return Err(wrong(format!("has form {}, which is not known", record.v)));
    }
    let secret = |secret: SecretRecord| -> Result<Secret, Error> {
        Ok(Secret {
            hash: secret.hash.parse().map_err(|_| wrong("a hash cannot be read".into()))?,
            since: timestamp(secret.since)?,
            until: secret.until.map(timestamp).transpose()?,
        })
    };
    Ok(Key {
        id: document.name.parse().map_err(|_| wrong("this is no id".into()))?,
        name: record.name,
        right: Right {
            role: Role::of(&record.role).ok_or_else(|| wrong(format!("unknown role `{}`", record.role)))?,
            tenant: Some(document.tenant).filter(|tenant| *tenant != TenantId::NOBODY),
            expires_at: record.expires.map(timestamp).transpose()?,
        },
        secrets: record.secrets.into_iter().map(secret).collect::<Result<_, Error>>()?,
        created_at: timestamp(record.created)?,
        created_by: record.by,
        revoked_at: record.revoked.map(timestamp).transpose()?,
    })
}

/// Writes when a key was last used.
pub fn encode_key_use(at: Timestamp) -> Result<Box<str>, Error> {
    let text = serde_json::to_string(&UseRecord { at: millis(at) });
    Ok(text.map_err(|error| damaged(format!("the use of a key: {error}")))?.into())
}

/// Reads when a key was last used.
pub fn decode_key_use(document: &Document) -> Result<Timestamp, Error> {
    let record: UseRecord = serde_json::from_str(&document.body)
        .map_err(|error| damaged(format!("the use of key `{}`: cannot be read: {error}", document.name)))?;
    timestamp(record.at)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use punctual_domain::document::Kind;
    use punctual_domain::key::{KeyId, Seal, Shown};

    use super::*;

    fn document(tenant: TenantId, name: &str, body: &str) -> Document {
        let (kind, name) = (Kind::Key, name.to_string());
        Document { kind, tenant, name, version: 1, body: body.into(), updated_at: Timestamp::UNIX_EPOCH }
    }

    fn key(tenant: Option<TenantId>) -> Key {
        let (id, at) = (KeyId::new(0xa1), |ms| Timestamp::from_millisecond(ms).unwrap());
        let secret = |n, until: Option<i64>| Secret {
            hash: Seal::new([3; 32]).hash(&Shown::new(id, [n; 32])),
            since: at(5),
            until: until.map(at),
        };
        Key {
            id,
            name: "CI of the shop".into(),
            right: Right { role: Role::Worker, tenant, expires_at: Some(at(900)) },
            secrets: vec![secret(2, None), secret(1, Some(77))],
            created_at: at(5),
            created_by: "key 0000000000000001".into(),
            revoked_at: Some(at(60)),
        }
    }

    #[test]
    fn a_key_reads_back_and_its_document_says_whose_it_is() {
        for tenant in [None, Some(TenantId::DEFAULT)] {
            let (key, place) = (key(tenant), tenant.unwrap_or(TenantId::NOBODY));
            let stored = document(place, &key.id.to_string(), &encode_key(&key).unwrap());
            assert_eq!(decode_key(&stored), Ok(key));
        }
        let at = Timestamp::from_millisecond(12_345).unwrap();
        let used = document(TenantId::NOBODY, "x", &encode_key_use(at).unwrap());
        assert_eq!(decode_key_use(&used), Ok(at));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_opens_nothing() {
        let good = encode_key(&key(None)).unwrap();
        for (name, body) in [
            ("00000000000000a1", "{}".to_string()),
            ("00000000000000a1", good.replace(r#""v":1"#, r#""v":2"#)),
            ("00000000000000a1", good.replace("worker", "owner")),
            ("ci", good.to_string()),
        ] {
            let error = decode_key(&document(TenantId::NOBODY, name, &body)).unwrap_err().to_string();
            assert!(error.contains(&format!("key `{name}`")), "{error}");
        }
    }
}
