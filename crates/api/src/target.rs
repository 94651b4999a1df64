//! Where runs are executed, on the wire: exactly one of `http`, `worker`, `function` and `discard`.

use std::fmt;

use punctual_domain::job::{self as domain, Method};
use punctual_domain::{message, secret};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::limits::{HEADERS_MAX, URL_MAX, WORD_MAX};
use crate::read::{At, Errors, Read, members, one_of};

object! {
    /// Where runs are executed: exactly one of `http`, `worker`, `function` and `discard`.
    pub struct Target {
        /// An HTTP callback.
        pub http: Http,
        /// A handler in the process that uses Punctual as a library.
        pub function: Function,
        /// A program that asks for runs of the job's queue, in any language.
        pub worker: Worker,
        /// Succeeds at once: `{}`.
        pub discard: Discard,
    }

    /// An HTTP callback. A 2xx answer succeeds.
    pub struct Http {
        /// An absolute `http` or `https` URL. Its path and query may name secrets: `{{ secret.NAME }}`.
        #[schema(example = "http://127.0.0.1:9000/hook", required = true)]
        pub url: String,
        /// `POST` (the default), `PUT`, `PATCH`, `GET` or `DELETE`.
        pub method: String,
        /// More headers. Their values may name secrets: `Bearer {{ secret.NAME }}`.
        pub headers: Headers,
        /// What TLS is spoken with, if not with the public authorities and nobody's certificate.
        pub tls: Tls,
    }

    /// What TLS is spoken with: names of secrets, each of which has PEM in it.
    pub struct Tls {
        /// Who must have signed the target's certificate, instead of the public authorities.
        #[schema(example = "shop-ca")]
        pub ca: String,
        /// The certificate that is shown to the target, and those above it.
        pub client_cert: String,
        /// Its key.
        pub client_key: String,
    }

    /// A handler by its name.
    pub struct Function {
        /// The name it was registered under.
        #[schema(required = true)]
        pub name: String,
    }

    /// What a pull worker is to do.
    pub struct Worker {
        /// The worker's own word for it.
        #[schema(example = "welcome", required = true)]
        pub handler: String,
    }

    /// No member.
    pub struct Discard {
    }
}

/// The members of which a target has exactly one.
pub const KINDS: [&str; 4] = ["http", "worker", "function", "discard"];

const METHODS: [(&str, Method); 5] = [
    ("POST", Method::Post),
    ("PUT", Method::Put),
    ("PATCH", Method::Patch),
    ("GET", Method::Get),
    ("DELETE", Method::Delete),
];

impl Target {
    /// An HTTP callback by `POST`.
    pub fn http(url: impl Into<String>) -> Self {
        let http = Http { url: Some(url.into()), ..Http::default() };
        Target { http: Some(http), ..Target::default() }
    }

    /// A target that succeeds at once.
    pub fn discard() -> Self {
        Target { discard: Some(Discard {}), ..Target::default() }
    }

    pub(crate) fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<domain::Target> {
        match (&self.http, &self.worker, &self.function, &self.discard) {
            (Some(http), None, None, None) => {
                http.to_domain(&at.member("http"), errors).map(domain::Target::Http)
            }
            (None, Some(worker), None, None) => {
                let at = at.member("worker");
                let handler = required(worker.handler.as_ref(), &at, "handler", errors)?;
                crate::job::check_word(Some(handler), &at.member("handler"), WORD_MAX, errors);
                Some(domain::Target::Worker { handler: handler.clone() })
            }
            (None, None, Some(function), None) => {
                let at = at.member("function");
                let name = required(function.name.as_ref(), &at, "name", errors)?;
                crate::job::check_word(Some(name), &at.member("name"), WORD_MAX, errors);
                if message::is_reserved(Some(name)) {
                    let detail =
                        format!("functions `{}...` are the system's own; take another", message::RESERVED);
                    errors.add(&at.member("name"), "reserved", detail);
                }
                Some(domain::Target::Function { name: name.clone() })
            }
            (None, None, None, Some(_)) => Some(domain::Target::Discard),
            (None, None, None, None) => {
                let detail = "no target is given; write one of `http`, `worker`, `function` and `discard`";
                errors.add(at, "missing_field", detail);
                None
            }
            _ => {
                errors.add(
                    at,
                    "conflict",
                    "a job has one target; keep one of `http`, `worker`, `function` and `discard`",
                );
                None
            }
        }
    }
}

impl Http {
    fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<domain::Http> {
        let method = match &self.method {
            Some(word) => one_of(&word.to_ascii_uppercase(), &METHODS, &at.member("method"), errors),
            None => Some(Method::default()),
        };
        let headers = self.headers.clone().unwrap_or_default().0;
        if headers.len() > HEADERS_MAX {
            let detail = format!("{} headers are too many; at most {HEADERS_MAX}", headers.len());
            errors.add(&at.member("headers"), "too_long", detail);
        }
        let url = required(self.url.as_ref(), at, "url", errors)?;
        if let Err(detail) = check_url(url) {
            errors.add(&at.member("url"), "target_url", detail);
        }
        let tls = self.tls.as_ref().map(|tls| tls.to_domain(url, &at.member("tls"), errors));
        Some(domain::Http { url: url.clone(), method: method?, headers, tls: tls.map(Box::new) })
    }
}

