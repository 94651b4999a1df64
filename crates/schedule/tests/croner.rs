//! Against croner, the nearest crate: the same slots, except where a rule says why not.

use crate::support::generate;
use crate::support::interpreter;
use crate::support::zones;
use std::collections::BTreeMap;

use croner::parser::{CronParser, Seconds, Year};
use fastrand::Rng;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use punctual_schedule::{Binding, Schedule, Tzdb};

use crate::support::generate::Fields;

const CASES: u32 = 200_000;
const SEED: u64 = 20_261_115;

/// One question asked of both.
struct Case<'a> {
    text: &'a str,
    zone: &'a TimeZone,
    from: Timestamp,
    ours: Timestamp,
    /// Theirs, or nothing if it gave up.
    theirs: Option<Timestamp>,
    croner: &'a CronParser,
}

impl Case<'_> {
    fn ask_croner(&mut self) {
        let from = self.from.to_zoned(self.zone.clone());
        self.theirs = self
            .croner
            .parse(self.text)
            .ok()
            .and_then(|cron| cron.find_next_occurrence(&from, false).ok())
            .map(|zoned| zoned.timestamp());
    }

    /// Why the answers differ, if there is a rule.
    fn explanation(&self) -> Option<&'static str> {
        RULES.iter().find(|(_, applies)| applies(self)).map(|(rule, _)| *rule)
    }

    /// Whether croner agrees (or differs for another reason) when the same is written in another way: then
    /// the way of writing it is what makes the difference.
    fn differs_only_from(&self, rewritten: &str) -> bool {
        if rewritten == self.text {
            return false;
        }
        let mut case = Case { text: rewritten, ..*self };
        case.ask_croner();
        case.theirs == Some(case.ours) || case.explanation().is_some()
    }
}

/// Says whether it explains a difference.
type Rule = fn(&Case<'_>) -> bool;

/// Why an answer may differ: ours follows our policy, croner's does not.
const RULES: [(&str, Rule); 7] = [
    ("croner drops the slot of a gap when a list or a midnight is involved", ours_is_after_a_gap),
    ("croner invents a slot after a gap in which the schedule has none", theirs_is_after_an_empty_gap),
    (
        "croner makes up for a jump of over three hours, which we take as a calendar correction",
        theirs_is_after_a_long_jump,
    ),
    (
        "croner runs the second pass of a repeated time when it starts inside or near it",
        theirs_is_a_second_pass,
    ),
    ("croner takes `*/1` in a day field as a restriction", takes_every_day_as_step_for_a_restriction),
    ("croner gives up at a jump of the clock longer than two hours", gave_up_at_a_long_jump),
    ("croner never matches the last Sunday written as `7L` or `7#L`", names_the_last_sunday_as_seven),
];

#[test]
fn every_difference_from_croner_is_explained_by_a_rule() {
    let tzdb = Tzdb::bundled();
    let zones = zones::Zones::bundled();
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Optional).build();
    let mut rng = Rng::with_seed(SEED);
    let (mut same, mut far, mut refused) = (0, 0, 0);
    let mut explained: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..CASES {
        let (zone, jump) = zones.jump(&mut rng);
        let near = zone.wall_around(&mut rng, jump);
        let fields = *generate::pick(&mut rng, &[Fields::Five, Fields::Six]);
        let text = generate::expression(&mut rng, fields, near);
        let from = match rng.bool() {
            true => jump + SignedDuration::from_secs(rng.i64(-4 * 3600..4 * 3600)),
            false => jump + SignedDuration::from_secs(rng.i64(-20 * 86_400..20 * 86_400)),
        };
        let mut schedule = Schedule::parse(&text).unwrap();
        schedule.timezone.clone_from(&zone.name);
        let timetable = schedule.timetable(&tzdb, &Binding::default()).unwrap();
        // croner searches impossible and rare dates second by second.
        let near_enough = |slot: &Timestamp| slot.as_second() - from.as_second() < 2 * 366 * 86_400;
        let Some(ours) = timetable.next_after(from).filter(near_enough) else {
            far += 1;
            continue;
        };
        if parser.parse(&text).is_err() {
            refused += 1; // `0/15`, `L-2`, `@midnight`
            continue;
        }
        let mut case = Case { text: &text, zone: &zone.rules, from, ours, theirs: None, croner: &parser };
        case.ask_croner();
        if case.theirs == Some(ours) {
            same += 1;
            continue;
        }
        match case.explanation() {
            Some(rule) => *explained.entry(rule).or_default() += 1,
            None => panic!(
                "unexplained: {text} | {} | from {} | ours {} | croner {:?} (seed {SEED})",
                zone.name,
                from.to_zoned(zone.rules.clone()),
                ours.to_zoned(zone.rules.clone()),
                case.theirs.map(|t| t.to_zoned(zone.rules.clone()).to_string()),
            ),
        }
    }
    println!("croner: {CASES} cases, {same} the same, {refused} refused by croner, {far} too rare for it");
    for (rule, count) in &explained {
        println!("croner: {count} differ: {rule}");
    }
    assert!(same > CASES / 3, "too few comparisons to mean anything: {same}");
}

