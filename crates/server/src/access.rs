//! Who may do what: every route says which role it needs, and nothing is allowed that is not said.
//!
//! Runs before every handler. Promise: as soon as there is a key, whoever calls needs one, also from this machine; until then only this
//! machine is served, and only if the request was meant for it: a web page that makes a browser call us by another name, or from another
//! origin, is refused. Nothing here reads the store.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use jiff::Timestamp;
use punctual_domain::TenantName;
use punctual_domain::key::Malformed;
pub use punctual_domain::key::Role;
use punctual_engine::Engine;
use punctual_engine::keys::{self, Pass};

use crate::error::Error;
use crate::routes::Endpoint;
use crate::state::Shared;

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
    /// Whether a role is enough.
    pub fn met_by(self, role: Role) -> bool {
        match self {
            Needs::Nothing | Needs::Token => true,
            Needs::Viewer => role.covers(Role::Viewer),
            Needs::Operator => role.covers(Role::Operator),
            Needs::Worker => role.covers(Role::Worker),
            Needs::Admin => role.covers(Role::Admin),
        }
    }

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
    /// The key they showed.
    pub pass: Option<Pass>,
    /// When that ends.
    pub expires_at: Option<Timestamp>,
}

impl Caller {
    /// Somebody who showed no key.
    pub fn new(role: Role, tenant: Option<TenantName>) -> Self {
        Caller { role, tenant, pass: None, expires_at: None }
    }
}

/// Why a caller is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Nobody we know: a key would help.
    Unknown(String),
    /// The key is not good.
    Key(keys::Denied),
    /// The request may not come this way at all.
    Refused(String),
}

/// Says who calls.
pub trait Access: Send + Sync {
    /// The caller, by where the request comes from and what it says.
    fn caller(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Result<Caller, Denied>;

    /// Who looks at the console: by a session, where keys are needed.
    fn viewer(
        &self,
        peer: Option<SocketAddr>,
        headers: &HeaderMap,
        session: Option<&str>,
    ) -> Result<Caller, Denied> {
        let _ = session; // Whoever needs no key needs no session.
        self.caller(peer, headers)
    }

    /// A session for a caller who showed a key.
    fn begin(&self, caller: &Caller, until: Timestamp) -> Option<String> {
        let _ = (caller, until);
        None
    }
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
            _ => Ok(Caller::new(Role::Admin, None)),
        }
    }
}

/// Keys, as soon as there is one; until then whoever is on this machine.
#[derive(Clone)]
pub struct Keys(pub Engine);

impl Access for Keys {
    fn caller(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Result<Caller, Denied> {
        if !self.0.are_keys_needed().map_err(Denied::Key)? {
            return Loopback.caller(peer, headers);
        }
        self.0.admit_key(bearer(headers)?).map(Caller::from).map_err(Denied::Key)
    }

    fn viewer(
        &self,
        peer: Option<SocketAddr>,
        headers: &HeaderMap,
        session: Option<&str>,
    ) -> Result<Caller, Denied> {
        if !self.0.are_keys_needed().map_err(Denied::Key)? {
            return Loopback.caller(peer, headers);
        }
        let session = session.ok_or(Denied::Key(keys::Denied::Needed))?;
        self.0.admit_session(session).map(Caller::from).map_err(Denied::Key)
    }

    fn begin(&self, caller: &Caller, until: Timestamp) -> Option<String> {
        self.0.session(caller.pass.as_ref()?, until).ok()
    }
}

impl From<keys::Admitted> for Caller {
    fn from(admitted: keys::Admitted) -> Self {
        Caller {
            role: admitted.right.role,
            tenant: admitted.tenant,
            pass: Some(admitted.pass),
            expires_at: admitted.right.expires_at,
        }
    }
}

/// The key that a request shows.
fn bearer(headers: &HeaderMap) -> Result<&str, Denied> {
    let value = headers.get(AUTHORIZATION).ok_or_else(|| {
        Denied::Unknown(
            "a key is needed: send `Authorization: Bearer pk_...`; the CLI takes it from --key-file or PUNCTUAL_KEY"
                .into(),
        )
    })?;
    let text = value.to_str().unwrap_or("");
    match text.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => Ok(key.trim()),
        _ => Err(Denied::Key(Malformed.into())),
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
    let caller = match endpoint.needs {
        // Nobody is asked who they are; a token is a matter of the handler.
        Needs::Nothing | Needs::Token => Ok(Caller::new(Role::Viewer, None)),
        needs => shared
            .access
            .caller(peer, request.headers())
            .map_err(Error::from)
            .and_then(|caller| check(&caller, needs, endpoint).map(|()| caller)),
    };
    let caller = match caller {
        Ok(caller) => caller,
        Err(error) => return error.into_response(),
    };
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(endpoint);
    next.run(request).await
}

pub(crate) fn check(caller: &Caller, needs: Needs, endpoint: &Endpoint) -> Result<(), Error> {
    if !needs.met_by(caller.role) {
        let (role, needs) = (caller.role.as_str(), needs.as_str());
        return Err(Error::Forbidden(format!("this needs the role {needs}; the caller is {role}")));
    }
    match &caller.tenant {
        Some(own) if endpoint.is_for_all => Err(Error::Forbidden(format!(
            "this is about all tenants, and the key is for `{own}` alone; use one of all tenants"
        ))),
        _ => Ok(()),
    }
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown(reason) => Error::Unauthenticated(reason),
            Denied::Key(denied) => Error::Key(denied),
            Denied::Refused(reason) => Error::Forbidden(reason),
        }
    }
}
