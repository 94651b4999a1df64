//! `fields=`: of what is read, only the fields that were asked for.
//!
//! Runs in the gate, after the handler of a `GET`. Promise: the fields come in their usual order and with their usual values; a list keeps
//! its `next_cursor`; a refusal is told whole. Which fields there are is read from the same schema that the OpenAPI document has.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::OnceLock;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{StatusCode, Uri};
use http_body_util::BodyExt;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::ArrayItems;
use utoipa::openapi::{RefOr, Schema};

use crate::access::Needs;
use crate::endpoint::Endpoint;
use crate::routes::TABLE;

/// The name of the parameter.
pub(crate) const NAME: &str = "fields";

/// The fields of what a route gives, in the order of the alphabet; none if they cannot be chosen.
pub(crate) fn known(endpoint: &Endpoint) -> &'static [String] {
    static KNOWN: OnceLock<HashMap<&'static str, Vec<String>>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        TABLE.iter().filter(|endpoint| has(endpoint)).map(|endpoint| (endpoint.path, of(endpoint))).collect()
    });
    match endpoint.method {
        "GET" => known.get(endpoint.path).map_or(&[][..], Vec::as_slice),
        _ => &[],
    }
}

/// What is read, and says who may: not what the server says about itself.
fn has(endpoint: &Endpoint) -> bool {
    endpoint.method == "GET" && endpoint.needs != Needs::Nothing && endpoint.gives.1.is_named()
}

fn of(endpoint: &Endpoint) -> Vec<String> {
    let shape = endpoint.gives.1;
    let schemas: BTreeMap<String, RefOr<Schema>> = shape.schemas().into_iter().collect();
    let mut names = Vec::new();
    if let Some(schema) = shape.name().and_then(|name| schemas.get(&name)) {
        match shape.is_page() {
            true => {
                if let Some(item) = item_of(schema) {
                    collect(item, &schemas, &mut names);
                }
            }
            false => collect(schema, &schemas, &mut names),
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// What a page has of.
fn item_of(page: &RefOr<Schema>) -> Option<&RefOr<Schema>> {
    let RefOr::T(Schema::Object(page)) = page else { return None };
    match page.properties.get("items")? {
        RefOr::T(Schema::Array(items)) => match &items.items {
            ArrayItems::RefOrSchema(item) => Some(item.as_ref()),
            ArrayItems::False => None,
        },
        _ => None,
    }
}

/// The names of the fields of a schema, also of those that it is put together from.
fn collect(schema: &RefOr<Schema>, schemas: &BTreeMap<String, RefOr<Schema>>, names: &mut Vec<String>) {
    match schema {
        RefOr::Ref(named) => {
            let name = named.ref_location.rsplit('/').next().unwrap_or("");
            if let Some(schema) = schemas.get(name) {
                collect(schema, schemas, names);
            }
        }
        RefOr::T(Schema::Object(object)) => names.extend(object.properties.keys().cloned()),
        RefOr::T(Schema::AllOf(all)) => all.items.iter().for_each(|one| collect(one, schemas, names)),
        RefOr::T(_) => {}
    }
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    names: Vec<String>,
    is_page: bool,
}

/// The fields that a request to a route asks for; nothing if it wants them all.
pub(crate) fn asked(endpoint: &Endpoint, uri: &Uri) -> Option<Asked> {
    // Most requests ask for none, and are not looked into.
    uri.query().filter(|query| query.contains(NAME))?;
    if known(endpoint).is_empty() {
        return None;
    }
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?.0;
    let (_, text) = pairs.into_iter().find(|(name, text)| name == NAME && !text.is_empty())?;
    let names = text.split(',').map(str::to_string).collect();
    Some(Asked { names, is_page: endpoint.gives.1.is_page() })
}

impl Asked {
    /// An answer with these fields alone.
    pub(crate) async fn of(&self, response: Response) -> Response {
        let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        if response.status() != StatusCode::OK || !is_json {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        // It was put together in memory, so that it cannot break off.
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        parts.headers.remove(CONTENT_LENGTH);
        let narrowed = self.narrow(&bytes).map_or_else(|_| Body::from(bytes.clone()), Body::from);
        Response::from_parts(parts, narrowed)
    }

    fn narrow(&self, text: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let mut whole: Members = serde_json::from_slice(text)?;
        if !self.is_page {
            self.keep(&mut whole);
            return serde_json::to_vec(&whole);
        }
        for (_, items) in whole.0.iter_mut().filter(|(name, _)| name == "items") {
            let mut list: Vec<Members> = serde_json::from_str(items.get())?;
            list.iter_mut().for_each(|item| self.keep(item));
            *items = serde_json::value::to_raw_value(&list)?;
        }
        serde_json::to_vec(&whole)
    }

    fn keep(&self, members: &mut Members) {
        members.0.retain(|(name, _)| self.names.contains(name));
    }
}

/// An object as it is written: its members in their order, each as text.
#[derive(Debug)]
struct Members(Vec<(String, Box<RawValue>)>);

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, Box<RawValue>>()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn narrowed(fields: &str, is_page: bool, text: &str) -> String {
        let asked = Asked { names: fields.split(',').map(str::to_string).collect(), is_page };
        String::from_utf8(asked.narrow(text.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn fields_keep_their_order_and_their_text() {
        let whole = r#"{"id":"x","n":1.0,"payload":{"b":1, "a":1e3},"name":"y"}"#;
        assert_eq!(narrowed("payload,id", false, whole), r#"{"id":"x","payload":{"b":1, "a":1e3}}"#);
        assert_eq!(narrowed("name", false, whole), r#"{"name":"y"}"#);
    }

    #[test]
    fn a_page_keeps_its_cursor() {
        let page = r#"{"items":[{"id":1,"name":"a"},{"id":2}],"next_cursor":"c"}"#;
        assert_eq!(narrowed("id", true, page), r#"{"items":[{"id":1},{"id":2}],"next_cursor":"c"}"#);
        assert_eq!(narrowed("next_cursor", true, page), r#"{"items":[{},{}],"next_cursor":"c"}"#);
    }

    #[test]
    fn what_is_read_has_fields_and_nothing_else_does() {
        let of = |method: &str, path: &str| {
            let is_it = |endpoint: &&Endpoint| endpoint.method == method && endpoint.path == path;
            known(TABLE.iter().find(is_it).unwrap())
        };
        for (path, field) in [
            ("/v1/jobs", "next_fire_at"),
            ("/v1/jobs/{id}", "schedule"),
            ("/v1/runs/{id}", "attempts"),
            ("/v1/runs/{id}", "state"),
        ] {
            assert!(of("GET", path).iter().any(|name| name == field), "{path}: {:?}", of("GET", path));
        }
        assert!(of("POST", "/v1/jobs").is_empty());
        assert!(of("GET", "/v1/version").is_empty());
        for endpoint in TABLE.iter().filter(|endpoint| has(endpoint)) {
            assert!(!known(endpoint).is_empty(), "{}", endpoint.path);
        }
    }
}
