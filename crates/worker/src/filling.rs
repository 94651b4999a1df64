//! Fills the secrets of a call in, and takes them out of what came back.
//!
//! Runs for every HTTP attempt, right before its call: the one place where a value is open. Promise: what is not named is not opened; a
//! call whose secrets are not all there is not made; neither output nor error leaves the worker with a value in it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use async_trait::async_trait;
use punctual_domain::attempt::{Failure, Output};
use punctual_domain::job::{Http, Method, Tls};
use punctual_domain::message;
use punctual_domain::secret::{self, CALL_MAX, Form, Unusable, Values};
use punctual_domain::work::Leased;
use punctual_domain::{Report, TenantId};

use crate::Error;
use crate::targets::http::{Headers, Identity, Target};

/// Opens secrets.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// All of these of a tenant, or why one of them cannot be used.
    async fn open(&self, tenant: TenantId, names: &BTreeSet<String>) -> Result<Values, Unusable>;
}

/// A call with its secrets.
pub(crate) struct Filled<'a> {
    pub(crate) method: Method,
    pub(crate) payload: Option<Cow<'a, str>>,
    url: Cow<'a, str>,
    headers: Vec<(&'a str, Cow<'a, str>)>,
    /// What TLS is spoken with.
    pub(crate) identity: Option<Identity>,
    values: Values,
}

/// Opens what the target and the job's own payload name, and writes it in its places.
pub(crate) async fn fill<'a>(
    target: &'a Http,
    leased: &'a Leased,
    vault: Option<&dyn Secrets>,
) -> Result<Filled<'a>, Failure> {
    let template = own_payload(leased);
    let mut names = secret::names(&target.url);
    names.extend(target.headers.iter().flat_map(|(_, value)| secret::names(value)));
    names.extend(template.map(secret::names).unwrap_or_default());
    names.extend(target.tls.iter().flat_map(|tls| tls.secrets().cloned()));
    let values = match (names.len(), vault) {
        (0, _) => Values::default(),
        (1..=CALL_MAX, Some(vault)) => vault.open(leased.job.tenant, &names).await.map_err(unusable)?,
        (1..=CALL_MAX, None) => return Err(unsendable("this program opens no secrets".into())),
        (count, _) => return Err(unsendable(format!("it names {count} secrets; at most {CALL_MAX}"))),
    };
    let payload = match template {
        Some(template) => Some(values.fill(template, Form::Json)),
        None => leased.payload().map(Cow::Borrowed),
    };
    let header = |(name, value): &'a (String, String)| (name.as_str(), values.fill(value, Form::Plain));
    Ok(Filled {
        method: target.method,
        payload,
        url: values.fill(&target.url, Form::Url),
        headers: target.headers.iter().map(header).collect(),
        identity: target.tls.as_deref().map(|tls| identity(tls, &values)),
        values,
    })
}

/// All that it names was opened.
fn identity(tls: &Tls, values: &Values) -> Identity {
    let text =
        |name: &Option<String>| -> Option<Box<str>> { Some(values.get(name.as_deref()?)?.reveal().into()) };
    Identity { ca: text(&tls.ca), client: text(&tls.client_cert).zip(text(&tls.client_key)) }
}

/// The payload that the job's owner wrote. What a run brings, and what the system tells, may be what others said: an answer that names a
/// secret must not get it.
fn own_payload(leased: &Leased) -> Option<&str> {
    let is_own = leased.run.payload.is_none() && !message::is_reserved(leased.job.spec.kind.as_deref());
    leased.job.spec.payload.as_deref().filter(|_| is_own)
}

impl Filled<'_> {
    /// As it can be sent.
    pub(crate) fn parse(&self) -> Result<(Target, Headers), Error> {
        let url = Target::parse(&self.url).map_err(|error| match &self.url {
            Cow::Borrowed(_) => error,
            // What a message shows of a URL may be the start of a value.
            Cow::Owned(_) => Error::Target {
                url: "with its secrets".into(),
                reason: format!("has {} bytes or cannot be read", self.url.len()),
                way_out: "see whether the secrets in it are what they should be".into(),
            },
        })?;
        let pairs = self.headers.iter().map(|(name, value)| (*name, value.as_ref()));
        let headers = Headers::parse(pairs)?;
        let is_secret = |name: &str| {
            let named = |(given, value): &(&str, Cow<'_, str>)| {
                matches!(value, Cow::Owned(_)) && given.eq_ignore_ascii_case(name)
            };
            self.headers.iter().any(named)
        };
        let url = match &self.identity {
            Some(identity) => url.with(identity),
            None => url,
        };
        Ok((url, headers.hiding(is_secret)))
    }

    /// What came of it, without any value.
    pub(crate) fn hide(&self, mut report: Report) -> Report {
        if self.values.is_empty() {
            return report;
        }
        if let Some(error) = &mut report.error {
            error.message = self.values.hide(&error.message);
        }
        report.output = report.output.map(|output| {
            let mut bytes = self.values.hide_bytes(&output.bytes, output.is_truncated);
            // What stands for a value may be longer than it, and the cap holds all the same.
            let is_longer = bytes.len() > output.bytes.len();
            bytes.truncate(output.bytes.len());
            Output { bytes, is_truncated: output.is_truncated || is_longer }
        });
        report
    }
}

fn unusable(unusable: Unusable) -> Failure {
    Failure {
        code: unusable.code().into(),
        message: unusable.to_string(),
        // Somebody mends what cannot be read; what is not there was never promised.
        is_retryable: matches!(unusable, Unusable::Unreadable { .. }),
        retry_after: None,
    }
}

/// Whoever keeps the secrets did not answer in time. Nothing was sent.
pub(crate) fn late() -> Failure {
    let message = "its secrets could not be opened in time".into();
    Failure { code: "secret_unreadable".into(), message, is_retryable: true, retry_after: None }
}

fn unsendable(reason: String) -> Failure {
    let message = format!("the call cannot be sent: {reason}");
    Failure { code: "call_unsendable".into(), message, is_retryable: false, retry_after: None }
}
