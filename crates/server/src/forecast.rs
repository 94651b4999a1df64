//! Forecasts: how many slots are planned.

use jiff::SignedDuration;
use punctual_api::Duration;
use punctual_api::forecast::{Bucket, Forecast, ForecastGroup};
use punctual_engine::forecast::{self as engine, Asked, By};

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;
use crate::runs::named_tenant;

pub(crate) async fn get(mut call: Call) -> Result<Answer, Error> {
    let by = by(&call)?;
    let resolution: Option<Duration> =
        call.query.parsed("resolution", "a length; write it as `PT1M`, or `1m`");
    let mut asked = Asked {
        from: call.query.time("from"),
        to: call.query.time("to"),
        resolution: resolution.and_then(|length| SignedDuration::try_from(length.0).ok()),
        by,
        tenant: Some(call.tenant),
        groups: call.query.parsed("groups", "a number of groups"),
    };
    call.query.check()?;
    if let Some(name) = call.query.text("tenant").map(str::to_string) {
        asked.tenant = named_tenant(&call, &name).await?;
    }
    let question = asked
        .settle(call.shared.engine.now())
        .map_err(|wrong| Error::wrong(wrong.field, "out_of_range", wrong.detail))?;
    let found = call.shared.engine.forecast(question).await?;
    let mut groups = Vec::with_capacity(found.groups.len());
    for group in &found.groups {
        let tenant = match group.tenant {
            Some(tenant) => Some(call.shared.tenant_name(tenant).await?.to_string()),
            None => None,
        };
        groups.push(ForecastGroup {
            tenant,
            kind: group.kind.as_deref().map(String::from),
            target: group.destination.as_deref().map(String::from),
            is_rest: group.is_rest,
            slots: group.slots.iter().sum(),
            buckets: group.slots.clone(),
        });
    }
    Ok(Answer::ok(&shown(&found, groups, asked.tenant.is_none())))
}

fn shown(found: &engine::Forecast, groups: Vec<ForecastGroup>, is_of_all: bool) -> Forecast {
    let step = found.resolution.as_secs();
    let bucket = |(number, slots): (i64, &u64)| Bucket {
        at: found.from + SignedDuration::from_secs(step * number),
        slots: *slots,
    };
    let buckets: Vec<Bucket> = (0..).zip(&found.slots).map(bucket).collect();
    Forecast {
        from: found.from,
        to: found.to,
        resolution: Duration(found.resolution.unsigned_abs()),
        as_of: found.as_of,
        is_complete: found.is_complete,
        is_exact: found.estimated.is_empty(),
        estimated: found.estimated.clone(),
        // How many jobs others have is theirs to know.
        jobs: is_of_all.then_some(found.jobs),
        slots: found.total(),
        // The first of the fullest.
        peak: buckets.iter().rev().max_by_key(|bucket| bucket.slots).copied().filter(|peak| peak.slots > 0),
        buckets,
        groups,
    }
}

/// What groups are told apart by: words with commas between.
fn by(call: &Call) -> Result<By, Error> {
    let Some(text) = call.query.text("by") else { return Ok(By::default()) };
    let mut by = By { tenant: false, kind: false, destination: false, queue: false };
    for word in text.split(',') {
        match word {
            "tenant" => by.tenant = true,
            "type" => by.kind = true,
            "target" => by.destination = true,
            _ => {
                let detail = "write `tenant`, `type` and `target`, several with commas between";
                return Err(Error::wrong("by", "unknown_value", detail));
            }
        }
    }
    Ok(by)
}
