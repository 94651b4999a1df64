//! Punctual inside a Rust program: open a store, register handlers, schedule jobs, run them.
//!
//! The same engine, store and worker as `punctual serve`, without a server. What is scheduled is durable when the call
//! returns, and goes on where it stopped when the program starts again.
//!
//! ```no_run
//! use punctual::{Punctual, Schedule, Spec, Target};
//!
//! # async fn example() -> Result<(), punctual::Error> {
//! let punctual = Punctual::builder("data")
//!     .function("greet", |call| async move { Ok(Some(format!("hello at {}", call.scheduled_for))) })
//!     .start()
//!     .await?;
//! let target = Target::Function { name: "greet".into() };
//! punctual.schedule(Spec::new("greeting", Schedule::parse("@every 5s")?, target)).await?;
//! # Ok(())
//! # }
//! ```

mod error;
pub mod wire;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use punctual_domain::TenantId;
pub use punctual_domain::job::{Http, Job, Spec, Target};
pub use punctual_domain::run::{Run, RunState};
pub use punctual_domain::{JobId, policy};
use punctual_engine::Engine;
pub use punctual_engine::register::Registered;
pub use punctual_schedule::Schedule;
use punctual_schedule::Tzdb;
use punctual_worker::Stopped;
use punctual_worker::targets::function::{Answer, Call, Functions};
use punctual_worker::targets::http;

pub use crate::error::Error;
use crate::wire::{Running, Storage};

/// What handlers are called with and answer.
pub mod function {
    pub use punctual_worker::targets::function::{Answer, Call, CheckpointTooLarge, Failed};
}

/// A scheduler in this process.
pub struct Punctual {
    running: Running,
}

/// Collects what a scheduler needs before it starts.
pub struct Builder {
    options: wire::Options,
}

impl Punctual {
    /// A scheduler that keeps its jobs in a data directory, created if it is not there.
    pub fn builder(data: impl Into<PathBuf>) -> Builder {
        let tzdb = Tzdb::system().unwrap_or_else(Tzdb::bundled);
        Builder { options: wire::Options::new(Storage::Embedded(data.into()), Arc::new(tzdb)) }
    }

    /// Registers a job of the default tenant; durable when this returns.
    pub async fn schedule(&self, spec: Spec) -> Result<Registered, Error> {
        let answers = self.engine().register(TenantId::DEFAULT, vec![(spec, None)]).await?;
        match answers.into_iter().next() {
            Some(answer) => Ok(answer?),
            None => unreachable!("one spec has one answer"),
        }
    }

    /// The engine, for everything else: updates, pauses, triggers, history.
    pub fn engine(&self) -> &Arc<Engine> {
        self.running.engine()
    }

    /// Stops firing, lets handlers end within `grace`, and gives the rest back to be run after the next start.
    pub async fn stop(self, grace: Duration) -> Result<Stopped, Error> {
        self.running.stop(grace).await
    }
}

impl Builder {
    /// Registers a handler for jobs whose target is the function of this name.
    #[must_use]
    pub fn function<F, A>(mut self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Call) -> A + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        self.options.functions.insert(name, handler);
        self
    }

    /// All handlers at once.
    #[must_use]
    pub fn functions(mut self, functions: Functions) -> Self {
        self.options.functions = functions;
        self
    }

    /// How many attempts run at a time.
    #[must_use]
    pub fn concurrency(mut self, attempts: usize) -> Self {
        self.options.concurrency = attempts;
        self
    }

    /// What HTTP callbacks may reach, and how.
    #[must_use]
    pub fn http(mut self, http: http::Options) -> Self {
        self.options.http = http;
        self
    }

    /// Opens the store and starts. What became due since the last stop is caught up as each job's policy says.
    pub async fn start(self) -> Result<Punctual, Error> {
        Ok(Punctual { running: Running::start(self.options).await? })
    }
}
