//! Byte sizes: checked arithmetic and parsing.

use std::str::FromStr;

use crate::error::{Error, ErrorCode, Result};
pub use crate::text::ByteSize;
pub(crate) use crate::text::round_up;

/// The granularity of blocks and offsets.
pub(crate) const UNIT_BYTES: u64 = 512;

/// A size setting: a number of bytes, or a share of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeSetting {
    /// A number of bytes, above 0.
    Bytes(u64),
    /// A share in millionths, in `1..=1_000_000`: 50 % is 500,000.
    Percent {
        /// Millionths of the total.
        millionths: u32,
    },
}

const PERCENT: u64 = 10_000;

/// The units in lower case, and their bytes. A single letter is binary, as in Java, Docker and
/// systemd.
const UNITS: [(&str, u64); 18] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
];

impl SizeSetting {
    /// Returns the size in bytes on a device with `total_bytes` of memory.
    pub(crate) fn resolve(self, total_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent { millionths } => {
                let share = u128::from(total_bytes) * u128::from(millionths) / 1_000_000;
                // The share fits in 64 bits, because `millionths` is at most a million.
                share as u64
            }
        }
    }

    /// Parses `text`. The error is the reason for the failure, without `text`.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim().to_ascii_lowercase();
        if unit == "%" {
            return match scale(number, PERCENT)? {
                0 => Err("a percentage must be above 0%".into()),
                // The pattern limits `millionths`, so the cast is exact.
                millionths @ 1..=1_000_000 => Ok(Self::Percent {
                    millionths: millionths as u32,
                }),
                _ => Err("a percentage must be at most 100%".into()),
            };
        }
        let Some(&(_, unit_bytes)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("unknown unit \"{unit}\""));
        };
        if unit_bytes == 1 && number.contains('.') {
            return Err("bytes have no fraction".into());
        }
        match scale(number, unit_bytes)? {
            0 => Err("a size must be above 0".into()),
            bytes => Ok(Self::Bytes(bytes)),
        }
    }
}

/// Returns the decimal `number` times `unit`, rounded down.
fn scale(number: &str, unit: u64) -> std::result::Result<u64, String> {
    /// The maximum number of fraction digits whose scaled value fits 128 bits. Further digits are
    /// worth less than a byte.
    const MAX_FRACTION_DIGITS: usize = 18;

    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err("no number".into());
    }
    if fraction.contains('.') {
        return Err("two decimal points".into());
    }
    let too_large = || String::from("the number exceeds 64 bits");
    let digits = |text: &str| match text {
        "" => Ok(0),
        text => text.parse::<u64>().map_err(|_| too_large()),
    };
    let fraction = &fraction[..fraction.len().min(MAX_FRACTION_DIGITS)];
    let denominator = 10u128.pow(fraction.len() as u32);
    let part = u128::from(digits(fraction)?) * u128::from(unit) / denominator;
    let scaled = u128::from(digits(whole)?) * u128::from(unit) + part;
    u64::try_from(scaled).map_err(|_| too_large())
}

impl FromStr for SizeSetting {
    type Err = Error;

    /// Parses a number and a unit, with an optional space between them. Units are case-insensitive.
    /// Powers of 1000: B, KB, MB, GB, TB. Powers of 1024: KiB (or Ki, K), MiB (or Mi, M), GiB (or
    /// Gi, G), TiB (or Ti, T). `%` is a share of the device's memory. A number without a unit
    /// counts bytes.
    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).map_err(|reason| {
            Error::new(
                ErrorCode::Setting,
                format!(
                    "cannot read \"{text}\" as a size: {reason}; \
                     write it as \"8GiB\", \"500MB\", \"1048576\" or \"50%\""
                ),
            )
        })
    }
}

