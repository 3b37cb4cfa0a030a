//! A summary of the allocations of each program line.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::lifetimes::{AllocationLifetime, Peak, lifetimes, live_at, peak};
use crate::nesting::{Activity, Nesting};
use crate::profile::{CallSite, Event, EventKind, Profile};
use crate::timeline::changes;

/// The summary of a line in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteSummary {
    /// The line; `None` if unknown.
    pub call_site: Option<CallSite>,
    /// The name of the scope; `None` for uncached memory.
    pub scope: Option<String>,
    /// The live bytes at the end.
    pub live_bytes: u64,
    /// The peak of this line's live bytes.
    pub peak_bytes: u64,
    /// The live bytes of this line at the device's peak.
    pub device_peak_bytes: u64,
    /// The number of allocations in the recording: hits, misses and uncached allocations.
    pub allocations: u64,
    /// The number of allocations that the scope's cache served.
    pub hits: u64,
    /// The number of allocations that the scope's cache could not serve.
    pub misses: u64,
    /// The number of allocations outside of all caches.
    pub uncached: u64,
    /// The number of allocations that outlived the scope entry in which they were made, or are live
    /// at the end. An entry inside of an entry of the same scope counts as part of the outer entry.
    pub escaped: u64,
    /// The number of copies that writes to shared memory forced.
    pub copies_on_write: u64,
    /// The sum of the requested bytes of all allocations in the recording.
    pub total_bytes: u64,
    /// The nanoseconds between the begin and the end of the operations that the line called. Inner
    /// operations are included.
    pub operation_ns: u64,
    /// The nanoseconds for which the device executed these operations, by the device's clock. If
    /// the recording has no device times, this equals `operation_ns`.
    pub kernel_ns: u64,
}

/// Summarises a profile by line and scope, in descending order of the line's own peak.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{CallSite, Event, EventKind, Profile, by_call_site};
///
/// let allocation = Event {
///     call_site: Some(0),
///     address: 4096,
///     bytes: 1000,
///     block_bytes: 1024,
///     ..Event::new(EventKind::Uncached, 10)
/// };
/// let free = Event { time_ns: 20, kind: EventKind::Free, ..allocation };
/// let line = CallSite { file: "src/main.rs".to_owned(), line: 7, column: 13 };
/// let profile = Profile {
///     call_sites: vec![line],
///     events: vec![allocation, free],
///     ..Profile::default()
/// };
/// let sites = by_call_site(&profile);
/// assert_eq!((sites[0].allocations, sites[0].peak_bytes, sites[0].live_bytes), (1, 1000, 0));
/// ```
pub fn by_call_site(profile: &Profile) -> Vec<SiteSummary> {
    let lifetimes = lifetimes(profile);
    let peak = peak(profile, &lifetimes);
    let sites = by_number(profile, &lifetimes, peak, &Nesting::of(profile));
    let named = |((call_site, scope), own): (Key, SiteSummary)| SiteSummary {
        call_site: call_site.map(|number| profile.call_sites[number as usize].clone()),
        scope: scope.map(|number| profile.scopes[number as usize].clone()),
        ..own
    };
    let mut sites: Vec<SiteSummary> = sites.into_iter().map(named).collect();
    sites.sort_by(compare);
    sites
}

/// The index of a line and the index of a scope.
pub(crate) type Key = (Option<u32>, Option<u32>);

