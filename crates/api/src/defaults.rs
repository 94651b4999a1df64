//! What holds for jobs of a tenant that do not say: a part of a job's body, put under the bodies that come.
//!
//! Filled in when a job is registered or replaced, and shown as the job's own from then on. Promise: a job says `null` to
//! what it does not want; what is wrong only because of a default says so.

use std::borrow::Cow;

use punctual_domain::job::Spec;

use crate::duration::Duration;
use crate::job::{JobSpec, Purpose, read_job};
use crate::merge;
use crate::policies::{CatchUp, Overlap, Retention};
use crate::read::{At, Errors, Rules, Unread, checked, members, read};
use crate::retry::Retry;
use crate::schedule::Schedule;
use crate::target::{Discard, Target};

object! {
    /// What holds for jobs of a tenant that do not say. What is left out has the default of the product.
    pub struct JobDefaults {
        /// When runs start.
        pub schedule: ScheduleDefaults,
        /// When a failed attempt is followed by another.
        pub retry: Retry,
        /// What happens to slots that are reached too late.
        pub catch_up: CatchUp,
        /// What happens when a run is to be made while others are open.
        pub overlap: Overlap,
        /// A run that has not started so long after its slot is missed.
        pub start_window: Duration,
        /// How long an attempt may take.
        pub timeout: Duration,
        /// How long after its slot all of a run may take.
        pub deadline: Duration,
        /// A success that took less than this is told by a warning.
        pub min_duration: Duration,
        /// What follows an attempt of which nobody knows whether it did its work: `retry`, `skip` or `ask`.
        pub on_unknown: String,
        /// What is kept of runs, and how long.
        pub retention: Retention,
    }

    /// What holds for schedules that do not say.
    pub struct ScheduleDefaults {
        /// Runs of `cron`, `every` and `interval` start up to so much after their slot, always the same for a job.
        pub spread: Duration,
    }
}

/// Schedules that come again and again: what happens once is asked for by itself, and has its time.
const RECURRING: [&str; 3] = ["every", "interval", "cron"];

/// Reads defaults. They are right if a job that says nothing else would be.
pub fn read_defaults(text: &str, rules: &Rules<'_>) -> Result<JobDefaults, Unread> {
    let defaults: JobDefaults = read(text)?;
    let spread = defaults.schedule.as_ref().and_then(|schedule| schedule.spread);
    let job = JobSpec {
        retry: defaults.retry.clone(),
        catch_up: defaults.catch_up.clone(),
        overlap: defaults.overlap.clone(),
        start_window: defaults.start_window,
        timeout: defaults.timeout,
        deadline: defaults.deadline,
        min_duration: defaults.min_duration,
        on_unknown: defaults.on_unknown.clone(),
        retention: defaults.retention.clone(),
        ..JobSpec::new(
            "any",
            Schedule { cron: Some("@yearly".into()), spread, ..Schedule::default() },
            Target { discard: Some(Discard::default()), ..Target::default() },
        )
    };
    job.to_spec(rules).map_err(Unread::Wrong)?;
    Ok(defaults)
}

/// Reads the body of a job over the defaults of its tenant.
pub fn read_job_over(
    text: &str,
    defaults: Option<&str>,
    purpose: Purpose,
    rules: &Rules<'_>,
) -> Result<Spec, Unread> {
    let Some(defaults) = defaults else { return read_job(text, purpose, rules) };
    let (filled, added) = fill(checked(text)?, defaults);
    read_job(&filled, purpose, rules).map_err(|unread| match unread {
        Unread::Wrong(mut errors) => {
            for error in &mut errors {
                let member = error.pointer.trim_start_matches('/').split('/').next().unwrap_or_default();
                if added.iter().any(|name| name == member) {
                    let hint = format!("; `{member}` is a default of the tenant, write the job's own");
                    error.detail.push_str(&hint);
                }
            }
            Unread::Wrong(errors)
        }
        unread => unread,
    })
}

/// A job's body with what it does not say, and the members that it does not have at all.
pub(crate) fn fill<'a>(job: &'a str, defaults: &str) -> (Cow<'a, str>, Vec<String>) {
    let Some(mut body) = pairs(job) else { return (Cow::Borrowed(job), Vec::new()) };
    let mut added = Vec::new();
    for (name, default) in pairs(defaults).unwrap_or_default() {
        let own = body.iter().position(|(known, _)| *known == name);
        match (&*name, own) {
            ("schedule", None) => {}
            (_, None) => {
                body.push((Cow::Owned(name.to_string()), Cow::Owned(default.to_string())));
                added.push(name.into_owned());
            }
            ("schedule", Some(at)) if !is_recurring(&body[at].1) => {}
            // Said or not wanted: `null` and what is no object are left to be read.
            (_, Some(at)) if !body[at].1.starts_with('{') => {}
            (_, Some(at)) => {
                let merged = merge::over_default(&name, &default, &body[at].1);
                body[at].1 = Cow::Owned(merged);
            }
        }
    }
    (Cow::Owned(merge::written(&body)), added)
}

fn is_recurring(schedule: &str) -> bool {
    let members = pairs(schedule).unwrap_or_default();
    members.iter().any(|(name, value)| RECURRING.contains(&&**name) && *value != "null")
}

