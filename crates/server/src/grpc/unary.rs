//! Methods that are requests of REST in other words.
//!
//! Runs behind the gate, for every method whose row names a route, but for streams. Promise: there is no second way to do anything. The message
//! becomes the request, the handler of the route does it, with its tenant, conditions, limits and refusals, and its answer becomes the message.

use std::marker::PhantomData;
use std::pin::Pin;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, EXPECT, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use punctual_api::Problem;
use punctual_rpc::json::{self, Members, Message};
use punctual_rpc::{Codec, mask, status};
use serde_json::Value;
use serde_json::value::RawValue;
use tonic::codegen::Service;
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, UnaryService};
use tonic::{Extensions, Status};

use super::refused;
use crate::access::Caller;
use crate::answer::REPLAYED;
use crate::call::tenant_of;
use crate::error::Error;
use crate::front::REQUEST_ID;
use crate::routes::{Endpoint, TABLE};
use crate::state::Shared;

/// The status that REST has for an answer, which says whether a put made something.
const STATUS: HeaderName = HeaderName::from_static("punctual-status");

/// The routes of REST without what stands before them, which a method has passed under its own row.
#[derive(Clone)]
pub(crate) struct Routes(Router);

impl Routes {
    pub(crate) fn new(shared: &Shared) -> Self {
        let add = |router: Router<Shared>, route: &Endpoint| router.route(route.path, (route.handler)());
        Routes(TABLE.iter().fold(Router::new(), add).with_state(shared.clone()))
    }
}

/// A method that takes one message and gives one.
pub(super) fn unary<Q: Message, A: Message>() -> MethodRouter<Shared> {
    post(serve::<Q, A>)
}

async fn serve<Q: Message, A: Message>(State(shared): State<Shared>, request: Request) -> Response {
    let codec: Codec<A, Q> = Codec::default();
    let mut grpc = Grpc::new(codec).max_decoding_message_size(shared.limits.bulk_max);
    grpc.unary(Unary { shared, of: PhantomData::<fn() -> A> }, request).await.into_response()
}

struct Unary<A> {
    shared: Shared,
    of: PhantomData<fn() -> A>,
}

impl<Q: Message, A: Message> UnaryService<Q> for Unary<A> {
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        Box::pin(answer::<Q, A>(self.shared.clone(), request))
    }
}