/// Ours is the first instant after a gap in which a time of the schedule lies.
fn ours_is_after_a_gap(case: &Case<'_>) -> bool {
    jump_at(case.zone, case.ours) > 0 && case.theirs.is_none_or(|theirs| theirs > case.ours)
}

/// Theirs is the end of a gap in which, by an independent reading, no time of the schedule lies.
fn theirs_is_after_an_empty_gap(case: &Case<'_>) -> bool {
    let Some(theirs) = case.theirs.filter(|theirs| *theirs < case.ours) else {
        return false;
    };
    let expression = interpreter::read(case.text);
    let end = case.zone.to_datetime(theirs);
    let gap = i64::from(jump_at(case.zone, theirs));
    gap > 0
        && (0..=gap).all(|back| {
            let wall = end - SignedDuration::from_secs(back);
            let time = expression.hours[wall.hour() as usize]
                && expression.minutes[wall.minute() as usize]
                && expression.seconds[wall.second() as usize];
            !(time && expression.matches_date(wall.date()))
        })
}

fn theirs_is_after_a_long_jump(case: &Case<'_>) -> bool {
    case.theirs.is_some_and(|theirs| theirs < case.ours && jump_at(case.zone, theirs) > 3 * 3600)
}

/// Theirs shows a wall time that the clock had shown before.
fn theirs_is_a_second_pass(case: &Case<'_>) -> bool {
    case.theirs.is_some_and(|theirs| {
        let wall = case.zone.to_datetime(theirs);
        let first = case.zone.to_ambiguous_timestamp(wall).earlier().unwrap();
        theirs < case.ours && first < theirs
    })
}

/// Written as `*`, the day field is no restriction to croner either.
fn takes_every_day_as_step_for_a_restriction(case: &Case<'_>) -> bool {
    let has_step = |field: &str| field.split(',').any(|item| item.trim_start_matches('+') == "*/1");
    let mut fields: Vec<&str> = case.text.split_whitespace().collect();
    let Some(weekday) = fields.len().checked_sub(1).filter(|last| *last >= 4) else {
        return false; // A nickname.
    };
    for day in [weekday - 2, weekday] {
        if has_step(fields[day]) {
            fields[day] = "*";
        }
    }
    case.differs_only_from(&fields.join(" "))
}

fn gave_up_at_a_long_jump(case: &Case<'_>) -> bool {
    case.theirs.is_none()
        && case
            .zone
            .following(case.from - SignedDuration::from_hours(24))
            .take_while(|change| change.timestamp() <= case.ours)
            .any(|change| jump_at(case.zone, change.timestamp()).abs() >= 2 * 3600)
}

/// Written as 0, croner knows the last Sunday.
fn names_the_last_sunday_as_seven(case: &Case<'_>) -> bool {
    let (head, weekday) = case.text.rsplit_once(' ').unwrap_or(("", case.text));
    let items: Vec<&str> = weekday
        .split(',')
        .map(|item| match item {
            "7L" | "7#L" => "0L",
            "+7L" | "+7#L" => "+0L",
            other => other,
        })
        .collect();
    case.differs_only_from(&format!("{head} {}", items.join(",")))
}

/// How far the clock jumps at an instant, in seconds.
fn jump_at(zone: &TimeZone, at: Timestamp) -> i32 {
    let before = zone.to_offset(at - SignedDuration::from_nanos(1));
    zone.to_offset(at).seconds() - before.seconds()
}
