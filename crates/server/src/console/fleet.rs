//! The fleet: queues, workers, nodes and shards, operations.

use axum::response::Response;
use punctual_api::breaker::Breaker;
use punctual_api::node::{Node, Shard};
use punctual_api::operation::Operation;
use punctual_api::page::Page;
use punctual_api::queue::Queue;
use punctual_api::worker::Worker;

use super::form;
use super::frame::Frame;
use super::shown::{self, View};
use super::table::{Cell, Row, Table, TablePage, columns};
use crate::call::Call;
use crate::error::Error;
use crate::{
    breakers, nodes as rest_nodes, operations as rest_operations, queues as rest_queues,
    workers as rest_workers,
};

type Outcome = Result<Response, Error>;

pub(crate) async fn queues(call: Call) -> Outcome {
    let page: Page<Queue> = rest_queues::list(call.asking(&[])).await?.read()?;
    let row = |queue: &Queue| {
        let more = if queue.is_more { "more than " } else { "" };
        let list = form::query(&[("queue", queue.queue.as_str()), ("state", "pending")]);
        let saturation = queue.saturation.map_or("not said".into(), |part| format!("{:.0} %", part * 100.0));
        let exact = if queue.is_planned_exact { "" } else { "about " };
        Row::from(vec![
            Cell::text(&queue.queue).under(format!("tenant {}", queue.tenant)),
            Cell {
                href: format!("/console/runs{list}"),
                ..Cell::number(format!("{more}{}", shown::number(queue.waiting)))
            },
            Cell::number(match queue.oldest_at {
                Some(_) => shown::millis(queue.oldest_wait_ms),
                None => "nothing waits".into(),
            }),
            Cell::number(shown::number(queue.running)),
            Cell::number(queue.workers.to_string())
                .under(format!("room for {}", shown::number(queue.concurrency))),
            Cell::number(saturation),
            Cell::number(queue.lateness_ms.map_or("not yet known".into(), shown::millis)),
            Cell::number(format!("{exact}{}", shown::number(queue.planned))),
        ])
    };
    let table = Table {
        columns: columns(&[
            "Queue",
            "#Waiting",
            "#Oldest waits",
            "#Running",
            "#Workers",
            "#Busy",
            "#Late",
            "#Planned",
        ]),
        rows: page.items.iter().map(row).collect(),
        empty: "Nothing waits or runs. A queue is here as soon as a job names it and a run is born in it."
            .into(),
        ..Table::default()
    };
    TablePage {
        frame: Frame::new(&call, "queues", "Queues").same("punctual queue list", "/v1/queues").live("queues"),
        about: "What waits and runs, who serves it, and what is planned.".into(),
        tables: vec![table],
    }
    .answer()
}

pub(crate) async fn workers(call: Call) -> Outcome {
    let view = View::of(&call);
    let page: Page<Worker> = rest_workers::list(call.asking(&[])).await?.read()?;
    let row = |worker: &Worker| {
        let labels: Vec<String> =
            worker.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Row::from(vec![
            Cell::text(&worker.name).under(&worker.id),
            Cell::text(worker.queues.join(", ")).under(labels.join(" ")),
            Cell::number(format!("{} of {}", worker.held, worker.concurrency)),
            Cell::number(
                worker.saturation.map_or("not said".into(), |part| format!("{:.0} %", part * 100.0)),
            ),
            Cell::time(Some(view.moment(worker.seen_at)), ""),
            Cell::time(Some(view.moment(worker.started_at)), ""),
        ])
    };
    let table = Table {
        columns: columns(&["Worker", "Queues", "#Holds", "#Busy", "Last heard of", "Since"]),
        rows: page.items.iter().map(row).collect(),
        empty: "No worker pulls. Jobs with an http target need none: nodes call it themselves. For a worker target, \
                start a program that claims from its queue."
            .into(),
        ..Table::default()
    };
    TablePage {
        frame: Frame::new(&call, "workers", "Workers")
            .same("punctual worker list", "/v1/workers")
            .live("workers"),
        about: "Programs elsewhere that ask for runs.".into(),
        tables: vec![table],
    }
    .answer()
}

