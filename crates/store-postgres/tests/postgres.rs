//! The store of a cluster: the suite that defines every store.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use punctual_domain::id::TenantId;
use punctual_domain::policy::backlog::Pending;
use punctual_store::Store;
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
        let store = Arc::new(Postgres::open(&options).await.unwrap());
        case(store.clone()).await;
        // Whatever the case did, what waits has been counted along.
        let known = (0..20).map(TenantId).map(|tenant| store.pending(tenant));
        let known: Vec<Pending> = known.collect();
        Store::count_pending(&*store).await.unwrap();
        let counted: Vec<Pending> = (0..20).map(TenantId).map(|tenant| store.pending(tenant)).collect();
        assert_eq!(known, counted);
    });
}

punctual_store::conformance!(run);
