//! Secrets of targets: set, listed, deleted, sealed anew. No answer has a value.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::page::Page;
use punctual_api::secret::{Secret, SecretSpec, SecretsRotated, UnreadableSecret};
use punctual_engine::Error as EngineError;
use punctual_engine::history::PageRequest;
use punctual_engine::secrets::{Listed, NewSecret};

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;

type Outcome = Result<Answer, Error>;

/// The name of a secret, as a place in their list.
struct After(String);

impl Cursor for After {
    const KIND: u8 = 9;

    fn to_bytes(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok().map(After)
    }
}

pub(crate) async fn list(mut call: Call) -> Outcome {
    let page = call.query.page::<After>();
    call.query.check()?;
    let page = PageRequest { after: page.after.map(|After(name)| name), limit: page.limit };
    let page = call.shared.engine.secrets(call.tenant, page).await?;
    let items: Vec<Secret> = page.items.iter().map(shown).collect();
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|name| After(name).encode()) }))
}

pub(crate) async fn get(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    let found = call.shared.engine.secret(call.tenant, &name).await?;
    Ok(versioned(Answer::ok(&shown(&found)), &found))
}

/// The same value again is sealed again: no key is needed to repeat it.
pub(crate) async fn put(call: Call, Path(name): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let value = SecretSpec::from_text(&text)?;
    let set_by = match call.caller.pass {
        Some(pass) => format!("key {}", pass.id),
        None => "this machine".into(),
    };
    let expected = call.expected()?.map(|version| u64::from(version.0));
    let new = NewSecret { name, value, set_by, expected };
    let (set, is_new) = match call.shared.engine.put_secret(call.tenant, new).await {
        // RFC 9110: what was to match is not there, so the condition is false.
        Err(EngineError::SecretNotFound(_)) => {
            return Err(EngineError::SecretChanged { expected: expected.unwrap_or(0), current: 0 }.into());
        }
        put => put?,
    };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(versioned(Answer::new(status, &shown(&set)), &set))
}

pub(crate) async fn delete(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    let expected = call.expected()?.map(|version| u64::from(version.0));
    call.shared.engine.delete_secret(call.tenant, &name, expected).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

pub(crate) async fn rotate(call: Call) -> Outcome {
    call.query.check()?;
    let done = call.shared.engine.rotate_secrets_key().await?;
    let example = |(name, reason)| UnreadableSecret { name, reason };
    Ok(Answer::ok(&SecretsRotated {
        master_key: done.master.to_string(),
        resealed: done.resealed as u64,
        already: done.already as u64,
        unreadable: done.unreadable as u64,
        examples: done.examples.into_iter().map(example).collect(),
    }))
}

fn versioned(answer: Answer, listed: &Listed) -> Answer {
    answer.version(u32::try_from(listed.version).unwrap_or(u32::MAX))
}

fn shown(listed: &Listed) -> Secret {
    Secret {
        name: listed.name.clone(),
        version: listed.version,
        created_at: listed.created_at,
        set_at: listed.set_at,
        set_by: listed.set_by.clone(),
        master_key: listed.master.to_string(),
    }
}
