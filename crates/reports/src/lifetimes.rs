//! Lifetimes of allocations, and quantities that are derived from lifetimes: the live bytes and
//! their peak.

use std::collections::HashMap;

use crate::profile::{Event, EventKind, Profile};

/// An allocation with the events that begin and end its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationLifetime {
    /// The index of the allocating event in [`Profile::events`]; `None` if the allocation precedes
    /// the recording.
    pub allocated: Option<usize>,
    /// The index of the freeing event; `None` if the allocation is live at the end.
    pub freed: Option<usize>,
    /// The requested bytes.
    pub bytes: u64,
    /// True if a write to shared memory forced the allocation.
    pub is_copy_on_write: bool,
}

impl AllocationLifetime {
    /// Returns the allocating event, or the freeing event if the allocation was not recorded.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope_reports::{Event, EventKind, Profile, lifetimes};
    ///
    /// let allocation = Event {
    ///     address: 4096,
    ///     bytes: 1000,
    ///     block_bytes: 1024,
    ///     ..Event::new(EventKind::Uncached, 10)
    /// };
    /// let free = Event { time_ns: 20, kind: EventKind::Free, ..allocation };
    /// let profile = Profile { events: vec![allocation, free], ..Profile::default() };
    /// assert_eq!(lifetimes(&profile)[0].event(&profile).time_ns, 10);
    /// ```
    pub fn event(self, profile: &Profile) -> &Event {
        let index = self.allocated.or(self.freed);
        &profile.events[index.expect("a lifetime has an allocation or a free")]
    }
}

/// Returns the lifetimes of a profile, ordered by allocation. Lifetimes that precede the recording
/// are first.
///
/// A free without a recorded allocation ends a lifetime that precedes the recording. If an
/// allocation is at the address of a live block, the block's free was lost. Then the allocation
/// ends the block's lifetime.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Event, EventKind, Profile, lifetimes};
///
/// let allocation = Event {
///     address: 4096,
///     bytes: 1000,
///     block_bytes: 1024,
///     ..Event::new(EventKind::Uncached, 10)
/// };
/// let free = Event { time_ns: 20, kind: EventKind::Free, ..allocation };
/// let profile = Profile { events: vec![allocation, free], ..Profile::default() };
/// let lifetimes = lifetimes(&profile);
/// assert_eq!((lifetimes[0].allocated, lifetimes[0].freed, lifetimes[0].bytes), (Some(0), Some(1), 1000));
/// ```
pub fn lifetimes(profile: &Profile) -> Vec<AllocationLifetime> {
    let mut before = Vec::new();
    let mut known: Vec<AllocationLifetime> = Vec::new();
    let mut live: HashMap<u64, usize> = HashMap::new();
    for (index, event) in profile.events.iter().enumerate() {
        if event.kind.is_allocation() {
            let lifetime = AllocationLifetime {
                allocated: Some(index),
                freed: None,
                bytes: event.bytes,
                is_copy_on_write: false,
            };
            if let Some(lost) = live.insert(event.address, known.len()) {
                known[lost].freed = Some(index);
            }
            known.push(lifetime);
        } else if event.kind.is_free() {
            match live.remove(&event.address) {
                Some(number) => known[number].freed = Some(index),
                None => before.push(AllocationLifetime {
                    allocated: None,
                    freed: Some(index),
                    bytes: event.bytes,
                    is_copy_on_write: false,
                }),
            }
        } else if event.kind == EventKind::CopyOnWrite
            && let Some(&number) = live.get(&event.address)
        {
            known[number].is_copy_on_write = true;
        }
    }
    before.append(&mut known);
    before
}

/// The peak of the requested live bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peak {
    /// The live bytes at the peak.
    pub bytes: u64,
    /// The index in [`Profile::events`] of the event that reached the peak; `None` if the peak
    /// precedes the first event.
    pub event: Option<usize>,
}

/// Returns the peak of the live bytes. If a block precedes the recording and its free was not
/// recorded, the block does not count.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Event, EventKind, Profile, lifetimes, peak};
///
/// let allocation = Event {
///     address: 4096,
///     bytes: 1000,
///     block_bytes: 1024,
///     ..Event::new(EventKind::Uncached, 10)
/// };
/// let free = Event { time_ns: 20, kind: EventKind::Free, ..allocation };
/// let profile = Profile { events: vec![allocation, free], ..Profile::default() };
/// let peak = peak(&profile, &lifetimes(&profile));
/// assert_eq!((peak.bytes, peak.event), (1000, Some(0)));
/// ```
pub fn peak(profile: &Profile, lifetimes: &[AllocationLifetime]) -> Peak {
    let before = |lifetime: &&AllocationLifetime| lifetime.allocated.is_none();
    let sizes = lifetimes.iter().filter(before).map(|own| own.bytes);
    let mut live_bytes = sizes.fold(0, u64::saturating_add);
    let mut changes = vec![0i128; profile.events.len()];
    for lifetime in lifetimes {
        if let Some(index) = lifetime.allocated {
            changes[index] += i128::from(lifetime.bytes);
        }
        if let Some(index) = lifetime.freed {
            changes[index] -= i128::from(lifetime.bytes);
        }
    }
    let mut peak = Peak {
        bytes: live_bytes,
        event: None,
    };
    for (index, change) in changes.into_iter().enumerate() {
        let changed = (i128::from(live_bytes) + change).clamp(0, u64::MAX.into());
        live_bytes = changed as u64;
        if live_bytes > peak.bytes {
            peak = Peak {
                bytes: live_bytes,
                event: Some(index),
            };
        }
    }
    peak
}

/// Returns the bytes that are live throughout the recording, and whose blocks have no recorded
/// event. The result is derived from the device's counters, which are exact.
pub(crate) fn unknown_live_bytes(profile: &Profile, lifetimes: &[AllocationLifetime]) -> u64 {
    let at_end = lifetimes.iter().filter(|lifetime| lifetime.freed.is_none());
    let known_bytes = at_end.map(|own| own.bytes).fold(0, u64::saturating_add);
    let live_bytes = profile.live_bytes.filter(|_| profile.lost_events > 0);
    live_bytes.map_or(0, |bytes| bytes.saturating_sub(known_bytes))
}

/// Returns the lifetimes that are live at the peak.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{Event, EventKind, Peak, Profile, lifetimes, live_at, peak};
///
/// let allocation = Event {
///     address: 4096,
///     bytes: 1000,
///     block_bytes: 1024,
///     ..Event::new(EventKind::Uncached, 10)
/// };
/// let free = Event { time_ns: 20, kind: EventKind::Free, ..allocation };
/// let profile = Profile { events: vec![allocation, free], ..Profile::default() };
/// let lifetimes = lifetimes(&profile);
/// assert_eq!(live_at(&lifetimes, peak(&profile, &lifetimes)).count(), 1);
/// assert_eq!(live_at(&lifetimes, Peak::default()).count(), 0); // Before the first event.
/// ```
pub fn live_at<'a>(
    lifetimes: &'a [AllocationLifetime],
    peak: Peak,
) -> impl Iterator<Item = &'a AllocationLifetime> + use<'a> {
    // The time directly after the event of the peak, or 0 if the peak precedes the first event.
    let time = peak.event.map_or(0, |event| event + 1);
    let number = |event: Option<usize>| event.map(|event| event + 1);
    lifetimes.iter().filter(move |lifetime| {
        number(lifetime.allocated).is_none_or(|at| at <= time)
            && number(lifetime.freed).is_none_or(|at| at > time)
    })
}
