//! Every reason, as a table of facts and answers.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use punctual_schedule::Schedule;
use punctual_schedule::calendar::Calendar;

use super::*;
use crate::id::Version;
use crate::job::{Before, Change};
use crate::labels::Labels;
use crate::ledger::Fate;
use crate::policy::backlog::Cap;
use crate::policy::breaker::Stage;
use crate::policy::catch_up::CatchUp;
use crate::policy::limit::Limits;
use crate::policy::overlap::Overlap;
use crate::run::{Lease, Limit, NEVER, RunState, StartBy, WaitingFor};

mod case;

use case::*;

#[test]
#[allow(clippy::too_many_lines, reason = "a catalogue")]
fn every_reason_has_its_case() {
    let slot = "2026-06-02 09:00 Europe/Paris";
    let done = RunState::Succeeded;
    let capacity = RunState::Pending(WaitingFor::Capacity);
    let id = case().job.id.to_string();
    let given = [
        case()
            .ran("07:00:00.003", done, succeeded("07:00:00.010"))
            .with(|case| case.attempts = vec![attempt(1, at("07:00:00.005"), None)])
            .gives(
                Reason::RanOnTime,
                &[slot, "on time, 10ms after", "09:00:00.010", "attempt 1 in 250ms", &worker().to_string()],
            ),
        case()
            .ran("07:00:12", done, succeeded("07:00:12"))
            .gives(Reason::RanLate, &[slot, "12s late", "no node fired it until 09:00:12"]),
        case()
            .ran("07:00:00", done, succeeded("07:00:40"))
            .with(|case| case.attempts = vec![attempt(1, at("07:00:39"), None)])
            .gives(Reason::RanLate, &["40s late", "waited 39s for a worker with room"]),
        case()
            .ran("07:00:00", done, succeeded("07:00:09"))
            .with(|case| case.attempts = vec![attempt(1, at("07:00:01"), None)])
            .gives(Reason::RanLate, &["took it at 09:00:01 began only then"]),
        case()
            .ran("07:30:00", done, succeeded("07:30:01"))
            .gives(Reason::CaughtUp, &["30m 1s late", "at 09:30 it was caught up with (catch_up latest)"]),
        case()
            .ran(
                "07:00:00",
                RunState::Running(Lease { worker: worker(), attempt: 2, claimed_at: at("07:00:05") }),
                |_| {},
            )
            .with(|case| {
                case.attempts =
                    vec![attempt(1, at("07:00:01"), Some("503")), attempt(2, at("07:00:05"), None)];
            })
            .gives(
                Reason::Running,
                &[
                    "attempt 2",
                    "09:00:05",
                    "Attempt 1 ended at 09:00:01.250",
                    "http_status: 503",
                    "punctual run cancel",
                ],
            ),
        case()
            .ran(
                "07:00:00",
                RunState::Running(Lease { worker: receiver(at("07:30:00")), attempt: 1, claimed_at: at("07:00:05") }),
                |run| run.attempt = 1,
            )
            .with(|case| case.attempts = vec![attempt(1, at("07:00:05"), None)])
            .gives(
                Reason::WaitsForReport,
                &["attempt 1", "reports by its token until 09:30", "every 20s", "punctual run cancel"],
            ),
        case()
            .ran("07:00:00", RunState::Pending(WaitingFor::Retry), |run| {
                run.attempt = 1;
                run.available_at = at("07:00:31");
            })
            .with(|case| case.attempts = vec![attempt(1, at("07:00:01"), Some("503"))])
            .gives(
                Reason::Retrying,
                &["tried again at 09:00:31 (attempt 2; 3 count at most)", "http_status: 503"],
            ),
        case()
            .ran("07:00:00", RunState::Failed, |run| run.attempt = 5)
            .with(|case| {
                case.is_dead_letter = true;
                case.attempts = (1..=5).map(|n| attempt(n, at("07:00:01"), Some("503"))).collect();
            })
            .gives(
                Reason::Failed,
                &[
                    "after 5 attempts",
                    "The first 2 attempts failed too",
                    "Attempt 5",
                    "dead letter",
                    "punctual dead-letter redrive",
                ],
            ),
        case().ran("07:00:00", RunState::TimedOut, |run| run.reason = Some(Limit::Deadline)).gives(
            Reason::Failed,
            &["timed out for good", "its deadline was over", "taken out of the dead letters"],
        ),
        case()
            .ran("07:00:00", RunState::Missed, |run| {
                run.reason = Some(Limit::StartWindow);
                run.start_by = Some(StartBy { at: at("07:10:00"), limit: Limit::StartWindow });
            })
            .gives(
                Reason::MissedStartWindow,
                &[
                    "start window was over at 09:10",
                    "punctual job backfill",
                    "--from 2026-06-02T07:00:00Z --to 2026-06-02T07:00:01Z",
                ],
            ),
        case()
            .with(|case| case.job.spec.policies.timeouts.start_window = Some(Duration::from_secs(600)))
            .accounted(Fate::MissedStartWindow, 1)
            .gives(Reason::MissedStartWindow, &["at 10:30, its start window of 10m was over"]),
        case().accounted(Fate::MissedDeadline, 1).gives(Reason::MissedDeadline, &["deadline"]),
        case()
            .with(|case| case.job.spec.policies.catch_up = CatchUp::None)
            .accounted(Fate::MissedCatchUp, 3)
            .gives(
                Reason::MissedCatchUp,
                &[
                    "catch_up none",
                    "one of 3 from 2026-05-31 09:00 to 09:00",
                    "It fires next at 2026-06-03 09:00",
                ],
            ),
        case()
            .accounted(Fate::MissedCatchUp, 1)
            .gives(Reason::MissedCatchUp, &["newest slot alone, within 1h"]),
        case()
            .with(|case| case.job.spec.policies.overlap = Overlap::Skip)
            .accounted(Fate::SkippedOverlap, 1)
            .gives(Reason::SkippedOverlap, &["still open", "overlap skip"]),
        case()
            .accounted(Fate::SkippedCancel, 1)
            .gives(Reason::SkippedCancel, &["operation was cancelled at 10:30"]),
        case().accounted(Fate::Throttled(Cap::Tenant), 3).gives(
            Reason::Throttled,
            &[
                "was throttled at 10:30",
                "as many runs of its tenant waited as may (tenant_pending_max of the server)",
                "one of 3 from",
                "punctual job backfill",
            ],
        ),
        case()
            .accounted(Fate::Throttled(Cap::All), 1)
            .gives(Reason::Throttled, &["as many runs waited in all as may (pending_max"]),
        case()
            .with(|case| {
                paused(&mut case.job, "06:00:00", None);
                let old = case.job.clone();
                case.job = Job { state: JobState::Active, updated_at: at("08:30:00"), ..old.clone() };
                case.job.remember(&old);
            })
            .accounted(Fate::SkippedPause, 1)
            .gives(
                Reason::Paused,
                &["was skipped: the job was paused from 08:00 to 10:30 by ada (\"move\")"],
            ),
        case()
            .with(|case| {
                paused(&mut case.job, "06:00:00", Some("15:00:00"));
                case.asked = None;
            })
            .gives(
                Reason::Paused,
                &[
                    "paused since 08:00 by ada (\"move\"); one slot was skipped since",
                    "by itself at 17:00",
                    &format!("punctual job resume {id}"),
                ],
            ),
        case()
            .with(|case| paused(&mut case.job, "06:00:00", None))
            .gives(Reason::Paused, &[slot, "is skipped: the job is paused since 08:00 by ada"]),
        case()
            .ran("07:00:00", RunState::Pending(WaitingFor::Answer), |run| {
                (run.attempt, run.available_at) = (1, NEVER);
                run.start_by = Some(StartBy { at: at("13:00:00"), limit: Limit::Deadline });
            })
            .with(|case| case.attempts = vec![unknown(1, at("07:00:01"))])
            .gives(
                Reason::WaitsForAnswer,
                &[
                    "nobody knows whether attempt 1",
                    "until 15:00",
                    "unknown: the connection was closed",
                    "punctual run answer",
                ],
            ),
        case()
            .ran("07:00:00", RunState::Succeeded, |run| {
                (run.attempt, run.started_at) = (1, Some(at("07:00:00")));
                run.finished_at = Some(at("08:00:00"));
            })
            .with(|case| case.attempts = vec![unknown(1, at("07:00:01"))])
            .gives(Reason::RanOnTime, &["somebody answered at 10:00 that it succeeded", "unknown:"]),
        case()
            .ran("07:00:00", RunState::Failed, |run| run.attempt = 1)
            .with(|case| {
                case.is_dead_letter = true;
                case.attempts = vec![unknown(1, at("07:00:01"))];
            })
            .gives(
                Reason::Failed,
                &["nobody knows whether the last one did its work", "punctual dead-letter redrive"],
            ),
        case()
            .ran("06:59:00", RunState::Pending(WaitingFor::Time), |run| run.available_at = at("13:00:00"))
            .gives(Reason::WaitsForTime, &["may start at 15:00"]),
        case()
            .with(|case| {
                case.job.spec.policies.overlap = Overlap::QueueOne;
                let lease = Lease { worker: worker(), attempt: 1, claimed_at: at("06:00:00") };
                case.ahead = Some(run(&case.job, at("06:00:00"), RunState::Running(lease)));
            })
            .ran("07:00:00", RunState::Pending(WaitingFor::EarlierRun), |_| {})
            .gives(
                Reason::WaitsForEarlierRun,
                &["which is running (overlap queue_one)", "punctual run cancel"],
            ),
        case()
            .ran("07:00:00", RunState::Pending(WaitingFor::Limit), |run| run.limits = limited("db", None))
            .gives(
                Reason::WaitsForLimit,
                &["has waited 5h in the line of the limit `db`", "punctual limit list"],
            ),
        case()
            .ran("07:00:00", RunState::Pending(WaitingFor::Limit), |run| {
                run.limits = limited("", NonZeroU32::new(2));
                run.start_by = Some(StartBy { at: at("13:00:00"), limit: Limit::StartWindow });
            })
            .gives(
                Reason::WaitsForLimit,
                &[
                    "of its job's concurrency, 2 at once. If it has not started by 15:00, it is missed.",
                    "run list --job",
                ],
            ),
        case()
            .with(|case| case.breaker = Some(breaker(Stage::Open { interval: Duration::from_secs(40), asking: NonZeroU32::MIN })))
            .ran("07:00:00", RunState::Pending(WaitingFor::Limit), |run| {
                run.limits = Limits::NONE.with_breakers([&breaker(crowded())]);
            })
            .gives(
                Reason::WaitsForBreaker,
                &[
                    "has waited 5h, because the breaker of `http api.example.com` is open since 09:05, next probe \
                     by 13:59:40 (connect_failed: refused).",
                    "punctual breaker reset \"http api.example.com\"",
                ],
            ),
        case()
            .with(|case| case.breaker = Some(breaker(crowded())))
            .ran("07:00:00", RunState::Pending(WaitingFor::Limit), |run| {
                run.limits = Limits::NONE.with_breakers([&breaker(crowded())]);
            })
            .gives(
                Reason::WaitsForBreaker,
                &["`http api.example.com` answers too slowly since 09:05: 8 at once go there"],
            ),
        case()
            .ran("07:00:00", capacity, |run| run.requires = "gpu=true".parse().expect("labels"))
            .with(|case| case.is_met = false)
            .gives(
                Reason::WaitsForLabels,
                &["has waited 5h for a worker with gpu=true", "punctual serve --labels gpu=true"],
            ),
        case()
            .ran("07:00:00", capacity, |run| {
                run.queue = "reports".into();
                run.start_by = Some(StartBy { at: at("13:00:00"), limit: Limit::StartWindow });
            })
            .with(|case| case.is_served = Some(false))
            .gives(
                Reason::WaitsForQueue,
                &["the queue `reports`, which no worker serves", "by 15:00, it is missed"],
            ),
        case()
            .ran("07:00:00", capacity, |_| {})
            .gives(Reason::WaitsForRoom, &["has waited 5h for a worker with room", "punctual nodes"]),
        case()
            .ran("07:00:00", RunState::Pending(WaitingFor::Retry), |run| {
                run.lost = 2;
                run.requires = run.requires.alone();
            })
            .gives(
                Reason::WaitsToBeAlone,
                &["was lost with its worker 2 times, of 5 at most", "It is tried alone: it has waited 5h"],
            ),
        case()
            .ran("07:00:00", capacity, |run| run.requires = "gpu=true".parse::<Labels>().expect("labels").alone())
            .with(|case| case.is_met = false)
            .gives(Reason::WaitsForLabels, &["for a worker with gpu=true, and", "--labels gpu=true; or"]),
        case()
            .ran("07:00:00", RunState::Pending(WaitingFor::Retry), |run| {
                run.requires = run.requires.alone();
                run.available_at = at("20:00:00");
            })
            .gives(Reason::Retrying, &["is tried again at 22:00"]),
        case().ran("07:00:00", RunState::Cancelled, |run| run.finished_at = Some(at("07:05:00"))).gives(
            Reason::Cancelled,
            &["ended at 09:05 before it started, because somebody asked", "punctual job trigger"],
        ),
        case()
            .with(|case| {
                case.job.state = JobState::Deleted;
                case.job.updated_at = at("07:05:00");
            })
            .ran("07:00:00", RunState::Cancelled, |run| run.finished_at = Some(at("07:05:00")))
            .gives(Reason::Cancelled, &["because the job was deleted"]),
        case()
            .with(|case| {
                case.calendar = Some(Calendar::new().exclude_date("2026-06-02").expect("a date"));
                case.job.spec.schedule.calendars = vec!["holidays".into()];
            })
            .gives(Reason::ExcludedByCalendar, &["a calendar excludes it (holidays)", "2026-06-03 09:00"]),
        case()
            .with(|case| {
                case.job.spec.schedule.calendars = vec!["holidays".into()];
                case.excluded_by = vec!["holidays".into()];
                case.calendar = Some(Calendar::new());
            })
            .accounted(Fate::SkippedCalendar, 1)
            .gives(
                Reason::ExcludedByCalendar,
                &["a calendar excludes it (holidays), which was changed after"],
            ),
        case().accounted(Fate::MissedNoWorker, 1).gives(
            Reason::MissedNoWorker,
            &["every worker that serves the queue `default`", "none did", "punctual job trigger"],
        ),
        case()
            .with(|case| {
                case.job.spec.schedule = paris("30 2 * * *");
                case.job.created_at = "2026-03-01T00:00:00Z".parse().expect("a time");
                case.asked = Some("2026-03-29T01:30:00Z".parse().expect("a time"));
                case.left_out = Some("02:30");
            })
            .gives(
                Reason::DstGap,
                &[
                    "02:30 does not exist on that day in Europe/Paris",
                    "the slot of 2026-03-29 03:00 Europe/Paris",
                ],
            ),
        case()
            .with(|case| {
                case.job.spec.schedule = paris("30 2 * * *");
                case.job.created_at = "2025-10-01T00:00:00Z".parse().expect("a time");
                case.asked = Some("2025-10-26T01:30:00Z".parse().expect("a time"));
            })
            .gives(Reason::DstOverlap, &["comes twice", "00:30 UTC (dst_overlap)"]),
        case().with(|case| case.asked = Some(at("07:20:00"))).gives(
            Reason::NotASlot,
            &["`0 9 * * *`, does not name it", "before is 2026-06-02 09:00", "after is 2026-06-03 09:00"],
        ),
        case()
            .with(|case| case.asked = Some(at("07:00:00") - SignedDuration::from_hours(48)))
            .gives(Reason::BeforeTheJob, &["registered later", "punctual job backfill"]),
        case()
            .with(|case| {
                case.asked = None;
                case.is_over = true;
                case.fired = 3;
                case.job.spec.schedule.bounds.max_fires = std::num::NonZeroU64::new(3);
            })
            .ran("07:00:00", done, succeeded("07:00:00"))
            .gives(Reason::Ended, &["fired 3 times", "max_fires", "ran on time"]),
        case()
            .with(|case| (case.asked, case.is_over) = (None, true))
            .ran("07:00:00", RunState::Failed, |run| run.attempt = 1)
            .gives(Reason::Failed, &["failed for good", "has no more slots"]),
        case()
            .with(|case| {
                case.is_over = true;
                case.job.spec.schedule.bounds.end = Some(at("06:00:00"));
            })
            .gives(Reason::Ended, &["its schedule ended at 2026-06-02 08:00"]),
        case()
            .with(|case| {
                case.asked = None;
                case.job.state = JobState::Deleted;
                case.job.updated_at = at("06:00:00");
            })
            .gives(
                Reason::Deleted,
                &["was deleted at 2026-06-02 08:00 Europe/Paris", "punctual run list --job"],
            ),
        case()
            .with(|case| case.asked = Some(at("07:00:00") + SignedDuration::from_hours(24)))
            .gives(Reason::NotYetDue, &["still to come, in 19h"]),
        case()
            .with(|case| {
                case.asked = None;
                case.job.created_at = at("11:00:00");
            })
            .gives(Reason::NotYetDue, &["No slot of the job has come", "first at 2026-06-03 09:00"]),
        case().gives(Reason::NotFired, &["was due 5h ago", "node-1 has its shard"]),
        case().with(|case| case.owner = None).gives(Reason::NotFired, &["no live node has its shard"]),
        case()
            .with(|case| case.now = at("07:00:00") + SignedDuration::from_hours(24 * 9))
            .gives(Reason::Forgotten, &["longer ago than the history of the job is kept (7 days)"]),
        case()
            .with(|case| {
                let hourly = Schedule::parse("0 4 * * *").expect("valid");
                let until = Before::Schedule(Box::new(hourly));
                case.job.changes = vec![Change { at: at("11:00:00"), version: Version(1), until }];
            })
            .gives(Reason::Edited, &["another schedule then, `0 4 * * *`", "changed at 11:00"]),
    ];
    let named: HashSet<Reason> = given.into_iter().collect();
    let missing: Vec<Reason> = Reason::ALL.into_iter().filter(|reason| !named.contains(reason)).collect();
    assert_eq!(missing, [], "reasons without a case");
}

#[test]
fn reasons_are_different_words() {
    let words: HashSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(words.len(), Reason::ALL.len());
}

#[test]
fn a_run_of_an_older_version_says_so() {
    let answer = case()
        .with(|case| case.job.version = Version(3))
        .ran("07:00:00", RunState::Succeeded, |run| {
            run.version = Version(2);
            run.started_at = Some(at("07:00:00"));
        })
        .answer();
    assert!(answer.text.contains("version 2 of the job, which is at version 3"), "{}", answer.text);
    assert_eq!(answer.slot, Some(at("07:00:00")));
}
