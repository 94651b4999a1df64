//! Reads what the server has of what the documents name.

use std::collections::BTreeSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use punctual_api::Job;
use punctual_client::{Client, Error, JobFilter, JobRef};
use punctual_domain::message;

use super::plan::{Current, Looked, names};
use super::wanted::{Kind, Wanted, node};
use crate::document::{Node, Value};
use crate::failure::Failure;

/// Questions that are asked at once: enough that a distant server is not waited for a thousand times, few enough for a small one.
pub(super) const AT_ONCE: usize = 16;

/// The server, for a tenant.
pub(super) struct Here<'a> {
    pub(super) client: &'a Client,
    pub(super) tenant: &'a str,
}

impl Here<'_> {
    /// What there is of each, and jobs with labels.
    pub(super) async fn look(&self, wanted: &[Wanted], prune: Option<&[String]>) -> Result<Looked, Failure> {
        let asked = wanted.iter().map(|one| (one.kind, one.name.clone())).collect();
        let current = self.all(asked).await?;
        let (mut labelled, mut keyless) = (Vec::new(), 0);
        if let Some(labels) = prune {
            let filter = JobFilter { labels: labels.to_vec(), ..JobFilter::default() };
            let mut list = self.client.jobs(&filter).limit(1_000);
            while let Some(job) = list.next().await? {
                // What is over does nothing any more, and neither batches nor the system's own jobs are kept in files.
                if job.status.state == "ended"
                    || job.status.batch_items.is_some()
                    || message::is_reserved(job.spec.r#type.as_deref())
                {
                    continue;
                }
                match job.spec.key.clone() {
                    Some(key) => labelled.push((key, of_job(&job.value)?)),
                    // Some program registered it: no document could ever name it.
                    None => keyless += 1,
                }
            }
        }
        if keyless > 0 {
            eprintln!(
                "note: {keyless} jobs with the label have no key, so no document is theirs; they are left alone"
            );
        }
        Ok(Looked { current, labelled })
    }

    /// What the documents name and nobody has.
    pub(super) async fn missing(&self, wanted: &[Wanted]) -> Result<BTreeSet<(Kind, String)>, Failure> {
        let known: BTreeSet<(Kind, String)> = wanted.iter().map(|one| (one.kind, one.name.clone())).collect();
        let named = wanted.iter().flat_map(names).map(|(_, kind, name)| (kind, name));
        let open: BTreeSet<(Kind, String)> = named.filter(|name| !known.contains(name)).collect();
        let open: Vec<(Kind, String)> = open.into_iter().collect();
        let found = self.all(open.clone()).await?;
        let mut missing = BTreeSet::new();
        for ((kind, name), found) in open.into_iter().zip(found) {
            // A link may name a job by its id.
            let is_there = match (&found, kind) {
                (Some(_), _) => true,
                (None, Kind::Job) if is_id(&name) => {
                    there(self.client.job(&JobRef::Id(name.clone())).await, "job_not_found")?.is_some()
                }
                (None, _) => false,
            };
            if !is_there {
                missing.insert((kind, name));
            }
        }
        Ok(missing)
    }

    /// In the order of what is asked for.
    async fn all(&self, asked: Vec<(Kind, String)>) -> Result<Vec<Option<Current>>, Failure> {
        let answers = stream::iter(asked).map(async |(kind, name)| self.one(kind, &name).await);
        answers.buffered(AT_ONCE).try_collect().await
    }

    /// What there is of one thing now.
    pub(super) async fn one(&self, kind: Kind, name: &str) -> Result<Option<Current>, Failure> {
        one(self.client, self.tenant, kind, name).await
    }
}

async fn one(client: &Client, tenant: &str, kind: Kind, name: &str) -> Result<Option<Current>, Failure> {
    let plain = |body: Node| Current { id: None, version: None, body, paused: None };
    match kind {
        Kind::Defaults => {
            let body = read(&client.defaults(tenant).await?.value)?;
            // None and empty ones are the same.
            Ok(Some(plain(body)))
        }
        Kind::Calendar => match there(client.calendar(name).await, "calendar_not_found")? {
            Some(calendar) => {
                let version = u32::try_from(calendar.version).ok();
                Ok(Some(Current { version, ..plain(read(&calendar.spec)?) }))
            }
            None => Ok(None),
        },
        Kind::Limit => match there(client.limit(name).await, "limit_not_found")? {
            Some(limit) => Ok(Some(plain(read(&limit.spec)?))),
            None => Ok(None),
        },
        Kind::Alert => match there(client.alert(name).await, "alert_not_found")? {
            Some(alert) => Ok(Some(plain(read(&alert.spec)?))),
            None => Ok(None),
        },
        Kind::Job => match there(client.job(&JobRef::Key(name.into())).await, "job_not_found")? {
            Some(job) => Ok(Some(of_job(&job.value)?)),
            None => Ok(None),
        },
    }
}

/// Whether a name has the form of a job's id.
fn is_id(name: &str) -> bool {
    name.len() == 36 && name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// A job as documents are compared with it.
pub(super) fn of_job(job: &Job) -> Result<Current, Failure> {
    let paused = job.status.paused.as_ref().map(read).transpose()?.map(|mut paused| {
        paused.take("since");
        paused
    });
    let is_paused = job.status.state == "paused";
    let paused = paused.or_else(|| is_paused.then(|| Node::new(Value::Map(Vec::new()))));
    Ok(Current {
        id: Some(job.status.id.clone()),
        version: Some(job.status.version),
        body: read(&job.spec)?,
        paused,
    })
}

fn read(value: &impl serde::Serialize) -> Result<Node, Failure> {
    node(value).map_err(|unread| Failure::Other(anyhow::anyhow!("read what the server has: {unread:?}")))
}

/// Nothing, if the server says that it is not there.
fn there<T>(answer: Result<T, Error>, code: &str) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.problem().is_some_and(|problem| problem.code == code) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
