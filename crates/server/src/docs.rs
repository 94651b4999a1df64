//! The OpenAPI document as a page for people, at `/docs`.
//!
//! Made once, when it is first asked for. Promise: it says what the document says and nothing else, works without scripts, and loads nothing
//! from anywhere but this server.

use std::fmt::Write as _;
use std::sync::OnceLock;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use serde_json::{Map, Value};

use crate::openapi::document;
use crate::routes::TABLE;

/// Only the style, only from here; nobody puts the page into a frame.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page.
pub(crate) async fn page() -> Response {
    static PAGE: OnceLock<String> = OnceLock::new();
    served(PAGE.get_or_init(made), "text/html; charset=utf-8")
}

/// How it looks.
pub(crate) async fn style() -> Response {
    served(include_str!("docs.css"), "text/css; charset=utf-8")
}

fn served(text: &'static str, media_type: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // It changes with the binary alone.
        (CACHE_CONTROL, HeaderValue::from_static("max-age=300")),
    ];
    (headers, text).into_response()
}

fn made() -> String {
    let document: Value = serde_json::from_str(document()).unwrap_or_default();
    let mut html = String::from(HEAD);
    let nouns = nouns();
    html.push_str("<nav><h2>Contents</h2><ul>");
    for noun in &nouns {
        add(&mut html, format_args!("<li><a href=\"#{noun}\">{}</a></li>", titled(noun)));
    }
    html.push_str("<li><a href=\"#schemas\">Schemas</a></li></ul></nav><main>");
    let about = document["info"]["description"].as_str().unwrap_or("");
    add(
        &mut html,
        format_args!("<h1>Punctual, {}</h1><p>{}</p>", text(&document["info"]["version"]), prose(about)),
    );
    html.push_str("<p>This page is made from <a href=\"/v1/openapi.json\">/v1/openapi.json</a>.</p>");
    for noun in &nouns {
        add(&mut html, format_args!("<section id=\"{noun}\"><h2>{}</h2>", titled(noun)));
        for endpoint in TABLE.iter().filter(|endpoint| endpoint.noun() == *noun) {
            let operation = &document["paths"][endpoint.path][endpoint.method.to_lowercase()];
            add_operation(&mut html, endpoint.method, endpoint.path, operation, &document);
        }
        html.push_str("</section>");
    }
    html.push_str("<section id=\"schemas\"><h2>Schemas</h2>");
    for (name, schema) in members(&document["components"]["schemas"]) {
        add(&mut html, format_args!("<article id=\"{0}\"><h3>{0}</h3>", escaped(name)));
        add(&mut html, format_args!("<p>{}</p>", prose(schema["description"].as_str().unwrap_or(""))));
        add_fields(&mut html, schema);
        html.push_str("</article>");
    }
    html.push_str("</section></main></body></html>\n");
    html
}

const HEAD: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Punctual: the API</title>\
    <meta name=\"viewport\" content=\"width=device-width\"><link rel=\"stylesheet\" href=\"/docs/style.css\"></head><body>";

/// What there are routes about, in the order of the table.
fn nouns() -> Vec<&'static str> {
    let mut nouns = Vec::new();
    for endpoint in TABLE {
        if !nouns.contains(&endpoint.noun()) {
            nouns.push(endpoint.noun());
        }
    }
    nouns
}

fn add_operation(html: &mut String, method: &str, path: &str, operation: &Value, document: &Value) {
    let id = text(&operation["operationId"]);
    add(
        html,
        format_args!(
            "<article id=\"{id}\"><h3><a href=\"#{id}\"><b class=\"{}\">{method}</b> <code>{}</code></a></h3>",
            method.to_lowercase(),
            escaped(path)
        ),
    );
    let said = |name: &str| prose(operation[name].as_str().unwrap_or(""));
    add(html, format_args!("<p>{}. {}</p>", said("summary"), said("description")));
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    if !parameters.is_empty() {
        html.push_str("<table><caption>Parameters</caption>");
        for parameter in parameters {
            let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
            let (kind, about) =
                (typed(&parameter["schema"]), prose(parameter["description"].as_str().unwrap_or("")));
            add(
                html,
                format_args!(
                    "<tr><th><code>{name}</code></th><td>{place}</td><td>{kind}</td><td>{about}</td></tr>"
                ),
            );
        }
        html.push_str("</table>");
    }
    for (media_type, content) in members(&operation["requestBody"]["content"]) {
        let kind = typed(&content["schema"]);
        add(html, format_args!("<p>Takes {kind} as <code>{}</code>.</p>", escaped(media_type)));
    }
    html.push_str("<table><caption>Answers</caption>");
    for (status, response) in members(&operation["responses"]) {
        let named =
            response["$ref"].as_str().and_then(|place| document.pointer(place.trim_start_matches('#')));
        let response = named.unwrap_or(response);
        let kinds: Vec<String> =
            members(&response["content"]).map(|(_, content)| typed(&content["schema"])).collect();
        let about = prose(response["description"].as_str().unwrap_or(""));
        add(
            html,
            format_args!(
                "<tr><th><code>{}</code></th><td>{}</td><td>{about}</td></tr>",
                escaped(status),
                kinds.join(", ")
            ),
        );
    }
    html.push_str("</table></article>");
}

