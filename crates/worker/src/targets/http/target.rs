//! A target's URL, read once.
//!
//! Parsed when a job is registered and when a worker first meets it. Promise: a [`Target`] has one
//! reading. What two programs could understand differently (users, odd numbers, backslashes,
//! trailing dots, escapes in the host) is refused here, so that the guard judges the same host
//! that is then dialled.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ::http::uri::{Authority, PathAndQuery, Scheme};
use ::http::{HeaderValue, Uri};

use super::identity::{Identity, Print};
use crate::Error;

/// Longer URLs are refused by common servers too.
pub const URL_MAX: usize = 2_048;

/// A URL that can be called: scheme, host, port and path, each valid.
#[derive(Clone)]
pub struct Target {
    origin: Arc<Origin>,
    /// As an HTTP/1.1 request line carries it.
    pub(super) path: Uri,
    /// As HTTP/2 pseudo-headers carry it.
    pub(super) absolute: Uri,
    pub(super) host_header: HeaderValue,
}

/// What a connection leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) tls: bool,
    pub(super) host: Host,
    pub(super) port: u16,
    /// What TLS is spoken with, if that is the target's own affair: its connections are nobody else's.
    pub(super) identity: Option<Print>,
}

/// A name to resolve, in lower case, or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

impl Target {
    /// Reads an absolute `http` or `https` URL.
    pub fn parse(url: &str) -> Result<Target, Error> {
        read(url).map_err(|(reason, way_out)| Error::Target { url: shown(url), reason: cut(reason), way_out })
    }

    /// The name or address, as it appears in the URL.
    pub fn host(&self) -> String {
        self.origin.host.to_string()
    }

    /// The port, also when the URL leaves it out.
    pub fn port(&self) -> u16 {
        self.origin.port
    }

    /// Whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.origin.tls
    }

    /// The same, called with an identity of its own.
    #[must_use]
    pub fn with(mut self, identity: &Identity) -> Self {
        self.origin = Arc::new(Origin { identity: Some(identity.print()), ..(*self.origin).clone() });
        self
    }

    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.absolute.fmt(f)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.absolute)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(address) => address.fmt(f),
        }
    }
}

/// What is wrong, and what to write instead.
type Wrong = (String, String);

fn wrong<T>(reason: impl Into<String>, way_out: impl Into<String>) -> Result<T, Wrong> {
    Err((reason.into(), way_out.into()))
}

fn read(url: &str) -> Result<Target, Wrong> {
    if url.len() > URL_MAX {
        return wrong(format!("has {} bytes", url.len()), format!("a URL has at most {URL_MAX}"));
    }
    if let Some(c) = url.chars().find(|c| !('!'..='~').contains(c)) {
        let way_out = "write it in ASCII: a name as `xn--...`, the rest percent-encoded";
        return wrong(format!("contains the character U+{:04X}", c as u32), way_out);
    }
    if let Some(c) = url.chars().find(|c| "\\\"<>^`{|}".contains(*c)) {
        return wrong(
            format!("contains `{c}`"),
            format!("in a path or query write it as `%{:02X}`", c as u32),
        );
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return wrong("is not an absolute URL", "write it as `https://host/path`");
    };
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return wrong(format!("has the scheme `{scheme}`"), "only `http` and `https` are called"),
    };
    if rest.contains('#') {
        return wrong("has a fragment", "remove what follows `#`, it is never sent");
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return wrong("names a user", "put credentials in a header, such as `Authorization`");
    }
    let (host_text, port_text) = split_port(authority)?;
    let host = read_host(host_text)?;
    let default_port = if tls { 443 } else { 80 };
    let port = port_text.map_or(Ok(default_port), read_port)?;
    let origin = Origin { tls, host, port, identity: None };
    assemble(origin, port == default_port, path)
}

/// The parts as the HTTP library wants them. The checks above leave it nothing to refuse but odd
/// bytes in the path.
fn assemble(origin: Origin, is_default_port: bool, path: &str) -> Result<Target, Wrong> {
    let mut authority = match origin.host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
        Host::Address(IpAddr::V4(address)) => address.to_string(),
        Host::Name(ref name) => name.clone(),
    };
    if !is_default_port {
        authority.push_str(&format!(":{}", origin.port));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let unusable = |what: &str| (format!("has a {what} that cannot be sent"), "percent-encode it".to_owned());
    let path = PathAndQuery::try_from(path).map_err(|_| unusable("path"))?;
    let host_header = HeaderValue::try_from(&authority).map_err(|_| unusable("host"))?;
    let authority = Authority::try_from(authority).map_err(|_| unusable("host"))?;
    let scheme = if origin.tls { Scheme::HTTPS } else { Scheme::HTTP };
    let absolute = Uri::builder().scheme(scheme).authority(authority).path_and_query(path.clone());
    let absolute = absolute.build().map_err(|_| unusable("path"))?;
    Ok(Target { origin: Arc::new(origin), path: Uri::from(path), absolute, host_header })
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), Wrong> {
    if authority.starts_with('[') {
        let Some(end) = authority.find(']') else {
            return wrong("has an unclosed `[`", "write an IPv6 address as `[2001:db8::1]`");
        };
        return match &authority[end + 1..] {
            "" => Ok((authority, None)),
            after if after.starts_with(':') => Ok((&authority[..=end], Some(&after[1..]))),
            _ => wrong("continues after `]`", "only `:port` may follow an address in brackets"),
        };
    }
    match authority.split_once(':') {
        None => Ok((authority, None)),
        Some((_, port)) if port.contains(':') => {
            wrong("has more than one `:` in its host", "write an IPv6 address in brackets")
        }
        Some((host, port)) => Ok((host, Some(port))),
    }
}