impl Tls {
    fn to_domain(&self, url: &str, at: &At<'_>, errors: &mut Errors) -> domain::Tls {
        if !url.to_ascii_lowercase().starts_with("https://") {
            errors.add(at, "conflict", "TLS is spoken with `https` URLs; write one, or leave `tls` out");
        }
        for (member, name) in
            [("ca", &self.ca), ("client_cert", &self.client_cert), ("client_key", &self.client_key)]
        {
            if let Some(Err(wrong)) = name.as_deref().map(secret::check_name) {
                errors.add(&at.member(member), "unknown_value", wrong.to_string());
            }
        }
        match (&self.client_cert, &self.client_key) {
            (Some(_), None) => {
                let detail = "a certificate needs its key: the name of the secret with it";
                errors.add(&at.member("client_key"), "missing_field", detail);
            }
            (None, Some(_)) => {
                let detail = "a key needs its certificate: the name of the secret with it";
                errors.add(&at.member("client_cert"), "missing_field", detail);
            }
            (None, None) if self.ca.is_none() => {
                errors.add(
                    at,
                    "missing_field",
                    "nothing is named; write `ca`, or `client_cert` and `client_key`",
                );
            }
            _ => {}
        }
        domain::Tls {
            ca: self.ca.clone(),
            client_cert: self.client_cert.clone(),
            client_key: self.client_key.clone(),
        }
    }
}

/// The shape of a URL. The worker reads it strictly, and checks the address again at every call.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    if url.len() > URL_MAX {
        return Err(format!("the URL has {} bytes; at most {URL_MAX}", url.len()));
    }
    secret::check(url).map_err(|wrong| wrong.to_string())?;
    if domain::host(url).contains("{{") {
        return Err(
            "a secret stands in the path or the query of a URL; its host is for everybody to see".into()
        );
    }
    // What is filled in is percent-encoded: it cannot be wrong here.
    let url = &*secret::without(url);
    let shown: String = url.chars().take(80).collect();
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(format!("`{shown}` is not an absolute URL; write it as `https://host/path`"));
    };
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(format!("`{shown}` has the scheme `{scheme}`; only `http` and `https` are called"));
    }
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    if authority.is_empty() || authority.starts_with(':') {
        return Err(format!("`{shown}` names no host; write it as `https://host/path`"));
    }
    if authority.contains('@') {
        return Err("the URL names a user; put credentials in a header, such as `Authorization`".into());
    }
    match url.chars().find(|c| !('!'..='~').contains(c)) {
        Some(c) => Err(format!("the URL contains the character U+{:04X}; percent-encode it", c as u32)),
        None => Ok(()),
    }
}

/// A member that must be there.
pub(crate) fn required<'a, T>(
    value: Option<&'a T>,
    at: &At<'_>,
    member: &'static str,
    errors: &mut Errors,
) -> Option<&'a T> {
    if value.is_none() {
        errors.add(&at.member(member), "missing_field", format!("`{member}` is missing"));
    }
    value
}

impl From<&domain::Target> for Target {
    fn from(target: &domain::Target) -> Self {
        let mut wire = Target::default();
        match target {
            domain::Target::Http(http) => {
                wire.http = Some(Http {
                    url: Some(http.url.clone()),
                    method: Some(http.method.as_str().into()),
                    headers: Some(Headers(http.headers.clone())).filter(|headers| !headers.0.is_empty()),
                    tls: http.tls.as_deref().map(|tls| Tls {
                        ca: tls.ca.clone(),
                        client_cert: tls.client_cert.clone(),
                        client_key: tls.client_key.clone(),
                    }),
                });
            }
            domain::Target::Function { name } => wire.function = Some(Function { name: Some(name.clone()) }),
            domain::Target::Worker { handler } => {
                wire.worker = Some(Worker { handler: Some(handler.clone()) });
            }
            domain::Target::Discard => wire.discard = Some(Discard {}),
        }
        wire
    }
}

/// Names and values in the order they were given; an object on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(value_type = std::collections::BTreeMap<String, String>)]
pub struct Headers(pub Vec<(String, String)>);

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of text")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    headers.push(entry);
                }
                Ok(Headers(headers))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Read for Headers {
    fn read(text: &str, at: &At<'_>, errors: &mut Errors) -> Option<Self> {
        let mut headers = Vec::new();
        for (name, value) in members(text, at, errors)? {
            let here = at.member(&name);
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(is_token) {
                errors.add(&here, "header", "a header's name has letters, digits and hyphens");
            }
            let Some(value) = String::read(value, &here, errors) else { continue };
            if value.chars().any(|c| c != '\t' && !(' '..='~').contains(&c)) {
                errors.add(&here, "header", "a header's value is printable ASCII on one line");
            }
            if let Err(wrong) = secret::check(&value) {
                errors.add(&here, "header", wrong.to_string());
            }
            headers.push((name.into_owned(), value));
        }
        Some(Headers(headers))
    }
}
