//! Sizes, time spans, processor shares and money, parsed from text that people write.

use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("expected {expected}")]
    Form {
        /// The expected form, with an example.
        expected: &'static str,
    },
    #[error("`{unit}` is not a unit; units are {known}")]
    Unit {
        /// The unit as written.
        unit: String,
        /// The units there are.
        known: &'static str,
    },
    /// Zero could be read as "nothing at all" or as "no limit".
    #[error("a limit must be greater than zero")]
    Zero,
    /// Above zero, but below the smallest unit.
    #[error("the value is too small")]
    Small,
    /// `nan`.
    #[error("expected a number, found `nan`")]
    NotANumber,
    /// Larger than the type holds.
    #[error("the value is too large")]
    Large,
}

/// A number of bytes. Units are powers of 1024: `K`, `M`, `G`, `T`, also as `KiB` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

const SIZE_FORM: &str = "a size such as `512M` or `4G`";
const SIZE_UNITS: &str = "`B`, `K`, `M`, `G` and `T`";

impl ByteSize {
    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Reads `512M`, `4G`, `4GiB`, `1048576`.
    ///
    /// # Errors
    /// When the text has another form, is zero, or does not fit.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let (number, unit) = split(text).ok_or(QuantityError::Form { expected: SIZE_FORM })?;
        let shift = match unit {
            "" | "B" => 0,
            "K" | "k" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            "T" | "TiB" => 40,
            _ => return Err(QuantityError::Unit { unit: unit.to_owned(), known: SIZE_UNITS }),
        };
        positive(number.and_then(|number| number.checked_mul(1 << shift))).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut unit) = (self.0, 0);
        while value.is_multiple_of(1024) && unit < 4 {
            value /= 1024;
            unit += 1;
        }
        write!(f, "{value}{}", ["", "K", "M", "G", "T"][unit])
    }
}

/// A span of time in whole seconds, such as `30m` or `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(u64);

const TIME_FORM: &str = "a time such as `90s`, `30m` or `1h30m`";
const TIME_UNITS: &str = "`s`, `m`, `h` and `d`";

impl TimeSpan {
    /// Panics for 0.
    #[must_use]
    pub const fn hours(hours: u64) -> Self {
        assert!(hours > 0, "time span must not be empty");
        Self(hours * 3600)
    }

    /// The next whole second; a second for nothing.
    #[must_use]
    pub const fn rounded_up(time: Duration) -> Self {
        let seconds = time.as_secs() + (time.subsec_nanos() > 0) as u64;
        Self(if seconds == 0 { 1 } else { seconds })
    }

    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }

    /// Reads `90s`, `30m`, `1h30m`, `2d`. A number without a unit is rejected, because its unit would be ambiguous.
    ///
    /// # Errors
    /// When it is not such a text, is zero, or does not fit.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let form = QuantityError::Form { expected: TIME_FORM };
        let mut rest = text;
        let mut total = Some(0_u64);
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            let unit_len = tail.bytes().take_while(|b| !b.is_ascii_digit()).count();
            if digits == 0 || unit_len == 0 || !tail.is_char_boundary(unit_len) {
                return Err(form);
            }
            let (unit, tail) = tail.split_at(unit_len);
            let seconds = match unit {
                "s" => 1,
                "m" => 60,
                "h" => 3600,
                "d" => 86400,
                _ => return Err(QuantityError::Unit { unit: unit.trim().to_owned(), known: TIME_UNITS }),
            };
            let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(seconds));
            total = total.zip(part).and_then(|(a, b)| a.checked_add(b));
            rest = tail;
        }
        if text.is_empty() {
            return Err(form);
        }
        positive(total).map(Self)
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (unit, seconds) in [("d", 86400), ("h", 3600), ("m", 60), ("s", 1)] {
            if rest >= seconds {
                write!(f, "{}{unit}", rest / seconds)?;
                rest %= seconds;
            }
        }
        Ok(())
    }
}

/// A share of processors, in thousandths: `1.5` is one and a half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(u32);

impl Cpus {
    /// Thousandths of a processor.
    #[must_use]
    pub const fn milli(self) -> u32 {
        self.0
    }

