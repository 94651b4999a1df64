//! Named calendars of a tenant: put, read, listed, deleted.

use axum::extract::Path;
use http::StatusCode;
use punctual_api::calendar::{Calendar, CalendarSpec};
use punctual_api::page::Page;
use punctual_domain::calendar::Named;
use punctual_engine::Error as EngineError;

use crate::answer::Answer;
use crate::call::{Call, Text};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::jobs::shorten;

type Outcome = Result<Answer, Error>;

/// The name of a calendar, as a place in their list.
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

pub(crate) async fn list(mut call: Call) -> Outcome {
    let page = call.query.page::<After>();
    call.query.check()?;
    let page = punctual_engine::history::PageRequest {
        after: page.after.map(|After(name)| name),
        limit: page.limit,
    };
    let page = call.shared.engine.calendars(call.tenant, page).await?;
    let items: Vec<Calendar> = page.items.iter().map(Calendar::from).collect();
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|name| After(name).encode()) }))
}

pub(crate) async fn get(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    let named = call.shared.engine.calendar(call.tenant, &name).await.map_err(|error| short(error, &name))?;
    if call.if_none_match(&format!("\"{}\"", named.version)) {
        return Ok(versioned(Answer::empty(StatusCode::NOT_MODIFIED), &named));
    }
    Ok(versioned(Answer::ok(&Calendar::from(&named)), &named))
}

/// The same calendar again is the same calendar: no key is needed to repeat it.
pub(crate) async fn put(call: Call, Path(name): Path<String>, Text(text): Text) -> Outcome {
    call.query.check()?;
    let engine = &call.shared.engine;
    let calendar = CalendarSpec::from_text(&text)?.to_domain(&name, engine.tzdb())?;
    if call.if_none_match("*") && engine.calendar(call.tenant, &name).await.is_ok() {
        return Err(Error::CalendarThere(shorten(&name)));
    }
    let expected = call.expected()?.map(|version| u64::from(version.0));
    let put = match call.acting().put_calendar(call.tenant, &name, expected, calendar).await {
        // RFC 9110: what was to match is not there, so the condition is false.
        Err(EngineError::CalendarNotFound(_)) => return Err(Error::NoCalendarThere(shorten(&name))),
        put => put?,
    };
    let status = if put.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let operation_id = put.operation.map(|operation| operation.id.to_string());
    let shown = Calendar { operation_id, ..Calendar::from(&put.calendar) };
    Ok(versioned(Answer::new(status, &shown), &put.calendar))
}

pub(crate) async fn delete(call: Call, Path(name): Path<String>) -> Outcome {
    call.query.check()?;
    let expected = call.expected()?.map(|version| u64::from(version.0));
    let deleted = call.acting().delete_calendar(call.tenant, &name, expected).await;
    deleted.map_err(|error| short(error, &name))?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

fn versioned(answer: Answer, named: &Named) -> Answer {
    answer.version(u32::try_from(named.version).unwrap_or(u32::MAX))
}

/// A name in a path may be anything; only some of it is told back.
fn short(error: EngineError, name: &str) -> Error {
    match error {
        EngineError::CalendarNotFound(_) => EngineError::CalendarNotFound(shorten(name)).into(),
        error => error.into(),
    }
}
