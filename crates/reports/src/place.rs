//! The places of allocations, and their names in reports.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::profile::{CallSite, Event, Frame, Profile};

/// The scope name for events outside of all scopes.
pub(crate) const UNCACHED: &str = "<uncached>";

/// The name of an unknown line.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// Returns the name of a scope, or [`UNCACHED`] without a scope.
pub(crate) fn scope_name(profile: &Profile, scope: Option<u32>) -> &str {
    scope.map_or(UNCACHED, |scope| &profile.scopes[scope as usize])
}

/// A line of the program, displayed as `file:line` or `file:line:column`. If the line number is 0,
/// `file` is the name of a buffer or a function, and is displayed alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    site: Option<&'a CallSite>,
    has_column: bool,
}

impl<'a> Line<'a> {
    /// Returns the line of a call site without its column.
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

/// The display names of call sites. If a line has allocating call sites in several columns, the
/// names include the column.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    profile: &'a Profile,
    /// The lines with allocating call sites in several columns.
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

    /// Returns the line of a call site, given by its index.
    pub(crate) fn line(&self, call_site: Option<u32>) -> Line<'a> {
        self.line_of(Line::of(self.profile, call_site).site)
    }

    pub(crate) fn line_of<'b>(&self, site: Option<&'b CallSite>) -> Line<'b> {
        let has_column = site.is_some_and(|site| self.shared.contains(&(&*site.file, site.line)));
        Line { site, has_column }
    }
}

/// The place of an allocation: its backtrace if recorded, otherwise its line and scope. Reports
/// group allocations by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Stack(u32),
    /// The index of the line, and the index of the scope.
    Line {
        call_site: Option<u32>,
        scope: Option<u32>,
    },
}

impl Place {
    /// The place of an event whose line and scope are unknown.
    pub(crate) const NOWHERE: Self = Self::Line {
        call_site: None,
        scope: None,
    };

    pub(crate) fn of(event: &Event) -> Self {
        let line = Self::Line {
            call_site: event.call_site,
            scope: event.scope,
        };
        event.stack.map_or(line, Self::Stack)
    }

    /// Returns the frames of the place as text, from the innermost outwards. The frames are the
    /// backtrace, or the line and its scope. The result is not empty.
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
