//! Flags that say what is kept of a job's runs.

use anyhow::Context;
use clap::Args;
use punctual_api::policies::Retention;
use serde_json::value::to_raw_value;

use super::sharing::Setting;
use super::spec::{Members, members};
use crate::failure::Failure;

/// See the module.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)] // Flags of a job have one group each.
pub(super) struct Flags {
    /// Days that history is kept: 1, 7, 30 or 400 [default: 7]
    #[arg(long, value_name = "DAYS", help_heading = "Policies")]
    retention: Option<u16>,
    /// Whether successes are kept for one day only: true or false [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Policies")]
    retention_failures: Option<bool>,
    /// How many ended runs a list of the job's runs shows; `off` for all that are kept [default: off]
    #[arg(long, value_name = "N", help_heading = "Policies")]
    retention_last: Option<Setting<u32>>,
    /// Bytes of an attempt's output that are kept [default: 65536]
    #[arg(long, value_name = "BYTES", help_heading = "Policies")]
    output_max: Option<u32>,
}

impl Flags {
    /// What the flags say, as members of a job.
    pub(super) fn over(&self) -> Result<Members, Failure> {
        let spec = Retention {
            days: self.retention,
            failures: self.retention_failures,
            last: self.retention_last.and_then(Setting::value),
            output_max: self.output_max,
        };
        let mut retention = members(&to_raw_value(&spec).context("write the job")?)?;
        if let Some(Setting::Off) = self.retention_last {
            // Nothing takes away what is there.
            retention.insert("last".into(), to_raw_value(&()).context("write the job")?);
        }
        let mut over = Members::new();
        if !retention.is_empty() {
            over.insert("retention".into(), to_raw_value(&retention).context("write the job")?);
        }
        Ok(over)
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    fn written(flags: &Flags) -> String {
        serde_json::to_string(&flags.over().expect("members")).expect("JSON")
    }

    #[test]
    fn what_is_not_said_is_not_written() {
        assert_eq!(written(&Flags::default()), "{}");
        let flags = Flags { retention: Some(30), retention_failures: Some(true), ..Flags::default() };
        assert_eq!(written(&flags), r#"{"retention":{"days":30,"failures":true}}"#);
        let flags = Flags { retention_last: Some(Setting::Of(20)), output_max: Some(0), ..Flags::default() };
        assert_eq!(written(&flags), r#"{"retention":{"last":20,"output_max":0}}"#);
        let flags = Flags { retention_last: Some(Setting::Off), ..Flags::default() };
        assert_eq!(written(&flags), r#"{"retention":{"last":null}}"#);
    }
}
