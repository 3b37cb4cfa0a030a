//! Where an allocation was made, as the reports name it.

use std::fmt;

use crate::profile::{CallSite, Event, Frame, Profile};

/// The name of no scope.
pub(crate) const UNCACHED: &str = "<uncached>";

/// The name of a line that is not known.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// The name of a scope, or of none.
pub(crate) fn scope_name(profile: &Profile, scope: Option<u32>) -> &str {
    scope.map_or(UNCACHED, |scope| &profile.scopes[scope as usize])
}

/// A line of the program, as `file:line`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a>(Option<(&'a str, u32)>);

impl<'a> Line<'a> {
    /// That of a call site.
    pub(crate) fn of(profile: &'a Profile, call_site: Option<u32>) -> Self {
        let call_site = call_site.map(|number| &profile.call_sites[number as usize]);
        Self::from(call_site)
    }
}

impl<'a> From<Option<&'a CallSite>> for Line<'a> {
    fn from(call_site: Option<&'a CallSite>) -> Self {
        Self(call_site.map(|site| (&*site.file, site.line)))
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((file, line)) => write!(out, "{file}:{line}"),
            None => out.write_str(UNKNOWN),
        }
    }
}

/// Where an allocation was made, as closely as the event tells: what reports group by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// The number of the backtrace.
    Stack(u32),
    /// The number of the line, and that of the scope.
    Line {
        call_site: Option<u32>,
        scope: Option<u32>,
    },
}

impl Place {
    /// Where nothing is known.
    pub(crate) const NOWHERE: Self = Self::Line {
        call_site: None,
        scope: None,
    };

    /// That of an event.
    pub(crate) fn of(event: &Event) -> Self {
        let line = Self::Line {
            call_site: event.call_site,
            scope: event.scope,
        };
        event.stack.map_or(line, Self::Stack)
    }

    /// Its frames as text, from the innermost out: those of the backtrace, else the line and the scope around it. At least
    /// one.
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
