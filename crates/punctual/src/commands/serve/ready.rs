//! Whether the server can work, for `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual::wire::Running;
use punctual_api::health::Check;
use punctual_engine::Engine;
use punctual_store::Store;

/// Looks at the store, the clock, and whether the server is stopping.
pub(super) struct Ready {
    store: Arc<dyn Store>,
    engine: Arc<Engine>,
    is_draining: AtomicBool,
}

impl Ready {
    pub(super) fn new(running: &Running) -> Self {
        Ready {
            store: Arc::clone(&running.parts.store),
            engine: Arc::clone(running.engine()),
            is_draining: AtomicBool::new(false),
        }
    }

    /// From now on the server is not ready: load balancers send nothing more.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }
}

impl punctual_server::Health for Ready {
    fn ready(&self) -> Vec<Check> {
        let store = self.store.health();
        let doubt = self.engine.doubt();
        let is_draining = self.is_draining.load(Ordering::Acquire);
        vec![
            Check { name: "store".into(), is_ok: store.writable, detail: store.reason },
            Check { name: "clock".into(), is_ok: doubt.is_none(), detail: doubt },
            Check {
                name: "draining".into(),
                is_ok: !is_draining,
                detail: is_draining.then(|| "the server is stopping".into()),
            },
        ]
    }
}
