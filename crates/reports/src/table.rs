//! Text tables for a terminal: the allocations of each program line, and the scopes that grow.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};

use crate::growth::{ScopeGrowth, growth};
use crate::lifetimes::{lifetimes, peak, unknown_live_bytes};
use crate::place::{Lines, UNCACHED, scope_name};
use crate::profile::Profile;
use crate::sites::{SiteSummary, by_call_site};
use crate::size::ByteSize;

/// The maximum width of a scope or a line, in characters. Longer texts are truncated at the left,
/// because their ends are more specific.
const WIDEST: usize = 48;

/// The maximum number of listed lines per growth.
const GROWTH_SITES: usize = 3;

/// Writes a table of the allocating lines, and a table of the scopes that grow. Lines are in
/// descending order of their own peak.
///
/// A line is displayed as `file:line`. If it has allocating call sites in several columns, it is
/// displayed as `file:line:column`.
///
/// # Errors
///
/// Returns the errors of `out`.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Profile, table};
///
/// let profile = Profile { device: "cuda:0".to_owned(), ..Profile::default() };
/// let mut text = Vec::new();
/// table::write(&profile, &mut text)?;
/// assert!(text.starts_with(b"cuda:0: 0 B live at the peak"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    write_heading(profile, &mut out)?;
    let lines = Lines::of(profile);
    let sites = by_call_site(profile);
    let rows = sites.iter().map(|own| site_row(own, &lines)).collect();
    let titles = &SITES;
    write_table(&mut out, &Table { titles, rows })?;
    let growths = growth(profile);
    let grown = growths.iter().filter(|own| own.left_bytes_per_entry > 0);
    let rows: Vec<Row> = grown
        .flat_map(|own| growth_rows(profile, &lines, own))
        .collect();
    if !rows.is_empty() {
        writeln!(
            out,
            "\ngrowth: bytes that an entry leaves, minus freed bytes of earlier entries, averaged \
             over the second half"
        )?;
        write_table(
            &mut out,
            &Table {
                titles: &GROWTH,
                rows,
            },
        )?;
    }
    out.flush()
}

fn write_heading(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let Profile {
        device,
        duration_ns,
        lost_events,
        complete_from_ns,
        ..
    } = profile;
    let lifetimes = lifetimes(profile);
    let unknown_bytes = unknown_live_bytes(profile, &lifetimes);
    let peak_bytes = peak(profile, &lifetimes)
        .bytes
        .saturating_add(unknown_bytes);
    let [peak, unknown] = [peak_bytes, unknown_bytes].map(ByteSize);
    let [seconds, from] = [*duration_ns, *complete_from_ns].map(|time_ns| time_ns as f64 / 1e9);
    write!(
        out,
        "{device}: {peak:.1} live at the peak, {seconds:.3} s recorded"
    )?;
    if *lost_events > 0 {
        write!(
            out,
            ", {lost_events} older events lost: complete from {from:.3} s on, and {unknown:.1} of unknown lines"
        )?;
    }
    writeln!(
        out,
        "\n\nby line, the highest own peak first (escaped: outlived the entry, or live at the end)"
    )
}

/// The heading of a column: its text, and true if the column is right-aligned.
type Title = (&'static str, bool);

type Row = Vec<String>;

struct Table {
    titles: &'static [Title],
    rows: Vec<Row>,
}

const SITES: [Title; 13] = [
    ("peak", true),
    ("at peak", true),
    ("live", true),
    ("total", true),
    ("count", true),
    ("hits", true),
    ("misses", true),
    ("uncached", true),
    ("escaped", true),
    ("copies", true),
    ("kernel time", true),
    ("scope", false),
    ("line", false),
];

const GROWTH: [Title; 6] = [
    ("left", true),
    ("entries", true),
    ("rising", true),
    ("thread", true),
    ("scope", false),
    ("line", false),
];

fn site_row(own: &SiteSummary, lines: &Lines<'_>) -> Row {
    let sizes = [
        own.peak_bytes,
        own.device_peak_bytes,
        own.live_bytes,
        own.total_bytes,
    ];
    let counts = [
        own.allocations,
        own.hits,
        own.misses,
        own.uncached,
        own.escaped,
        own.copies_on_write,
    ];
    let sizes = sizes.map(size);
    let counts = counts.map(|count| count.to_string());
    let time = format!("{:.3} ms", own.kernel_ns as f64 / 1e6);
    let place = [
        shortened(own.scope.as_deref().unwrap_or(UNCACHED)),
        shortened(lines.line_of(own.call_site.as_ref())),
    ];
    let figures = sizes.into_iter().chain(counts).chain([time]);
    figures.chain(place).collect()
}

/// Returns a row for the scope, and then a row for each of the lines with the largest growth.
fn growth_rows<'a>(
    profile: &'a Profile,
    lines: &'a Lines<'_>,
    own: &'a ScopeGrowth,
) -> impl Iterator<Item = Row> + 'a {
    let scope = vec![
        size(own.left_bytes_per_entry),
        own.entries.to_string(),
        own.rising_entries.to_string(),
        own.thread.to_string(),
        shortened(scope_name(profile, own.scope)),
        String::new(),
    ];
    let sites = own.sites.iter().take(GROWTH_SITES).map(move |site| {
        let mut row = vec![String::new(); GROWTH.len()];
        row[0] = size(site.left_bytes_per_entry);
        row[GROWTH.len() - 1] = shortened(lines.line(site.call_site));
        row
    });
    [scope].into_iter().chain(sites)
}

fn write_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    let titles: Row = table
        .titles
        .iter()
        .map(|title| title.0.to_owned())
        .collect();
    let widths: Vec<usize> = (0..titles.len())
        .map(|column| {
            let cells = table.rows.iter().chain([&titles]);
            let widths = cells.map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        })
        .collect();
    for row in [&titles].into_iter().chain(&table.rows) {
        let mut text = String::new();
        for ((cell, width), (_, to_the_right)) in row.iter().zip(&widths).zip(table.titles) {
            let cell = if *to_the_right {
                format!("{cell:>width$}  ")
            } else {
                format!("{cell:<width$}  ")
            };
            text.push_str(&cell);
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

/// Formats a size with one decimal from KiB on, so that the columns align.
fn size(bytes: u64) -> String {
    format!("{:.1}", ByteSize(bytes))
}

/// Replaces control characters by spaces, and truncates the text to the width of a column.
fn shortened(text: impl Display) -> String {
    let text = text.to_string().replace(char::is_control, " ");
    let excess = text.chars().count().saturating_sub(WIDEST);
    if excess == 0 {
        return text;
    }
    let kept = text.chars().skip(excess + 1);
    ['…'].into_iter().chain(kept).collect()
}
