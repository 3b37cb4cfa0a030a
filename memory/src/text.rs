//! Sizes and names in messages. It is below [`error`](crate::error), which writes both.

use std::fmt;

/// The next multiple of `unit`, a power of two; `None` on overflow.
#[inline]
pub(crate) const fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    debug_assert!(unit.is_power_of_two());
    let mask = unit - 1;
    match bytes.checked_add(mask) {
        Some(sum) => Some(sum & !mask),
        None => None,
    }
}

/// A number of bytes, displayed in the largest binary unit that is at least 1, with up to two
/// decimals: "512 B", "1.5 KiB", "2 GiB".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let hundredths = |power: usize| {
            let unit = 1u128 << (10 * power);
            (u128::from(self.0) * 100 + unit / 2) / unit
        };
        // By the printed value: 1023.999 KiB rounds to 1024 KiB, which is 1 MiB.
        let power = (0..UNITS.len())
            .find(|&power| hundredths(power) < 102_400)
            .unwrap_or(UNITS.len() - 1);
        let printed = hundredths(power);
        let mut text = (printed / 100).to_string();
        match printed % 100 {
            0 => {}
            tenths if tenths % 10 == 0 => text += &format!(".{}", tenths / 10),
            rest => text += &format!(".{rest:02}"),
        }
        f.pad(&format!("{text} {}", UNITS[power]))
    }
}

/// The maximum length of a displayed name.
const MAX_NAME_CHARS: usize = 60;

/// A name for a table or a message: on one line, escaped, and shortened in the middle.
pub(crate) fn display_name(name: &str) -> String {
    let printed = |character: char| -> Vec<char> {
        match character {
            '\'' | '"' => vec![character],
            _ => character.escape_debug().collect(),
        }
    };
    let begin: Vec<char> = name
        .chars()
        .take(MAX_NAME_CHARS + 1)
        .flat_map(printed)
        .collect();
    if begin.len() <= MAX_NAME_CHARS {
        return begin.into_iter().collect();
    }
    let last: Vec<char> = name.chars().rev().take(MAX_NAME_CHARS / 3).collect();
    let end: Vec<char> = last.into_iter().rev().flat_map(printed).collect();
    let tail = &end[end.len() - MAX_NAME_CHARS / 3..];
    let head = &begin[..MAX_NAME_CHARS - tail.len() - 1];
    head.iter().chain(&['…']).chain(tail).collect()
}
