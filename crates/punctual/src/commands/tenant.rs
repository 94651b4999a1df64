//! `punctual tenant`: units of isolation.

use std::path::PathBuf;

use clap::Subcommand;
use jiff::Timestamp;
use punctual_api::defaults::JobDefaults;
use punctual_api::tenant::TenantNetwork;
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
    /// Show or change the hosts that targets of a tenant may name
    Network {
        /// The tenant
        name: String,
        /// Hold it to these hosts, in place of those before: `example.com` is also everything below it
        #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
        only_hosts: Vec<String>,
        /// Hold it to none any more
        #[arg(long, conflicts_with = "only_hosts")]
        clear: bool,
    },
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
                let mut table = output::table(&["TENANT", "WAITING", "AT MOST", "CREATED"]);
                for tenant in &page.items {
                    // The default tenant was there before time began.
                    let created = Some(tenant.created_at).filter(|at| *at != Timestamp::UNIX_EPOCH);
                    let created = created.map(|at| moment::full(at, now)).unwrap_or_default();
                    let (waiting, most) = (tenant.pending_runs.to_string(), tenant.pending_max.to_string());
                    table.add_row(vec![tenant.name.clone(), waiting, most, created]);
                }
                output::lines(&table)
            }),
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
            Command::Network { name, only_hosts, clear } => {
                if *clear {
                    client.delete_network(name).await?;
                }
                let network = match only_hosts.is_empty() {
                    true => client.network(name).await?,
                    false => {
                        let wanted = TenantNetwork { only_hosts: Some(only_hosts.clone()) };
                        client.put_network(name, &wanted).await?
                    }
                };
                remote.show(&network, |network, _| match &network.only_hosts {
                    Some(hosts) => format!("{}\n", output::safe(&hosts.join("\n"))),
                    None => format!("tenant {} may call what the installation allows\n", output::safe(name)),
                })
            }
        }
    }

    fn watch(&self) -> Watch {
        match self {
            Command::List(watch) => *watch,
            _ => Watch::default(),
        }
    }
}

/// What is set, as it is written.
fn defaults_page(tenant: &str, defaults: &JobDefaults) -> String {
    if *defaults == JobDefaults::default() {
        return format!("tenant {} has no defaults\n", output::safe(tenant));
    }
    let text = serde_json::to_string_pretty(defaults).unwrap_or_default();
    format!("{}\n", text.lines().map(output::safe).collect::<Vec<_>>().join("\n"))
}
