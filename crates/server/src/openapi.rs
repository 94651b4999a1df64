//! The OpenAPI document, made from the table of routes and the types of the API.
//!
//! Made once, when it is first asked for, and committed as `crates/api/openapi.json`. Promise: every parameter, body, status and header that
//! a route has is in it; a test program sends thousands of requests that it made from the committed copy, and holds the answers against it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use punctual_api::Problem;
use punctual_api::problem::MEDIA_TYPE;
use utoipa::ToSchema;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{Operation, OperationBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, OpenApiBuilder, OpenApiVersion, Paths, Ref,
    RefOr, Required, Response, ResponseBuilder, Schema,
};

use crate::access::Needs;
use crate::endpoint::Endpoint;
use crate::fields;
use crate::param::{self, Kind};
use crate::routes::TABLE;
use crate::shape::collect;

/// The name of keys among the ways to say who calls.
const KEY: &str = "key";

/// The document as JSON.
pub fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(make)
}

fn make() -> String {
    let mut schemas = Vec::new();
    collect::<Problem>(&mut schemas);
    let mut paths = Paths::new();
    for endpoint in TABLE {
        let shapes =
            [Some(endpoint.takes), Some(endpoint.gives.1), endpoint.or_gives.map(|(_, shape)| shape)];
        schemas.extend(shapes.into_iter().flatten().flat_map(|shape| shape.schemas()));
        paths.add_path_operation(endpoint.path, vec![http_method(endpoint.method)], operation(endpoint));
    }
    // The same order every time, so that the committed copy changes only when the API does.
    let schemas: BTreeMap<String, RefOr<Schema>> = schemas.into_iter().collect();
    let info = InfoBuilder::new()
        .title("Punctual")
        .description(Some(
            "Jobs run at the times their owners asked for, one run per slot, with the history to prove it.",
        ))
        .version("v1")
        .build();
    let key = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let mut components = ComponentsBuilder::new().schemas_from_iter(schemas).security_scheme(KEY, key);
    for (status, name, about) in REFUSALS {
        components = components.response(*name, refusal(*status, about));
    }
    let document = OpenApiBuilder::new()
        .openapi(OpenApiVersion::Version31)
        .info(info)
        .paths(paths)
        .components(Some(components.build()))
        .build();
    document.to_pretty_json().unwrap_or_default() + "\n"
}

fn operation(endpoint: &Endpoint) -> Operation {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(id(endpoint)))
        .summary(Some(endpoint.about))
        .tag(endpoint.noun())
        .description(Some(match endpoint.needs {
            Needs::Nothing => "Open to everyone.".to_string(),
            Needs::Token => {
                "Needs no key, but the token that the call to the receiver had, in `Punctual-Completion-Token` or as `Authorization: Bearer`."
                    .to_string()
            }
            needs if endpoint.is_for_all => format!("Needs the role {}, for all tenants.", needs.as_str()),
            needs => format!("Needs the role {}.", needs.as_str()),
        }));
    if endpoint.needs_key() {
        operation = operation.security(SecurityRequirement::new(KEY, Vec::<String>::new()));
    }
    for part in endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        operation = operation.parameter(param::in_path(endpoint.path, part));
    }
    for param in endpoint.query {
        operation = operation.parameter(param.described());
    }
    let fields = fields::known(endpoint);
    if !fields.is_empty() {
        let about = "Only these fields, with commas between, also if others are required below; all of them.";
        let schema = param::several(fields.iter().cloned());
        operation = operation.parameter(param::described(
            fields::NAME,
            ParameterIn::Query,
            about,
            schema,
            Some(false),
        ));
    }
    for (name, kind, about) in headers(endpoint) {
        operation =
            operation.parameter(param::described(name, ParameterIn::Header, about, kind.schema(), None));
    }
    if let Some(content) = endpoint.takes.content() {
        let body = RequestBodyBuilder::new()
            .content(endpoint.takes.media_type(), content)
            .required(Some(Required::True));
        operation = operation.request_body(Some(body.build()));
    }
    for (status, shape) in [Some(endpoint.gives), endpoint.or_gives].into_iter().flatten() {
        let mut response =
            ResponseBuilder::new().description(endpoint.about).header(REQUEST_ID.0, of(REQUEST_ID));
        if endpoint.is_versioned && status != 204 {
            response = response.header(ETAG.0, of(ETAG));
        }
        if [201, 202].contains(&status) {
            response = response.header(LOCATION.0, of(LOCATION));
        }
        if endpoint.method == "POST" && endpoint.needs_key() {
            response = response.header(REPLAYED.0, of(REPLAYED));
        }
        if endpoint.needs_key() {
            response = response.header(RATE_LIMIT.0, of(RATE_LIMIT)).header(RATE_POLICY.0, of(RATE_POLICY));
        }
        if let Some(content) = shape.content() {
            response = response.content(shape.media_type(), content);
        }
        operation = operation.response(status.to_string(), response.build());
    }
    if endpoint.is_versioned && endpoint.method == "GET" {
        let same = ResponseBuilder::new()
            .description("It is what `If-None-Match` says")
            .header(REQUEST_ID.0, of(REQUEST_ID))
            .header(ETAG.0, of(ETAG));
        operation = operation.response("304", same.build());
    }
    for (status, name, _) in REFUSALS.iter().filter(|(status, ..)| statuses(endpoint).contains(status)) {
        // `readyz` has an answer of its own for one of them.
        if endpoint.or_gives.is_none_or(|(other, _)| other != *status) {
            operation = operation.response(status.to_string(), Ref::from_response_name(*name));
        }
    }
    operation.build()
}

