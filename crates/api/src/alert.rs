//! Alerts and alarms on the wire: what somebody wants to be told of, and what is raised now.

use std::collections::BTreeMap;

use jiff::Timestamp;
use punctual_domain::alert::{self as domain, Alarm as DomainAlarm, On, Subject, To, Which};
use punctual_domain::{TenantId, labels};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::duration::Duration;
use crate::job::check_word;
use crate::limits::{LABEL_MAX, LABELS_MAX, WORD_MAX};
use crate::read::{At, Errors, Rules, Unread, one_of};
use crate::target::{check_url, required};

object! {
    /// What somebody wants to be told of, and who he is.
    pub struct AlertSpec {
        /// `dead_letter`, `breaker_open`, `missed`, `late` or `silent`.
        #[schema(required = true, example = "dead_letter")]
        pub on: String,
        /// With `late`: runs that start later than this after their slot.
        pub over: Duration,
        /// With `silent`: active jobs that had no success for this long.
        pub r#for: Duration,
        /// Of which jobs; of all of the tenant, unless said otherwise.
        pub jobs: AlertJobs,
        /// Who is told.
        #[schema(required = true)]
        pub to: AlertTo,
        /// What goes on is told again after this long; `PT1H`.
        pub repeat_every: Duration,
    }

    /// Which jobs an alert is about; every member narrows.
    pub struct AlertJobs {
        /// The one with this id.
        pub id: String,
        /// The one with this key.
        pub key: String,
        /// Of this type.
        pub r#type: String,
        /// In this queue.
        pub queue: String,
        /// With all of these labels.
        pub labels: BTreeMap<String, String>,
    }

    /// Who is told: exactly one of `webhook`, `slack` and `mail`.
    pub struct AlertTo {
        /// A URL that takes everything that is known, as JSON.
        pub webhook: AlertUrl,
        /// A URL that takes `{"text": ...}`, as incoming webhooks of Slack and of others do.
        pub slack: AlertUrl,
        /// People, by mail.
        pub mail: AlertMail,
    }

    /// A URL that is told.
    pub struct AlertUrl {
        /// An absolute `http` or `https` URL.
        #[schema(required = true, example = "https://hooks.example.com/x")]
        pub url: String,
    }

    /// People that are told by mail.
    pub struct AlertMail {
        /// Their addresses, 1 to 20.
        #[schema(required = true)]
        pub to: Vec<String>,
    }
}

/// An alert as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// What it says.
    #[serde(flatten)]
    pub spec: AlertSpec,
}

/// Something that is raised now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Alarm {
    /// Of this alert.
    pub alert: String,
    /// What the alert is about.
    pub on: String,
    /// The job that is not well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The breaker that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<String>,
    /// What people call it; `and more` for what is not told one by one.
    pub name: String,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it was last seen to be so.
    #[schema(value_type = String, format = DateTime)]
    pub last_at: Timestamp,
    /// How often it was.
    pub count: u64,
    /// The newest of them, in a sentence.
    pub detail: String,
    /// How often it was told.
    pub told: u32,
    /// When it was last told.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_at: Option<Timestamp>,
}

/// The shortest time: alarms are looked at every few seconds.
const SHORTEST: std::time::Duration = std::time::Duration::from_secs(1);

/// Nobody waits longer.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(400 * 86_400);

/// More are a mailing list.
const MAILS_MAX: usize = 20;

/// What an alert is about, before its length of time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    DeadLetter,
    BreakerOpen,
    Missed,
    Late,
    Silent,
}

const KINDS: [(&str, Kind); 5] = [
    ("dead_letter", Kind::DeadLetter),
    ("breaker_open", Kind::BreakerOpen),
    ("missed", Kind::Missed),
    ("late", Kind::Late),
    ("silent", Kind::Silent),
];

