//! How a tenant stands, as the body of its document.

use std::num::NonZeroU32;

use punctual_domain::Document;
use punctual_domain::tenant::{Quotas, Standing, State};
use serde::{Deserialize, Serialize};

use super::{damaged, is_default, millis, timestamp};
use crate::error::Error;

#[derive(Serialize, Deserialize)]
struct StandingRecord {
    state: String,
    #[serde(default, skip_serializing_if = "is_default")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    since: Option<i64>,
    #[serde(default, skip_serializing_if = "is_default")]
    jobs: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pending: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    rate: Option<NonZeroU32>,
    #[serde(default, skip_serializing_if = "is_default")]
    concurrency: Option<NonZeroU32>,
    #[serde(default, skip_serializing_if = "is_default")]
    payload: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    days: Option<u16>,
}

/// Writes how a tenant stands. Whose it is, is a member of the document.
pub fn encode_standing(standing: &Standing) -> Result<Box<str>, Error> {
    let Standing { state, reason, since, quotas } = standing;
    let record = StandingRecord {
        state: state.as_str().into(),
        reason: reason.clone(),
        since: since.map(millis),
        jobs: quotas.jobs,
        pending: quotas.pending_runs,
        rate: quotas.runs_per_second,
        concurrency: quotas.concurrency,
        payload: quotas.payload_bytes,
        days: quotas.history_days,
    };
    let text = serde_json::to_string(&record).map_err(|error| damaged(format!("a tenant: {error}")))?;
    Ok(text.into())
}

/// Reads how a tenant stands.
pub fn decode_standing(document: &Document) -> Result<Standing, Error> {
    let wrong = |what: String| damaged(format!("tenant {}: {what}", document.tenant.0));
    let record: StandingRecord =
        serde_json::from_str(&document.body).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    Ok(Standing {
        state: State::of(&record.state).ok_or_else(|| wrong(format!("unknown state `{}`", record.state)))?,
        reason: record.reason,
        since: record.since.map(timestamp).transpose()?,
        quotas: Quotas {
            jobs: record.jobs,
            pending_runs: record.pending,
            runs_per_second: record.rate,
            concurrency: record.concurrency,
            payload_bytes: record.payload,
            history_days: record.days,
        },
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use punctual_domain::TenantId;
    use punctual_domain::document::Kind;

    use super::*;

    #[test]
    fn what_was_written_reads_back() {
        let full = Standing {
            state: State::Suspended,
            reason: Some("unpaid".into()),
            since: Some(Timestamp::UNIX_EPOCH),
            quotas: Quotas {
                jobs: Some(1),
                pending_runs: Some(2),
                runs_per_second: NonZeroU32::new(3),
                concurrency: NonZeroU32::new(4),
                payload_bytes: Some(5),
                history_days: Some(7),
            },
        };
        for standing in [Standing::default(), full] {
            let document = Document {
                kind: Kind::Tenant,
                tenant: TenantId(2),
                name: "standing".into(),
                version: 1,
                body: encode_standing(&standing).expect("JSON"),
                updated_at: Timestamp::UNIX_EPOCH,
            };
            assert_eq!(decode_standing(&document), Ok(standing));
        }
    }
}
