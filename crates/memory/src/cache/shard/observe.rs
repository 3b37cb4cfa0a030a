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

    pub(in crate::cache) fn scope_number(&self) -> ScopeNumber {
        let settings = self.settings.as_ref();
        settings.map_or(NO_SCOPE, |own| own.scope_number(self.recorder()))
    }

    pub(super) fn follow_recording(&self, follows: bool) {
        self.follows_recording.store(follows, Ordering::Relaxed);
    }

    /// Returns true if the recorder records every request and free of this shard. If an entry began
    /// before the recording, its events are not recorded, because they would be incomplete.
    pub(in crate::cache) fn is_recorded(&self) -> bool {
        self.settings.is_none() || self.follows_recording.load(Ordering::Relaxed)
    }

    pub(in crate::cache) fn kind_here(&self, kind: EventKind) -> EventKind {
        match self.settings {
            Some(_) => kind,
            None => EventKind::Uncached,
        }
    }

    /// Records the free of a block after its last handle has dropped. Imported memory, exported
    /// slabs and empty arrays have headers without a block. Their frees are not recorded, because
    /// their allocations were not recorded.
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

    /// Writes a warning about the cache's rising live bytes to standard error. Only builds with
    /// debug assertions write it, once per cache.
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
            "warning: scope \"{}\" grew by {grown} in {entries} entries and freed none of it: \
             record the device, or see scope::growth (shown once a scope, in builds with debug \
             assertions)",
            display_name(&settings.name),
        ));
    }

    #[cold]
    #[inline(never)]
    pub(super) fn record_entry(&self, kind: EventKind) {
        self.recorder().record(|| EventRecord {
            scope: self.scope_number(),
            ..EventRecord::of(kind, self.counters.live_bytes.get())
        });
    }
}
