//! Builds a profile from the events of all rings.

use std::collections::HashMap;
use std::panic::Location;
use std::time::SystemTime;

use cachescope_reports::{CallSite, Event, EventKind, Frame, Profile, Segment};

use super::backtraces::{NO_STACK, StackNumber, Stacks};
use super::event::{EventRecord, NO_SCOPE, Recorded};
use super::{Recorder, RecordingStart};
use crate::error::outside;
use crate::sync::plain::Ordering;

/// Every event of a recording, in order of time.
pub(super) struct Collected {
    events: Vec<Recorded>,
    lost: u64,
    /// The time since which no event was lost; 0 if no event was lost at all.
    complete_from_ns: u64,
}

/// A numbering of the lines of the program.
#[derive(Default)]
struct CallSites {
    known: Vec<&'static Location<'static>>,
    /// The number of each line, by the address of its `Location`: a line has few addresses. `None`
    /// for a line of this library.
    numbers: HashMap<*const Location<'static>, Option<u32>>,
}

impl CallSites {
    /// Returns the number of a line of the program. Returns `None` for a line of this library: a
    /// function without `#[track_caller]` hid the caller's line.
    fn number(&mut self, call_site: &'static Location<'static>) -> Option<u32> {
        *self.numbers.entry(call_site).or_insert_with(|| {
            let call_site = outside(call_site)?;
            // The compiler may create one location several times.
            let same = self.known.iter().position(|known| *known == call_site);
            let number = same.unwrap_or_else(|| {
                self.known.push(call_site);
                self.known.len() - 1
            });
            Some(number as u32)
        })
    }

    fn into_table(self) -> Vec<CallSite> {
        let table = self.known.into_iter().map(|known| CallSite {
            file: known.file().to_owned(),
            line: known.line(),
            column: known.column(),
        });
        table.collect()
    }
}

/// A numbering of the stacks of a profile. `numbers` maps the recorder's number of a stack to its
/// number in the profile.
#[derive(Default)]
struct StackTable {
    frames: Vec<Vec<Frame>>,
    numbers: HashMap<StackNumber, u32>,
}

impl StackTable {
    /// Returns the number of an event's stack. If the stack is new, first resolves it.
    fn number(&mut self, stacks: &Stacks, event: &EventRecord) -> Option<u32> {
        let innermost = event.call_site.filter(|_| event.stack != NO_STACK)?;
        let number = *self.numbers.entry(event.stack).or_insert_with(|| {
            self.frames.push(stacks.resolve(event.stack, innermost));
            self.frames.len() as u32 - 1
        });
        Some(number)
    }
}

impl Recorder {
    /// Returns the events since `mark`, of a device that had reserved `segments` at that time. If
    /// events were lost, calls `counters` for the live and the reserved bytes of the device.
    pub(crate) fn profile(
        &self,
        mark: &RecordingStart,
        device: String,
        segments: Vec<Segment>,
        counters: impl FnOnce() -> (u64, u64),
    ) -> Profile {
        let Collected {
            events,
            lost,
            complete_from_ns,
        } = self.collect(mark);
        let mut call_sites = CallSites::default();
        let mut stacks = StackTable::default();
        // The line and the stack of each live allocation, by address, for the event of its free.
        let mut live: HashMap<u64, [Option<u32>; 2]> = HashMap::new();
        let events = events.into_iter().map(|recorded| {
            let Recorded { event, .. } = recorded;
            let call_site = event.call_site.and_then(|known| call_sites.number(known));
            let stack = stacks.number(&self.stacks, &event);
            let mut origin = [call_site, stack];
            if event.kind.is_allocation() {
                live.insert(event.address, origin);
            } else if event.kind.is_free() {
                origin = live.remove(&event.address).unwrap_or_default();
            }
            let [call_site, stack] = origin;
            Event {
                time_ns: recorded.time_ns.saturating_sub(mark.time_ns),
                kind: event.kind,
                thread: recorded.thread as u32,
                stream: event.stream.0.into(),
                scope: (event.scope != NO_SCOPE).then(|| event.scope as u32 - 1),
                call_site,
                stack,
                address: if event.kind == EventKind::Kernel {
                    0
                } else {
                    event.address
                },
                bytes: event.bytes,
                block_bytes: event.block_bytes,
            }
        });
        let events = events.collect();
        let counters = (lost > 0).then(counters);
        Profile {
            device,
            began_unix_ns: self.unix_ns(mark),
            duration_ns: self.elapsed_ns(mark),
            call_sites: call_sites.into_table(),
            scopes: self.scope_names(),
            stacks: stacks.frames,
            segments,
            events,
            lost_events: lost,
            others: Vec::new(),
            complete_from_ns: complete_from_ns.saturating_sub(mark.time_ns),
            live_bytes: counters.map(|(live_bytes, _)| live_bytes),
            reserved_bytes: counters.map(|(_, reserved_bytes)| reserved_bytes),
        }
    }

    pub(super) fn collect(&self, mark: &RecordingStart) -> Collected {
        // Events after this time are omitted, because the rings are read one after another.
        // Otherwise, the profile might contain a free in one ring without its allocation in another
        // ring.
        let until_ns = self.time_ns();
        let rings = self.rings.lock().clone();
        let mut events = Vec::new();
        let mut lost = self.lost.load(Ordering::Acquire) - mark.lost;
        let mut complete_from_ns = match lost {
            0 => 0,
            _ => (self.last_lost_ns.load(Ordering::Relaxed) + 1).min(until_ns),
        };
        for (place, ring) in rings.iter().enumerate() {
            let from = mark.written.get(place).copied().unwrap_or(0);
            let first = events.len();
            let overwritten = ring.read(from, &mut events);
            if overwritten > 0 {
                // An operation's event has the time at which the operation began. Events before
                // this event in the ring may have later times.
                let mut kept = events[first..].iter();
                let oldest = kept.find(|own| own.event.kind != EventKind::Kernel);
                let first_ns = oldest.map_or(until_ns, |event| event.time_ns);
                complete_from_ns = first_ns.max(complete_from_ns);
            }
            lost += overwritten;
        }
        events.retain(|event| event.time_ns <= until_ns && event.is_since(mark.time_ns));
        // The sort is stable, so the order of each thread's events stays.
        events.sort_by_key(|event| event.time_ns);
        Collected {
            events,
            lost,
            complete_from_ns,
        }
    }

    fn scope_names(&self) -> Vec<String> {
        let scopes = self.scopes.lock();
        scopes.names.iter().map(ToString::to_string).collect()
    }

    fn unix_ns(&self, mark: &RecordingStart) -> u64 {
        let began = self.began_at.duration_since(SystemTime::UNIX_EPOCH);
        began.unwrap_or_default().as_nanos() as u64 + mark.time_ns
    }
}
