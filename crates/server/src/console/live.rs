//! Says when a page has changed: a stream of events.
//!
//! Asked for by the script of a page. Promise: what is looked at is what the page itself reads, as often as [`EVERY`] and no more; a
//! stream ends after [`LONGEST`], with the caller's key, and when there are too many, and the page works without it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Path;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;
use crate::{alerts, dead_letters, jobs, nodes, operations, queues, runs, workers};

/// A person does not see more, and every look is a read of the store.
const EVERY: Duration = Duration::from_secs(2);

/// Looks until a stream ends; browsers ask for the next one by themselves.
const LONGEST: u32 = 300;

/// Streams of a node. More viewers see their pages without being told.
const STREAMS_MAX: usize = 256;

static STREAMS: AtomicUsize = AtomicUsize::new(0);

/// A place among the streams, given back when it is dropped.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let taken = STREAMS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            (count < STREAMS_MAX).then_some(count + 1)
        });
        taken.ok().map(|_| Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        STREAMS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a stream remembers.
struct Looking {
    call: Call,
    of: String,
    seen: Option<blake3::Hash>,
    looks: u32,
    _place: Place,
}

pub(crate) async fn stream(call: Call) -> Result<Response, Error> {
    let of = call.query.text("of").unwrap_or("").to_string();
    let seen = Some(look(&call, &of).await?); // What is not there is refused before anything streams.
    let Some(place) = Place::take() else {
        return Err(Error::NotStarted(
            "too many pages are open on this node; reload to see what is new".into(),
        ));
    };
    let looking = Looking { call, of, seen, looks: 0, _place: place };
    let events = stream::unfold(looking, next);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

async fn next(mut looking: Looking) -> Option<(Result<Event, Infallible>, Looking)> {
    while looking.looks < LONGEST {
        looking.looks += 1;
        tokio::select! {
            biased;
            () = tokio::time::sleep(EVERY) => {}
            _ = looking.call.shared.engine.denied(looking.call.caller.pass) => return None,
        }
        let seen = look(&looking.call, &looking.of).await.ok();
        if seen != looking.seen {
            looking.seen = seen;
            let word = if seen.is_some() { "changed" } else { "stale" };
            return Some((Ok(Event::default().event(word).data("1")), looking));
        }
    }
    None
}

/// What a page is about, as one number: another one means that it has changed.
async fn look(call: &Call, of: &str) -> Result<blake3::Hash, Error> {
    let newest = || call.asking(&[("limit", "50")]);
    let answers: Vec<Answer> = match of.split_once(':').unwrap_or((of, "")) {
        ("overview", _) => vec![runs::list(newest()).await?, alerts::alarms(newest()).await?],
        ("jobs", _) => vec![jobs::list(newest()).await?],
        ("job", id) => {
            let runs = runs::list_of_job(newest(), Path(id.to_string())).await?;
            vec![jobs::get(call.asking(&[]), Path(id.to_string())).await?, runs]
        }
        ("runs", _) => vec![runs::list(newest()).await?],
        ("run", id) => vec![runs::get(call.asking(&[]), Path(id.to_string())).await?],
        ("dead-letters", _) => vec![dead_letters::groups(call.asking(&[])).await?],
        ("queues", _) => vec![queues::list(call.asking(&[])).await?],
        ("workers", _) => vec![workers::list(call.asking(&[])).await?],
        ("alarms", _) => vec![alerts::alarms(newest()).await?],
        ("operations", _) => vec![operations::list(newest()).await?],
        ("nodes", _) if call.caller.role == crate::access::Role::Admin && call.caller.tenant.is_none() => {
            vec![nodes::list(call.asking(&[])).await?]
        }
        _ => return Err(Error::wrong("of", "unknown_value", "this is no page that changes by itself")),
    };
    let mut hasher = blake3::Hasher::new();
    for answer in &answers {
        hasher.update(answer.to_text().as_bytes());
    }
    Ok(hasher.finalize())
}
