//! A flame graph of what was live at the peak, as one SVG that needs nothing else.

use std::io::{self, BufWriter, Write};

use inferno::flamegraph::color::{BasicPalette, Palette};
use inferno::flamegraph::{self, Options};

use crate::folded::at_peak;
use crate::profile::Profile;
use crate::size::Size;

/// Writes a flame graph of the live bytes at the peak of the device, by scope and line, or by backtrace.
///
/// # Errors
///
/// Those of `out`.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Profile, flame};
///
/// let profile = Profile { device: "cuda:0".to_owned(), ..Profile::default() };
/// let mut file = Vec::new();
/// flame::write(&profile, &mut file)?;
/// assert!(String::from_utf8(file).unwrap().contains("cuda:0: nothing was live"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let stacks = at_peak(profile);
    if stacks.is_empty() {
        return write_empty(&profile.device, out);
    }
    let bytes = stacks
        .values()
        .fold(0u64, |sum, own| sum.saturating_add(*own));
    let mut options = Options::default();
    let device = as_xml(&profile.device);
    options.title = format!("{device}: {} live at the peak", Size(bytes));
    "bytes".clone_into(&mut options.count_name);
    "Frame:".clone_into(&mut options.name_type);
    options.colors = Palette::Basic(BasicPalette::Mem);
    // The same profile gives the same file.
    options.deterministic = true;
    let lines: Vec<String> = stacks
        .into_iter()
        .map(|(stack, bytes)| format!("{} {bytes}", as_xml(&stack)))
        .collect();
    let lines = lines.iter().map(String::as_str);
    let mut out = BufWriter::new(out);
    flamegraph::from_lines(&mut options, lines, &mut out)?;
    out.flush()
}

/// Writes a graph without frames, which inferno refuses to.
fn write_empty(device: &str, out: &mut dyn Write) -> io::Result<()> {
    let device = as_xml(device)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="600" height="40"><text x="10" y="25">{device}: nothing was live</text></svg>"#
    )
}

/// Replaces the characters that XML 1.0 forbids, even as references, by U+FFFD.
fn as_xml(text: &str) -> String {
    text.replace(|character| !is_xml(character), "\u{fffd}")
}

/// Returns true for a `Char` of XML 1.0 (<https://www.w3.org/TR/xml/#NT-Char>).
fn is_xml(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}
