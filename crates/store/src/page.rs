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

impl<C: Copy> PageRequest<C> {
    /// The page that rows give, each with its cursor and, if the filter lets it through, its item.
    pub(crate) fn fill<'a, T: Clone + 'a>(
        &self,
        rows: impl Iterator<Item = (C, Option<&'a T>)>,
    ) -> Page<T, C> {
        let mut page = Page { items: Vec::new(), next: None };
        for (examined, (cursor, item)) in rows.enumerate() {
            // There is more: it starts after the last row that was looked at.
            if examined == EXAMINED_MAX || (item.is_some() && page.items.len() == self.limit) {
                return page;
            }
            page.items.extend(item.cloned());
            page.next = Some(cursor);
        }
        page.next = None;
        page
    }
}

/// How many rows a list may look at for one page when no index serves its filter: a tenth of a second's work, so
/// that a search for what is not there does not keep a reader from others.
pub const EXAMINED_MAX: usize = 50_000;

/// A part of a list. A filter that no index serves may give an empty page with a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The items, in the order of the list.
    pub items: Vec<T>,
    /// Where to continue, if there may be more.
    pub next: Option<C>,
}
