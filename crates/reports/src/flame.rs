//! A flame graph of the live memory at the peak, as one self-contained SVG file.
//!
//! The layout is Brendan Gregg's (<https://www.brendangregg.com/flamegraphs.html>). The width of a
//! frame is proportional to its live bytes. Callees are above their caller. Siblings are sorted by
//! name. The graph is static. The HTML page contains an interactive flame graph.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use crate::folded::at_peak;
use crate::profile::Profile;
use crate::size::ByteSize;

/// The width of the graph in pixels.
const WIDTH: f64 = 1200.0;
/// The height of a frame in pixels.
const ROW: f64 = 18.0;
/// The height of the title in pixels.
const HEAD: f64 = 36.0;
/// The width of a character in pixels. Labels are truncated to their frame.
const CHARACTER: f64 = 7.0;
/// The minimum width in pixels of a drawn frame.
const NARROWEST: f64 = 0.1;

#[derive(Debug, Default)]
struct FlameFrame<'a> {
    bytes: u64,
    callees: BTreeMap<&'a str, FlameFrame<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Scale {
    total_bytes: u64,
    levels: usize,
}

/// Writes a flame graph of the device's live bytes at their peak. The frames are a backtrace, or a
/// scope and a line.
///
/// # Errors
///
/// Returns the errors of `out`.
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
    let root = tree(&stacks);
    let scale = Scale {
        total_bytes: root.bytes,
        levels: levels(&root),
    };
    let device = escaped(&profile.device);
    let title = match root.bytes {
        0 => format!("{device}: nothing was live"),
        bytes => format!("{device}: {:.1} live at the peak", ByteSize(bytes)),
    };
    let height = HEAD + ROW * scale.levels as f64;
    let mut out = BufWriter::new(out);
    writeln!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <text x=\"{}\" y=\"22\" text-anchor=\"middle\" font-size=\"16\">{title}</text>",
        WIDTH / 2.0
    )?;
    if root.bytes > 0 {
        write_frames(&root, scale, &mut out)?;
    }
    writeln!(out, "</svg>")?;
    out.flush()
}

/// Returns the tree of the stacks. Its root represents the whole device.
fn tree(stacks: &BTreeMap<String, u64>) -> FlameFrame<'_> {
    let mut root = FlameFrame::default();
    for (stack, &bytes) in stacks {
        let mut frame = &mut root;
        frame.bytes += bytes;
        for name in stack.split(';') {
            frame = frame.callees.entry(name).or_default();
            frame.bytes += bytes;
        }
    }
    root
}

/// Returns the height of the tree in frames. The function is iterative, because recursion over a
/// long backtrace could overflow the call stack.
fn levels(root: &FlameFrame<'_>) -> usize {
    let mut levels = 0;
    let mut level = vec![root];
    while !level.is_empty() {
        levels += 1;
        level = level
            .iter()
            .flat_map(|frame| frame.callees.values())
            .collect();
    }
    levels
}

/// Writes the boxes of all frames, with callees above their caller. The function is iterative,
/// because recursion over a long backtrace could overflow the call stack.
fn write_frames(root: &FlameFrame<'_>, scale: Scale, out: &mut dyn Write) -> io::Result<()> {
    // Each entry is a name, a frame, the left edge and the depth.
    let mut waiting = vec![("all", root, 0.0, 0)];
    while let Some((name, frame, mut left, depth)) = waiting.pop() {
        if scale.width(frame.bytes) < NARROWEST {
            continue;
        }
        write_box(name, frame.bytes, (left, depth), scale, out)?;
        for (callee, frame) in &frame.callees {
            waiting.push((callee, frame, left, depth + 1));
            left += scale.width(frame.bytes);
        }
    }
    Ok(())
}

/// Writes a frame as a box with a label. The tooltip contains the name, the bytes and the share.
fn write_box(
    name: &str,
    bytes: u64,
    (left, depth): (f64, usize),
    scale: Scale,
    out: &mut dyn Write,
) -> io::Result<()> {
    let width = scale.width(bytes);
    let top = HEAD + ROW * (scale.levels - 1 - depth) as f64;
    let share = 100.0 * bytes as f64 / scale.total_bytes as f64;
    let (red, green) = colour(name);
    writeln!(
        out,
        "<g><title>{} ({} bytes, {share:.2}%)</title>\
         <rect x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\" fill=\"rgb({red},{green},80)\"/>\
         <text x=\"{:.1}\" y=\"{}\">{}</text></g>",
        escaped(name),
        grouped(bytes),
        ROW - 1.0,
        left + 3.0,
        top + 13.0,
        escaped(&cut(name, ((width - 6.0) / CHARACTER).max(0.0) as usize)),
    )
}

impl Scale {
    /// Returns the width in pixels of a frame with `bytes` bytes.
    fn width(self, bytes: u64) -> f64 {
        WIDTH * bytes as f64 / self.total_bytes as f64
    }
}

/// Returns the red and the green component of a frame's colour. The colour is warm, and derived
/// from the name.
fn colour(name: &str) -> (u8, u8) {
    // FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/).
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (200 + (hash % 56) as u8, 90 + (hash / 56 % 140) as u8)
}

/// Truncates a label to `fitting` characters. If fewer than three characters fit, returns no text.
fn cut(name: &str, fitting: usize) -> String {
    match name.chars().count() {
        count if count <= fitting => name.to_owned(),
        _ if fitting < 3 => String::new(),
        _ => name.chars().take(fitting - 2).chain("..".chars()).collect(),
    }
}

/// Formats a number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = (digits.as_bytes().rchunks(3).rev())
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join(",")
}

/// Escapes text for an XML element. Replaces characters that XML 1.0 forbids by U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            _ if is_xml(character) => escaped.push(character),
            _ => escaped.push('\u{fffd}'),
        }
    }
    escaped
}

/// Returns whether a character is a `Char` of XML 1.0 (<https://www.w3.org/TR/xml/#NT-Char>).
fn is_xml(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}
