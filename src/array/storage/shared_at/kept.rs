//! The line of a handle, kept in a table of all blocks that are shared.

use std::collections::HashMap;
use std::panic::Location;

use crate::error::outside;
use crate::sync::plain::Mutex;

type Line = Option<&'static Location<'static>>;

/// The lines of the handles on each block but of its first, in the order they were made; `None` for one that is not
/// known.
///
/// Invariant: a line stands here for each [`SharedAt`] that names the block.
static LINES: Mutex<Option<HashMap<usize, Vec<Line>>>> = Mutex::new(None);

/// The line that made a handle.
pub(in crate::array::storage) struct SharedAt {
    line: Line,
    /// Where the block's header is; `None` for the first handle on a block.
    block: Option<usize>,
}

impl SharedAt {
    /// Of the first handle on a block.
    pub(in crate::array::storage) fn first() -> Self {
        let (line, block) = (None, None);
        Self { line, block }
    }

    /// Of another handle on the block that is at `block`, made from the one of this. What the library copies, as where
    /// an expression is cloned, keeps the line.
    #[track_caller]
    pub(in crate::array::storage) fn share(&self, block: usize) -> Self {
        let line = outside(Location::caller()).or(self.line);
        let mut lines = LINES.lock();
        lines
            .get_or_insert_default()
            .entry(block)
            .or_default()
            .push(line);
        let block = Some(block);
        Self { line, block }
    }

    /// The line that made a handle on the block at `block`, other than these and the one of this; the last, where there
    /// are several. Where only the first handle is left, the line that made this one from it.
    pub(in crate::array::storage) fn other<'a>(
        &'a self,
        block: usize,
        except: impl Iterator<Item = &'a Self>,
    ) -> Line {
        let mut lines = LINES.lock().as_ref()?.get(&block)?.clone();
        for known in except.chain([self]).filter(|known| known.block.is_some()) {
            let at = lines.iter().rposition(|line| *line == known.line)?;
            lines.remove(at);
        }
        match lines.is_empty() {
            true => self.line,
            false => lines.into_iter().rev().flatten().next(),
        }
    }
}

impl Drop for SharedAt {
    fn drop(&mut self) {
        let Some(block) = self.block else { return };
        let mut lines = LINES.lock();
        let Some(table) = lines.as_mut() else { return };
        let Some(of_block) = table.get_mut(&block) else {
            return;
        };
        if let Some(at) = of_block.iter().rposition(|line| *line == self.line) {
            of_block.remove(at);
        }
        if of_block.is_empty() {
            table.remove(&block);
        }
    }
}
