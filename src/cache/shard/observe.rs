//! What a shard tells its device's recorder.

use std::io::{self, Write};

use super::{Owner, Shard};
use crate::memory::header::Header;
use crate::naming::display_name;
use crate::recorder::{EventKind, EventRecord, NO_SCOPE, Recorder, ScopeNumber};
use crate::size::ByteSize;

impl<D: Owner> Shard<D> {
    fn recorder(&self) -> &Recorder {
        self.device.memory().recorder()
    }

    /// The number of the shard's cache in the recorder.
    pub(in crate::cache) fn scope_number(&self) -> ScopeNumber {
        let settings = self.settings.as_ref();
        settings.map_or(NO_SCOPE, |own| own.scope_number(self.recorder()))
    }

    /// As what a request counts whose block has this home.
    pub(in crate::cache) fn kind_here(&self, kind: EventKind) -> EventKind {
        match self.settings {
            Some(_) => kind,
            None => EventKind::Uncached,
        }
    }

    /// Records that nobody holds the block any more. Neither for imported memory nor for a header without a block, of
    /// which the recorder did not hear before.
    pub(super) fn record_free(&self, header: &Header<Self>) {
        let block = &header.block;
        if block.bytes() == 0 || block.is_imported() {
            return;
        }
        self.recorder().record(|| EventRecord {
            kind: if header.is_shared() {
                EventKind::FreePending
            } else {
                EventKind::Free
            },
            stream: block.stream,
            scope: self.scope_number(),
            call_site: None,
            address: block.address.0,
            bytes: header.requested_bytes,
            block_bytes: block.bytes(),
        });
    }

    /// Says on standard error, in builds with debug assertions, that the cache's live bytes keep rising.
    #[cold]
    #[inline(never)]
    pub(super) fn warn_of_growth(&self) {
        let Some(settings) = self.settings.as_ref().filter(|_| cfg!(debug_assertions)) else {
            return;
        };
        let grown = ByteSize(self.counters.grown_bytes.get());
        let entries = self.counters.grown_entries.get();
        // `eprintln!` panics where standard error is closed.
        let _ = writeln!(
            io::stderr(),
            "warning: scope \"{}\" left {grown} more behind in {entries} entries and freed nothing of it: \
             scope::growth tells the lines (shown once, in builds with debug assertions)",
            display_name(&settings.name),
        );
    }

    /// Records that an outermost entry begins or ends.
    #[cold]
    #[inline(never)]
    pub(super) fn record_entry(&self, kind: EventKind) {
        self.recorder().record(|| EventRecord {
            scope: self.scope_number(),
            ..EventRecord::of(kind, self.counters.live_bytes.get())
        });
    }
}
