//! The places of allocations, as the reports name them.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::profile::{CallSite, Event, Frame, Profile};

/// The scope name reported for events outside of every scope.
pub(crate) const UNCACHED: &str = "<uncached>";

/// The name of a line that is not known.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// Returns the name of a scope, or of no scope.
pub(crate) fn scope_name(profile: &Profile, scope: Option<u32>) -> &str {
    scope.map_or(UNCACHED, |scope| &profile.scopes[scope as usize])
}

/// A line of the program, as `file:line` or `file:line:column`. Without a line number (0, for names
/// of buffers and functions), as `file`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    site: Option<&'a CallSite>,
    has_column: bool,
}

impl<'a> Line<'a> {
    /// Returns the line of a call site, without its column.
    pub(crate) fn of(profile: &'a Profile, call_site: Option<u32>) -> Self {
        Self {
            site: call_site.map(|number| &profile.call_sites[number as usize]),
            has_column: false,
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(CallSite { file, line, column }) = self.site else {
            return out.write_str(UNKNOWN);
        };
        out.write_str(file)?;
        if *line > 0 {
            write!(out, ":{line}")?;
        }
        if self.has_column {
            write!(out, ":{column}")?;
        }
        Ok(())
    }
}

/// Names of call sites: with the column where several columns of a line allocate.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    profile: &'a Profile,
    /// Lines on which several columns allocate.
    shared: HashSet<(&'a str, u32)>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Self {
        let mut allocates = vec![false; profile.call_sites.len()];
        for event in &profile.events {
            let has_block = event.kind.is_allocation() || event.kind.is_free();
            if let Some(number) = event.call_site.filter(|_| has_block) {
                allocates[number as usize] = true;
            }
        }
        let mut columns = HashMap::new();
        let mut shared = HashSet::new();
        for (site, _) in profile.call_sites.iter().zip(allocates).filter(|own| own.1) {
            let line = (&*site.file, site.line);
            if *columns.entry(line).or_insert(site.column) != site.column {
                shared.insert(line);
            }
        }
        Self { profile, shared }
    }

    /// Names a call site by its number.
    pub(crate) fn line(&self, call_site: Option<u32>) -> Line<'a> {
        self.line_of(Line::of(self.profile, call_site).site)
    }

    pub(crate) fn line_of<'b>(&self, site: Option<&'b CallSite>) -> Line<'b> {
        let has_column = site.is_some_and(|site| self.shared.contains(&(&*site.file, site.line)));
        Line { site, has_column }
    }
}

/// The place of an allocation, as precise as the event is. Reports group by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// The number of the backtrace.
    Stack(u32),
    /// The number of the line, and the number of the scope.
    Line {
        call_site: Option<u32>,
        scope: Option<u32>,
    },
}

impl Place {
    /// The place of an event without a known line and scope.
    pub(crate) const NOWHERE: Self = Self::Line {
        call_site: None,
        scope: None,
    };

    /// Returns the place of an event.
    pub(crate) fn of(event: &Event) -> Self {
        let line = Self::Line {
            call_site: event.call_site,
            scope: event.scope,
        };
        event.stack.map_or(line, Self::Stack)
    }

    /// Returns the frames of the place as text, from the innermost out: the backtrace, else the
    /// line and its scope. There is at least one frame.
    pub(crate) fn frames(self, profile: &Profile) -> Vec<String> {
        match self {
            Self::Stack(number) => {
                let stack = &profile.stacks[number as usize];
                match &stack[..] {
                    [] => vec![UNKNOWN.to_owned()],
                    frames => frames.iter().map(frame_text).collect(),
                }
            }
            Self::Line { call_site, scope } => vec![
                Line::of(profile, call_site).to_string(),
                scope_name(profile, scope).to_owned(),
            ],
        }
    }
}

fn frame_text(frame: &Frame) -> String {
    let Frame {
        function,
        file,
        line,
    } = frame;
    if file.is_empty() {
        function.clone()
    } else {
        format!("{function} ({file}:{line})")
    }
}
