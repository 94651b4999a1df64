//! Links on the wire: other jobs that are triggered when a run ends.

use punctual_domain::link::{self as domain, LINKS_MAX, On};

use crate::limits::WORD_MAX;
use crate::read::{At, Errors, one_of};
use crate::target::required;

object! {
    /// Another job that is triggered when a run ends. It gets a run with a payload of its own, which tells of the end and has the output.
    pub struct Link {
        /// By which end: `succeeded`, `failed` (a dead letter) or `finished` (either of the two).
        #[schema(example = "succeeded", required = true)]
        pub on: String,
        /// Which job of the tenant, by its id or its key. It must be there.
        #[schema(example = "report", required = true)]
        pub job: String,
    }
}

impl Link {
    /// A link to a job.
    pub fn new(on: impl Into<String>, job: impl Into<String>) -> Self {
        Link { on: Some(on.into()), job: Some(job.into()) }
    }

    fn to_domain(&self, at: &At<'_>, errors: &mut Errors) -> Option<domain::Link> {
        let on = required(self.on.as_ref(), at, "on", errors)
            .and_then(|word| one_of(word, &On::WORDS, &at.member("on"), errors));
        let job = required(self.job.as_ref(), at, "job", errors);
        crate::job::check_word(job, &at.member("job"), WORD_MAX, errors);
        Some(domain::Link { on: on?, job: job?.clone() })
    }
}

impl From<&domain::Link> for Link {
    fn from(link: &domain::Link) -> Self {
        Link::new(link.on.as_str(), link.job.clone())
    }
}

/// The links of a job, or everything that is wrong with them.
pub(crate) fn to_domain(links: &[Link], at: &At<'_>, errors: &mut Errors) -> Option<Vec<domain::Link>> {
    if links.len() > LINKS_MAX {
        let detail = format!(
            "{} links are too many, at most {LINKS_MAX}; let one of them trigger others",
            links.len()
        );
        errors.add(at, "too_long", detail);
        return None;
    }
    let mut read: Vec<Option<domain::Link>> = Vec::with_capacity(links.len());
    for (place, link) in links.iter().enumerate() {
        let here = at.item(place);
        let link = link.to_domain(&here, errors);
        if link.is_some() && read.contains(&link) {
            errors.add(&here, "duplicate", "this link is there twice; leave one of them out");
        }
        read.push(link);
    }
    read.into_iter().collect()
}