/// What a route is called by programs that are made from the document.
fn id(endpoint: &Endpoint) -> String {
    let name = format!("{} {}", endpoint.method.to_lowercase(), endpoint.path);
    let id: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    id.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
}

/// The headers that a request may have.
fn headers(endpoint: &Endpoint) -> Vec<(&'static str, Kind, &'static str)> {
    let mut headers = vec![(
        "X-Request-Id",
        Kind::Word { most: crate::front::REQUEST_ID_MAX },
        "What the request is called in the answer, in problems and in logs; one is made up without it.",
    )];
    if endpoint.path.starts_with("/v1/") && endpoint.needs_key() {
        headers.push(("Punctual-Tenant", Kind::Tenant, "Whose; `default` unless said otherwise."));
    }
    if endpoint.needs == Needs::Token {
        headers.push(("Punctual-Completion-Token", Kind::Text, "What the call to the receiver had."));
    } else if endpoint.method == "POST" && !endpoint.path.starts_with("/v1/keys") {
        let about = "A repeat under the same key within 24 hours is not done again and gets the same answer.";
        headers.push(("Idempotency-Key", Kind::Word { most: crate::call::IDEMPOTENCY_KEY_MAX }, about));
    }
    if endpoint.is_versioned {
        match endpoint.method {
            "GET" => headers.push(("If-None-Match", Kind::Etag, "The `ETag` that the caller has already.")),
            _ => headers.push(("If-Match", Kind::Etag, "The `ETag` that it must still have.")),
        }
    }
    headers
}

/// A header of an answer: its name, what may stand in it, and what it says.
type Answered = (&'static str, Kind, &'static str);

const REQUEST_ID: Answered =
    ("X-Request-Id", Kind::Text, "What the request is called: as it said itself, or a name made up for it.");
const ETAG: Answered = ("ETag", Kind::Etag, "The version, for `If-Match` and `If-None-Match`.");
const LOCATION: Answered = ("Location", Kind::Text, "Where it can be read.");
const REPLAYED: Answered = (
    "Idempotency-Replayed",
    Kind::Words(&["true"]),
    "The answer was given before, under the same `Idempotency-Key`.",
);
const RATE_LIMIT: Answered = (
    "RateLimit",
    Kind::Text,
    "What the caller may still ask for: `\"requests\";r=99;t=1`, where requests are limited.",
);
const RATE_POLICY: Answered =
    ("RateLimit-Policy", Kind::Text, "How requests are limited: `\"requests\";q=100;w=1`, where they are.");
const RETRY_AFTER: Answered =
    ("Retry-After", Kind::Whole { least: 0, most: 86_400 }, "In how many seconds it is worth another try.");
const ALLOW: Answered = ("Allow", Kind::Text, "The methods that are taken here.");
const CHALLENGE: Answered = ("WWW-Authenticate", Kind::Text, "How to say who calls.");

fn of((_, kind, about): Answered) -> Header {
    HeaderBuilder::new().schema(Some(kind.schema())).description(Some(about)).build()
}

/// Every status of a refusal, the name of its part of the document, and when it is answered.
const REFUSALS: &[(u16, &str, &str)] = &[
    (400, "Malformed", "The body is not JSON, or broke off."),
    (401, "Unauthenticated", "Nobody we know: a key or a token is missing, or is not good."),
    (403, "Forbidden", "The caller may not do this."),
    (404, "NotFound", "There is none; or it is another tenant's."),
    (405, "MethodNotAllowed", "The route does not take this method."),
    (409, "Conflict", "Not in this state."),
    (412, "PreconditionFailed", "It has changed since it was read."),
    (413, "TooLarge", "The body is too large."),
    (415, "WrongContentType", "The body has another media type."),
    (422, "Invalid", "Fields, parameters or headers are wrong; each is listed."),
    (429, "TooMany", "Too many requests, or too many runs wait already."),
    (431, "HeadersTooLarge", "The headers are too large."),
    (500, "Internal", "A bug, or a damaged store."),
    (503, "Unavailable", "Not now: the store cannot be reached, or the server is starting."),
];

fn refusal(status: u16, about: &str) -> Response {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    let mut refusal = ResponseBuilder::new()
        .description(about)
        .header(REQUEST_ID.0, of(REQUEST_ID))
        .content(MEDIA_TYPE, problem);
    if [429, 503].contains(&status) {
        refusal = refusal.header(RETRY_AFTER.0, of(RETRY_AFTER));
    }
    if status == 405 {
        refusal = refusal.header(ALLOW.0, of(ALLOW));
    }
    if status == 401 {
        refusal = refusal.header(CHALLENGE.0, of(CHALLENGE));
    }
    refusal.build()
}

/// The statuses of the refusals that a route may answer with.
fn statuses(endpoint: &Endpoint) -> BTreeSet<u16> {
    let mut statuses = BTreeSet::from([405, 431, 500, 503]);
    let takes_body = ["POST", "PUT", "PATCH"].contains(&endpoint.method);
    if endpoint.needs != Needs::Nothing {
        // A tenant may be named that is not there, and a parameter that is none.
        statuses.extend([401, 403, 404, 422, 429]);
    }
    if takes_body {
        statuses.extend([400, 413, 415]);
    }
    if endpoint.method != "GET" {
        statuses.insert(409);
    }
    if endpoint.is_versioned && endpoint.method != "GET" {
        statuses.insert(412);
    }
    statuses
}

fn http_method(method: &str) -> HttpMethod {
    match method {
        "POST" => HttpMethod::Post,
        "PUT" => HttpMethod::Put,
        "PATCH" => HttpMethod::Patch,
        "DELETE" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}
