//! `punctual nodes` and `punctual shards`: who is there, and who fires what.

use clap::Args;
use jiff::Timestamp;
use punctual_api::node::{Node, Shard};

use super::remote::{self, Remote};
use super::{moment, output};
use crate::failure::{EXIT_CODES, Failure};

/// List the live nodes of the cluster
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Nodes {
    #[command(flatten)]
    remote: Remote,
}

/// Show which node fires which shards
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Shards {
    /// One line for each shard instead of one for each owner
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    remote: Remote,
}

/// Lists the nodes.
pub(crate) fn nodes(arguments: &Nodes) -> Result<(), Failure> {
    remote::run(async {
        let remote = &arguments.remote;
        remote.show(&remote.client()?.nodes().await?, |page, now| node_table(&page.items, now))
    })
}

/// Shows the shards.
pub(crate) fn shards(arguments: &Shards) -> Result<(), Failure> {
    remote::run(async {
        let remote = &arguments.remote;
        remote.show(&remote.client()?.shards().await?, |page, now| match arguments.all {
            true => shard_table(&page.items, now),
            false => owner_table(&page.items),
        })
    })
}

fn node_table(nodes: &[Node], now: Timestamp) -> String {
    let mut table = output::table(&[
        "NODE",
        "ADDRESS",
        "ROLES",
        "VERSION",
        "STARTED",
        "SHARDS",
        "SLOTS/MIN",
        "CAPACITY",
        "CLOCK",
    ]);
    for node in nodes {
        table.add_row(vec![
            node.name.clone(),
            node.address.clone().unwrap_or_default(),
            node.roles.join(","),
            node.version.clone(),
            moment::full(node.started_at, now),
            node.shards.to_string(),
            node.slots_per_minute.to_string(),
            format!("{}%", node.capacity_percent),
            format!("{:+} ms", node.clock_ahead_ms),
        ]);
    }
    output::lines(&table)
}

fn owner(shard: &Shard) -> String {
    match (&shard.owner_name, &shard.owner) {
        (Some(name), _) => name.clone(),
        (None, Some(id)) => format!("{id} (gone)"),
        (None, None) => "nobody".into(),
    }
}

/// The shards of each owner, as ranges.
fn owner_table(shards: &[Shard]) -> String {
    let mut owners: std::collections::BTreeMap<String, Vec<&Shard>> = std::collections::BTreeMap::new();
    for shard in shards {
        owners.entry(owner(shard)).or_default().push(shard);
    }
    let mut table = output::table(&["OWNER", "SHARDS", "SLOTS/MIN", "WHICH"]);
    for (owner, shards) in owners {
        let slots: u64 = shards.iter().map(|shard| u64::from(shard.slots_per_minute)).sum();
        let numbers: Vec<u16> = shards.iter().map(|shard| shard.shard).collect();
        table.add_row(vec![owner, numbers.len().to_string(), slots.to_string(), ranges(&numbers)]);
    }
    output::lines(&table)
}

fn shard_table(shards: &[Shard], now: Timestamp) -> String {
    let mut table = output::table(&["SHARD", "OWNER", "EPOCH", "EXPIRES", "SLOTS/MIN"]);
    for shard in shards {
        table.add_row(vec![
            shard.shard.to_string(),
            owner(shard),
            shard.epoch.to_string(),
            moment::full(shard.expires_at, now),
            shard.slots_per_minute.to_string(),
        ]);
    }
    output::lines(&table)
}

/// Ordered numbers as `0-3 7 9-11`.
fn ranges(numbers: &[u16]) -> String {
    let mut parts: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let part = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_a_range() {
        assert_eq!(ranges(&[0, 1, 2, 3, 7, 9, 10]), "0-3 7 9-10");
        assert_eq!(ranges(&[]), "");
    }
}
