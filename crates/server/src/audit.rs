//! The audit: for whom a handler acts, how things are shown in it, and how it is read.
//!
//! A handler that changes something does so by [`Call::acting`], so that its entry is made where the change is decided.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::channel::{Channel, Sender};
use punctual_api::alert::Alert;
use punctual_api::audit::{AuditEntry, JobVersion, covered, version_of};
use punctual_api::breaker::Breaker;
use punctual_api::calendar::CalendarSpec;
use punctual_api::job::{Facts, Job};
use punctual_api::key::Key;
use punctual_api::limit::Limit;
use punctual_api::operation::Operation;
use punctual_api::page::Page;
use punctual_api::tenant;
use punctual_domain::TenantId;
use punctual_domain::audit::{Deed, Entry, EntryId, Filter, Who};
use punctual_domain::job::JobState;
use punctual_engine::Engine;
use punctual_engine::audit::{Act, Show, Thing, versions};
use punctual_engine::history::PageRequest;
use serde::Serialize;

use crate::answer::Answer;
use crate::call::Call;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::jobs::job_id;
use crate::runs::named_tenant;
use crate::state::Shared;

/// What an export looks like.
const NDJSON: &str = "application/x-ndjson";

/// Entries that an export reads at a time.
const EXPORTED: usize = 500;

/// Shows things in the words of the API, to whoever reads the audit later.
struct Shown {
    shared: Shared,
    /// Whose request it is.
    tenant: Arc<str>,
}

impl Show for Shown {
    fn show(&self, thing: Thing<'_>) -> Option<Box<str>> {
        let name = |of: Option<TenantId>| of.and_then(|tenant| self.shared.known_name(tenant));
        let text = match thing {
            Thing::Job(job) => json(&Job::new(job, Facts { tenant: &self.tenant, ..Facts::default() })),
            Thing::Calendar(calendar) => json(&CalendarSpec::from(calendar)),
            Thing::Alert(alert) => json(&Alert::from(alert)),
            Thing::Defaults(text) => Some(text.to_string()),
            Thing::Key(key) => {
                json(&Key::new(key, name(key.right.tenant).as_deref(), None, self.shared.engine.now()))
            }
            Thing::Limit(rule) => json(&Limit::new(rule, name(rule.tenant).as_deref())),
            Thing::Breaker(breaker) => json(&Breaker::from(breaker)),
            Thing::Operation(operation) => json(&Operation::from(operation)),
        };
        text.map(|text| covered(&text).into())
    }
}

fn json(thing: &impl Serialize) -> Option<String> {
    serde_json::to_string(thing).ok()
}

impl Call {
    /// The engine, acting for whoever calls.
    pub(crate) fn acting(&self) -> Engine {
        let engine = &self.shared.engine;
        let who = match self.caller.pass {
            Some(pass) => {
                let name = engine.key_name(pass.id).unwrap_or_default();
                Who { key: Some(pass.id.to_string().into()), name: name.into() }
            }
            None => Who::loopback(),
        };
        engine.acting(Act {
            who,
            from: self.peer.map(|peer| peer.ip().to_canonical().to_string().into()),
            request_id: self.request_id.as_ref().and_then(|id| id.to_str().ok()).map(Into::into),
            show: Arc::new(self.shown()),
        })
    }

    fn shown(&self) -> Shown {
        Shown { shared: self.shared.clone(), tenant: Arc::clone(&self.tenant_name) }
    }

    /// Writes an entry about many jobs at once.
    pub(crate) async fn note_jobs(
        &self,
        action: &'static str,
        after: &(impl Serialize + Sync),
    ) -> Result<(), Error> {
        let deed = Deed {
            tenant: self.tenant,
            kind: "jobs",
            subject: "".into(),
            action,
            before: None,
            after: json(after).map(Into::into),
        };
        Ok(self.acting().note_deed(deed).await?)
    }
}

impl Cursor for EntryId {
    const KIND: u8 = 8;

