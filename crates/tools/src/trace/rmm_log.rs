//! A reader of the logs of RMM's `logging_resource_adaptor`. Memory use grows with the live
//! allocations, not with the file.
//!
//! The columns are `Thread,Time,Action,Pointer,Size,Stream`, with one line per allocation or free.
//! Events are replayed in file order. The replay ignores threads, times and streams. Rows with
//! `allocate failure` are skipped, because they allocated no memory. Requests of 0 bytes that
//! returned a null pointer are skipped, and so are their frees. A free is matched by its pointer.
//! The size of a free is parsed but not used.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::BufRead;

use super::csv_table::CsvTable;
use super::event::TraceEvent;
use crate::error::Result;

/// The required columns.
pub(crate) const COLUMNS: [&str; 6] = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"];

/// A log that is read event by event.
///
/// Invariant: each slot below `slots` is in `live` or in `vacant`.
#[derive(Debug)]
pub(crate) struct RmmLog<R> {
    pub(super) table: CsvTable<R>,
    action_column: usize,
    pointer_column: usize,
    size_column: usize,
    live: HashMap<u64, LiveSlot>,
    vacant: Vec<u32>,
    slots: u32,
}

/// A row of the log that is an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEntry {
    pub(super) event: TraceEvent,
    pub(super) pointer: u64,
    pub(super) bytes: u64,
}

/// A live allocation: its slot, and the line number of its row.
#[derive(Clone, Copy, Debug)]
struct LiveSlot {
    slot: u32,
    line_number: u64,
}

impl<R: BufRead> RmmLog<R> {
    /// Creates a reader of a table whose header was already read.
    pub(crate) fn new(table: CsvTable<R>) -> Result<Self> {
        let [_, _, action_column, pointer_column, size_column, _] = table.columns(COLUMNS)?;
        Ok(Self {
            table,
            action_column,
            pointer_column,
            size_column,
            live: HashMap::new(),
            vacant: Vec::new(),
            slots: 0,
        })
    }

    /// Returns the next event, or `None` at the end of the file.
    pub(super) fn next_entry(&mut self) -> Result<Option<LogEntry>> {
        while self.table.advance()? {
            let pointer = self.pointer()?;
            let bytes = self.table.number(self.size_column)?;
            let event = match self.table.text(self.action_column) {
                "allocate" => self.allocate(pointer, bytes)?,
                "free" => self.free(pointer, bytes)?,
                "allocate failure" => None,
                _ => {
                    let what = "not an action, expected allocate, allocate failure or free";
                    return Err(self.table.value_error(self.action_column, what));
                }
            };
            if let Some(event) = event {
                return Ok(Some(LogEntry {
                    event,
                    pointer,
                    bytes,
                }));
            }
        }
        Ok(None)
    }

    fn allocate(&mut self, pointer: u64, bytes: u64) -> Result<Option<TraceEvent>> {
        if pointer == 0 && bytes == 0 {
            return Ok(None);
        }
        let line_number = self.table.line_number;
        match self.live.entry(pointer) {
            Entry::Occupied(earlier) => {
                let what = format!("alive since line {}", earlier.get().line_number);
                Err(self.table.value_error(self.pointer_column, what))
            }
            Entry::Vacant(place) => {
                let slot = self.vacant.pop().unwrap_or(self.slots);
                self.slots = self.slots.max(slot + 1);
                place.insert(LiveSlot { slot, line_number });
                Ok(Some(TraceEvent::Allocate { slot, bytes }))
            }
        }
    }

    fn free(&mut self, pointer: u64, bytes: u64) -> Result<Option<TraceEvent>> {
        match self.live.remove(&pointer) {
            Some(LiveSlot { slot, .. }) => {
                self.vacant.push(slot);
                Ok(Some(TraceEvent::Free { slot }))
            }
            None if pointer == 0 && bytes == 0 => Ok(None),
            None => {
                let what = "not allocated, or freed already";
                Err(self.table.value_error(self.pointer_column, what))
            }
        }
    }

    /// Returns the pointer of the current row. It is hexadecimal, with or without "0x", or glibc's
    /// null pointer.
    fn pointer(&self) -> Result<u64> {
        let text = self.table.text(self.pointer_column);
        if text == "(nil)" {
            return Ok(0);
        }
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let number = u64::from_str_radix(digits, 16).ok();
        // Rust also parses "+1".
        number.filter(|_| !digits.starts_with('+')).ok_or_else(|| {
            let what = "not a hexadecimal pointer";
            self.table.value_error(self.pointer_column, what)
        })
    }
}