/// Parses a size in bytes: "1GiB", "500MB", "1048576".
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a text that is not a size, and for a
/// percentage, because a percentage needs a device.
pub fn parse_bytes(text: &str) -> Result<u64> {
    match text.parse()? {
        SizeSetting::Bytes(bytes) => Ok(bytes),
        SizeSetting::Percent { .. } => Err(Error::new(
            ErrorCode::Setting,
            format!("\"{text}\" is a percentage, but a number of bytes is expected"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn rounding_up_stops_at_the_last_multiple() {
        assert_eq!(round_up(0, 512), Some(0));
        assert_eq!(round_up(1, 512), Some(512));
        assert_eq!(round_up(512, 512), Some(512));
        assert_eq!(round_up(513, 512), Some(1024));
        assert_eq!(round_up(u64::MAX, 1), Some(u64::MAX));
        assert_eq!(round_up(u64::MAX - 511, 512), Some(u64::MAX - 511));
        assert_eq!(round_up(u64::MAX - 510, 512), None);
        assert_eq!(round_up(u64::MAX, 2), None);
    }

    #[test]
    fn every_form_of_a_size_is_read() {
        let bytes: &[(&str, u64)] = &[
            ("1", 1),
            ("1024", 1024),
            ("7B", 7),
            ("8GiB", 8 << 30),
            ("8 GiB", 8 << 30),
            ("  8\tGiB ", 8 << 30),
            ("8gib", 8 << 30),
            ("8GIB", 8 << 30),
            ("500MB", 500_000_000),
            ("500mb", 500_000_000),
            ("3KB", 3_000),
            ("3GB", 3_000_000_000),
            ("3TB", 3_000_000_000_000),
            ("3KiB", 3 << 10),
            ("3MiB", 3 << 20),
            ("3TiB", 3 << 40),
            ("3Ki", 3 << 10),
            ("3Mi", 3 << 20),
            ("3Gi", 3 << 30),
            ("3Ti", 3 << 40),
            ("3K", 3 << 10),
            ("3M", 3 << 20),
            ("3g", 3 << 30),
            ("3T", 3 << 40),
            ("1.5GiB", 3 << 29),
            ("1.5GB", 1_500_000_000),
            ("1.GiB", 1 << 30),
            (".5KiB", 512),
            ("0.001KB", 1),
            ("1.3KiB", 1331),
            ("0.333333333333333333333333333333GB", 333_333_333),
            ("18446744073709551615", u64::MAX),
            ("16777215.999999TiB", 18_446_744_073_708_452_104),
        ];
        for &(text, expected) in bytes {
            let read: SizeSetting = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(read, SizeSetting::Bytes(expected), "{text}");
        }
        let shares: &[(&str, u32)] = &[
            ("50%", 500_000),
            ("100%", 1_000_000),
            ("100.0 %", 1_000_000),
            ("12.5%", 125_000),
            ("0.0001%", 1),
            ("33.333333%", 333_333),
        ];
        for &(text, millionths) in shares {
            let read: SizeSetting = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(read, SizeSetting::Percent { millionths }, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_its_reason() {
        let cases: &[(&str, &str)] = &[
            ("", "no number"),
            ("  ", "no number"),
            ("GiB", "no number"),
            ("%", "no number"),
            (".", "bytes have no fraction"),
            (".GiB", "no number"),
            ("-1", "unknown unit \"-1\""),
            ("+1", "unknown unit"),
            ("-50%", "unknown unit"),
            ("NaN", "unknown unit"),
            ("inf", "unknown unit"),
            ("1e9", "unknown unit"),
            ("0x10", "unknown unit"),
            ("1_000", "unknown unit"),
            ("1,5GiB", "unknown unit"),
            ("٣GiB", "unknown unit"),
            ("8GiBs", "unknown unit"),
            ("8 G iB", "unknown unit"),
            ("8PB", "unknown unit"),
            ("1.2.3GiB", "two decimal points"),
            ("1.5", "bytes have no fraction"),
            ("1.5B", "bytes have no fraction"),
            ("0", "above 0"),
            ("0GiB", "above 0"),
            ("0.0001KiB", "above 0"),
            ("0%", "above 0%"),
            ("0.00001%", "above 0%"),
            ("100.1%", "at most 100%"),
            ("101%", "at most 100%"),
            ("4294967297%", "at most 100%"),
            ("18446744073709551616", "64 bits"),
            ("16777216TiB", "64 bits"),
            ("99999999999999999999999999GiB", "64 bits"),
        ];
        for &(text, reason) in cases {
            let error = text.parse::<SizeSetting>().unwrap_err();
            let message = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(message.contains(reason), "{text:?}: {message}");
            assert!(message.contains(&format!("\"{text}\"")), "{message}");
        }
    }

    #[test]
    fn shares_are_of_the_whole_device() {
        let half = SizeSetting::Percent {
            millionths: 500_000,
        };
        let whole = SizeSetting::Percent {
            millionths: 1_000_000,
        };
        assert_eq!(half.resolve(1000), 500);
        assert_eq!(half.resolve(u64::MAX), u64::MAX / 2);
        assert_eq!(half.resolve(0), 0);
        assert_eq!(whole.resolve(u64::MAX), u64::MAX);
        assert_eq!(SizeSetting::Bytes(7).resolve(3), 7);
    }

    proptest! {
        #[test]
        fn rounding_up_is_the_least_multiple_not_below(bytes: u64, shift in 0u32..63) {
            let unit = 1u64 << shift;
            let expected = u128::from(bytes).div_ceil(u128::from(unit)) * u128::from(unit);
            prop_assert_eq!(round_up(bytes, unit).map(u128::from), u64::try_from(expected).ok().map(u128::from));
        }

        #[test]
        fn printed_sizes_read_back_to_within_their_decimals(bytes in 1u64..1 << 50) {
            let SizeSetting::Bytes(read) = ByteSize(bytes).to_string().parse()? else {
                return Err(TestCaseError::fail("a share"));
            };
            prop_assert!(read.abs_diff(bytes) <= bytes / 200 + 1, "{} for {}", read, bytes);
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<SizeSetting>();
        }
    }
}
