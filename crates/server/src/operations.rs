//! Long work over many runs, which goes on after its request was answered.
//!
//! Started by a request about all dead letters of a filter. It is kept in memory: after a restart it is gone, what it
//! did stays done, and asking again does the rest. Promise: bounded in number and in what is remembered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Path;
use punctual_api::operation::Operation;
use punctual_domain::{RunId, TenantId};
use punctual_engine::Error as EngineError;
use punctual_engine::history::{PageRequest, RunFilter};

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Error;
use crate::jobs::shorten;
use crate::state::Shared;

/// Under way at once; each is a stream of small batches, so few are enough.
const RUNNING_MAX: usize = 8;

/// Remembered, the newest.
const KEPT_MAX: usize = 1_000;

/// Runs changed in one call of the store.
const BATCH: usize = 500;

/// What is done to each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Redrive,
    Acknowledge,
}

impl Deed {
    fn as_str(self) -> &'static str {
        match self {
            Deed::Redrive => "redrive",
            Deed::Acknowledge => "acknowledge",
        }
    }
}

/// The operations of this process, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<VecDeque<(TenantId, Arc<Mutex<Operation>>)>>);

impl Operations {
    pub(crate) fn start(
        &self,
        shared: &Shared,
        tenant: TenantId,
        deed: Deed,
        filter: RunFilter,
    ) -> Result<Operation, Error> {
        let operation = Operation {
            id: shared.engine.new_worker_id().to_string(),
            kind: deed.as_str().into(),
            state: "running".into(),
            done: 0,
            refused: 0,
            started_at: shared.engine.now(),
            finished_at: None,
            error: None,
        };
        let kept = Arc::new(Mutex::new(operation.clone()));
        let mut operations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = operations.iter().filter(|(_, one)| now(one).state == "running").count();
        if running >= RUNNING_MAX {
            return Err(Error::TooManyOperations);
        }
        if operations.len() >= KEPT_MAX {
            operations.pop_front();
        }
        operations.push_back((tenant, Arc::clone(&kept)));
        tokio::spawn(work(shared.clone(), tenant, deed, filter, kept));
        Ok(operation)
    }

    fn find(&self, tenant: TenantId, id: &str) -> Option<Operation> {
        let operations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        operations.iter().filter(|(of, _)| *of == tenant).map(|(_, one)| now(one)).find(|one| one.id == id)
    }
}

fn now(operation: &Mutex<Operation>) -> Operation {
    operation.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn work(
    shared: Shared,
    tenant: TenantId,
    deed: Deed,
    filter: RunFilter,
    operation: Arc<Mutex<Operation>>,
) {
    let error = walk(&shared, tenant, deed, &filter, &operation).await.err();
    let mut operation = operation.lock().unwrap_or_else(PoisonError::into_inner);
    operation.state = if error.is_none() { "succeeded" } else { "failed" }.into();
    operation.finished_at = Some(shared.engine.now());
    operation.error = error.map(|error| error.to_string());
    tracing::info!(operation_id = %operation.id, kind = %operation.kind, done = operation.done, "operation ended");
}

/// From the newest down. A run that dies again meanwhile is above the cursor and is not met twice.
async fn walk(
    shared: &Shared,
    tenant: TenantId,
    deed: Deed,
    filter: &RunFilter,
    operation: &Mutex<Operation>,
) -> Result<(), EngineError> {
    let engine = &shared.engine;
    let mut page = PageRequest::first(BATCH);
    loop {
        let found = engine.runs(filter, page.clone()).await?;
        let ids: Vec<RunId> = found.items.iter().map(punctual_domain::Run::id).collect();
        let refused = match deed {
            Deed::Redrive => engine.redrive(tenant, &ids).await?.iter().filter(|one| one.is_err()).count(),
            Deed::Acknowledge => {
                engine.acknowledge(tenant, &ids).await?.iter().filter(|one| one.is_err()).count()
            }
        };
        {
            let mut operation = operation.lock().unwrap_or_else(PoisonError::into_inner);
            operation.done += (ids.len() - refused) as u64;
            operation.refused += refused as u64;
        }
        match found.next {
            Some(next) => page.after = Some(next),
            None => return Ok(()),
        }
    }
}

pub(crate) async fn get(call: Call, Path(id): Path<String>) -> Result<Answer, Error> {
    call.query.check()?;
    let found = call.shared.operations().find(call.tenant, &id);
    found.map(|operation| Answer::ok(&operation)).ok_or_else(|| Error::OperationNotFound(shorten(&id)))
}