/// The fields of a schema, or what it is put together from.
fn add_fields(html: &mut String, schema: &Value) {
    for way in ["allOf", "oneOf", "anyOf"] {
        let Some(parts) = schema[way].as_array() else { continue };
        html.push_str(if way == "allOf" { "<p>All of:</p><ul>" } else { "<p>One of:</p><ul>" });
        for part in parts {
            match part["properties"].is_object() {
                true => {
                    html.push_str("<li>");
                    add_fields(html, part);
                    html.push_str("</li>");
                }
                false => add(html, format_args!("<li>{}</li>", typed(part))),
            }
        }
        html.push_str("</ul>");
    }
    let is_required = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
    };
    if !schema["properties"].is_object() {
        return;
    }
    html.push_str("<table>");
    for (name, field) in members(&schema["properties"]) {
        let (kind, about) = (typed(field), prose(field["description"].as_str().unwrap_or("")));
        let must = if is_required(name) { "always" } else { "" };
        let name = escaped(name);
        add(
            html,
            format_args!(
                "<tr><th><code>{name}</code></th><td>{must}</td><td>{kind}</td><td>{about}</td></tr>"
            ),
        );
    }
    html.push_str("</table>");
}

/// What a schema allows, in a few words.
fn typed(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|place| place.rsplit('/').next()) {
        return format!("<a href=\"#{0}\">{0}</a>", escaped(name));
    }
    for way in ["oneOf", "anyOf", "allOf"] {
        if let Some(parts) = schema[way].as_array() {
            return parts.iter().map(typed).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().map(|word| format!("<code>{}</code>", text(word)));
        return words.collect::<Vec<_>>().join(", ");
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join(" or "),
        Value::String(kind) if kind == "array" => return format!("list of {}", typed(&schema["items"])),
        Value::String(kind) => escaped(kind),
        _ => "any".into(),
    };
    let bounds = match (&schema["minimum"], &schema["maximum"]) {
        (Value::Number(least), Value::Number(most)) => format!(", {least} to {most}"),
        _ => String::new(),
    };
    let form = schema["format"].as_str().map(|form| format!(", {}", escaped(form)));
    format!("{kind}{bounds}{}", form.filter(|_| bounds.is_empty()).unwrap_or_default())
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn add(html: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a text does not fail.
    let _ = html.write_fmt(what);
}

fn titled(noun: &str) -> String {
    let mut letters = noun.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).map(|letter| if letter == '-' { ' ' } else { letter }).collect()
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or(""))
}

/// A sentence, with what stands in backticks as code.
fn prose(sentence: &str) -> String {
    let parts = sentence.split('`').enumerate();
    let shown = parts.map(|(place, part)| match place % 2 {
        0 => escaped(part),
        _ => format!("<code>{}</code>", escaped(part)),
    });
    shown.collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_route_and_every_link_of_it_leads_somewhere() {
        let page = made();
        for endpoint in TABLE {
            assert!(page.contains(&format!("<code>{}</code>", escaped(endpoint.path))), "{}", endpoint.path);
        }
        let links: Vec<&str> =
            page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(links.len() > TABLE.len());
        for link in links {
            assert!(page.contains(&format!("id=\"{link}\"")), "#{link}");
        }
    }

    #[test]
    fn the_page_runs_nothing_and_loads_nothing_from_elsewhere() {
        let page = made();
        for forbidden in ["<script", "src=", "style=\"", "http://", "https://", "onclick"] {
            let found = page.match_indices(forbidden).next();
            // Examples name addresses, in text and not in attributes.
            let is_example = |at: usize| !page[..at].ends_with("href=\"");
            assert!(
                found.is_none_or(|(at, _)| forbidden.starts_with("http") && is_example(at)),
                "{forbidden}"
            );
        }
    }

    #[test]
    fn what_is_said_is_shown_and_not_run() {
        assert_eq!(prose("a `<b>` & \"c\""), "a <code>&lt;b&gt;</code> &amp; &quot;c&quot;");
    }
}
