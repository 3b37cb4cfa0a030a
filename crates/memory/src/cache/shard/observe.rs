//! The events that a shard writes to its device's recorder.

use super::Shard;
use crate::memory::header::Header;
use crate::naming::display_name;
use crate::recorder::{EventKind, EventRecord, NO_SCOPE, NO_STACK, Recorder, ScopeNumber};
use crate::size::ByteSize;
use crate::sync::Ordering;
use crate::text::write_to_stderr;

impl Shard {
    fn recorder(&self) -> &Recorder {
        self.device.memory().recorder()
    }

    /// Returns the number of the shard's cache in the recorder.
    pub(in crate::cache) fn scope_number(&self) -> ScopeNumber {
        let settings = self.settings.as_ref();
        settings.map_or(NO_SCOPE, |own| own.scope_number(self.recorder()))
    }

    /// Begins or ends the recording of every request and free of this shard.
    pub(super) fn follow_recording(&self, follows: bool) {
        self.follows_recording.store(follows, Ordering::Relaxed);
    }

    /// Returns true if the recorder records every request and free of this shard. An entry that
    /// began before the recording is not recorded, because its recording would be incomplete.
    pub(in crate::cache) fn is_recorded(&self) -> bool {
        self.settings.is_none() || self.follows_recording.load(Ordering::Relaxed)
    }

    /// Returns `Uncached` if the shard belongs to no cache, else `kind`.
    pub(in crate::cache) fn kind_here(&self, kind: EventKind) -> EventKind {
        match self.settings {
            Some(_) => kind,
            None => EventKind::Uncached,
        }
    }

    /// Records that a block has no handle any more. Imported memory, exported slabs and arrays of
    /// no bytes have headers without a block. The frees of this memory are not recorded, because
    /// its allocations were not recorded.
    pub(super) fn record_free(&self, header: &Header) {
        let block = &header.block;
        if block.bytes() == 0 || !self.is_recorded() {
            return;
        }
        self.recorder().record(|| EventRecord {
            kind: if header.is_used_elsewhere() {
                EventKind::FreePending
            } else {
                EventKind::Free
            },
            stream: block.stream,
            scope: self.scope_number(),
            stack: NO_STACK,
            call_site: None,
            address: block.address.0,
            bytes: header.requested_bytes,
            block_bytes: block.bytes(),
        });
    }

    /// Warns on standard error, in builds with debug assertions, that the cache's live bytes keep
    /// rising.
    #[cold]
    #[inline(never)]
    pub(super) fn warn_of_growth(&self) {
        let Some(settings) = self
            .settings
            .as_ref()
            .filter(|own| own.is_first_growth_warning())
        else {
            return;
        };
        let grown = ByteSize(self.counters.grown_bytes.get());
        let entries = self.counters.grown_entries.get();
        write_to_stderr(format_args!(
            "warning: scope \"{}\" left {grown} more behind in {entries} entries and freed nothing of it: \
             record the device, or see scope::growth (shown once a scope, in builds with debug assertions)",
            display_name(&settings.name),
        ));
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
