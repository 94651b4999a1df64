//! Alerts and alarms: put, read, listed, deleted.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::alert::{Alarm, Alert, AlertSpec};
use punctual_api::page::Page;
use punctual_api::read;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;

type Outcome = Result<Answer, Error>;

/// All of them at once: people write them, they are few.
pub(crate) async fn list(call: Call) -> Outcome {
    call.query.check()?;
    let alerts = call.shared.engine.alerts(call.tenant).await?;
    Ok(Answer::ok(&Page { items: alerts.iter().map(Alert::from).collect(), next_cursor: None }))
}

pub(crate) async fn get(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    Ok(Answer::ok(&Alert::from(&call.shared.engine.alert(call.tenant, &name).await?)))
}

/// The same alert again is the same alert: no key is needed to repeat it.
pub(crate) async fn put(call: Call, Path(name): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let spec: AlertSpec = read::read(&text)?;
    let (shared, now) = (&call.shared, call.shared.engine.now());
    let alert = spec.to_domain(&name, call.tenant, shared.has_mail, &shared.rules(), now)?;
    let is_new = call.acting().put_alert(&alert).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(Answer::new(status, &Alert::from(&alert)))
}

pub(crate) async fn delete(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    match call.acting().delete_alert(call.tenant, &name).await? {
        true => Ok(Answer::empty(StatusCode::NO_CONTENT)),
        false => Err(Error::Engine(punctual_engine::Error::AlertNotFound(name.chars().take(64).collect()))),
    }
}

/// Where the list of alarms goes on: after the document of this name.
struct After(String);

impl Cursor for After {
    const KIND: u8 = 5;

    fn to_bytes(&self) -> Vec<u8> {
        self.0.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok().map(After)
    }
}

/// What is raised now, by alert and subject.
pub(crate) async fn alarms(mut call: Call) -> Outcome {
    let page = call.query.page::<After>();
    call.query.check()?;
    let after = page.after.map(|after| after.0);
    let alarms = call.shared.engine.alarms(call.tenant, after, page.limit).await?;
    let next =
        alarms.last().filter(|_| alarms.len() == page.limit).map(|last| After(last.document()).encode());
    Ok(Answer::ok(&Page { items: alarms.iter().map(Alarm::from).collect(), next_cursor: next }))
}