impl AlertSpec {
    /// As it is set, or everything that is wrong. `has_mail`: the server can send mail.
    pub fn to_domain(
        &self,
        name: &str,
        tenant: TenantId,
        has_mail: bool,
        rules: &Rules<'_>,
        now: Timestamp,
    ) -> Result<domain::Alert, Unread> {
        let (at, mut errors) = (At::ROOT, Errors::default());
        if labels::check("name", name).is_err() {
            let detail = "the name of an alert has 1 to 63 letters, digits and any of . _ - /";
            errors.add(&at.member("name"), "bad_character", detail);
        }
        let on = self.on(&at, &mut errors);
        let jobs = self.jobs.as_ref().map(|jobs| jobs.to_domain(&at.member("jobs"), &mut errors));
        let to = required(self.to.as_ref(), &at, "to", &mut errors)
            .and_then(|to| to.to_domain(&at.member("to"), has_mail, rules, &mut errors));
        let repeat_every = self.repeat_every.map_or(domain::REPEAT_EVERY, |every| every.0);
        check_length(repeat_every, &at.member("repeat_every"), &mut errors);
        match (on, to, errors.is_empty()) {
            (Some(on), Some(to), true) => Ok(domain::Alert {
                name: name.into(),
                tenant,
                on,
                jobs: jobs.unwrap_or_default(),
                to,
                repeat_every,
                since: now,
            }),
            _ => Err(Unread::Wrong(errors.into_vec())),
        }
    }

