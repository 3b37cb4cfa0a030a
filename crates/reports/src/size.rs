//! Human-readable memory sizes.

use std::fmt;

/// A number of bytes, displayed in the largest binary unit in which it is at least 1. The number
/// has up to two decimals: "512 B", "1.5 KiB", "2 GiB". If the format has a precision, sizes from
/// KiB on have exactly this number of decimals.
///
/// # Examples
///
/// ```
/// use cachescope_reports::ByteSize;
///
/// assert_eq!(ByteSize(1536).to_string(), "1.5 KiB");
/// assert_eq!(format!("{:.2}", ByteSize(1536)), "1.50 KiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let decimals = f.precision().unwrap_or(2).min(9);
        let scale = 10u128.pow(decimals as u32);
        let scaled = |power: usize| {
            let unit = 1u128 << (10 * power);
            (u128::from(self.0) * scale + unit / 2) / unit
        };
        // The printed value selects the unit: 1023.999 KiB rounds to 1024 KiB, which is 1 MiB.
        let power = (0..UNITS.len())
            .find(|&power| scaled(power) < 1024 * scale)
            .unwrap_or(UNITS.len() - 1);
        let (whole, part) = (scaled(power) / scale, scaled(power) % scale);
        let mut text = format!("{whole}.{part:0decimals$}");
        if f.precision().is_none() || decimals == 0 || power == 0 {
            let digits = text.trim_end_matches('0').trim_end_matches('.');
            text.truncate(digits.len());
        }
        text = text + " " + UNITS[power];
        match f.precision() {
            // `pad` would truncate the text to the precision.
            Some(_) => {
                let width = f.width().unwrap_or(0);
                match f.align() {
                    Some(fmt::Alignment::Left) => write!(f, "{text:<width$}"),
                    Some(fmt::Alignment::Center) => write!(f, "{text:^width$}"),
                    _ => write!(f, "{text:>width$}"),
                }
            }
            None => f.pad(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_a_person_reads_them() {
        let cases: &[(u64, &str)] = &[
            (0, "0 B"),
            (1, "1 B"),
            (512, "512 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1025, "1 KiB"),
            (1030, "1.01 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1 MiB"),
            (1_048_576, "1 MiB"),
            (20 << 20, "20 MiB"),
            (2 << 30, "2 GiB"),
            ((2 << 30) + (1 << 28), "2.25 GiB"),
            (1000 << 30, "1000 GiB"),
            (1 << 40, "1 TiB"),
            (3 << 50, "3 PiB"),
            (u64::MAX / 2 + 1, "8 EiB"),
            (u64::MAX, "16 EiB"),
        ];
        for &(bytes, text) in cases {
            assert_eq!(ByteSize(bytes).to_string(), text, "{bytes}");
        }
        assert_eq!(format!("{:>8}|", ByteSize(512)), "   512 B|");
    }

    #[test]
    fn sizes_have_one_decimal_from_kib_on() {
        let shown = |bytes| format!("{:.1}", ByteSize(bytes));
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1.0 KiB");
        assert_eq!(shown(1536 << 10), "1.5 MiB");
        assert_eq!(shown((1 << 20) - 1), "1.0 MiB");
        assert_eq!(shown(u64::MAX), "16.0 EiB");
        assert_eq!(format!("{:>9.1}|", ByteSize(1024)), "  1.0 KiB|");
        assert_eq!(format!("{:.0}", ByteSize(10 << 10)), "10 KiB");
    }
}