    /// # Errors
    /// When the number is not above zero, or above 4096.
    pub fn new(number: f64) -> Result<Self, QuantityError> {
        let milli = scaled(number, 1e3, 4096.0)?;
        u32::try_from(milli).map(Self).map_err(|_large| QuantityError::Large)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

/// An amount of money in US dollars, kept in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(u64);

impl Usd {
    /// Millionths of a dollar.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// # Errors
    /// When the amount is not above zero, or above a million.
    pub fn new(dollars: f64) -> Result<Self, QuantityError> {
        scaled(dollars, 1e6, 1_000_000.0).map(Self)
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:06}", self.0 % 1_000_000);
        let shown = fraction.trim_end_matches('0');
        write!(f, "${}.{shown:0<2}", self.0 / 1_000_000)
    }
}

macro_rules! serialize_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
serialize_as_text!(ByteSize, TimeSpan, Cpus, Usd);

/// Splits into the number and its unit; the number is `None` if it does not fit.
fn split(text: &str) -> Option<(Option<u64>, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (digits > 0).then(|| (number.parse().ok(), unit.trim_start()))
}

fn positive(value: Option<u64>) -> Result<u64, QuantityError> {
    match value {
        None => Err(QuantityError::Large),
        Some(0) => Err(QuantityError::Zero),
        Some(value) => Ok(value),
    }
}

fn scaled(number: f64, scale: f64, limit: f64) -> Result<u64, QuantityError> {
    if number.is_nan() {
        return Err(QuantityError::NotANumber);
    }
    if number > limit {
        return Err(QuantityError::Large);
    }
    if number <= 0.0 {
        return Err(QuantityError::Zero);
    }
    let scaled = (number * scale).round();
    if scaled < 1.0 {
        return Err(QuantityError::Small);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 10^12, checked above"
    )]
    Ok(scaled as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes, shown) in [
            ("1", 1, "1"),
            ("512M", 512 << 20, "512M"),
            ("4G", 4 << 30, "4G"),
            ("4 GiB", 4 << 30, "4G"),
            ("1048576", 1 << 20, "1M"),
            ("3T", 3 << 40, "3T"),
        ] {
            let size = ByteSize::parse(text).unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, shown));
        }
        for (bad, reason) in [
            ("", "expected a size such as `512M` or `4G`"),
            ("-1G", "expected a size such as `512M` or `4G`"),
            ("4X", "`X` is not a unit; units are `B`, `K`, `M`, `G` and `T`"),
            ("4.5G", "`.5G` is not a unit; units are `B`, `K`, `M`, `G` and `T`"),
            ("0G", "a limit must be greater than zero"),
            ("4iB", "`iB` is not a unit; units are `B`, `K`, `M`, `G` and `T`"),
            ("4KiBiB", "`KiBiB` is not a unit; units are `B`, `K`, `M`, `G` and `T`"),
            ("99999999999T", "the value is too large"),
            ("99999999999999999999999", "the value is too large"),
        ] {
            assert_eq!(ByteSize::parse(bad).unwrap_err().to_string(), reason, "{bad:?}");
        }
    }

    #[test]
    fn times() {
        for (text, seconds, shown) in
            [("90s", 90, "1m30s"), ("30m", 1800, "30m"), ("1h30m", 5400, "1h30m"), ("2d", 172_800, "2d")]
        {
            let span = TimeSpan::parse(text).unwrap();
            assert_eq!((span.duration().as_secs(), span.to_string().as_str()), (seconds, shown));
        }
        for bad in ["", "30", "m", "1h30", "0s", "1w", "1é", "99999999999999999999s", "-1s", "1 h"] {
            assert!(TimeSpan::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn shares_and_money() {
        assert_eq!(Cpus::new(1.5).unwrap().milli(), 1500);
        assert_eq!(Cpus::new(0.0), Err(QuantityError::Zero));
        assert_eq!(Cpus::new(f64::NAN), Err(QuantityError::NotANumber));
        assert_eq!(Cpus::new(0.0001), Err(QuantityError::Small));
        assert_eq!(Cpus::new(4096.5), Err(QuantityError::Large));
        assert_eq!(Usd::new(5.0).unwrap().to_string(), "$5.00");
        assert_eq!(Usd::new(0.25).unwrap().micros(), 250_000);
        assert_eq!(Usd::new(0.0005).unwrap().to_string(), "$0.0005");
        assert_eq!(Usd::new(12.3).unwrap().to_string(), "$12.30");
        assert_eq!(Usd::new(-1.0), Err(QuantityError::Zero));
        assert_eq!(Usd::new(f64::INFINITY), Err(QuantityError::Large));
    }
}
