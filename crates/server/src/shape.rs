//! What bodies look like, as the table of routes says it and the OpenAPI document describes it.

use std::borrow::Cow;

use punctual_api::Page;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Schema};
use utoipa::{PartialSchema as _, ToSchema};

/// What a body looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    media_type: &'static str,
    holds: Holds,
    named: Option<Named>,
}

/// How many of what it names are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    One,
    List,
    Page,
}

#[derive(Clone, Copy, Debug)]
struct Named {
    name: fn() -> Cow<'static, str>,
    collect: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// No body.
pub(crate) const fn nothing() -> Shape {
    written("")
}

/// Plain text.
pub(crate) const fn text() -> Shape {
    written("text/plain")
}

/// What is written in some other language.
pub(crate) const fn written(media_type: &'static str) -> Shape {
    Shape { media_type, holds: Holds::One, named: None }
}

/// JSON of which nothing more is said.
pub(crate) const fn any_json() -> Shape {
    written("application/json")
}

/// One JSON value.
pub(crate) const fn json<T: ToSchema>() -> Shape {
    Shape { media_type: "application/json", holds: Holds::One, named: Some(named::<T>()) }
}

/// A list of JSON values.
pub(crate) const fn list_of<T: ToSchema>() -> Shape {
    Shape { holds: Holds::List, ..json::<T>() }
}

/// A page of a list. Pages of different things are different schemas, though they are one type.
pub(crate) const fn page_of<T: ToSchema>() -> Shape {
    let named = Named { name: page_name::<T>, collect: collect_page::<T> };
    Shape { media_type: "application/json", holds: Holds::Page, named: Some(named) }
}

/// A stream of JSON values, one a line.
pub(crate) const fn ndjson<T: ToSchema>() -> Shape {
    Shape { media_type: "application/x-ndjson", ..json::<T>() }
}

const fn named<T: ToSchema>() -> Named {
    Named { name: T::name, collect: collect::<T> }
}

/// The schema of a type, and of all that it names.
pub(crate) fn collect<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
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

impl Shape {
    pub(crate) fn media_type(&self) -> &'static str {
        self.media_type
    }

    pub(crate) fn is_page(&self) -> bool {
        self.holds == Holds::Page
    }

    /// Whether it is JSON with a schema.
    pub(crate) fn is_named(&self) -> bool {
        self.named.is_some()
    }

    /// The name of its schema.
    pub(crate) fn name(&self) -> Option<String> {
        self.named.map(|named| (named.name)().into_owned())
    }

    /// Its schema, and all that it names.
    pub(crate) fn schemas(&self) -> Vec<(String, RefOr<Schema>)> {
        let mut schemas = Vec::new();
        if let Some(named) = self.named {
            (named.collect)(&mut schemas);
        }
        schemas
    }

    /// As a part of a request or an answer in the OpenAPI document.
    pub(crate) fn content(&self) -> Option<utoipa::openapi::Content> {
        let typed = |kind| RefOr::T(Schema::Object(ObjectBuilder::new().schema_type(kind).build()));
        let schema: RefOr<Schema> = match self.name() {
            // Of lines, what each of them is.
            Some(name) => RefOr::Ref(Ref::from_schema_name(name)),
            None if self.media_type.is_empty() => return None,
            None if self.media_type == "application/json" => typed(Type::Object),
            None => typed(Type::String),
        };
        let schema = match self.holds {
            Holds::List => RefOr::T(Schema::Array(ArrayBuilder::new().items(schema).build())),
            Holds::One | Holds::Page => schema,
        };
        Some(ContentBuilder::new().schema(Some(schema)).build())
    }
}
