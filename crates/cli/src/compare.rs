//! `cachescope compare`: reports the growth of memory between two recorded programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cachescope_tools::record::{Profile, SiteSummary, by_call_site, lifetimes, peak};
use clap::Args;
use serde::Serialize;

use crate::failure::ExitFailure;
use crate::output::{print, print_json};
use crate::view::{Selection, read};

/// Compares two recorded programs by source line: live bytes at the peak, live bytes at the end,
/// and allocations.
///
/// Accepts the same files as `view`. Omits lines without a change. The lines with the largest
/// growth at the peak are first.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// The earlier program
    before: PathBuf,

    /// The later program
    after: PathBuf,

    #[command(flatten)]
    selection: Selection,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// A figure of the earlier and of the later program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct FigureChange {
    before: u64,
    after: u64,
}

impl FigureChange {
    fn is_none(self) -> bool {
        self.before == self.after
    }

    fn grown(self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }
}

#[derive(Debug, Default, Serialize)]
struct LineChange {
    line: String,
    scope: Option<String>,
    /// The live bytes at the device's peak.
    peak_bytes: FigureChange,
    live_bytes: FigureChange,
    count: FigureChange,
}

#[derive(Debug, Serialize)]
struct Comparison {
    peak_bytes: FigureChange,
    count: FigureChange,
    lines: Vec<LineChange>,
}

pub(crate) fn run(options: &CompareArguments) -> Result<(), ExitFailure> {
    let before = read(&options.before, &options.selection)?;
    let after = read(&options.after, &options.selection)?;
    let comparison = compare(&before, &after);
    if options.json {
        return print_json(&comparison);
    }
    print(&table(&comparison))
}

fn compare(before: &Profile, after: &Profile) -> Comparison {
    let mut lines: BTreeMap<(String, Option<String>), LineChange> = BTreeMap::new();
    let sides: [(&Profile, ChangedSide); 2] = [
        (before, |change| &mut change.before),
        (after, |change| &mut change.after),
    ];
    for (profile, side) in sides {
        for summary in by_call_site(profile) {
            let line = line_of(&summary);
            let change = lines
                .entry((line.clone(), summary.scope.clone()))
                .or_default();
            (change.line, change.scope) = (line, summary.scope);
            // A line can have several call sites, one per column, so their figures are added.
            for (figure, more) in [
                (&mut change.peak_bytes, summary.device_peak_bytes),
                (&mut change.live_bytes, summary.live_bytes),
                (&mut change.count, summary.allocations),
            ] {
                let own = side(figure);
                *own = own.saturating_add(more);
            }
        }
    }
    let mut lines: Vec<LineChange> = lines.into_values().collect();
    let is_same = |line: &LineChange| {
        line.peak_bytes.is_none() && line.live_bytes.is_none() && line.count.is_none()
    };
    lines.retain(|line| !is_same(line));
    lines.sort_by_key(|line| {
        let grown = (
            line.peak_bytes.grown(),
            line.live_bytes.grown(),
            line.count.grown(),
        );
        std::cmp::Reverse(grown)
    });
    let count = |profile: &Profile| {
        let events = profile.events.iter();
        events.filter(|event| event.kind.is_allocation()).count() as u64
    };
    let peak_of = |profile: &Profile| peak(profile, &lifetimes(profile)).bytes;
    Comparison {
        peak_bytes: FigureChange {
            before: peak_of(before),
            after: peak_of(after),
        },
        count: FigureChange {
            before: count(before),
            after: count(after),
        },
        lines,
    }
}

type ChangedSide = fn(&mut FigureChange) -> &mut u64;

/// Returns the line without its column, because each edit of the line moves the column.
fn line_of(summary: &SiteSummary) -> String {
    match &summary.call_site {
        Some(site) if site.line == 0 => site.file.clone(),
        Some(site) => format!("{}:{}", site.file, site.line),
        None => "<unknown>".into(),
    }
}

fn table(comparison: &Comparison) -> String {
    let Comparison {
        peak_bytes, count, ..
    } = comparison;
    let mut text = format!(
        "peak live bytes {} -> {} ({:+}), allocations {} -> {} ({:+})",
        peak_bytes.before,
        peak_bytes.after,
        peak_bytes.grown(),
        count.before,
        count.after,
        count.grown(),
    );
    if comparison.lines.is_empty() {
        text += "\nno line differs";
        return text;
    }
    text += &format!(
        "\n\n{:>16} {:>16} {:>12}  line",
        "at peak, bytes", "live at end", "allocations"
    );
    for line in &comparison.lines {
        let scope = line.scope.as_deref().unwrap_or("<uncached>");
        text += &format!(
            "\n{:>+16} {:>+16} {:>+12}  {} ({scope})",
            line.peak_bytes.grown(),
            line.live_bytes.grown(),
            line.count.grown(),
            line.line,
        );
    }
    text
}
