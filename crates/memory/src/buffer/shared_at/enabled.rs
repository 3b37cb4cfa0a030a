//! The call site of a handle, stored in a table of all shared blocks.

use std::collections::HashMap;
use std::panic::Location;

use crate::error::outside;
use crate::sync::plain::Mutex;

type SharedLine = Option<&'static Location<'static>>;

/// A handle in the table: its call site if known, and whether the handle belongs to a view.
type SharedEntry = (SharedLine, bool);

/// The handles of each block in order of creation, without the first handle.
///
/// Invariant: each [`SharedAt`] that names the block has an entry in `LINES`.
static LINES: Mutex<Option<HashMap<usize, Vec<SharedEntry>>>> = Mutex::new(None);

/// The call site that created a handle.
pub(in crate::buffer) struct SharedAt {
    line: SharedLine,
    /// The address of the block's header; `None` for the first handle on a block.
    block: Option<usize>,
    /// True for the handle of a view, and for all clones of this handle.
    is_view: bool,
}

impl SharedAt {
    /// Returns the value for the first handle on a block. The first handle has no call site.
    pub(in crate::buffer) fn first() -> Self {
        Self {
            line: None,
            block: None,
            is_view: false,
        }
    }

    /// Registers a clone of this handle, for the block with its header at address `block`. If the
    /// library itself makes the clone, the clone gets the call site of this handle.
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

    /// Returns whether this handle belongs to a view, while another handle on the block does not.
    /// Clones of a view count as views.
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

    /// Returns the call site of the newest handle on the block at address `block`. Ignores this
    /// handle and the handles in `except`. If only the first handle remains, returns the call site
    /// of this handle.
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