pub(crate) async fn nodes(call: Call) -> Outcome {
    let view = View::of(&call);
    let nodes: Page<Node> = rest_nodes::list(call.asking(&[])).await?.read()?;
    let shards: Page<Shard> = rest_nodes::shards(call.asking(&[])).await?.read()?;
    let breakers: Page<Breaker> = breakers::list(call.asking(&[])).await?.read()?;
    let owned = shards.items.iter().filter(|shard| shard.owner.is_some()).count();
    let node = |node: &Node| {
        Row::from(vec![
            Cell::text(&node.name).under(node.address.clone().unwrap_or_default()),
            Cell::number(node.shards.to_string()),
            Cell::number(shown::number(node.slots_per_minute)),
            Cell::number(format!("{} %", node.capacity_percent)),
            Cell::number(shown::millis(node.clock_ahead_ms)),
            Cell::text(&node.version).under(node.roles.join(", ")),
            Cell::time(Some(view.moment(node.started_at)), ""),
        ])
    };
    let shard = |shard: &Shard| {
        let owner = shard.owner_name.clone().or_else(|| shard.owner.clone());
        Row::from(vec![
            Cell::number(shard.shard.to_string()),
            Cell::text(owner.unwrap_or_else(|| "nobody, its slots wait".into())),
            Cell::number(shard.epoch.to_string()),
            Cell::number(shown::number(u64::from(shard.slots_per_minute))),
            Cell::number(shard.database.map_or(String::new(), |database| database.to_string())),
        ])
    };
    let breaker = |breaker: &Breaker| {
        Row::from(vec![
            Cell::text(&breaker.name).under(breaker.cause.clone().unwrap_or_default()),
            Cell::text(&breaker.state),
            Cell::time(Some(view.moment(breaker.since)), ""),
            Cell::time(view.maybe(breaker.probe_by), "no probe is due"),
        ])
    };
    let tables = vec![
        Table {
            title: "Nodes".into(),
            columns: columns(&[
                "Node",
                "#Shards",
                "#Slots a minute",
                "#Capacity",
                "#Clock ahead",
                "Version",
                "Since",
            ]),
            rows: nodes.items.iter().map(node).collect(),
            empty: "No node lives. Start one with punctual serve.".into(),
            ..Table::default()
        },
        Table {
            title: "Breakers".into(),
            note: "targets and jobs that are left alone".into(),
            columns: columns(&["What", "State", "Since", "Next probe"]),
            rows: breakers.items.iter().map(breaker).collect(),
            empty: "None is open: every target is called.".into(),
            ..Table::default()
        },
        Table {
            title: "Shards".into(),
            note: format!("{owned} of {} owned", shards.items.len()),
            columns: columns(&["#Shard", "Owner", "#Epoch", "#Slots a minute", "#Database"]),
            rows: shards.items.iter().map(shard).collect(),
            empty: "There are no shards yet.".into(),
            ..Table::default()
        },
    ];
    TablePage {
        frame: Frame::new(&call, "nodes", "Nodes and shards")
            .same("punctual nodes", "/v1/nodes")
            .live("nodes"),
        about: "Who fires what. A node that dies loses its shards to the others within its lease.".into(),
        tables,
    }
    .answer()
}

pub(crate) async fn operations(call: Call) -> Outcome {
    let view = View::of(&call);
    let cursor = call.query.text("cursor").unwrap_or("").to_string();
    let page: Page<Operation> =
        rest_operations::list(call.asking(&[("cursor", cursor.as_str())])).await?.read()?;
    let row = |operation: &Operation| {
        let total = operation.total.map_or(String::new(), |total| format!(" of {}", shown::number(total)));
        let why = operation.error.clone().or_else(|| operation.failure.clone()).unwrap_or_default();
        Row::from(vec![
            Cell::text(operation.kind.replace('_', " ")).under(&operation.id),
            Cell::pill(shown::state(&operation.state)),
            Cell::number(format!("{}{total}", shown::number(operation.done))),
            Cell::number(shown::number(operation.failed)).under(why),
            Cell::time(Some(view.moment(operation.created_at)), ""),
            Cell::time(view.maybe(operation.finished_at), "goes on"),
        ])
    };
    let next = page
        .next_cursor
        .as_deref()
        .map(|next| format!("/console/operations{}", form::query(&[("cursor", next)])));
    let table = Table {
        columns: columns(&["Operation", "State", "#Done", "#Failed", "Started", "Ended"]),
        rows: page.items.iter().map(row).collect(),
        empty: "Nothing was started over many jobs or runs in the last week.".into(),
        next: next.unwrap_or_default(),
        ..Table::default()
    };
    TablePage {
        frame: Frame::new(&call, "operations", "Operations")
            .same("punctual operation list", "/v1/operations")
            .live("operations"),
        about: "Long work over many jobs or runs: redrive, pause, backfill. It goes on through restarts."
            .into(),
        tables: vec![table],
    }
    .answer()
}
