//! The line of a handle, stored in a table of all blocks that are shared.

use std::collections::HashMap;
use std::panic::Location;

use crate::error::outside;
use crate::sync::plain::Mutex;

type SharedLine = Option<&'static Location<'static>>;

/// A handle in the table: its line, `None` if not known, and whether it belongs to a view.
type SharedEntry = (SharedLine, bool);

/// The handles on each block, except the first handle, in order of creation.
///
/// Invariant: each [`SharedAt`] that names the block has an entry here.
static LINES: Mutex<Option<HashMap<usize, Vec<SharedEntry>>>> = Mutex::new(None);

/// The line that made a handle.
pub(in crate::buffer) struct SharedAt {
    line: SharedLine,
    /// The address of the block's header; `None` for the first handle on a block.
    block: Option<usize>,
    /// True for the handle of a view, and for handles that are made from that handle.
    is_view: bool,
}

impl SharedAt {
    /// Returns the line of the first handle on a block.
    pub(in crate::buffer) fn first() -> Self {
        Self {
            line: None,
            block: None,
            is_view: false,
        }
    }

    /// Returns the line of a new handle on the block whose header is at `block`, cloned from the
    /// handle of `self`. A copy that the library makes, as when an expression is cloned, keeps the
    /// line of its original.
    #[track_caller]
    pub(in crate::buffer) fn share(&self, block: usize) -> Self {
        self.shared(block, self.is_view)
    }

    /// Like [`share`](Self::share), for a view.
    #[track_caller]
    pub(in crate::buffer) fn share_as_view(&self, block: usize) -> Self {
        self.shared(block, true)
    }

    #[track_caller]
    fn shared(&self, block: usize, is_view: bool) -> Self {
        let line = outside(Location::caller()).or(self.line);
        let mut lines = LINES.lock();
        let entries = lines.get_or_insert_default().entry(block).or_default();
        entries.push((line, is_view));
        Self {
            line,
            block: Some(block),
            is_view,
        }
    }

    /// Returns true if the handle belongs to a view or its clone, and one of the block's `holders`
    /// does not.
    pub(in crate::buffer) fn is_view(&self, holders: usize) -> bool {
        let Some(block) = self.block.filter(|_| self.is_view) else {
            return false;
        };
        let lines = LINES.lock();
        let entries = lines.as_ref().and_then(|lines| lines.get(&block));
        let views = entries
            .into_iter()
            .flatten()
            .filter(|(_, is_view)| *is_view);
        views.count() < holders
    }

    /// Returns the line that made the last handle on the block at `block`, other than `except` and
    /// this handle. If only the first handle is left, returns the line that made this handle from
    /// the first.
    pub(in crate::buffer) fn other<'a>(
        &'a self,
        block: usize,
        except: impl Iterator<Item = &'a Self>,
    ) -> SharedLine {
        let mut lines = LINES.lock().as_ref()?.get(&block)?.clone();
        for known in except.chain([self]).filter(|known| known.block.is_some()) {
            let at = lines.iter().rposition(|entry| *entry == known.entry())?;
            lines.remove(at);
        }
        match lines.is_empty() {
            true => self.line,
            false => lines.into_iter().rev().find_map(|(line, _)| line),
        }
    }

    fn entry(&self) -> SharedEntry {
        (self.line, self.is_view)
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
        if let Some(at) = of_block.iter().rposition(|entry| *entry == self.entry()) {
            of_block.remove(at);
        }
        if of_block.is_empty() {
            table.remove(&block);
        }
    }
}
