//! What each line of the program allocated.

use std::collections::HashMap;

use crate::lifetimes::{Lifetime, lifetimes, live_at, peak};
use crate::nesting::{Activity, Nesting, Slice};
use crate::profile::{CallSite, Event, EventKind, Profile};
use crate::timeline::changes;

/// What a line allocated in a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteSummary {
    /// The line; `None` where it is not known.
    pub call_site: Option<CallSite>,
    /// The scope; `None` for memory of no cache.
    pub scope: Option<String>,
    /// Bytes live at the end.
    pub live_bytes: u64,
    /// The most bytes that were live at a time, of this line alone.
    pub peak_bytes: u64,
    /// Bytes live at the peak of the device.
    pub device_peak_bytes: u64,
    /// Allocations in the recording: hits, misses and those of no cache.
    pub allocations: u64,
    /// Those that the scope's cache served.
    pub hits: u64,
    /// Those that it could not serve.
    pub misses: u64,
    /// Those that belong to no cache.
    pub uncached: u64,
    /// Those that outlived the entry of a scope that they were made in, or are live at the end.
    pub escaped: u64,
    /// Copies that writes to shared memory forced.
    pub copies_on_write: u64,
    /// The sum of the bytes of all allocations in the recording.
    pub total_bytes: u64,
    /// Nanoseconds between the begin and the end of the operations that the line called, with those that these called.
    pub operation_ns: u64,
}

/// Sums up a profile by line and scope, that with the highest own peak first.
///
/// # Examples
///
/// ```
/// use cachescope_reports::{CallSite, Event, EventKind, Profile, by_call_site};
///
/// let allocation = Event {
///     time_ns: 10,
///     kind: EventKind::Uncached,
///     thread: 0,
///     stream: 0,
///     scope: None,
///     call_site: Some(0),
///     stack: None,
///     address: 4096,
///     bytes: 1000,
///     block_bytes: 1024,
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
    let nesting = Nesting::of(profile);
    let mut sites = Sites::default();
    for lifetime in lifetimes.iter().filter(|own| own.allocated.is_none()) {
        sites.of(lifetime.event(profile)).begin(lifetime.bytes);
    }
    for change in changes(&lifetimes) {
        let lifetime = &lifetimes[change.lifetime];
        let site = sites.of(lifetime.event(profile));
        if change.begins {
            site.begin(lifetime.bytes);
        } else {
            site.live_bytes = site.live_bytes.saturating_sub(lifetime.bytes);
        }
    }
    for lifetime in &lifetimes {
        if let Some(index) = lifetime.allocated {
            let event = &profile.events[index];
            let escaped = has_escaped(&nesting, lifetime, index);
            sites.of(event).count(event.kind, lifetime, escaped);
        }
    }
    for lifetime in live_at(&lifetimes, peak(profile, &lifetimes)) {
        let site = sites.of(lifetime.event(profile));
        site.device_peak_bytes = site.device_peak_bytes.saturating_add(lifetime.bytes);
    }
    for slice in &nesting.slices {
        sites.add_operation(profile, slice);
    }
    sites.sorted(profile)
}

/// Whether it lives at the end, or lived when the entry ended that it was allocated in.
fn has_escaped(nesting: &Nesting, lifetime: &Lifetime, allocated: usize) -> bool {
    let entry = nesting.entries[allocated].map(|entry| nesting.slices[entry]);
    let left = entry.and_then(|entry| entry.end);
    lifetime
        .freed
        .is_none_or(|freed| left.is_some_and(|left| freed > left))
}

impl SiteSummary {
    fn begin(&mut self, bytes: u64) {
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }

    fn count(&mut self, kind: EventKind, lifetime: &Lifetime, escaped: bool) {
        self.allocations += 1;
        self.hits += u64::from(kind == EventKind::Hit);
        self.misses += u64::from(kind == EventKind::Miss);
        self.uncached += u64::from(kind == EventKind::Uncached);
        self.escaped += u64::from(escaped);
        self.copies_on_write += u64::from(lifetime.is_copy_on_write);
        self.total_bytes = self.total_bytes.saturating_add(lifetime.bytes);
    }
}

#[derive(Debug, Default)]
struct Sites {
    sites: Vec<SiteSummary>,
    /// By line and scope.
    numbers: HashMap<(Option<u32>, Option<u32>), usize>,
}

impl Sites {
    fn of(&mut self, event: &Event) -> &mut SiteSummary {
        let Event {
            call_site, scope, ..
        } = *event;
        let number = *self.numbers.entry((call_site, scope)).or_insert_with(|| {
            self.sites.push(SiteSummary::default());
            self.sites.len() - 1
        });
        &mut self.sites[number]
    }

    /// One whose begin and end are both known.
    fn add_operation(&mut self, profile: &Profile, slice: &Slice) {
        if let (Activity::Operation(_), Some(begin), Some(end)) =
            (slice.activity, slice.begin, slice.end)
        {
            let [begin, end] = [begin, end].map(|event| &profile.events[event]);
            self.of(begin).operation_ns += end.time_ns.saturating_sub(begin.time_ns);
        }
    }

    /// With the names of lines and scopes. Equal ones by file and line, so that the order is always the same.
    fn sorted(mut self, profile: &Profile) -> Vec<SiteSummary> {
        for ((call_site, scope), number) in self.numbers {
            let own = &mut self.sites[number];
            own.call_site = call_site.map(|number| profile.call_sites[number as usize].clone());
            own.scope = scope.map(|number| profile.scopes[number as usize].clone());
        }
        self.sites.sort_by(|a, b| {
            let sizes = |own: &SiteSummary| {
                (
                    own.peak_bytes,
                    own.device_peak_bytes,
                    own.total_bytes,
                    own.operation_ns,
                )
            };
            let names = |own: &SiteSummary| {
                let site = own.call_site.as_ref();
                site.map(|site| (site.file.clone(), site.line, site.column))
            };
            let sizes = sizes(b).cmp(&sizes(a));
            let names = sizes.then_with(|| names(a).cmp(&names(b)));
            names.then_with(|| a.scope.cmp(&b.scope))
        });
        self.sites
    }
}
