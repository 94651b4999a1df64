//! Who looks at a page, and what every page answers with.
//!
//! Runs before every page. Promise: nobody sees a page that the table of pages does not give to their role; a form is taken from our own
//! pages alone; whatever a page contains, the browser runs nothing but our script; a refusal is a page that says what is true and the way out.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    CONTENT_SECURITY_POLICY, COOKIE, HOST, ORIGIN, REFERRER_POLICY, SET_COOKIE, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use punctual_api::{Code, Problem, tenant};

use super::frame::{go, html};
use super::{assets, form, shown, sign};
use crate::access::{Caller, Needs, Role, check};
use crate::error::Error;
use crate::routes::Endpoint;
use crate::state::Shared;

/// The cookie that a session is in.
pub(crate) const SESSION: &str = "punctual_session";
/// The cookie of the tenant that is looked at.
pub(crate) const TENANT: &str = "punctual_tenant";
/// The cookie of the zone that times are shown in.
pub(crate) const ZONE: &str = "punctual_zone";

/// Everything from here, and nothing inline. Icons are a picture inside the style sheet.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) async fn gate(
    State((shared, page)): State<(Shared, &'static Endpoint)>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let has_session = session(headers).is_some();
    let view = shown::View::from_headers(headers, shared.engine.now());
    let to = request.uri().path_and_query().map(|path| path.as_str().to_string()).unwrap_or_default();
    let is_read = request.method() == Method::GET;
    let caller = match is_read || is_ours(headers) {
        true => caller(&shared, page, &request),
        false => Err(Error::Forbidden(
            "this form did not come from a page of this console; open the page again and send it from there"
                .into(),
        )),
    };
    let mut response = match caller {
        Ok(caller) => {
            name_tenant(&mut request, &caller);
            request.extensions_mut().insert(caller);
            request.extensions_mut().insert(page);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = refused(&problem, &view, (is_read, has_session), &to);
    }
    guard(response.headers_mut());
    response
}

fn caller(shared: &Shared, page: &'static Endpoint, request: &Request) -> Result<Caller, Error> {
    if page.needs == Needs::Nothing {
        return Ok(Caller::new(Role::Viewer, None));
    }
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let session = session(request.headers());
    let caller = shared.access.viewer(peer, request.headers(), session.as_deref())?;
    check(&caller, page.needs, page).map(|()| caller)
}

/// Whether a form comes from one of our own pages, as the browser says.
fn is_ours(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    match (text(ORIGIN.as_str()).and_then(|origin| origin.split_once("://")), text(HOST.as_str())) {
        (Some((_, from)), Some(host)) => from == host,
        _ => false,
    }
}

/// The value of a cookie.
pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    pairs.flat_map(|line| line.split(';')).find_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name && !value.is_empty()).then(|| value.to_string())
    })
}

/// The session that a browser shows.
pub(crate) fn session(headers: &HeaderMap) -> Option<String> {
    cookie(headers, SESSION)
}

/// The tenant that was chosen, for callers who may choose one.
fn name_tenant(request: &mut Request, caller: &Caller) {
    if caller.tenant.is_some() {
        request.headers_mut().remove(tenant::HEADER);
        return;
    }
    let chosen = cookie(request.headers(), TENANT).and_then(|name| HeaderValue::from_str(&name).ok());
    if let Some(chosen) = chosen {
        request.headers_mut().insert(tenant::HEADER, chosen);
    }
}

/// What keeps a page from doing what somebody wrote into a name.
fn guard(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // With `no-referrer` browsers would hide the origin of our own forms from us.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

#[derive(askama::Template)]
#[template(path = "refused.html")]
struct Refused<'a> {
    css: String,
    js: String,
    title: &'static str,
    problem: &'a Problem,
    is_outage: bool,
    is_signed_in: bool,
    now: shown::Moment,
}

/// A refusal as a page, or the way to the page that asks for a key.
fn refused(
    problem: &Problem,
    view: &shown::View,
    (is_read, has_session): (bool, bool),
    to: &str,
) -> Response {
    if problem.status == 401 && is_read && !to.starts_with("/console/live") {
        return go(&format!("/console/sign-in{}", form::query(&[("to", to)])));
    }
    let title = match problem.status {
        401 => "Sign in first",
        403 => "Not allowed",
        404 => "Not there",
        409 | 412 => "It has changed meanwhile",
        429 => "Too much waits already",
        503 => "The store does not answer",
        status if status >= 500 => "Something is wrong on our side",
        _ => "That is not right yet",
    };
    let page = Refused {
        css: assets::css(),
        js: assets::js(),
        title,
        problem,
        is_outage: problem.status == 503,
        is_signed_in: has_session,
        now: view.moment(view.now()),
    };
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match html(&page) {
        Ok(mut response) => {
            *response.status_mut() = status;
            // Whoever chose a tenant that is not there gets back to their own.
            if problem.code == Code::TenantNotFound.as_str() {
                response.headers_mut().append(SET_COOKIE, sign::cookie(TENANT, "", 0, false));
            }
            response
        }
        Err(_) => status.into_response(),
    }
}
