//! Who may do what: every route says which role it needs, and nothing is allowed that is not said.
//!
//! Runs before every handler. Promise: without keys only this machine is served, and only if the request was meant
//! for it: a web page that makes a browser call us by another name, or from another origin, is refused.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use punctual_domain::TenantName;

use crate::error::Error;
use crate::routes::Endpoint;
use crate::state::Shared;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Registers and changes jobs, and handles runs.
    Operator,
    /// Reads.
    Viewer,
    /// Takes and reports runs.
    Worker,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 4] = [Role::Admin, Role::Operator, Role::Viewer, Role::Worker];

    /// The word, as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Viewer => "viewer",
            Role::Worker => "worker",
        }
    }

    /// Whether the role is enough.
    pub fn may(self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing | Needs::Token => true,
            Needs::Viewer => matches!(self, Role::Admin | Role::Operator | Role::Viewer),
            Needs::Operator => matches!(self, Role::Admin | Role::Operator),
            Needs::Worker => matches!(self, Role::Admin | Role::Operator | Role::Worker),
            Needs::Admin => matches!(self, Role::Admin),
        }
    }
}

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Open to all: probes.
    Nothing,
    /// A token that was given out for what is asked for, which the handler checks: whoever has it needs no key.
    Token,
    /// At least viewer.
    Viewer,
    /// At least operator.
    Operator,
    /// A worker, or at least operator.
    Worker,
    /// Admin.
    Admin,
}

impl Needs {
    /// The word, as in the OpenAPI document.
    pub fn as_str(self) -> &'static str {
        match self {
            Needs::Nothing => "none",
            Needs::Token => "token",
            Needs::Viewer => "viewer",
            Needs::Operator => "operator",
            Needs::Worker => "worker",
            Needs::Admin => "admin",
        }
    }
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What they may do.
    pub role: Role,
    /// The only tenant they may name; any, if none.
    pub tenant: Option<TenantName>,
}

/// Why a caller is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Nobody we know: a key would help.
    Unknown(String),
    /// The request may not come this way at all.
    Refused(String),
}

/// Says who calls.
pub trait Access: Send + Sync {
    /// The caller, by where the request comes from and what it says.
    fn caller(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Result<Caller, Denied>;
}

/// No keys: whoever is on this machine is admin.
///
/// The server must be served with `into_make_service_with_connect_info::<SocketAddr>()`; a request whose origin is
/// not known is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loopback;

impl Access for Loopback {
    fn caller(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Result<Caller, Denied> {
        if !peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
            return Err(Denied::Unknown(
                "without keys only this machine is served; create a key first".into(),
            ));
        }
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let host = text(HOST).unwrap_or("");
        if !is_loopback(host) {
            return Err(Denied::Refused(format!(
                "the request was meant for `{}`, not for this machine; call 127.0.0.1 or localhost",
                shown(host)
            )));
        }
        match text(ORIGIN) {
            Some(origin) if origin.split_once("://").map(|(_, from)| from) != Some(host) => {
                Err(Denied::Refused(format!("a page of `{}` may not call this server", shown(origin))))
            }
            _ => Ok(Caller { role: Role::Admin, tenant: None }),
        }
    }
}

/// Whether a `Host` names this machine, whatever the port.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Lets a request through to its handler, or not.
pub(crate) async fn gate(
    axum::extract::State((shared, endpoint)): axum::extract::State<(Shared, &'static Endpoint)>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let caller = match shared.access.caller(peer, request.headers()) {
        Ok(caller) if caller.role.may(endpoint.needs) => caller,
        _ if matches!(endpoint.needs, Needs::Nothing | Needs::Token) => {
            Caller { role: Role::Viewer, tenant: None }
        }
        Ok(caller) => {
            let (role, needs) = (caller.role.as_str(), endpoint.needs.as_str());
            return Error::Forbidden(format!("this needs the role {needs}; the caller is {role}"))
                .into_response();
        }
        Err(Denied::Unknown(reason)) => return Error::Unauthenticated(reason).into_response(),
        Err(Denied::Refused(reason)) => return Error::Forbidden(reason).into_response(),
    };
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(endpoint);
    next.run(request).await
}
