//! The address of a server.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

use crate::error::Error;

/// Where a server is: `http` or `https`, a host, a port, and perhaps a path under which it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    text: String,
}

impl Server {
    /// The URI of a path of the API.
    pub(crate) fn uri(&self, path_and_query: &str) -> Result<Uri, Error> {
        let text = format!("{}{path_and_query}", self.text);
        text.parse().map_err(|error: http::uri::InvalidUri| Error::Request(format!("`{text}`: {error}")))
    }
}

impl FromStr for Server {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::Address { text: text.into(), reason: reason.into() };
        let full = match text.contains("://") {
            true => text.trim_end_matches('/').to_string(),
            false => format!("http://{}", text.trim_end_matches('/')),
        };
        let uri: Uri = full.parse().map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        let scheme = uri.scheme().ok_or_else(|| wrong("it has no scheme"))?;
        if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
            return Err(wrong("only `http` and `https` are spoken"));
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(wrong("it names no host"));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("it names a user"));
        }
        if uri.path_and_query().is_some_and(|rest| PathAndQuery::query(rest).is_some()) {
            return Err(wrong("it has a query"));
        }
        Ok(Server { text: full })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A text as one part of a path or query: everything but unreserved characters is escaped.
pub(crate) fn escaped(text: &str) -> String {
    use std::fmt::Write;

    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(byte as char),
            _ => {
                let _ = write!(escaped, "%{byte:02X}"); // Writing to a String cannot fail.
            }
        }
    }
    escaped
}

/// A query of the parameters that are given, with its question mark.
pub(crate) fn query(parameters: &[(&str, Option<&str>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| value.map(|value| (name, value)));
    let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    match pairs.is_empty() {
        true => String::new(),
        false => format!("?{}", pairs.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_people_write_it() {
        for (text, uri) in [
            ("127.0.0.1:7171", "http://127.0.0.1:7171/v1/jobs"),
            ("localhost:7171", "http://localhost:7171/v1/jobs"),
            ("http://[::1]:7171/", "http://[::1]:7171/v1/jobs"),
            ("https://jobs.example.com", "https://jobs.example.com/v1/jobs"),
            ("https://example.com/punctual/", "https://example.com/punctual/v1/jobs"),
        ] {
            let server: Server = text.parse().expect(text);
            assert_eq!(server.uri("/v1/jobs").expect("a URI").to_string(), uri);
        }
        for text in ["", "ftp://host", "http://", "http://me:secret@host", "http://host?x=1", "two words"] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_goes_into_a_path_or_query_is_escaped() {
        assert_eq!(escaped("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
        let parameters = [("state", Some("active")), ("type", None), ("label", Some("a=b&c"))];
        assert_eq!(query(&parameters), "?state=active&label=a%3Db%26c");
        assert_eq!(query(&[("type", None)]), "");
    }
}
