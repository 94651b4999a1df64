//! Signing in and out, and what a viewer chose to look at.

use std::net::SocketAddr;

use askama::Template;
use axum::extract::{ConnectInfo, FromRequest, Request, State};
use axum::response::Response;
use http::header::{AUTHORIZATION, HOST, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use jiff::SignedDuration;

use super::form::Form;
use super::frame::{go, html};
use super::{HOME, assets, gate};
use crate::call::{Call, Text};
use crate::error::Error;
use crate::jobs::shorten;
use crate::state::Shared;

/// How long a session is good: a working day. Its key may end it sooner.
const SESSION: SignedDuration = SignedDuration::from_hours(12);

/// Browsers forget what was chosen after a year.
const CHOSEN_SECS: i64 = 365 * 24 * 3600;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    css: String,
    js: String,
    to: String,
    wrong: String,
}

pub(crate) async fn home() -> Response {
    go(HOME)
}

pub(crate) async fn nothing(call: Call) -> Result<Response, Error> {
    Err(Error::RouteNotFound(shorten(call.uri().path())))
}

pub(crate) async fn page(request: Request) -> Result<Response, Error> {
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    let pairs = pairs.map(|pairs| pairs.0).unwrap_or_default();
    let to = pairs.iter().find(|(name, _)| name == "to").map_or("", |(_, to)| to);
    html(&SignIn { css: assets::css(), js: assets::js(), to: inside(to).into(), wrong: String::new() })
}

pub(crate) async fn sign_in(State(shared): State<Shared>, request: Request) -> Result<Response, Error> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let headers = request.headers().clone();
    let Text(text) = Text::from_request(request, &shared).await?;
    let form = Form::read(&text)?;
    let to = inside(form.text("to"));
    let mut showing = HeaderMap::new();
    if let Some(host) = headers.get(HOST) {
        showing.insert(HOST, host.clone());
    }
    let Ok(value) = HeaderValue::from_str(&format!("Bearer {}", form.text("key"))) else {
        return wrong(
            to,
            "This is no key. A key begins with pk_ and was shown once, when it was made.".into(),
        );
    };
    showing.insert(AUTHORIZATION, value);
    let caller = match shared.access.caller(peer, &showing) {
        Ok(caller) => caller,
        Err(denied) => return wrong(to, Error::from(denied).problem().detail),
    };
    let ends = shared.engine.now() + SESSION;
    let until = caller.expires_at.map_or(ends, |expires| expires.min(ends));
    let mut response = go(to);
    // Without keys there is nothing to remember.
    if let Some(session) = shared.access.begin(&caller, until) {
        let cookie = cookie(gate::SESSION, &session, SESSION.as_secs(), is_secure(&headers));
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

fn wrong(to: &str, wrong: String) -> Result<Response, Error> {
    let page = SignIn { css: assets::css(), js: assets::js(), to: to.into(), wrong };
    let mut response = html(&page)?;
    *response.status_mut() = http::StatusCode::UNAUTHORIZED;
    Ok(response)
}

pub(crate) async fn sign_out(headers: HeaderMap) -> Response {
    let mut response = go("/console/sign-in");
    for name in [gate::SESSION, gate::TENANT] {
        response.headers_mut().append(SET_COOKIE, cookie(name, "", 0, is_secure(&headers)));
    }
    response
}

/// Remembers which tenant is looked at, and in which zone, if they exist.
pub(crate) async fn look(call: Call, Text(text): Text) -> Result<Response, Error> {
    let form = Form::read(&text)?;
    let mut response = go(inside(form.text("to")));
    if let Some(name) = form.given("tenant") {
        if crate::runs::named_tenant(&call, name).await?.is_none() {
            return Err(Error::wrong(
                "tenant",
                "unknown_value",
                "choose one tenant; a page shows one at a time",
            ));
        }
        let chosen = cookie(gate::TENANT, name, CHOSEN_SECS, is_secure(&call.headers));
        response.headers_mut().append(SET_COOKIE, chosen);
    }
    if let Some(zone) = form.given("zone") {
        if jiff::tz::TimeZone::get(zone).is_err() {
            let detail =
                format!("there is no zone `{}`; write an IANA name such as Europe/Paris", shorten(zone));
            return Err(Error::wrong("zone", "timezone", detail));
        }
        let chosen = cookie(gate::ZONE, zone, CHOSEN_SECS, is_secure(&call.headers));
        response.headers_mut().append(SET_COOKIE, chosen);
    }
    Ok(response)
}

/// A cookie that only we read, and only from our own pages.
pub(crate) fn cookie(name: &str, value: &str, max_age: i64, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path={HOME}; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// Whether the browser came over TLS: it says so in the origin of its form.
fn is_secure(headers: &HeaderMap) -> bool {
    headers.get(http::header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// A path of the console; anything else would send people elsewhere.
fn inside(to: &str) -> &str {
    let is_ours = to == HOME || to.starts_with("/console/") || to.starts_with("/console?");
    let is_plain = to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_ours && is_plain && !to.starts_with("/console/sign-") { to } else { HOME }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere_after_signing_in() {
        for to in ["/console", "/console/jobs?name=a", "/console/runs/x"] {
            assert_eq!(inside(to), to);
        }
        for to in [
            "",
            "//evil.example",
            "https://evil.example/console/",
            "/v1/jobs",
            "/consolex",
            "/console/\\x",
            "/console/sign-out",
        ] {
            assert_eq!(inside(to), HOME, "{to}");
        }
    }
}
