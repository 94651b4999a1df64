//! A route as the table has it: its method, path and role, what it takes and what it gives.

use axum::routing::{MethodRouter, get};

use crate::access::Needs;
use crate::meta;
use crate::param::Param;
use crate::shape::{Shape, nothing};
use crate::state::Shared;

/// A route.
#[derive(Debug)]
pub struct Endpoint {
    /// The method.
    pub method: &'static str,
    /// The path, with `{name}` where a value goes.
    pub path: &'static str,
    /// Who may call it.
    pub needs: Needs,
    /// It is about all tenants: a key of one does not open it, whatever its role.
    pub is_for_all: bool,
    /// What it does.
    pub about: &'static str,
    /// What it is about has a version: `ETag`, `If-Match`.
    pub(crate) is_versioned: bool,
    pub(crate) query: &'static [Param],
    pub(crate) takes: Shape,
    pub(crate) gives: (u16, Shape),
    /// Another answer that is no refusal.
    pub(crate) or_gives: Option<(u16, Shape)>,
    pub(crate) handler: fn() -> MethodRouter<Shared>,
}

/// A route that takes and gives nothing, until it says otherwise.
pub(crate) const fn on(
    method: &'static str,
    path: &'static str,
    needs: Needs,
    about: &'static str,
) -> Endpoint {
    let handler: fn() -> MethodRouter<Shared> = || get(meta::no_such_route);
    Endpoint {
        method,
        path,
        needs,
        is_for_all: false,
        about,
        is_versioned: false,
        query: &[],
        takes: nothing(),
        gives: (204, nothing()),
        or_gives: None,
        handler,
    }
}

impl Endpoint {
    pub(crate) const fn for_all(self) -> Self {
        Endpoint { is_for_all: true, ..self }
    }

    pub(crate) const fn versioned(self) -> Self {
        Endpoint { is_versioned: true, ..self }
    }

    pub(crate) const fn query(self, query: &'static [Param]) -> Self {
        Endpoint { query, ..self }
    }

    pub(crate) const fn takes(self, takes: Shape) -> Self {
        Endpoint { takes, ..self }
    }

    pub(crate) const fn gives(self, status: u16, shape: Shape) -> Self {
        Endpoint { gives: (status, shape), ..self }
    }

    pub(crate) const fn or_gives(self, status: u16, shape: Shape) -> Self {
        Endpoint { or_gives: Some((status, shape)), ..self }
    }

    pub(crate) const fn by(self, handler: fn() -> MethodRouter<Shared>) -> Self {
        Endpoint { handler, ..self }
    }

    /// Whether whoever calls must show a key, as soon as there is one.
    pub fn needs_key(&self) -> bool {
        !matches!(self.needs, Needs::Nothing | Needs::Token)
    }

    /// What it is about: the first word of its path after the version.
    pub(crate) fn noun(&self) -> &'static str {
        match self.path.strip_prefix("/v1/").and_then(|rest| rest.split('/').next()) {
            Some("version" | "openapi.json") | None => "server",
            Some(noun) => noun,
        }
    }
}
