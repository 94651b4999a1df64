//! Lists are read page by page, by an opaque cursor.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of a list. An empty page with a cursor is not the end: a filter that no index serves looks at a bounded
/// number of rows per page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Pass it as `cursor` for the next page; nothing at the end.
    pub next_cursor: Option<String>,
}
