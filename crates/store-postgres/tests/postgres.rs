//! The store of a cluster: the suite that defines every store.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use punctual_store::conformance::{Case, SHARDS};
use punctual_store_postgres::{Hints, Options, Postgres, Time};
use punctual_testing::Postgres as Server;

fn run(case: Case) {
    let address = Server::shared().database();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options {
            shards: Some(SHARDS),
            connections: 4,
            time: Time::Caller,
            hints: Hints::Listen,
            ..Options::new(address)
        };
        case(Arc::new(Postgres::open(&options).await.unwrap())).await;
    });
}

punctual_store::conformance!(run);
