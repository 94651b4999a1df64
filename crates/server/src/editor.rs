//! Applies merge patches to jobs, for operations that edit many of them.

use std::fmt;
use std::sync::Arc;

use punctual_api::bulk::{edited, first_wrong};
use punctual_api::limits::PAYLOAD_MAX;
use punctual_api::read::{CheckTarget, Rules};
use punctual_domain::Spec;
use punctual_engine::bulk::Edit;
use punctual_schedule::Tzdb;

/// Holds a job that many are edited with to the rules of one that is edited by itself.
pub struct Editor {
    /// Where time zones are looked up.
    pub tzdb: Arc<Tzdb>,
    /// Whether a target may be called at all.
    pub check_target: Option<Arc<CheckTarget>>,
}

impl Edit for Editor {
    fn edit(&self, old: &Spec, patch: &str) -> Result<Spec, String> {
        let rules =
            Rules { tzdb: &self.tzdb, payload_max: PAYLOAD_MAX, check_target: self.check_target.as_deref() };
        edited(old, patch, &rules).map_err(|unread| first_wrong(&unread))
    }
}

impl fmt::Debug for Editor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Editor").finish_non_exhaustive()
    }
}