fn pairs(text: &str) -> Option<Vec<(Cow<'_, str>, Cow<'_, str>)>> {
    let pairs = members(text, &At::ROOT, &mut Errors::default())?;
    Some(pairs.into_iter().map(|(name, value)| (name, Cow::Borrowed(value))).collect())
}

#[cfg(test)]
mod tests {
    use punctual_schedule::Tzdb;

    use super::*;

    const DEFAULTS: &str = r#"{"schedule":{"spread":"PT10M"},"retry":{"backoff":"list","delays":["PT1M"]},
        "deadline":"PT2H","retention":{"days":30,"failures":true}}"#;

    /// A job of these members over the defaults.
    fn over(job: &str) -> Result<serde_json::Value, Unread> {
        let tzdb = Tzdb::bundled();
        let body = format!(r#"{{"target":{{"discard":{{}}}},{job}}}"#);
        let spec = read_job_over(&body, Some(DEFAULTS), Purpose::Create, &Rules::new(&tzdb))?;
        Ok(serde_json::to_value(JobSpec::from(&spec)).expect("JSON"))
    }

    #[test]
    fn a_job_has_what_it_does_not_say_from_its_tenant() {
        let job = over(r#""schedule":{"cron":"0 2 * * *"}"#).expect("right");
        assert_eq!(job["schedule"]["spread"], "PT10M");
        assert_eq!((&job["retry"]["backoff"], &job["deadline"]), (&"list".into(), &"PT2H".into()));
        assert_eq!((&job["retention"]["days"], &job["retention"]["failures"]), (&30.into(), &true.into()));
        assert_eq!(job["timeout"], "PT5M", "and what that does not say from the product");
    }

    #[test]
    fn what_a_job_says_is_its_own_and_null_is_the_default_of_the_product() {
        let said = r#""schedule":{"every":"1h","spread":"1m"},"retry":{"backoff":"fixed","base":"9s"},
            "deadline":null,"retention":{"failures":false,"last":5}"#;
        let job = over(said).expect("right");
        assert_eq!(job["schedule"]["spread"], "PT1M");
        assert_eq!((&job["retry"]["base"], &job["retry"]["delays"]), (&"PT9S".into(), &().into()));
        assert_eq!(job["deadline"], serde_json::Value::Null);
        let kept = serde_json::json!({"days":30,"failures":false,"last":5,"output_max":65536});
        assert_eq!(job["retention"], kept);
        let job = over(r#""schedule":{"every":"1h","spread":null},"retention":null"#).expect("right");
        assert_eq!((&job["schedule"]["spread"], &job["retention"]["days"]), (&().into(), &7.into()));
    }

    #[test]
    fn what_happens_once_has_its_time() {
        for schedule in [r#"{"now":true}"#, r#"{"at":"2030-01-01T00:00:00Z"}"#, r#"{"after":"1h"}"#] {
            let job = over(&format!(r#""schedule":{schedule}"#)).expect("right");
            assert_eq!(job["schedule"]["spread"], serde_json::Value::Null, "{schedule}");
        }
    }

    #[test]
    fn a_payload_stays_as_it_was_written() {
        let job = over(r#""schedule":{"now":true},"payload":{"a":null, "n" : 1.50}"#).expect("right");
        assert_eq!(job["payload"], serde_json::json!({"a":null,"n":1.5}));
    }

    #[test]
    fn what_is_wrong_because_of_a_default_says_so() {
        let Err(Unread::Wrong(errors)) = over(r#""schedule":{"every":"1h","spread":"3h"}"#) else {
            panic!("a spread longer than the deadline is refused")
        };
        assert_eq!(errors[0].pointer, "/deadline");
        assert!(errors[0].detail.ends_with("`deadline` is a default of the tenant, write the job's own"));
        let Err(Unread::Wrong(errors)) = over(r#""retention":{"days":3}"#) else {
            panic!("nothing is kept for 3 days")
        };
        assert!(errors.iter().all(|error| !error.detail.contains("default of the tenant")), "{errors:?}");
        assert!(matches!(over("7"), Err(Unread::Malformed(_))));
    }

    #[test]
    fn defaults_are_checked_like_jobs() {
        let tzdb = Tzdb::bundled();
        let rules = Rules::new(&tzdb);
        assert_eq!(read_defaults("{}", &rules), Ok(JobDefaults::default()));
        let defaults = read_defaults(DEFAULTS, &rules).expect("right");
        let text = serde_json::to_string(&defaults).expect("JSON");
        assert_eq!(read_defaults(&text, &rules).expect("accepted again"), defaults);
        for (text, pointer) in [
            (r#"{"retention":{"days":8}}"#, "/retention/days"),
            (r#"{"target":{"discard":{}}}"#, "/target"),
            (r#"{"schedule":{"cron":"0 2 * * *"}}"#, "/schedule/cron"),
            (r#"{"schedule":{"spread":"3h"},"deadline":"1h"}"#, "/deadline"),
            (r#"{"retry":{"max_attempts":0}}"#, "/retry/max_attempts"),
            ("[]", ""),
        ] {
            match read_defaults(text, &rules) {
                Err(Unread::Wrong(errors)) => assert_eq!(errors[0].pointer, pointer, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
