//! Lists are read page by page, by cursor, never by offset.

/// How much of a list is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest<C> {
    /// Continue after this item.
    pub after: Option<C>,
    /// At most so many items.
    pub limit: usize,
}

impl<C> PageRequest<C> {
    /// The first page.
    pub fn first(limit: usize) -> Self {
        PageRequest { after: None, limit }
    }
}

/// A part of a list. A filter that no index serves may give an empty page with a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The items, in the order of the list.
    pub items: Vec<T>,
    /// Where to continue, if there may be more.
    pub next: Option<C>,
}
