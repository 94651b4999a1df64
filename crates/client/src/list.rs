//! Lists, page by page or item by item.

use std::collections::VecDeque;

use punctual_api::Page;
use serde::de::DeserializeOwned;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::server::query;

/// A list on the server, read as far as it is asked for. At most one page is held.
pub struct List<T> {
    client: Client,
    path: String,
    parameters: Vec<(&'static str, String)>,
    cursor: Cursor,
    page: VecDeque<Answer<T>>,
}

enum Cursor {
    At(Option<String>),
    End,
}

impl<T: DeserializeOwned> List<T> {
    pub(crate) fn new(
        client: &Client,
        path: impl Into<String>,
        parameters: &[(&'static str, Option<&str>)],
    ) -> Self {
        let given =
            parameters.iter().filter_map(|(name, value)| value.map(|value| (*name, value.to_string())));
        List {
            client: client.clone(),
            path: path.into(),
            parameters: given.collect(),
            cursor: Cursor::At(None),
            page: VecDeque::new(),
        }
    }

    /// Items of a page, 1 to 1,000.
    #[must_use]
    pub fn limit(mut self, items: usize) -> Self {
        self.parameters.push(("limit", items.to_string()));
        self
    }

    /// Goes on after an earlier page.
    #[must_use]
    pub fn after(mut self, cursor: Option<String>) -> Self {
        self.cursor = Cursor::At(cursor);
        self
    }

    /// The next page, as the server gave it; nothing after the last. An empty page may have a successor.
    pub async fn next_page(&mut self) -> Result<Option<Answer<Page<Answer<T>>>>, Error> {
        let Cursor::At(cursor) = &self.cursor else { return Ok(None) };
        let mut parameters: Vec<(&str, Option<&str>)> =
            self.parameters.iter().map(|(name, value)| (*name, Some(value.as_str()))).collect();
        parameters.push(("cursor", cursor.as_deref()));
        let path = format!("{}{}", self.path, query(&parameters));
        let page: Answer<Page<Answer<T>>> = self.client.call(Call::get(path)).await?;
        self.cursor = match &page.next_cursor {
            Some(next) => Cursor::At(Some(next.clone())),
            None => Cursor::End,
        };
        Ok(Some(page))
    }

    /// The next item; nothing after the last.
    pub async fn next(&mut self) -> Result<Option<Answer<T>>, Error> {
        loop {
            if let Some(item) = self.page.pop_front() {
                return Ok(Some(item));
            }
            match self.next_page().await? {
                Some(page) => self.page = page.value.items.into(),
                None => return Ok(None),
            }
        }
    }
}