/// Summarises a profile like [`by_call_site`], but by indices instead of names. So the profile
/// needs no tables of names.
pub(crate) fn by_number(
    profile: &Profile,
    lifetimes: &[AllocationLifetime],
    peak: Peak,
    nesting: &Nesting,
) -> BTreeMap<Key, SiteSummary> {
    let mut sites: BTreeMap<Key, SiteSummary> = BTreeMap::new();
    let key = |event: &Event| (event.call_site, event.scope);
    for change in changes(lifetimes) {
        let lifetime = &lifetimes[change.lifetime];
        let site = sites.entry(key(lifetime.event(profile))).or_default();
        change.apply(&mut site.live_bytes, lifetime.bytes);
        site.peak_bytes = site.peak_bytes.max(site.live_bytes);
    }
    for lifetime in lifetimes.iter().filter(|own| own.allocated.is_some()) {
        let event = lifetime.event(profile);
        let escaped = has_escaped(profile, nesting, lifetime);
        let site = sites.entry(key(event)).or_default();
        site.count(event.kind, lifetime, escaped);
    }
    for event in of_kind(profile, EventKind::Scratch) {
        sites.entry(key(event)).or_default().count_scratch(event);
    }
    for lifetime in live_at(lifetimes, peak) {
        let site = sites.entry(key(lifetime.event(profile))).or_default();
        site.device_peak_bytes = site.device_peak_bytes.saturating_add(lifetime.bytes);
    }
    for slice in &nesting.slices {
        if let (Activity::Operation(_), Some(begin), Some(end)) =
            (slice.activity, slice.begin, slice.end)
        {
            let [begin, end] = [begin, end].map(|event| &profile.events[event]);
            let site = sites.entry(key(begin)).or_default();
            let own_ns = end.time_ns.saturating_sub(begin.time_ns);
            site.operation_ns = site.operation_ns.saturating_add(own_ns);
        }
    }
    for event in of_kind(profile, EventKind::Kernel) {
        let site = sites.entry(key(event)).or_default();
        site.kernel_ns = site.kernel_ns.saturating_add(event.bytes);
    }
    if of_kind(profile, EventKind::Kernel).next().is_none() {
        sites
            .values_mut()
            .for_each(|site| site.kernel_ns = site.operation_ns);
    }
    sites
}

fn of_kind(profile: &Profile, kind: EventKind) -> impl Iterator<Item = &Event> {
    let events = profile.events.iter();
    events.filter(move |event| event.kind == kind)
}

/// Returns whether the allocation is live at the end, or was live when its entry ended.
fn has_escaped(profile: &Profile, nesting: &Nesting, lifetime: &AllocationLifetime) -> bool {
    let entry = nesting.entry_of(profile, lifetime);
    let left = entry.and_then(|entry| nesting.slices[entry].end);
    lifetime
        .freed
        .is_none_or(|freed| left.is_some_and(|left| freed > left))
}

/// Orders by own peak, in descending order. Ties are ordered by file and line, so that the order is
/// deterministic.
fn compare(a: &SiteSummary, b: &SiteSummary) -> Ordering {
    let sizes = |own: &SiteSummary| {
        (
            own.peak_bytes,
            own.device_peak_bytes,
            own.total_bytes,
            own.kernel_ns,
        )
    };
    let names = |own: &SiteSummary| {
        let site = own.call_site.as_ref();
        site.map(|site| (site.file.clone(), site.line, site.column))
    };
    let sizes = sizes(b).cmp(&sizes(a));
    let names = sizes.then_with(|| names(a).cmp(&names(b)));
    names.then_with(|| a.scope.cmp(&b.scope))
}

impl SiteSummary {
    fn count(&mut self, kind: EventKind, lifetime: &AllocationLifetime, escaped: bool) {
        self.allocations += 1;
        self.hits += u64::from(kind == EventKind::Hit);
        self.misses += u64::from(kind == EventKind::Miss);
        self.uncached += u64::from(kind == EventKind::Uncached);
        self.escaped += u64::from(escaped);
        self.copies_on_write += u64::from(lifetime.is_copy_on_write);
        self.total_bytes = self.total_bytes.saturating_add(lifetime.bytes);
    }

    /// Counts the allocations that a [`Scratch`](EventKind::Scratch) event summarises.
    fn count_scratch(&mut self, event: &Event) {
        let (requests, hits) = (event.address, event.block_bytes);
        let others = requests.saturating_sub(hits);
        let unserved = match event.scope {
            Some(_) => &mut self.misses,
            None => &mut self.uncached,
        };
        *unserved = unserved.saturating_add(others);
        self.allocations = self.allocations.saturating_add(requests);
        self.hits = self.hits.saturating_add(hits.min(requests));
        self.total_bytes = self.total_bytes.saturating_add(event.bytes);
    }
}
