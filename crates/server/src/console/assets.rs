//! What browsers keep: one style sheet and one script, inside the binary.
//!
//! Their names have a hash of their content, so they are kept for good and a new version is never mistaken for the old one.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::error::Error;
use crate::jobs::shorten;

const CSS: &str = concat!(
    include_str!("assets/tokens.css"),
    include_str!("assets/icons.css"),
    include_str!("assets/console.css"),
    include_str!("assets/own.css"),
);
const JS: &str = include_str!("assets/console.js");

static CSS_NAME: LazyLock<String> = LazyLock::new(|| named(CSS, "css"));
static JS_NAME: LazyLock<String> = LazyLock::new(|| named(JS, "js"));

/// Where the style sheet is.
pub(crate) fn css() -> String {
    format!("/console/assets/{}", *CSS_NAME)
}

/// Where the script is.
pub(crate) fn js() -> String {
    format!("/console/assets/{}", *JS_NAME)
}

fn named(content: &str, ending: &str) -> String {
    let hash = blake3::hash(content.as_bytes()).to_hex();
    format!("console-{}.{ending}", &hash[..16])
}

pub(crate) async fn get(Path(name): Path<String>) -> Result<Response, Error> {
    let (content, media_type) = match name.as_str() {
        name if *name == **CSS_NAME => (CSS, "text/css; charset=utf-8"),
        name if *name == **JS_NAME => (JS, "text/javascript; charset=utf-8"),
        name => return Err(Error::RouteNotFound(shorten(name))),
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
    ];
    Ok((headers, content).into_response())
}
