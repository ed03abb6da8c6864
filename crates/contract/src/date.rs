//! Points in time in UTC, formatted for people.

use std::fmt;

/// A point in time, to the second, in the calendar of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
}

const DAY: u64 = 86_400;

impl UtcTime {
    /// The time `ms` milliseconds after the beginning of 1970.
    ///
    /// Years are counted from March, so that the leap day is the last of its year, in eras of 400 years, after which
    /// the calendar repeats. Day 0 is then 0000-03-01, which is 719,468 days before 1970.
    #[must_use]
    pub const fn from_unix_ms(ms: u64) -> Self {
        let seconds = ms / 1000;
        let days = seconds / DAY + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
        Self { year, month, day, second_of_day: seconds % DAY }
    }

    /// The milliseconds since 1970 of a text such as `2026-11-15T22:30:43.120Z`.
    #[must_use]
    pub fn parse_unix_ms(text: &str) -> Option<u64> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let number = |text: &str| -> Option<u64> {
            text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok())?
        };
        let [year, month, day] = <[&str; 3]>::try_from(date.split('-').collect::<Vec<_>>()).ok()?;
        let [hour, minute, second] = <[&str; 3]>::try_from(time.split(':').collect::<Vec<_>>()).ok()?;
        let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
        let (year, month, day) = (number(year)?, number(month)?, number(day)?);
        let (hour, minute, second) = (number(hour)?, number(minute)?, number(second)?);
        let in_range = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        if !in_range || hour > 23 || minute > 59 || second > 60 || fraction.len() > 9 {
            return None;
        }
        number(fraction)?;
        let ms = number(format!("{fraction:0<3}").get(..3)?)?;
        // As in `from_unix_ms`: years from March, in eras of 400 years.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, year) = (year / 400, year % 400);
        let days = era * 146_097 + year * 365 + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1;
        Some((days.checked_sub(719_468)? * DAY + hour * 3600 + minute * 60 + second) * 1000 + ms)
    }

    /// `YYYYMMDD-HHMMSS`, which sorts by time and is usable as a file name.
    #[must_use]
    pub fn compact(&self) -> String {
        let Self { year, month, day, second_of_day: s } = self;
        format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", s / 3600, s / 60 % 60, s % 60)
    }
}

impl fmt::Display for UtcTime {
    /// `YYYY-MM-DD HH:MM`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, second_of_day: s } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {:02}:{:02}", s / 3600, s / 60 % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        // From `date -u -d @N +%Y%m%d-%H%M%S`.
        for (seconds, text) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (951_868_800, "20000301-000000"),
            (1_709_164_800, "20240229-000000"),
            (1_735_689_599, "20241231-235959"),
            (4_107_542_399, "21000228-235959"),
            (4_107_542_400, "21000301-000000"),
            (13_574_563_200, "24000229-000000"),
        ] {
            assert_eq!(UtcTime::from_unix_ms(seconds * 1000 + 999).compact(), text);
        }
        assert_eq!(UtcTime::from_unix_ms(1_735_689_599_000).to_string(), "2024-12-31 23:59");
    }

    #[test]
    fn a_written_time_is_read() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2024-02-29T00:00:00.5Z", Some(1_709_164_800_500)),
            ("2026-11-18T09:30:07.504Z", Some(1_794_994_207_504)),
            ("2100-03-01T00:00:00.123456Z", Some(4_107_542_400_123)),
            ("1969-12-31T23:59:59Z", None),
            ("2026-11-18T09:30:07", None),
            ("2026-13-18T09:30:07Z", None),
            ("+026-11-18T09:30:07Z", None),
            ("2026-11-18T09:30:07.00éZ", None),
            ("", None),
        ] {
            assert_eq!(UtcTime::parse_unix_ms(text), ms, "{text}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = UtcTime::from_unix_ms(0);
        for day in 1..400 * 366 {
            let now = UtcTime::from_unix_ms(day * DAY * 1000);
            let next_day = now.year == before.year && now.month == before.month && now.day == before.day + 1;
            let next_month = now.day == 1 && now.year == before.year && now.month == before.month + 1;
            let next_year = (now.day, now.month, now.year) == (1, 1, before.year + 1);
            assert!(next_day || next_month || next_year, "{before} {now}");
            before = now;
        }
    }

    #[test]
    fn the_largest_value_is_a_date() {
        assert!(UtcTime::from_unix_ms(u64::MAX).compact().len() > 15);
    }
}
