//! What a stretch of an hourly job comes to, row by row.

use punctual_schedule::calendar::Calendar;
use punctual_schedule::{Binding, Schedule, Tzdb};

use super::*;
use crate::id::{JobId, ShardId, TenantId, Version};
use crate::job::{Spec, Target};

fn at(time: &str) -> Timestamp {
    let text = if time.contains('T') { format!("{time}Z") } else { format!("2026-06-02T{time}Z") };
    text.parse().expect("a time")
}

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text).expect("valid")
}

/// Hourly, registered at half past midnight.
fn job() -> Job {
    let created_at = at("00:30:00.250");
    Job {
        id: JobId::new(created_at, ShardId(1), 1),
        tenant: TenantId::DEFAULT,
        version: Version::FIRST,
        state: JobState::Active,
        spec: Spec::new("hourly", schedule("0 * * * *"), Target::Discard),
        created_at,
        updated_at: created_at,
        carried: None,
        changes: Vec::new(),
    }
}

fn entry(job: &Job, from: &str, to: &str, slots: u64, fate: Fate, decided: &str) -> LedgerEntry {
    let (from, to, decided_at) = (at(from), at(to), at(decided));
    LedgerEntry { job: job.id, tenant: job.tenant, from, to, slots, fate, decided_at }
}

fn pause(since: &str) -> Pause {
    Pause { reason: None, by: Some("ada".into()), since: at(since), until: None }
}

/// The rows as `from-to count state/reason`, newest first.
fn rows(job: &Job, (from, to): (&str, &str), entries: &[LedgerEntry]) -> Vec<String> {
    let calendar = Calendar::new().exclude_window("02:00-04:00").expect("a window");
    let calendars = [("night".to_string(), Arc::new(calendar))].into_iter().collect();
    let binding = Binding { calendars: Arc::new(calendars), ..Binding::default() };
    let tzdb = Tzdb::bundled();
    let slots = |at: Timestamp| {
        let (schedule, _) = job.schedule_at(at)?;
        let bind = |schedule: &Schedule| Arc::new(schedule.timetable(&tzdb, &binding).expect("valid"));
        let mut bare = schedule.clone();
        bare.calendars.clear();
        let bare = (!schedule.calendars.is_empty()).then(|| bind(&bare));
        Some(Slots { timetable: bind(schedule), bare })
    };
    let stretch = Stretch {
        now: at("12:10:00"),
        from: at(from),
        to: at(to),
        is_first: true,
        job,
        is_over: false,
        runs: &[],
        entries,
        calendars_changed: &[],
        slots: &slots,
    };
    let show = |row: &Row| {
        let (state, reason) = row.what.as_str();
        let clock = |at: Timestamp| at.strftime("%H:%M").to_string();
        format!("{}-{} {} {state}/{reason}", clock(row.from), clock(row.to), row.slots)
    };
    account(&stretch).iter().map(show).collect()
}

#[test]
fn slots_before_the_job_to_come_and_without_a_record_are_ranges() {
    let job = job();
    assert_eq!(
        rows(&job, ("2026-06-01T22:00:00", "15:00:00"), &[]),
        [
            "13:00-14:00 2 to_come/schedule",
            "01:00-12:00 12 unknown/not_recorded",
            "22:00-00:00 3 none/before_the_job"
        ]
    );
}

#[test]
fn entries_stand_where_their_slots_were_and_pauses_say_who() {
    let mut paused = job();
    paused.state = JobState::Paused(pause("05:30:00"));
    let mut resumed =
        Job { state: JobState::Active, version: Version(3), updated_at: at("08:30:00"), ..paused.clone() };
    resumed.remember(&paused);
    let skipped = entry(&resumed, "06:00:00", "08:00:00", 3, Fate::SkippedPause, "08:30:00");
    let missed = entry(&resumed, "01:00:00", "04:00:00", 4, Fate::MissedCatchUp, "05:00:00");
    let entries = [skipped, missed];
    assert_eq!(
        rows(&resumed, ("02:00:00", "10:00:00"), &entries),
        [
            "09:00-09:00 1 unknown/not_recorded",
            "08:30-08:30 0 changed/resumed",
            "06:00-08:00 3 skipped/pause",
            "05:00-05:00 1 unknown/not_recorded",
            "01:00-04:00 4 missed/catch_up",
        ]
    );
    let row = of_entry(&resumed, &entries[0]);
    let What::Entry(_, Some(held)) = row.what else { panic!("{row:?}") };
    assert_eq!((held.pause.by.as_deref(), held.ended_at), (Some("ada"), Some(at("08:30:00"))));
}

#[test]
fn a_pause_that_holds_and_a_deleted_job_are_told() {
    let mut paused = job();
    paused.state = JobState::Paused(pause("10:30:00"));
    assert_eq!(
        rows(&paused, ("10:00:00", "15:00:00"), &[]),
        ["13:00-14:00 2 skipped/pause", "11:00-12:00 2 skipped/pause", "10:00-10:00 1 unknown/not_recorded"]
    );
    let mut deleted = Job { state: JobState::Deleted, updated_at: at("11:30:00"), ..paused.clone() };
    deleted.remember(&paused);
    assert_eq!(
        rows(&deleted, ("10:00:00", "15:00:00"), &[]),
        [
            "13:00-14:00 2 none/deleted",
            "12:00-12:00 1 none/deleted",
            "11:30-11:30 0 changed/resumed",
            "11:00-11:00 1 skipped/pause",
            "10:00-10:00 1 unknown/not_recorded",
        ]
    );
}

#[test]
fn slots_of_an_older_schedule_are_counted_by_it() {
    let old = job();
    let mut new = Job { updated_at: at("06:30:00"), version: Version(2), ..old.clone() };
    new.spec.schedule = schedule("*/10 * * * *");
    new.remember(&old);
    assert_eq!(
        rows(&new, ("05:00:00", "07:00:00"), &[]),
        [
            "06:40-06:50 2 unknown/not_recorded",
            "06:30-06:30 0 changed/schedule",
            "05:00-06:00 2 unknown/not_recorded"
        ]
    );
}

#[test]
fn what_a_calendar_excludes_and_what_is_not_kept_is_told_apart() {
    let mut job = job();
    job.spec.schedule.calendars = vec!["night".into()];
    assert_eq!(
        rows(&job, ("01:00:00", "06:00:00"), &[]),
        ["01:00-05:00 3 unknown/not_recorded", "01:00-05:00 2 skipped/calendar"]
    );
    job.spec.schedule.calendars.clear();
    job.created_at = at("2026-05-01T00:00:00");
    assert_eq!(
        rows(&job, ("2026-05-02T00:00:00", "2026-05-03T00:00:00"), &[]),
        ["00:00-23:00 24 unknown/retention"]
    );
}
