//! Sizes of memory, for people.

use std::fmt;

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Displays bytes as `512 B` or `1.5 MiB`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut units = UNITS.iter();
        let mut unit = "B";
        let mut size = self.0 as f64;
        // Not 1024.0 KiB, as which a little less than a MiB would be rounded.
        while size >= 1023.95
            && let Some(larger) = units.next()
        {
            size /= 1024.0;
            unit = larger;
        }
        let text = if unit == "B" {
            format!("{} B", self.0)
        } else {
            format!("{size:.1} {unit}")
        };
        out.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal_from_kib_on() {
        let shown = |bytes| Size(bytes).to_string();
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1.0 KiB");
        assert_eq!(shown(1536 << 10), "1.5 MiB");
        assert_eq!(shown((1 << 20) - 1), "1.0 MiB");
        assert_eq!(shown(u64::MAX), "16.0 EiB");
        assert_eq!(format!("{:>9}|", Size(1024)), "  1.0 KiB|");
    }
}
