//! Whether a store takes writes, for `/readyz` and for people.

/// What a store says about itself. Asking costs nothing and touches no disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether the last commit succeeded. A store that is not writable still answers reads.
    pub writable: bool,
    /// Why it is not, and what to do about it.
    pub reason: Option<String>,
}

impl Default for Health {
    fn default() -> Self {
        Health { writable: true, reason: None }
    }
}

impl Health {
    /// Writes fail.
    pub fn failing(reason: impl Into<String>) -> Self {
        Health { writable: false, reason: Some(reason.into()) }
    }
}
