//! The key of a limit, as its owner writes it: text with places for what payload and labels say.
//!
//! `{payload.customer}-{labels.team}` becomes `acme-billing`. Filled in where a run is born. Promise: text that is not a template is
//! refused with the reason; what a place names and is not there is empty text, and told.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of a template.
pub const LENGTH_MAX: usize = 256;

/// Places in a template.
pub const PLACES_MAX: usize = 8;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: Arc<str>,
}

/// What a place names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// A member of the payload, by the names on the way to it.
    Payload(Vec<&'a str>),
    /// A label of the job.
    Label(&'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Payload(path) => write!(f, "payload.{}", path.join(".")),
            Place::Label(name) => write!(f, "labels.{name}"),
        }
    }
}

/// Why text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Empty or too long.
    #[error("a key has 1 to {LENGTH_MAX} bytes")]
    Length,
    /// A brace that is not closed, or not opened.
    #[error("a brace is not closed, or not opened: write {{payload.customer}} or {{labels.team}}")]
    Braces,
    /// A place that names nothing.
    #[error("`{0}` is no place: write payload. and a path, or labels. and a name")]
    Place(String),
    /// Too many places.
    #[error("a key has at most {PLACES_MAX} places")]
    Count,
    /// A character that is not seen.
    #[error("a key has no control characters")]
    Character,
}

/// A template with its places filled in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The text.
    pub text: String,
    /// Places that named nothing, as they are written.
    pub missing: Vec<String>,
}

impl Template {
    /// As its owner wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a place is in the payload, which has to be read then.
    pub fn needs_payload(&self) -> bool {
        self.pieces().any(|piece| matches!(piece, Piece::Place(Place::Payload(_))))
    }

    /// Fills the places in with what is found there.
    pub fn fill(&self, mut find: impl FnMut(&Place<'_>) -> Option<String>) -> Filled {
        let mut filled = Filled::default();
        for piece in self.pieces() {
            match piece {
                Piece::Text(text) => filled.text.push_str(text),
                Piece::Place(place) => match find(&place) {
                    Some(found) => filled.text.push_str(&found),
                    None => filled.missing.push(place.to_string()),
                },
            }
        }
        filled
    }

    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        // It was read when it was made.
        pieces(&self.text).unwrap_or_default().into_iter()
    }
}

enum Piece<'a> {
    Text(&'a str),
    Place(Place<'a>),
}

impl FromStr for Template {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if text.is_empty() || text.len() > LENGTH_MAX {
            return Err(Wrong::Length);
        }
        if text.chars().any(char::is_control) {
            return Err(Wrong::Character);
        }
        let places = pieces(text)?.iter().filter(|piece| matches!(piece, Piece::Place(_))).count();
        match places > PLACES_MAX {
            true => Err(Wrong::Count),
            false => Ok(Template { text: text.into() }),
        }
    }
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Wrong> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, behind) = after.split_once('}').ok_or(Wrong::Braces)?;
        if before.contains('}') || inside.contains('{') {
            return Err(Wrong::Braces);
        }
        pieces.push(Piece::Text(before));
        pieces.push(Piece::Place(place(inside)?));
        rest = behind;
    }
    if rest.contains('}') {
        return Err(Wrong::Braces);
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

fn place(inside: &str) -> Result<Place<'_>, Wrong> {
    let wrong = || Wrong::Place(inside.into());
    match inside.split_once('.') {
        // A label's name may have points in it.
        Some(("labels", name)) if !name.is_empty() => Ok(Place::Label(name)),
        Some(("payload", path)) => {
            let path: Vec<&str> = path.split('.').collect();
            if path.iter().any(|name| name.is_empty()) { Err(wrong()) } else { Ok(Place::Payload(path)) }
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in_and_what_is_missing_is_told() {
        let find = |place: &Place<'_>| match place {
            Place::Payload(path) if path.join("/") == "customer/id" => Some("7".to_string()),
            Place::Label("team.name") => Some("billing".into()),
            _ => None,
        };
        for (template, text, missing) in [
            ("plain", "plain", ""),
            ("{payload.customer.id}", "7", ""),
            ("c-{payload.customer.id}/{labels.team.name}!", "c-7/billing!", ""),
            ("{payload.customer}{labels.x}", "", "payload.customer labels.x"),
        ] {
            let parsed: Template = template.parse().unwrap();
            let filled = parsed.fill(find);
            assert_eq!(
                (filled.text.as_str(), filled.missing.join(" ").as_str()),
                (text, missing),
                "{template}"
            );
            assert_eq!(parsed.as_str(), template);
            assert_eq!(parsed.needs_payload(), template.contains("payload"));
        }
    }

    #[test]
    fn what_is_no_template_is_refused_with_the_reason() {
        let long = "x".repeat(257);
        let many = "{labels.a}".repeat(9);
        for (text, part) in [
            ("", "1 to 256"),
            (long.as_str(), "1 to 256"),
            ("{payload.a", "not closed"),
            ("payload.a}", "not closed"),
            ("{payload.{labels.a}}", "not closed"),
            ("a}b{labels.a}", "not closed"),
            ("{customer}", "`customer` is no place"),
            ("{payload.}", "`payload.` is no place"),
            ("{payload.a..b}", "is no place"),
            ("{labels.}", "is no place"),
            ("{headers.a}", "is no place"),
            (many.as_str(), "at most 8"),
            ("a\nb", "control"),
        ] {
            let wrong = text.parse::<Template>().unwrap_err().to_string();
            assert!(wrong.contains(part), "{text}: {wrong}");
        }
    }
}
