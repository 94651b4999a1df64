//! A form as it was sent: fields by name, from one of our own pages.

use crate::error::Error;

/// More fields than any page of ours has are not from one.
const FIELDS_MAX: usize = 200;

/// The fields of a form.
#[derive(Debug, Default)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads `application/x-www-form-urlencoded`.
    pub(crate) fn read(text: &str) -> Result<Self, Error> {
        let wrong =
            || Error::wrong("", "wrong_type", "the form is not percent-encoded text; send it from the page");
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let mut fields = Vec::new();
        for pair in pairs.take(FIELDS_MAX) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            fields.push((decoded(name).ok_or_else(wrong)?, decoded(value).ok_or_else(wrong)?));
        }
        Ok(Form(fields))
    }

    /// What a page begins with.
    pub(crate) fn of(fields: &[(&str, &str)]) -> Self {
        Form(fields.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect())
    }

    /// A field, without spaces around it; empty, if it is not there.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.trim())
    }

    /// A field that says something.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }
}

/// Text as forms encode it.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => (digit(rest.next()?)? << 4) | digit(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Text as a part of a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A query of what is given.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    let parts: Vec<String> = given.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("?{}", parts.join("&")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "what is not there fails the test")]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_browsers_write_it() {
        let form = Form::read("name=a+b%26%C3%BC&empty=&spaces=++x++&bare").unwrap();
        assert_eq!((form.text("name"), form.text("spaces"), form.text("bare")), ("a b&\u{fc}", "x", ""));
        assert_eq!(
            (form.given("empty"), form.given("absent"), form.given("spaces")),
            (None, None, Some("x"))
        );
    }

    #[test]
    fn what_is_not_percent_encoded_text_is_refused() {
        for text in ["a=%", "a=%4", "a=%zz", "a=%ff", "%ff=a"] {
            assert!(Form::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_query_has_what_is_given_and_nothing_else() {
        assert_eq!(query(&[("name", ""), ("state", "")]), "");
        assert_eq!(query(&[("name", "a&b c"), ("state", ""), ("q", "\u{fc}")]), "?name=a%26b%20c&q=%C3%BC");
    }
}