fn read_port(text: &str) -> Result<u16, Wrong> {
    let plain = !text.is_empty() && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(port) if plain => Ok(port),
        _ => wrong(format!("has the port `{text}`"), "a port is a number from 1 to 65535"),
    }
}

fn read_host(text: &str) -> Result<Host, Wrong> {
    if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return match inner.parse::<Ipv6Addr>() {
            Ok(address) => Ok(Host::Address(address.into())),
            Err(_) => wrong(format!("has the address `[{inner}]`"), "write an IPv6 address without a zone"),
        };
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Address(address.into()));
    }
    let name = text.to_ascii_lowercase();
    if name.is_empty() {
        return wrong("has no host", "write it as `https://host/path`");
    }
    if name.ends_with('.') {
        return wrong("has a host that ends with a dot", "remove the dot");
    }
    if name.len() > 253 {
        return wrong(format!("has a host of {} bytes", name.len()), "a name has at most 253");
    }
    for label in name.split('.') {
        let letters = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if label.is_empty() || label.len() > 63 || !letters {
            let way_out = "a name is letters, digits and hyphens between single dots, 63 at most";
            return wrong(format!("has the host `{name}`"), way_out);
        }
        if label.starts_with('-') || label.ends_with('-') {
            return wrong(format!("has the host `{name}`"), "no part of a name starts or ends with `-`");
        }
    }
    // Some resolvers read `0177.1`, `2130706433` and `0x7f.1` as addresses. No top-level domain
    // starts with a digit.
    if name.rsplit('.').next().is_some_and(|last| last.starts_with(|c: char| c.is_ascii_digit())) {
        let way_out = "write an IPv4 address as four decimal numbers without leading zeros";
        return wrong(format!("has the host `{name}`, which reads as a number"), way_out);
    }
    Ok(Host::Name(name))
}

/// The URL for a message: short, printable, and without what may be secret.
fn shown(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (scheme, rest) = url[..end].split_once("://").unwrap_or(("", &url[..end]));
    // What precedes an `@` may be a password, wherever the authority ends.
    let rest = rest.rfind('@').map_or(rest, |at| &rest[at + 1..]);
    let whole = if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{rest}") };
    cut(whole.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
}

/// The text, or its start.
pub(super) fn cut(mut text: String) -> String {
    const SHOWN_MAX: usize = 80; // Enough to recognise it; a message stays one line.
    if let Some((at, _)) = text.char_indices().nth(SHOWN_MAX) {
        text.truncate(at);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_plain_url_is_read_into_its_parts() {
        let cases = [
            ("http://example.com", "example.com", 80, "/", "example.com"),
            ("https://Example.COM/a/b?c=d", "example.com", 443, "/a/b?c=d", "example.com"),
            ("HTTPS://example.com:8443/", "example.com", 8443, "/", "example.com:8443"),
            ("http://example.com:80?x", "example.com", 80, "/?x", "example.com"),
            ("http://10.1.2.3:9/x%20y", "10.1.2.3", 9, "/x%20y", "10.1.2.3:9"),
            ("http://[2001:DB8::1]/", "2001:db8::1", 80, "/", "[2001:db8::1]"),
            ("http://[::1]:8080/a", "::1", 8080, "/a", "[::1]:8080"),
            ("http://a_b.internal/", "a_b.internal", 80, "/", "a_b.internal"),
            ("http://3com.com/@x", "3com.com", 80, "/@x", "3com.com"),
        ];
        for (url, host, port, path, host_header) in cases {
            let target = Target::parse(url).unwrap();
            assert_eq!((target.host().as_str(), target.port()), (host, port), "{url}");
            assert_eq!(
                (target.path.to_string().as_str(), target.host_header.to_str().unwrap()),
                (path, host_header)
            );
            assert_eq!(target.is_https(), url.to_lowercase().starts_with("https"));
            assert!(Target::parse(&target.to_string()).is_ok(), "{target} reads again");
        }
    }

    #[test]
    fn a_message_about_a_url_repeats_neither_password_nor_query() {
        for url in [
            "http://user:hunter2@example.com/?token=s3cret",
            "ftp://user:hunter2@example.com/?token=s3cret",
            "s3cret:hunter2@example.com",
        ] {
            let message = Target::parse(url).unwrap_err().to_string();
            assert!(!message.contains("hunter2") && !message.contains("s3cret"), "{message}");
        }
        let long =
            Target::parse(&format!("http://example.com/{}", "x".repeat(5_000))).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }
}
