//! Query parameters, read with every wrong one named at once.

use std::str::FromStr;

use jiff::Timestamp;
use punctual_api::FieldError;
use punctual_api::limits::{PAGE_DEFAULT, PAGE_MAX};
use punctual_api::read::unknown_name;
use punctual_engine::history::PageRequest;

use crate::cursor::Cursor;
use crate::error::Error;

/// A parameter of a route, as the table of routes and the OpenAPI document know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

/// The parameters of a request.
#[derive(Debug)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Query {
    /// Reads the parameters of a URI; those that the route does not know are wrong.
    pub(crate) fn new(uri: &http::Uri, known: &[Param]) -> Self {
        let mut query = Query { pairs: Vec::new(), errors: Vec::new() };
        match axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri) {
            Ok(pairs) => query.pairs = pairs.0,
            Err(_) => query.add("", "wrong_type", "the query is not percent-encoded text".into()),
        }
        let names: Vec<&str> = known.iter().map(|param| param.name).collect();
        let unknown: Vec<String> = query
            .pairs
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|name| !names.contains(&name.as_str()))
            .collect();
        for name in unknown {
            let detail = match names.is_empty() {
                true => format!(
                    "unknown parameter `{}`; this route takes none",
                    name.chars().take(64).collect::<String>()
                ),
                false => unknown_name("parameter", &name, &names),
            };
            query.add(&name, "unknown_parameter", detail);
        }
        query
    }

    /// Parameters that are known to be right; empty ones are left out by [`Query::text`].
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Self {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string()));
        Query { pairs: pairs.collect(), errors: Vec::new() }
    }

    fn add(&mut self, name: &str, code: &'static str, detail: String) {
        let pointer: String = name.chars().take(64).collect();
        self.errors.push(FieldError::new(pointer, code, detail));
    }

    /// A parameter as text. Empty is the same as not given.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// All values of a parameter that may be given several times.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let is_it = move |(known, value): &&(String, String)| known == name && !value.is_empty();
        self.pairs.iter().filter(is_it).map(|(_, value)| value.as_str())
    }

    /// A parameter as a type; `wanted` says what it should be.
    pub(crate) fn parsed<T: FromStr>(&mut self, name: &str, wanted: &str) -> Option<T> {
        let text = self.text(name)?.to_string();
        let parsed = text.parse().ok();
        if parsed.is_none() {
            let shown: String = text.chars().take(64).collect();
            self.add(name, "wrong_type", format!("`{shown}` is not {wanted}"));
        }
        parsed
    }

    /// A parameter as one of a list of words.
    pub(crate) fn word<T: Copy>(&mut self, name: &str, known: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?.to_string();
        let found = known.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
            self.add(name, "unknown_value", unknown_name("value", &text, &words));
        }
        found
    }

    /// A time: RFC 3339 or epoch seconds.
    pub(crate) fn time(&mut self, name: &str) -> Option<Timestamp> {
        let text = self.text(name)?;
        if let Some(at) = text.parse::<i64>().ok().and_then(|seconds| Timestamp::from_second(seconds).ok()) {
            return Some(at);
        }
        self.parsed(name, "a time; write it as `2026-12-24T18:00:00Z`, or in epoch seconds")
    }

    /// How many items.
    pub(crate) fn limit(&mut self) -> usize {
        let limit = self.parsed("limit", "a number of items");
        if limit.is_some_and(|limit: usize| !(1..=PAGE_MAX).contains(&limit)) {
            self.add("limit", "out_of_range", format!("write 1 to {PAGE_MAX}"));
        }
        limit.unwrap_or(PAGE_DEFAULT)
    }

    /// Which page.
    pub(crate) fn page<C: Cursor>(&mut self) -> PageRequest<C> {
        let limit = self.limit();
        let text = self.text("cursor").map(str::to_string);
        let after = text.as_deref().and_then(C::decode);
        if text.is_some() && after.is_none() {
            let detail = "this cursor is not of this list; start again without one".into();
            self.add("cursor", "cursor", detail);
        }
        PageRequest { after, limit }
    }

    /// Everything that was wrong.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.errors.is_empty() {
            true => Ok(()),
            false => Err(Error::Wrong(self.errors.clone())),
        }
    }
}
