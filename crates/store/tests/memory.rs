//! The reference store against the suite that defines every store.

use std::sync::Arc;

use punctual_store::Memory;
use punctual_store::conformance::{Case, SHARDS};

fn run(case: Case) {
    futures_executor::block_on(case(Arc::new(Memory::shared(SHARDS))));
}

punctual_store::conformance!(run);
