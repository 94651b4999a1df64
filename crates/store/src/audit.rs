//! What stores share about the audit.

use punctual_domain::Run;
use punctual_domain::audit::Entry;

/// The entry of a trigger, which names its run as soon as there is one.
pub fn of_run(mut entry: Box<Entry>, run: &Run) -> Box<Entry> {
    if entry.subject.is_empty() {
        entry.subject = run.id().to_string().into();
    }
    entry
}