async fn answer<Q: Message, A: Message>(
    shared: Shared,
    request: tonic::Request<Q>,
) -> Result<tonic::Response<A>, Status> {
    let (metadata, extensions, message) = request.into_parts();
    let asked = Asked::new(&extensions)?;
    let rpc = asked.method.rpc;
    let headers = metadata.into_headers();
    let told = match Parts::new(&message, asked.method, asked.route) {
        Ok(parts) => {
            asked.ask(parts, headers).await.map_err(|problem| status::of(&placed(*problem, rpc.body)))?
        }
        Err(error) => {
            // Whose it is comes first, as in every request.
            tenant_of(&shared, &asked.caller, &headers).await.map_err(refused)?;
            return Err(refused(error));
        }
    };
    let (parts, body) = told.into_parts();
    let bytes = axum::body::to_bytes(body, usize::MAX).await.map_err(|error| unreadable(&error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| unreadable(&error))?;
    let member = rpc.wraps.iter().find(|(status, _)| *status == parts.status.as_u16());
    let message = match (text, member) {
        ("", _) => Ok(A::default()),
        (text, None) => serde_json::from_str(text),
        (text, Some((_, member))) => serde_json::from_str(&format!("{{\"{member}\":{text}}}")),
    };
    let message = message.map_err(|error| unreadable(&error))?;
    let mut headers = HeaderMap::new();
    headers.insert(STATUS, HeaderValue::from(parts.status.as_u16()));
    for name in [ETAG, REPLAYED] {
        if let Some(value) = parts.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    Ok(tonic::Response::from_parts(MetadataMap::from_headers(headers), message, Extensions::default()))
}

/// An answer of ours that we cannot read: a fault of this program.
pub(super) fn unreadable(error: &dyn std::error::Error) -> Status {
    tracing::error!(%error, "an answer has no message");
    refused(Error::Untold)
}

/// Who asks for what.
pub(super) struct Asked {
    pub(super) method: &'static Endpoint,
    pub(super) route: &'static Endpoint,
    pub(super) caller: Caller,
    routes: Routes,
}

impl Asked {
    /// What gate and table say of a request.
    pub(super) fn new(extensions: &Extensions) -> Result<Self, Status> {
        let method = extensions.get::<&'static Endpoint>().copied();
        let caller = extensions.get::<Caller>().cloned();
        let routes = extensions.get::<Routes>().cloned();
        let route = method.and_then(|method| {
            TABLE.iter().find(|route| method.rest.split_once(' ') == Some((route.method, route.path)))
        });
        match (method, route, caller, routes) {
            (Some(method), Some(route), Some(caller), Some(routes)) => {
                Ok(Asked { method, route, caller, routes })
            }
            // No gate, no way in.
            _ => Err(refused(Error::Forbidden("this method is in no table".into()))),
        }
    }

    /// Makes the request; what was refused is a problem.
    pub(super) async fn ask(mut self, parts: Parts, headers: HeaderMap) -> Result<Response, Box<Problem>> {
        let id =
            headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(|id| format!("urn:request:{id}"));
        let mut request = Request::new(parts.body);
        *request.method_mut() = Method::from_bytes(self.route.method.as_bytes()).unwrap_or(Method::POST);
        *request.uri_mut() = parts.uri;
        *request.headers_mut() = headers;
        // They say something of the message, or are said by its fields.
        for name in [CONTENT_LENGTH, EXPECT, IF_MATCH, IF_NONE_MATCH] {
            request.headers_mut().remove(name);
        }
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().extend(parts.conditions);
        request.extensions_mut().insert(self.caller);
        request.extensions_mut().insert(self.route);
        let mut response =
            Service::call(&mut self.routes.0, request).await.unwrap_or_else(|never| match never {});
        match response.extensions_mut().remove::<Problem>() {
            Some(problem) => Err(Box::new(Problem { instance: id, ..problem })),
            None if response.status().is_success() => Ok(response),
            // A problem is how every refusal leaves.
            None => Err(Box::new(Error::RouteNotFound(self.method.rest.into()).problem())),
        }
    }
}

/// A message as a request.
pub(super) struct Parts {
    uri: Uri,
    conditions: HeaderMap,
    body: Body,
}

impl Parts {
    /// The request that a message is. A field belongs to the path or the query if these have its name, or says a condition; the rest is the body.
    fn new(message: &impl Message, method: &Endpoint, route: &Endpoint) -> Result<Self, Error> {
        let wrong = |error: serde_json::Error| Error::wrong("", "wrong_type", error.to_string());
        let mut members = json::members(message).map_err(wrong)?;
        let uri = uri(&mut members, route)?;
        let conditions = conditions(&mut members);
        let paths = taken::<Vec<String>>(&mut members, "update_mask").unwrap_or_default();
        if let Some(path) = mask::unknown(&paths) {
            let shown: String = path.chars().take(64).collect();
            let detail =
                format!("`{shown}` is no field of a job; write paths as `timeout` or `schedule.cron`");
            return Err(Error::wrong("/update_mask", "unknown_field", detail));
        }
        if !paths.is_empty() {
            let object = members.get(method.rpc.masked).map_or("{}", |object| object.get());
            let patch = mask::masked(object, &paths).map_err(wrong)?;
            members.insert(method.rpc.masked.into(), patch);
        }
        let body = match (route.method, method.rpc.body) {
            ("GET" | "DELETE", _) => String::new(),
            (_, "") => serde_json::to_string(&members).map_err(wrong)?,
            (_, member) => members.remove(member).map_or("{}".into(), |body| body.get().into()),
        };
        Ok(Parts { uri, conditions, body: body.into() })
    }

    /// A request whose body comes bit by bit.
    pub(super) fn of_stream(route: &'static Endpoint, body: Body) -> Self {
        Parts { uri: Uri::from_static(route.path), conditions: HeaderMap::new(), body }
    }
}

fn uri(members: &mut Members, route: &Endpoint) -> Result<Uri, Error> {
    let mut text = String::new();
    for part in route.path.split('/').skip(1) {
        text.push('/');
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            None => text.push_str(part),
            Some(name) => match taken::<String>(members, name) {
                Some(value) => text.push_str(&encoded(&value)),
                None => {
                    let detail = format!("`{name}` is missing: it says which");
                    return Err(Error::wrong(&format!("/{name}"), "missing_field", detail));
                }
            },
        }
    }
    let mut separator = '?';
    for param in route.query {
        for value in taken::<Value>(members, param.name).into_iter().flat_map(texts) {
            text.push_str(&format!("{separator}{}={}", param.name, encoded(&value)));
            separator = '&';
        }
    }
    text.parse().map_err(|_| Error::BodyBroken("the message has no address".into()))
}

fn conditions(members: &mut Members) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(version) = taken::<u32>(members, "if_version")
        && let Ok(version) = HeaderValue::from_str(&format!("\"{version}\""))
    {
        headers.insert(IF_MATCH, version);
    }
    if taken::<bool>(members, "if_absent") == Some(true) {
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    headers
}

/// Takes a member out.
fn taken<T: serde::de::DeserializeOwned>(members: &mut Members, name: &str) -> Option<T> {
    members.remove(name).and_then(|value: Box<RawValue>| serde_json::from_str(value.get()).ok())
}

/// A value as query parameters have it.
fn texts(value: Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text],
        Value::Array(values) => values.into_iter().flat_map(texts).collect(),
        value => vec![value.to_string()],
    }
}

