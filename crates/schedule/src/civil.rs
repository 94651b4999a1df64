//! Calendar arithmetic on whole numbers: days and wall-clock seconds since 1970-01-01.
//!
//! The hot path of every search. jiff's civil types are checked and rich; here a date is one
//! integer, so that a search over centuries stays in microseconds.

/// Seconds since 1970-01-01T00:00:00 on some wall clock (no zone attached).
pub(crate) type Wall = i64;

pub(crate) const DAY: i64 = 86_400;

/// Slots exist in these years only: the range of the year field.
pub(crate) const YEAR_MIN: i32 = 1970;
pub(crate) const YEAR_MAX: i32 = 2199;

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
pub(crate) const fn days_from_date(year: i32, month: u32, day: u32) -> i32 {
    // Years start in March, so that the leap day is the last day of a year.
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let month_from_march = (month as i32 + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day as i32 - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The (year, month, day) of a day number: the inverse of [`days_from_date`].
pub(crate) const fn date_from_days(days: i32) -> (i32, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
    let year = year_of_era + era * 400 + (month <= 2) as i32;
    (year, month, day)
}

/// 0 is Sunday.
pub(crate) const fn weekday(days: i32) -> u32 {
    (days + 4).rem_euclid(7) as u32
}

pub(crate) const fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The date of the first `day` in a month whose 1st is the weekday `first`.
pub(crate) const fn first_of(day: u32, first: u32) -> u32 {
    1 + (day + 7 - first) % 7
}

/// Every `day` of a month whose 1st is the weekday `first`: bit `d` is day `d`.
pub(crate) const fn every_week(day: u32, first: u32) -> u32 {
    const WEEKLY: u64 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;
    (WEEKLY << first_of(day, first)) as u32
}

pub(crate) const fn wall(days: i32, second_of_day: u32) -> Wall {
    days as i64 * DAY + second_of_day as i64
}

/// The day number and the second of the day.
pub(crate) const fn split(wall: Wall) -> (i32, u32) {
    (wall.div_euclid(DAY) as i32, wall.rem_euclid(DAY) as u32)
}

/// Wall-clock seconds of a jiff date and time; the fraction is dropped.
pub(crate) fn wall_of(dt: jiff::civil::DateTime) -> Wall {
    let days = days_from_date(
        i32::from(dt.year()),
        dt.month().unsigned_abs().into(),
        dt.day().unsigned_abs().into(),
    );
    wall(days, 0) + i64::from(dt.hour()) * 3600 + i64::from(dt.minute()) * 60 + i64::from(dt.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_four_centuries_survives_the_round_trip_and_agrees_with_jiff() {
        let mut date = jiff::civil::date(1800, 1, 1);
        for days in days_from_date(1800, 1, 1)..days_from_date(2201, 1, 1) {
            let (y, m, d) = date_from_days(days);
            assert_eq!((y, m, d), (date.year().into(), date.month() as u32, date.day() as u32));
            assert_eq!(days_from_date(y, m, d), days);
            assert_eq!(weekday(days), date.weekday().to_sunday_zero_offset() as u32);
            assert_eq!(days_in_month(y, m), date.days_in_month() as u32);
            date = date.tomorrow().expect("in jiff's range");
        }
    }
}
