//! Mail: the function by which alerts are sent to people.
//!
//! Registered in a server that has an address of an SMTP server, under a name that is the system's own. Promise: a mail that the SMTP
//! server refuses for good is not tried again, everything else is; attempts of one message have one `Message-ID`; a
//! password is sent over TLS alone.

use std::sync::Arc;

use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::AsyncSmtpTransport;
use lettre::{AsyncTransport, Tokio1Executor};

use super::function::{Answer, Call, Failed};

/// How mail is sent, and from whom.
#[derive(Clone)]
pub struct Mail {
    smtp: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

/// Settings that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The address of the server.
    #[error("smtp-url: {0}; write it as smtp://user:password@host:587 or smtps://host")]
    Url(String),
    /// The sender.
    #[error("smtp-from: `{0}` is not an address such as punctual@example.com")]
    From(String),
}

impl Mail {
    /// Sends through the server at a URL: `smtps://` is TLS from the first byte; `smtp://` turns to TLS if the server can, and must
    /// if the URL has a password, unless it says `?tls=` itself.
    pub fn new(url: &str, from: &str) -> Result<Mail, Error> {
        let smtp = AsyncSmtpTransport::<Tokio1Executor>::from_url(&with_tls(url)?)
            .map_err(|error| Error::Url(error.to_string()))?
            .build();
        let from = from.parse().map_err(|_| Error::From(from.into()))?;
        Ok(Mail { smtp, from })
    }

    /// Sends what a message says: `to`, `subject` and `text`.
    pub async fn send(&self, call: Call) -> Answer {
        let (to, message) = self.message(&call)?;
        match self.smtp.send(message).await {
            Ok(response) => Ok(Some(format!("sent to {}: {}", to.join(", "), response.code()))),
            Err(error) if error.is_permanent() => Err(Failed::for_good(told(&error))),
            Err(error) => Err(Failed::new(told(&error))),
        }
    }

    /// As a handler of functions.
    pub fn handler(
        self,
    ) -> impl Fn(Call) -> std::pin::Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync {
        let mail = Arc::new(self);
        move |call| {
            let mail = Arc::clone(&mail);
            Box::pin(async move { mail.send(call).await })
        }
    }

    fn message(&self, call: &Call) -> Result<(Vec<String>, Message), Failed> {
        let told: Told = serde_json::from_str(call.payload.as_deref().unwrap_or("{}"))
            .map_err(|error| Failed::for_good(format!("this is no mail: {error}")))?;
        let wrong =
            |error: &dyn std::fmt::Display| Failed::for_good(format!("the mail cannot be written: {error}"));
        let mut message = Message::builder()
            .from(self.from.clone())
            .message_id(Some(format!("<{}@{}>", call.idempotency_key, self.from.email.domain())))
            .subject(&told.subject)
            .header(ContentType::TEXT_PLAIN);
        for address in &told.to {
            message = message.to(address.parse().map_err(|error| wrong(&error))?);
        }
        Ok((told.to, message.body(told.text).map_err(|error| wrong(&error))?))
    }
}

#[derive(serde::Deserialize)]
struct Told {
    to: Vec<String>,
    subject: String,
    text: String,
}

/// An error with what it came from.
fn told(error: &lettre::transport::smtp::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("the mail was not sent: {error}: {source}"),
        None => format!("the mail was not sent: {error}"),
    }
}

/// The URL with what it means for TLS.
fn with_tls(url: &str) -> Result<String, Error> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| Error::Url(format!("`{url}` has no scheme")))?;
    let says = rest.split_once('?').is_some_and(|(_, query)| query.contains("tls="));
    if scheme != "smtp" || says {
        return Ok(url.into());
    }
    let mark = if rest.contains('?') { '&' } else { '?' };
    let tls = if rest.contains('@') { "required" } else { "opportunistic" };
    Ok(format!("{url}{mark}tls={tls}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_sent_over_tls_alone() {
        for (url, expected) in [
            ("smtp://localhost:25", "smtp://localhost:25?tls=opportunistic"),
            ("smtp://a:b@host", "smtp://a:b@host?tls=required"),
            ("smtp://a:b@host?x=1", "smtp://a:b@host?x=1&tls=required"),
            ("smtp://a:b@host?tls=opportunistic", "smtp://a:b@host?tls=opportunistic"),
            ("smtps://a:b@host", "smtps://a:b@host"),
        ] {
            assert_eq!(with_tls(url).unwrap(), expected);
            assert!(Mail::new(url, "Punctual <p@example.com>").is_ok(), "{url}");
        }
    }

    #[test]
    fn wrong_settings_are_named() {
        for (url, from, part) in [
            ("localhost", "p@example.com", "smtp-url"),
            ("http://localhost", "p@example.com", "smtp-url"),
            ("smtp://localhost", "nobody", "smtp-from: `nobody`"),
        ] {
            let error = Mail::new(url, from).err().unwrap().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
