//! The OpenAPI document, made from the table of routes and the types of the API.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use punctual_api::{Page, Problem};
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, OpenApiBuilder, OpenApiVersion, Paths, Ref,
    RefOr, Required, ResponseBuilder, Schema,
};
use utoipa::{PartialSchema as _, ToSchema};

use crate::access::Needs;
use crate::routes::{Endpoint, TABLE};

/// The name of keys among the ways to say who calls.
const KEY: &str = "key";

/// What a body looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    media_type: &'static str,
    is_list: bool,
    named: Option<Named>,
}

#[derive(Clone, Copy, Debug)]
struct Named {
    name: fn() -> Cow<'static, str>,
    collect: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// No body.
pub(crate) const fn nothing() -> Shape {
    Shape { media_type: "", is_list: false, named: None }
}

/// Plain text.
pub(crate) const fn text() -> Shape {
    Shape { media_type: "text/plain", is_list: false, named: None }
}

/// One JSON value.
pub(crate) const fn json<T: ToSchema>() -> Shape {
    Shape { media_type: "application/json", is_list: false, named: Some(named::<T>()) }
}

/// A list of JSON values.
pub(crate) const fn list_of<T: ToSchema>() -> Shape {
    Shape { is_list: true, ..json::<T>() }
}

/// A page of a list. Pages of different things are different schemas, though they are one type.
pub(crate) const fn page_of<T: ToSchema>() -> Shape {
    let named = Named { name: page_name::<T>, collect: collect_page::<T> };
    Shape { media_type: "application/json", is_list: false, named: Some(named) }
}

/// A stream of JSON values, one a line.
pub(crate) const fn ndjson<T: ToSchema>() -> Shape {
    Shape { media_type: "application/x-ndjson", ..json::<T>() }
}

const fn named<T: ToSchema>() -> Named {
    Named { name: T::name, collect: collect::<T> }
}

fn collect<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into(), T::schema()));
    T::schemas(schemas);
}

fn page_name<T: ToSchema>() -> Cow<'static, str> {
    format!("{}Page", T::name()).into()
}

fn collect_page<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((page_name::<T>().into(), Page::<T>::schema()));
    collect::<T>(schemas);
}

/// The document as JSON.
pub fn document() -> String {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(make).clone()
}

fn make() -> String {
    let mut schemas = Vec::new();
    collect::<Problem>(&mut schemas);
    let mut paths = Paths::new();
    for endpoint in TABLE {
        let shapes =
            [Some(endpoint.takes), Some(endpoint.gives.1), endpoint.or_gives.map(|(_, shape)| shape)];
        for named in shapes.into_iter().flatten().filter_map(|shape| shape.named) {
            (named.collect)(&mut schemas);
        }
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
    let document = OpenApiBuilder::new()
        .openapi(OpenApiVersion::Version31)
        .info(info)
        .paths(paths)
        .components(Some(
            ComponentsBuilder::new()
                .schemas_from_iter(schemas)
                .security_scheme(
                    KEY,
                    SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
                )
                .build(),
        ))
        .build();
    document.to_pretty_json().unwrap_or_default() + "\n"
}

fn operation(endpoint: &Endpoint) -> utoipa::openapi::path::Operation {
    let name = format!("{} {}", endpoint.method.to_lowercase(), endpoint.path);
    let id: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut operation = OperationBuilder::new()
        .operation_id(Some(id.split('_').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")))
        .summary(Some(endpoint.about))
        .description(Some(match endpoint.needs {
            Needs::Nothing => "Open to everyone.".to_string(),
            Needs::Token => {
                "Needs no key, but the token that the call to the receiver had, in `Punctual-Completion-Token` or as `Authorization: Bearer`."
                    .to_string()
            }
            needs if endpoint.is_for_all => format!("Needs the role {}, for all tenants.", needs.as_str()),
            needs => format!("Needs the role {}.", needs.as_str()),
        }));
    if !matches!(endpoint.needs, Needs::Nothing | Needs::Token) {
        operation = operation.security(SecurityRequirement::new(KEY, Vec::<String>::new()));
    }
    for part in endpoint.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        operation = operation.parameter(parameter(part, ParameterIn::Path, "Which.", Required::True));
    }
    for param in endpoint.query {
        operation =
            operation.parameter(parameter(param.name, ParameterIn::Query, param.about, Required::False));
    }
    if endpoint.path.starts_with("/v1/") && !matches!(endpoint.needs, Needs::Nothing | Needs::Token) {
        let about = "Whose; `default` unless said otherwise.";
        operation =
            operation.parameter(parameter("Punctual-Tenant", ParameterIn::Header, about, Required::False));
    }
    if endpoint.needs == Needs::Token {
        let about = "What the call to the receiver had.";
        operation = operation.parameter(parameter(
            "Punctual-Completion-Token",
            ParameterIn::Header,
            about,
            Required::False,
        ));
    } else if endpoint.method == "POST" && !endpoint.path.starts_with("/v1/keys") {
        let about = "A repeat under the same key within 24 hours is not done again and gets the same answer.";
        operation =
            operation.parameter(parameter("Idempotency-Key", ParameterIn::Header, about, Required::False));
    }
    if ["PUT", "PATCH", "DELETE"].contains(&endpoint.method) {
        let about = "The `ETag` that the job must still have.";
        operation = operation.parameter(parameter("If-Match", ParameterIn::Header, about, Required::False));
    }
    if let Some(content) = content(&endpoint.takes) {
        let body = RequestBodyBuilder::new()
            .content(endpoint.takes.media_type, content)
            .required(Some(Required::True));
        operation = operation.request_body(Some(body.build()));
    }
    let answers: Vec<(u16, Shape)> =
        [Some(endpoint.gives), endpoint.or_gives].into_iter().flatten().collect();
    for (status, _) in &answers {
        let mut response = ResponseBuilder::new().description(endpoint.about);
        // One status may have several forms.
        for (_, shape) in answers.iter().filter(|(other, _)| other == status) {
            if let Some(content) = content(shape) {
                response = response.content(shape.media_type, content);
            }
        }
        operation = operation.response(status.to_string(), response.build());
    }
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name(Problem::name()))).build();
    let refused = ResponseBuilder::new()
        .description("Refused, and why")
        .content(punctual_api::problem::MEDIA_TYPE, problem)
        .build();
    operation.response("default", refused).build()
}

fn content(shape: &Shape) -> Option<utoipa::openapi::Content> {
    let schema: RefOr<Schema> = match shape.named {
        Some(named) => RefOr::Ref(Ref::from_schema_name((named.name)())),
        None if shape.media_type.is_empty() => return None,
        None => string(),
    };
    let schema = match shape.is_list {
        true => RefOr::T(Schema::Array(ArrayBuilder::new().items(schema).build())),
        false => schema,
    };
    Some(ContentBuilder::new().schema(Some(schema)).build())
}

fn string() -> RefOr<Schema> {
    RefOr::T(Schema::Object(ObjectBuilder::new().schema_type(Type::String).build()))
}

fn parameter(
    name: &str,
    place: ParameterIn,
    about: &str,
    required: Required,
) -> utoipa::openapi::path::Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .description(Some(about))
        .required(required)
        .schema(Some(string()))
        .build()
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
