//! `punctual tenant`: units of isolation.

use std::path::PathBuf;

use clap::Subcommand;
use jiff::Timestamp;
use punctual_api::defaults::JobDefaults;
use punctual_api::tenant::{Tenant, TenantQuotas, TenantSuspension, TenantUsage};
use punctual_client::Client;

use super::asking::Ask;
use super::job::read_json;
use super::remote::Remote;
use super::watch::Watch;
use super::{moment, output};
use crate::failure::Failure;

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Create a tenant, or find the one of that name
    Create {
        /// 1 to 63 lower-case letters, digits and hyphens
        name: String,
    },
    /// List all tenants
    List(Watch),
    /// Show a tenant, and how it stands
    Get {
        /// The tenant
        name: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Suspend a tenant: no slot fires, requests are refused, open runs end
    Suspend {
        /// The tenant
        name: String,
        /// Why; its callers are told
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let a suspended tenant go on
    Resume {
        /// The tenant
        name: String,
    },
    /// Delete a tenant: its keys at once, its jobs and runs in the background; its history stays until it expires
    Delete {
        /// The tenant
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Show what a tenant uses now, and what it may
    Usage {
        /// The tenant
        name: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Show or set how much of everything a tenant may have
    #[command(after_help = "Examples:
  punctual tenant quotas acme
  punctual tenant quotas acme --jobs 1000 --concurrency 20 --runs-per-second 50
  punctual tenant quotas acme --clear")]
    Quotas(Quotas),
    /// Show or change what holds for jobs of a tenant that do not say
    #[command(after_help = "Examples:
  punctual tenant defaults acme
  punctual tenant defaults acme -f defaults.json
  punctual tenant defaults acme --clear

The file has a part of a job:
  {\"schedule\": {\"spread\": \"5m\"}, \"retention\": {\"days\": 30, \"failures\": true}, \"timeout\": \"1m\"}")]
    Defaults {
        /// The tenant
        name: String,
        /// Set them from a part of a job as JSON or YAML, from a file or `-` for standard input
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Take them away; jobs keep what they have
        #[arg(long, conflicts_with = "file")]
        clear: bool,
    },
}

/// What is set is all that holds from then on: what is left out is not limited.
#[derive(clap::Args)]
pub(crate) struct Quotas {
    /// The tenant
    name: String,
    /// Jobs
    #[arg(long, value_name = "N")]
    jobs: Option<u64>,
    /// Runs that wait
    #[arg(long, value_name = "N")]
    pending_runs: Option<u64>,
    /// Runs that start in a second; the others wait
    #[arg(long, value_name = "N")]
    runs_per_second: Option<u32>,
    /// Runs at the same time; the others wait
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES")]
    payload_bytes: Option<u64>,
    /// Days for which runs may be kept
    #[arg(long, value_name = "DAYS")]
    history_days: Option<u32>,
    /// Take all of them away
    #[arg(long)]
    clear: bool,
}

impl Quotas {
    /// What is to be set; nothing if they are only to be shown.
    fn wanted(&self) -> Option<TenantQuotas> {
        let wanted = TenantQuotas {
            jobs: self.jobs,
            pending_runs: self.pending_runs,
            runs_per_second: self.runs_per_second,
            concurrency: self.concurrency,
            payload_bytes: self.payload_bytes,
            history_days: self.history_days,
        };
        match (self.clear, wanted == TenantQuotas::default()) {
            (true, _) => Some(TenantQuotas::default()),
            (false, true) => None,
            (false, false) => Some(wanted),
        }
    }
}

impl Ask for Command {
    async fn ask(&self, remote: &Remote, client: &Client) -> Result<(), Failure> {
        match self {
            Command::Create { name } => {
                let tenant = client.create_tenant(name).await?;
                remote.show(&tenant, |tenant, now| {
                    format!("tenant {}, created {}\n", tenant.name, moment::full(tenant.created_at, now))
                })
            }
            Command::List(_) => remote.show(&client.tenants().await?, |page, now: Timestamp| {
                let mut table = output::table(&["TENANT", "STATE", "WAITING", "AT MOST", "CREATED"]);
                for tenant in &page.items {
                    // The default tenant was there before time began.
                    let created = Some(tenant.created_at).filter(|at| *at != Timestamp::UNIX_EPOCH);
                    let created = created.map(|at| moment::full(at, now)).unwrap_or_default();
                    let (waiting, most) = (tenant.pending_runs.to_string(), tenant.pending_max.to_string());
                    table.add_row(vec![tenant.name.clone(), tenant.state.clone(), waiting, most, created]);
                }
                output::lines(&table)
            }),
            Command::Get { name, .. } => remote.show(&client.tenant(name).await?, page),
            Command::Suspend { name, reason } => {
                let suspension = TenantSuspension { reason: reason.clone() };
                let operation = client.suspend_tenant(name, &suspension).await?;
                remote.show(&operation, |operation, _| {
                    let (name, id) = (output::safe(name), &operation.id);
                    format!("tenant {name} is suspended; its open runs end as operation {id}\n")
                })
            }
            Command::Resume { name } => remote.show(&client.resume_tenant(name).await?, page),
            Command::Delete { name, yes } => {
                if !yes {
                    let what = "this deletes all of its jobs, and cannot be undone; say so with --yes";
                    return Err(Failure::Input(format!("tenant {}: {what}", output::safe(name))));
                }
                remote.show(&client.delete_tenant(name).await?, |operation, _| {
                    let (name, id) = (output::safe(name), &operation.id);
                    format!("tenant {name} is deleted; its jobs go as operation {id}\n")
                })
            }
            Command::Usage { name, .. } => remote.show(&client.tenant_usage(name).await?, usage_page),
            Command::Quotas(asked) => {
                let quotas = match asked.wanted() {
                    Some(wanted) => client.put_quotas(&asked.name, &wanted).await?,
                    None => client.quotas(&asked.name).await?,
                };
                remote.show(&quotas, |quotas, _| {
                    let rows = quota_rows(quotas);
                    match rows.iter().any(|(_, most)| most.is_some()) {
                        true => table_of(&rows),
                        false => format!("tenant {} has no quotas\n", output::safe(&asked.name)),
                    }
                })
            }
            Command::Defaults { name, clear: true, .. } => {
                client.delete_defaults(name).await?;
                remote.show(&client.defaults(name).await?, |defaults, _| defaults_page(name, defaults))
            }
            Command::Defaults { name, file, clear: false } => {
                let defaults = match file {
                    Some(path) => client.put_defaults(name, &read_json(path)?).await?,
                    None => client.defaults(name).await?,
                };
                remote.show(&defaults, |defaults, _| defaults_page(name, defaults))
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List(watch) | Command::Get { watch, .. } | Command::Usage { watch, .. } => *watch,
            _ => Watch::default(),
        }
    }
}

fn page(tenant: &Tenant, now: Timestamp) -> String {
    let since = tenant.since.map(|at| format!(" since {}", moment::full(at, now))).unwrap_or_default();
    let reason = tenant.reason.as_deref().map(|why| format!(": {}", output::safe(why))).unwrap_or_default();
    let Tenant { name, state, pending_runs, pending_max, .. } = tenant;
    format!("tenant {name} is {state}{since}{reason}\n{pending_runs} runs wait, at most {pending_max} may\n")
}

/// Each quota by its name; nothing if there is none.
fn quota_rows(quotas: &TenantQuotas) -> Vec<(&'static str, Option<u64>)> {
    vec![
        ("jobs", quotas.jobs),
        ("pending runs", quotas.pending_runs),
        ("runs per second", quotas.runs_per_second.map(u64::from)),
        ("concurrency", quotas.concurrency.map(u64::from)),
        ("payload bytes", quotas.payload_bytes),
        ("history days", quotas.history_days.map(u64::from)),
    ]
}

fn table_of(rows: &[(&str, Option<u64>)]) -> String {
    let mut table = output::table(&["QUOTA", "AT MOST"]);
    for (name, most) in rows {
        let most = most.map_or_else(|| "-".to_string(), |most| most.to_string());
        table.add_row(vec![(*name).to_string(), most]);
    }
    output::lines(&table)
}

fn usage_page(usage: &TenantUsage, _: Timestamp) -> String {
    let more = if usage.has_more_jobs { "+" } else { "" };
    let mut table = output::table(&["OF TENANT", "NOW", "AT MOST"]);
    let most = |most: Option<u64>| most.map_or_else(|| "-".to_string(), |most| most.to_string());
    let quotas = &usage.quotas;
    for (what, now, at_most) in [
        ("jobs", format!("{}{more}", usage.jobs), most(quotas.jobs)),
        ("runs that wait", usage.pending_runs.to_string(), most(quotas.pending_runs)),
        ("runs that run", usage.running_runs.to_string(), most(quotas.concurrency.map(u64::from))),
        ("slots of the next 15 minutes", usage.planned_slots.to_string(), "-".to_string()),
    ] {
        table.add_row(vec![what.to_string(), now, at_most]);
    }
    output::lines(&table)
}

/// What is set, as it is written.
fn defaults_page(tenant: &str, defaults: &JobDefaults) -> String {
    if *defaults == JobDefaults::default() {
        return format!("tenant {} has no defaults\n", output::safe(tenant));
    }
    let text = serde_json::to_string_pretty(defaults).unwrap_or_default();
    format!("{}\n", text.lines().map(output::safe).collect::<Vec<_>>().join("\n"))
}