    fn on(&self, at: &At<'_>, errors: &mut Errors) -> Option<On> {
        let word = required(self.on.as_ref(), at, "on", errors)?;
        let kind = one_of(word, &KINDS, &at.member("on"), errors)?;
        for (member, length, of) in [("over", self.over, Kind::Late), ("for", self.r#for, Kind::Silent)] {
            match length {
                Some(_) if kind != of => {
                    let detail = format!("`{member}` does not belong to `{word}`; leave it out");
                    errors.add(&at.member(member), "conflict", detail);
                }
                Some(length) => check_length(length.0, &at.member(member), errors),
                None if kind == of => {
                    let detail = format!("`{member}` is missing: how long, such as `PT10M`");
                    errors.add(&at.member(member), "missing_field", detail);
                }
                None => {}
            }
        }
        Some(match kind {
            Kind::DeadLetter => On::DeadLetter,
            Kind::BreakerOpen => On::BreakerOpen,
            Kind::Missed => On::Missed,
            Kind::Late => On::Late { over: self.over?.0 },
            Kind::Silent => On::Silent { after: self.r#for?.0 },
        })
    }
}

impl AlertJobs {
    fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Which {
        for (member, word) in [("key", &self.key), ("type", &self.r#type), ("queue", &self.queue)] {
            check_word(word.as_ref(), &at.member(member), WORD_MAX, errors);
        }
        let labels = self.labels.clone().unwrap_or_default();
        let is_long = |text: &String| text.len() > LABEL_MAX;
        if labels.len() > LABELS_MAX || labels.iter().any(|(name, value)| is_long(name) || is_long(value)) {
            let detail = format!("at most {LABELS_MAX} labels of at most {LABEL_MAX} bytes");
            errors.add(&at.member("labels"), "too_long", detail);
        }
        let job = self.id.as_ref().and_then(|id| match id.parse() {
            Ok(id) => Some(id),
            Err(_) => {
                errors.add(&at.member("id"), "job_id", format!("`{id}` is not the id of a job"));
                None
            }
        });
        Which { job, key: self.key.clone(), kind: self.r#type.clone(), queue: self.queue.clone(), labels }
    }
}

impl AlertTo {
    fn to_domain(&self, at: &At<'_>, has_mail: bool, rules: &Rules<'_>, errors: &mut Errors) -> Option<To> {
        let known = "`webhook`, `slack` and `mail`";
        match (&self.webhook, &self.slack, &self.mail) {
            (Some(to), None, None) => {
                to.checked(&at.member("webhook"), rules, errors).map(|url| To::Webhook { url })
            }
            (None, Some(to), None) => {
                to.checked(&at.member("slack"), rules, errors).map(|url| To::Slack { url })
            }
            (None, None, Some(mail)) => mail.to_domain(&at.member("mail"), has_mail, errors),
            (None, None, None) => {
                errors.add(at, "missing_field", format!("nobody is told; write one of {known}"));
                None
            }
            _ => {
                errors.add(at, "conflict", format!("an alert tells one; keep one of {known}"));
                None
            }
        }
    }
}

impl AlertUrl {
    fn checked(&self, at: &At<'_>, rules: &Rules<'_>, errors: &mut Errors) -> Option<String> {
        let url = required(self.url.as_ref(), at, "url", errors)?;
        if let Err(detail) = check_url(url) {
            errors.add(&at.member("url"), "target_url", detail);
            return None;
        }
        let http = punctual_domain::job::Http {
            url: url.clone(),
            method: Default::default(),
            headers: Vec::new(),
            tls: None,
        };
        if let Some(Err(reason)) = rules.check_target.map(|check| check(&punctual_domain::Target::Http(http)))
        {
            errors.add(&at.member("url"), "target_refused", reason);
        }
        Some(url.clone())
    }
}

impl AlertMail {
    fn to_domain(&self, at: &At<'_>, has_mail: bool, errors: &mut Errors) -> Option<To> {
        if !has_mail {
            let detail = "this server cannot send mail; start it with `--smtp-url` and `--smtp-from`";
            errors.add(at, "mail_unavailable", detail);
        }
        let to = required(self.to.as_ref(), at, "to", errors)?;
        let list = at.member("to");
        if !(1..=MAILS_MAX).contains(&to.len()) {
            errors.add(&list, "out_of_range", format!("{} addresses are not 1 to {MAILS_MAX}", to.len()));
        }
        for (index, address) in to.iter().enumerate() {
            let parts = address.split_once('@');
            let is_right = parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
                && address.len() <= 254
                && address.chars().all(|c| ('!'..='~').contains(&c) && !"<>,;\"".contains(c));
            if !is_right {
                let shown: String = address.chars().take(80).collect();
                errors.add(
                    &list.item(index),
                    "address",
                    format!("`{shown}` is not an address such as a@example.com"),
                );
            }
        }
        Some(To::Mail { to: to.clone() })
    }
}

fn check_length(length: std::time::Duration, at: &At<'_>, errors: &mut Errors) {
    if !(SHORTEST..=LONGEST).contains(&length) {
        let detail = format!("`{}` is not in `PT1S` to `PT9600H`", Duration(length));
        errors.add(at, "out_of_range", detail);
    }
}

impl From<&domain::Alert> for Alert {
    fn from(alert: &domain::Alert) -> Self {
        let jobs = &alert.jobs;
        let url = |url: &String| Some(AlertUrl { url: Some(url.clone()) });
        let to = match &alert.to {
            To::Webhook { url: to } => AlertTo { webhook: url(to), ..AlertTo::default() },
            To::Slack { url: to } => AlertTo { slack: url(to), ..AlertTo::default() },
            To::Mail { to } => {
                AlertTo { mail: Some(AlertMail { to: Some(to.clone()) }), ..AlertTo::default() }
            }
        };
        let (over, silent) = match alert.on {
            On::Late { over } => (Some(Duration(over)), None),
            On::Silent { after } => (None, Some(Duration(after))),
            On::DeadLetter | On::BreakerOpen | On::Missed => (None, None),
        };
        Alert {
            name: alert.name.clone(),
            spec: AlertSpec {
                on: Some(alert.on.as_str().into()),
                over,
                r#for: silent,
                jobs: (!jobs.is_all()).then(|| AlertJobs {
                    id: jobs.job.map(|job| job.to_string()),
                    key: jobs.key.clone(),
                    r#type: jobs.kind.clone(),
                    queue: jobs.queue.clone(),
                    labels: Some(jobs.labels.clone()).filter(|labels| !labels.is_empty()),
                }),
                to: Some(to),
                repeat_every: Some(Duration(alert.repeat_every)),
            },
        }
    }
}

impl From<&DomainAlarm> for Alarm {
    fn from(alarm: &DomainAlarm) -> Self {
        Alarm {
            alert: alarm.alert.clone(),
            on: alarm.on.clone(),
            job: match &alarm.subject {
                Subject::Job(job) => Some(job.to_string()),
                Subject::Breaker(_) | Subject::Rest => None,
            },
            breaker: match &alarm.subject {
                Subject::Breaker(name) => Some(name.clone()),
                Subject::Job(_) | Subject::Rest => None,
            },
            name: alarm.name.clone(),
            since: alarm.since,
            last_at: alarm.last_at,
            count: alarm.count,
            detail: alarm.detail.clone(),
            told: alarm.told,
            told_at: alarm.told_at,
        }
    }
}
