//! Folded stacks of the live memory at the peak, with one stack per line. Flame graph tools read
//! this format.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use crate::lifetimes::{lifetimes, live_at, peak};
use crate::place::Place;
use crate::profile::Profile;

/// Writes a line for each stack: its frames from the outermost inwards, and its live bytes at the
/// device's peak.
///
/// If an allocation has a backtrace, its frames are the backtrace. Otherwise, its frames are the
/// scope and the line.
///
/// # Errors
///
/// Returns the errors of `out`.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Profile, folded};
///
/// let mut file = Vec::new();
/// folded::write(&Profile::default(), &mut file)?;
/// assert!(file.is_empty(), "nothing was live");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for (stack, bytes) in at_peak(profile) {
        writeln!(out, "{stack} {bytes}")?;
    }
    out.flush()
}

/// Returns the live bytes at the peak, by stack. Sizes are truncated so that their sum is below
/// 2⁶⁴.
pub(crate) fn at_peak(profile: &Profile) -> BTreeMap<String, u64> {
    let lifetimes = lifetimes(profile);
    let mut places: BTreeMap<Place, u64> = BTreeMap::new();
    for lifetime in live_at(&lifetimes, peak(profile, &lifetimes)) {
        let bytes = places
            .entry(Place::of(lifetime.event(profile)))
            .or_default();
        *bytes = bytes.saturating_add(lifetime.bytes);
    }
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for (place, bytes) in places {
        let sum = stacks.entry(folded(&place.frames(profile))).or_default();
        *sum = sum.saturating_add(bytes);
    }
    let mut left = u64::MAX;
    for bytes in stacks.values_mut() {
        *bytes = (*bytes).min(left);
        left -= *bytes;
    }
    stacks.retain(|_, bytes| *bytes > 0);
    stacks
}

fn folded(frames: &[String]) -> String {
    let frames = frames.iter().rev().map(|frame| as_frame(frame));
    let stack = frames.collect::<Vec<_>>().join(";");
    // Parsers treat a line that begins with `#` as a comment.
    match stack.strip_prefix('#') {
        Some(rest) => format!("_{rest}"),
        None => stack,
    }
}

/// Replaces the separators of frames and of lines.
fn as_frame(text: &str) -> String {
    let frame = text.trim().replace(';', ",");
    frame.replace(char::is_control, " ")
}