    fn to_bytes(&self) -> Vec<u8> {
        [self.at.to_be_bytes(), self.number.to_be_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (at, number) = bytes.split_at_checked(8)?;
        let at = i64::from_be_bytes(at.try_into().ok()?);
        Some(EntryId { at, number: i64::from_be_bytes(number.try_into().ok()?) })
    }
}

pub(crate) async fn list(mut call: Call) -> Result<Response, Error> {
    let named = call.query.text("tenant").map(str::to_string);
    let (from, to) = (call.query.time("from"), call.query.time("to"));
    let word = |name: &str| call.query.text(name).map(Into::into);
    let filter = Filter {
        tenant: None,
        from,
        to,
        who: word("who"),
        action: word("action"),
        kind: word("kind"),
        subject: word("subject"),
    };
    let page = call.query.page::<EntryId>();
    call.query.check()?;
    let tenant = match named {
        Some(name) => named_tenant(&call, &name).await?,
        // What the request is for: the tenant that it names, or all that the caller may name.
        None if call.headers.contains_key(tenant::HEADER) => Some(call.tenant),
        None => call.caller.tenant.as_ref().map(|_| call.tenant),
    };
    let filter = Filter { tenant, ..filter };
    let accepts = call.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accepts.contains(NDJSON) {
        return export(&call, filter, page.after).await;
    }
    let page = call.shared.engine.audit(&filter, page).await?;
    let items = shown(&call.shared, &page.items).await?;
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }).into_response())
}

async fn shown(shared: &Shared, entries: &[Entry]) -> Result<Vec<AuditEntry>, Error> {
    let mut items = Vec::with_capacity(entries.len());
    for entry in entries {
        let tenant = match entry.tenant {
            TenantId::NOBODY => None,
            tenant => Some(shared.tenant_name(tenant).await?),
        };
        items.push(AuditEntry::new(entry, tenant.as_deref()));
    }
    Ok(items)
}

/// All entries, one a line, newest first. A stream that ends before the last one is broken off, so that nobody takes it for whole.
async fn export(call: &Call, filter: Filter, after: Option<EntryId>) -> Result<Response, Error> {
    let first = lines(&call.shared, &filter, after).await?;
    let (mut sender, channel) = Channel::<Bytes, std::io::Error>::new(4);
    let shared = call.shared.clone();
    tokio::spawn(async move {
        let mut next = Ok(first);
        loop {
            match next {
                Ok((text, after)) => {
                    if send(&mut sender, text).await.is_none() || after.is_none() {
                        return;
                    }
                    next = lines(&shared, &filter, after).await;
                }
                Err(error) => {
                    sender.abort(std::io::Error::other(error.problem().detail));
                    return;
                }
            }
        }
    });
    let mut response = Response::new(Body::new(channel));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    Ok(response)
}

async fn send(sender: &mut Sender<Bytes, std::io::Error>, text: String) -> Option<()> {
    match text.is_empty() {
        true => Some(()),
        false => sender.send_data(text.into()).await.ok(),
    }
}

async fn lines(
    shared: &Shared,
    filter: &Filter,
    after: Option<EntryId>,
) -> Result<(String, Option<EntryId>), Error> {
    let page = shared.engine.audit(filter, PageRequest { after, limit: EXPORTED }).await?;
    let mut text = String::new();
    for entry in shown(shared, &page.items).await? {
        text.extend(json(&entry));
        text.push('\n');
    }
    Ok((text, page.next))
}

/// The versions of a job, newest first: what the audit tells, and what it does not tell in between.
pub(crate) async fn job_versions(mut call: Call, Path(id): Path<String>) -> Result<Answer, Error> {
    let page = call.query.page::<EntryId>();
    call.query.check()?;
    let (engine, id, is_first) = (&call.shared.engine, job_id(&id)?, page.after.is_none());
    let found = engine.kept_job(call.tenant, id).await;
    let page = engine.job_audit(call.tenant, id, page).await?;
    let job = match found {
        Ok(job) => Some(job),
        // It is forgotten, and what was done to it is not.
        Err(_) if !page.items.is_empty() || !is_first => None,
        Err(error) => return Err(error.into()),
    };
    let newest = job
        .filter(|job| is_first && job.state != JobState::Deleted)
        .and_then(|job| Some((job.version, call.shown().show(Thing::Job(&job))?)));
    let told = versions(page.items, newest, page.next.is_none(), version_of);
    let items: Vec<JobVersion> =
        told.iter().map(|one| JobVersion::new(one.job.as_deref(), one.entry.as_ref())).collect();
    Ok(Answer::ok(&Page { items, next_cursor: page.next.map(|next| next.encode()) }))
}
