//! Forecasts.

use punctual_api::forecast::Forecast;

use crate::answer::Answer;
use crate::client::{Call, Client};
use crate::error::Error;
use crate::server::query;

/// What to foretell; what is not given is chosen by the server.
#[derive(Clone, Debug, Default)]
pub struct ForecastQuery {
    /// From when on: RFC 3339 or epoch seconds.
    pub from: Option<String>,
    /// To when.
    pub to: Option<String>,
    /// The length of a bucket, as `PT1M`.
    pub resolution: Option<String>,
    /// What groups are told apart by: `tenant`, `type` and `target`, with commas between.
    pub by: Option<String>,
    /// Of this tenant; `*` is all of them.
    pub tenant: Option<String>,
    /// How many groups are told apart.
    pub groups: Option<u16>,
}

impl Client {
    /// How many slots are planned.
    pub async fn forecast(&self, asked: &ForecastQuery) -> Result<Answer<Forecast>, Error> {
        let groups = asked.groups.map(|groups| groups.to_string());
        let parameters = [
            ("from", asked.from.as_deref()),
            ("to", asked.to.as_deref()),
            ("resolution", asked.resolution.as_deref()),
            ("by", asked.by.as_deref()),
            ("tenant", asked.tenant.as_deref()),
            ("groups", groups.as_deref()),
        ];
        self.call(Call::get(format!("/v1/forecast{}", query(&parameters)))).await
    }
}
