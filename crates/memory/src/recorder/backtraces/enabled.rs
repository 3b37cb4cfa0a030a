//! Stacks as return addresses. Each stack is stored once, and resolved when a report is written.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use cachescope_reports::Frame;
use smallvec::SmallVec;

use super::{NO_STACK, StackNumber};
use crate::error::is_above;
use crate::sync::plain::Mutex;

/// True if stacks can be captured.
pub(crate) const IS_SUPPORTED: bool = true;

/// The maximum number of frames that are stored of a stack, from the innermost frame out.
const MOST_FRAMES: usize = 128;

/// The function of the runtime that calls the program. Frames further out do not belong to the
/// program.
const RUNTIME: &str = "__rust_begin_short_backtrace";

/// Return addresses, from the innermost frame out.
type Addresses = SmallVec<[usize; MOST_FRAMES]>;

/// The stacks of a recorder, each stored once. Only the first occurrence of a stack allocates
/// memory.
#[derive(Debug, Default)]
pub(crate) struct Stacks(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    stacks: Vec<Arc<[usize]>>,
    numbers: HashMap<Arc<[usize]>, StackNumber>,
}

impl Known {
    fn number(&mut self, addresses: &[usize]) -> StackNumber {
        if let Some(&number) = self.numbers.get(addresses) {
            return number;
        }
        let Ok(number) = StackNumber::try_from(self.stacks.len() + 1) else {
            return NO_STACK;
        };
        let addresses: Arc<[usize]> = addresses.into();
        self.stacks.push(Arc::clone(&addresses));
        self.numbers.insert(addresses, number);
        number
    }
}

impl Stacks {
    /// Returns the number of the current stack; [`NO_STACK`] if there are too many stacks.
    #[inline(never)]
    pub(crate) fn capture(&self) -> StackNumber {
        let mut addresses = Addresses::new();
        backtrace::trace(|frame| {
            addresses.push(frame.ip() as usize);
            addresses.len() < MOST_FRAMES
        });
        self.0.lock().number(&addresses)
    }

    /// Returns the frames of the program in a stack, from the line `innermost` out.
    pub(crate) fn resolve(&self, stack: StackNumber, innermost: &Location<'_>) -> Vec<Frame> {
        let addresses = self.0.lock().stacks.get(usize::from(stack) - 1).cloned();
        let addresses = addresses.iter().flat_map(|addresses| addresses.iter());
        let mut frames: Vec<Frame> = addresses.flat_map(|&address| frames_at(address)).collect();
        if let Some(runtime) = frames.iter().position(|own| own.function.contains(RUNTIME)) {
            frames.truncate(runtime);
        }
        let first = position(&frames, innermost);
        frames.drain(..first.unwrap_or_else(|| own_frames(&frames)));
        if first.is_none() {
            frames.insert(0, without_frame(innermost));
        }
        frames
    }
}

/// Returns the index of the frame of a line, if any. A tail call leaves no frame. Without debug
/// information, no frame has a line.
fn position(frames: &[Frame], line: &Location<'_>) -> Option<usize> {
    let is_of_line = |own: &Frame| own.line == line.line() && own.file.ends_with(line.file());
    frames.iter().position(is_of_line)
}

/// Returns the number of leading frames to skip. The skipped frames end with the first run of
/// frames of this crate and of libraries.
fn own_frames(frames: &[Frame]) -> usize {
    const OWN: [&str; 6] = [
        "cachescope::",
        "<cachescope::",
        "cachescope_memory::",
        "<cachescope_memory::",
        "backtrace::",
        "<backtrace::",
    ];
    const LIBRARY: [&str; 6] = [
        "core::", "<core::", "std::", "<std::", "alloc::", "<alloc::",
    ];
    let is_named = |frame: &Frame, names: &[&str]| {
        let mut names = names.iter();
        names.any(|name| frame.function.starts_with(name))
    };
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    let is_own = |frame: &&Frame| {
        frame.file.starts_with(sources) || is_above(&frame.file, sources) || is_named(frame, &OWN)
    };
    let is_library = |frame: &Frame| frame.file.starts_with("/rustc/") || is_named(frame, &LIBRARY);
    let first = frames.iter().position(|frame| is_own(&frame)).unwrap_or(0);
    let run = frames[first..]
        .iter()
        .take_while(|own| is_own(own) || is_library(own));
    first + run.count()
}

/// Returns a frame for a line whose function is not known.
fn without_frame(line: &Location<'_>) -> Frame {
    Frame {
        function: "<unknown>".to_owned(),
        file: line.file().to_owned(),
        line: line.line(),
    }
}

/// Returns the functions that contain an address: several if calls were inlined.
fn frames_at(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    backtrace::resolve(address as *mut _, |symbol| {
        frames.push(Frame {
            function: symbol
                .name()
                .map_or_else(String::new, |name| format!("{name:#}")),
            file: symbol
                .filename()
                .map_or_else(String::new, |path| path.display().to_string()),
            line: symbol.lineno().unwrap_or(0),
        });
    });
    frames
}