/// A value as it stands in a path or a query. Its first byte is always escaped: no value is a word of a route, such as the `bulk` of `/v1/jobs/bulk`.
fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    for (place, byte) in value.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' if place > 0 => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// A problem with a body, as one with the message that had it as a field.
fn placed(mut problem: Problem, body: &str) -> Problem {
    for error in &mut problem.errors {
        error.pointer = match error.pointer.as_str() {
            "If-Match" => "/if_version".into(),
            "If-None-Match" => "/if_absent".into(),
            // Parameters and headers have names, members of a body pointers.
            pointer if !body.is_empty() && (pointer.is_empty() || pointer.starts_with('/')) => {
                format!("/{body}{pointer}")
            }
            pointer => pointer.into(),
        };
    }
    problem
}

#[cfg(test)]
mod tests {
    use punctual_api::{Code, FieldError};
    use punctual_rpc::v1;

    use super::*;
    use crate::grpc::METHODS;

    fn parts(name: &str, message: &impl Message) -> (String, HeaderMap, Members) {
        let method = METHODS.iter().find(|method| method.path.ends_with(name)).expect("a method");
        let mut members = json::members(message).expect("members");
        let route = TABLE
            .iter()
            .find(|route| method.rest.split_once(' ') == Some((route.method, route.path)))
            .expect("a route");
        let uri = uri(&mut members, route).expect("an address").to_string();
        (uri, conditions(&mut members), members)
    }

    #[test]
    fn fields_are_the_path_the_query_and_conditions() {
        let request = v1::ReplaceJobRequest {
            id: "bulk".into(),
            pending: Some("update".into()),
            job: Some(v1::JobSpec::default()),
            if_version: Some(3),
        };
        let (uri, conditions, rest) = parts("/ReplaceJob", &request);
        assert_eq!(uri, "/v1/jobs/%62ulk?pending=%75pdate", "an id is no word of a route");
        assert_eq!(conditions[IF_MATCH], "\"3\"");
        assert_eq!(rest.keys().collect::<Vec<_>>(), ["job"]);
        let request = v1::ListJobsRequest {
            label: vec!["a=1".into(), "b=\u{fc}/&".into()],
            limit: Some(7),
            ..v1::ListJobsRequest::default()
        };
        let (uri, conditions, rest) = parts("/ListJobs", &request);
        assert_eq!(uri, "/v1/jobs?label=%61%3D1&label=%62%3D%C3%BC%2F%26&limit=%37");
        assert!(conditions.is_empty() && rest.is_empty());
    }

    #[test]
    fn a_method_without_its_id_is_told_so() {
        let mut members = json::members(&v1::GetJobRequest::default()).expect("members");
        let route = TABLE.iter().find(|route| route.path == "/v1/jobs/{id}").expect("a route");
        let refused = uri(&mut members, route).expect_err("no address").problem();
        assert_eq!(refused.errors[0].pointer, "/id");
    }

    #[test]
    fn what_is_wrong_is_named_as_in_the_message() {
        let mut problem = Problem::new(Code::InvalidRequest, 422, "wrong");
        problem.errors = ["/schedule/cron", "", "limit", "If-Match"]
            .map(|pointer| FieldError::new(pointer, "wrong_type", "wrong"))
            .to_vec();
        let pointers: Vec<String> =
            placed(problem, "job").errors.into_iter().map(|error| error.pointer).collect();
        assert_eq!(pointers, ["/job/schedule/cron", "/job", "limit", "/if_version"]);
    }
}
