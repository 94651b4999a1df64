//! What a worker tells of itself, as text.

use std::sync::Arc;

use punctual_domain::id::TenantId;
use punctual_domain::work::About;
use serde::{Deserialize, Serialize};

use super::{damaged, millis, timestamp};
use crate::error::Error;

#[derive(Serialize, Deserialize)]
struct AboutRecord {
    tenant: u32,
    name: String,
    queues: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    labels: String,
    concurrency: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    saturation: Option<u8>,
    started: i64,
}

/// Writes what a worker tells of itself.
pub fn encode_about(about: &About) -> Result<String, Error> {
    let record = AboutRecord {
        tenant: about.tenant.0,
        name: about.name.clone(),
        queues: about.queues.clone(),
        labels: about.labels.as_str().into(),
        concurrency: about.concurrency,
        saturation: about.saturation,
        started: millis(about.started_at),
    };
    serde_json::to_string(&record).map_err(|error| damaged(format!("a worker: {error}")))
}

/// Reads it back.
pub fn decode_about(text: &str) -> Result<About, Error> {
    let wrong = |what: String| damaged(format!("a worker: {what}"));
    let record: AboutRecord = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    Ok(About {
        tenant: TenantId(record.tenant),
        name: record.name,
        queues: record.queues,
        labels: record.labels.parse().map_err(|error| wrong(format!("{error}")))?,
        concurrency: record.concurrency,
        saturation: record.saturation,
        started_at: timestamp(record.started)?,
    })
}
