//! What every page has around it: title, navigation, who looks, where the same data is.

use askama::Template;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode};

use super::{assets, gate, shown};
use crate::access::{Needs, Role};
use crate::call::Call;
use crate::error::Error;

/// The frame of a page.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) title: String,
    /// The word in the navigation that is current.
    pub(crate) section: &'static str,
    pub(crate) css: String,
    pub(crate) js: String,
    pub(crate) tenant: String,
    pub(crate) zone: String,
    pub(crate) role: &'static str,
    pub(crate) can_operate: bool,
    pub(crate) can_administer: bool,
    /// Whether the caller may see what is about all tenants.
    pub(crate) is_of_all: bool,
    pub(crate) has_session: bool,
    /// The command that does the same.
    pub(crate) cli: String,
    /// The same data in the API.
    pub(crate) api: String,
    /// What the page asks to be told of; empty, if it stays as it is.
    pub(crate) live: String,
    /// What was just done, in words.
    pub(crate) done: &'static str,
    pub(crate) now: shown::Moment,
}

impl Frame {
    /// The frame of a page in a section of the navigation.
    pub(crate) fn new(call: &Call, section: &'static str, title: impl Into<String>) -> Self {
        let view = shown::View::of(call);
        let role = call.caller.role;
        Frame {
            title: title.into(),
            section,
            css: assets::css(),
            js: assets::js(),
            tenant: call.tenant_name.to_string(),
            zone: view.zone_name().to_string(),
            role: role.as_str(),
            can_operate: Needs::Operator.met_by(role),
            can_administer: role == Role::Admin,
            is_of_all: role == Role::Admin && call.caller.tenant.is_none(),
            has_session: gate::session(&call.headers).is_some() && call.caller.pass.is_some(),
            cli: String::new(),
            api: String::new(),
            live: String::new(),
            done: done(call.query.text("done").unwrap_or("")),
            now: view.moment(call.shared.engine.now()),
        }
    }

    /// Where the same data is for programs.
    pub(crate) fn same(self, cli: impl Into<String>, api: impl Into<String>) -> Self {
        Frame { cli: cli.into(), api: api.into(), ..self }
    }

    /// What the page asks to be told of.
    pub(crate) fn live(self, of: impl Into<String>) -> Self {
        Frame { live: of.into(), ..self }
    }
}

/// What was done, by the word that is in the address: never text of somebody else.
fn done(word: &str) -> &'static str {
    match word {
        "created" => "The job is registered.",
        "saved" => "The job is changed, from its next slot on.",
        "paused" => "The job is paused.",
        "resumed" => "The job is active again.",
        "triggered" => "The run is on its way.",
        "deleted" => "The job is deleted. Its history stays until it expires.",
        "cancelled" => "The run is cancelled, or asked to stop.",
        "redriven" => "The run goes on with its next attempt.",
        "acknowledged" => "Acknowledged: it is no dead letter any more.",
        "answered" => "The answer is recorded.",
        "started" => "Started as an operation; it goes on if you leave.",
        "revoked" => "The key is revoked, within a second on every node.",
        _ => "",
    }
}

/// A page, written.
pub(crate) fn html(page: &impl Template) -> Result<Response, Error> {
    let text = page.render().map_err(|error| Error::Unwritten(error.to_string()))?;
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))], text).into_response())
}

/// Goes to another page, by `GET`.
pub(crate) fn go(to: &str) -> Response {
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static(super::HOME));
    (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response()
}
