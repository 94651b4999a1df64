//! The engine: what the steps share.

use std::sync::Arc;

use punctual_schedule::Tzdb;
use punctual_store::Store;

use crate::clock::{Clock, Entropy};
use crate::timetables::Timetables;

/// The scheduler of one node.
#[derive(Clone)]
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) timetables: Arc<Timetables>,
}

impl Engine {
    /// An engine over a store.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        tzdb: Arc<Tzdb>,
    ) -> Self {
        Engine { store, clock, entropy, timetables: Arc::new(Timetables::new(tzdb)) }
    }
}
