//! Scopes, entered by macro or by handle.

use crate::cache::{CallSite, Entered, EntryOptions, Growth, Place, Policy, ScopeReport, scope};
use crate::context::Device;

/// A scope that any thread can enter.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, cache_scope, scope};
///
/// cache_scope!("outer", {
///     let scope = scope::current().expect("inside one");
///     let worker = std::thread::spawn(move || {
///         let _guard = scope.enter(); // the same cache, this thread's own part of it
///         Buffer::new(&Device::current(), 16).map(drop)
///     });
///     worker.join().unwrap()?;
/// });
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ScopeHandle {
    device: Device,
    name: Box<str>,
}

impl ScopeHandle {
    pub(super) fn new(device: Device, name: Box<str>) -> Self {
        Self { device, name }
    }

    /// Enters the scope and makes its device current for this thread, until the guard drops.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let scope = device.scope("step");
    /// for _ in 0..3 {
    ///     let _guard = scope.enter();
    ///     Buffer::new(&device, 4096)?;
    /// }
    /// assert_eq!(device.cache_stats("step").unwrap().hits, 2);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn enter(&self) -> ScopeGuard {
        let (place, options) = (Place::name(&self.name), EntryOptions::NONE);
        match scope::reenter(place, Some(self.device.caches()), &options) {
            Some(entered) => ScopeGuard(entered),
            None => self.enter_now(),
        }
    }

    #[inline(never)]
    fn enter_now(&self) -> ScopeGuard {
        let (place, options) = (Place::name(&self.name), EntryOptions::NONE);
        enter_now(place, Some(&self.device), &self.name, &options)
    }

    /// Returns the name of the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// assert_eq!(Device::host().scope("step").name(), "step");
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device of the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// assert_eq!(Device::host().scope("step").device(), &Device::host());
    /// ```
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// A guard that keeps a scope entered until the guard drops. The guard belongs to its thread and
/// should not be held across an `.await`. Clippy can check this rule: see
/// [`cache_scope!`](crate::cache_scope#awaiting).
///
/// ```compile_fail
/// # extern crate cachescope_memory as cachescope;
/// fn send<T: Send>(_: T) {}
/// send(cachescope::Device::host().scope("loop").enter());
/// ```
#[must_use = "the scope ends when this guard drops"]
#[derive(Debug)]
pub struct ScopeGuard(#[expect(dead_code, reason = "held for its drop")] Entered);

impl ScopeGuard {
    /// Returns the guard itself. The macros call this function.
    #[doc(hidden)]
    #[inline(always)]
    pub fn held(self) -> Self {
        self
    }
}

/// Returns the innermost scope of this thread. Returns `None` outside all scopes, and directly
/// inside [`uncached!`](crate::uncached).
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{cache_scope, scope, uncached};
///
/// assert!(scope::current().is_none());
/// cache_scope!("outer", {
///     assert_eq!(scope::current().unwrap().name(), "outer");
///     uncached!({ assert!(scope::current().is_none()) });
/// });
/// ```
pub fn current() -> Option<ScopeHandle> {
    let (caches, identity) = scope::current_scope()?;
    Some(ScopeHandle::new(
        Device::from_caches(&caches).clone(),
        identity.name.clone(),
    ))
}

/// Returns the statistics of every named cache of the [current](Device::current) device. `Display`
/// writes a table of entries, hit rate, peak, idle and escaped bytes, and entries that differed
/// from their plan.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, DeviceConfig, cache_scope, scope};
///
/// let device = Device::host_with(DeviceConfig::default())?;
/// let _guard = device.enter();
/// for _ in 0..4 {
///     cache_scope!("loop", { Buffer::new(&device, 1024)?; });
/// }
/// let report = scope::report();
/// assert_eq!((report.caches[0].name.as_str(), report.caches[0].stats.hits), ("loop", 3));
/// assert!(report.to_string().contains("75.0%"));
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn report() -> ScopeReport {
    Device::with_current(|device| ScopeReport {
        device: device.to_string(),
        caches: device.caches().reports(),
    })
}

/// Returns the growth of the cache `name` on the [current](Device::current) device: the memory that
/// entries allocate and do not free. Returns `None` if the device has no cache `name`. If a scope's
/// live bytes rise in fifty entries and never fall, builds with debug assertions print one warning.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, CacheConfig, Device, DeviceConfig, cache_scope, scope};
///
/// let device = Device::host_with(DeviceConfig::default())?;
/// let _guard = device.enter();
/// device.configure_cache("step", CacheConfig { record: true, ..Default::default() });
/// let mut kept = Vec::new();
/// for _ in 0..10 {
///     cache_scope!("step", { kept.push(Buffer::new(&device, 1024)?); });
/// }
/// let growth = scope::growth("step").unwrap();
/// assert_eq!((growth.entries, growth.bytes), (10, 10_240));
/// assert_eq!((growth.lines[0].bytes, growth.lines[0].blocks), (1024, 1));
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn growth(name: &str) -> Option<Growth> {
    Device::with_current(|device| device.caches().growth(name))
}

/// The options of `cache_scope!`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScopeOptions<'a> {
    /// The new policy of the cache, from `policy = …`.
    pub policy: Option<Policy>,
    /// The new limit of the cache, from `max_bytes = …`.
    pub max_bytes: Option<u64>,
    /// The device of the cache, from `device = …`; `None` for the current device.
    pub device: Option<&'a Device>,
}

impl ScopeOptions<'_> {
    #[inline]
    fn entry(&self) -> EntryOptions {
        EntryOptions {
            policy: self.policy,
            max_bytes: self.max_bytes,
        }
    }
}

/// Enters `cache_scope!` with a literal name.
#[inline]
pub fn enter(site: &'static CallSite) -> ScopeGuard {
    match scope::reenter(Place::site(site), None, &EntryOptions::NONE) {
        Some(entered) => ScopeGuard(entered),
        None => enter_site_now(site, &EntryOptions::NONE),
    }
}

/// Enters `cache_scope!` with a literal name and options.
pub fn enter_site(site: &'static CallSite, options: ScopeOptions<'_>) -> ScopeGuard {
    if options.device.is_some() {
        return enter_named(site.name(), options);
    }
    let entry = options.entry();
    match scope::reenter(Place::site(site), None, &entry) {
        Some(entered) => ScopeGuard(entered),
        None => enter_site_now(site, &entry),
    }
}

#[inline(never)]
fn enter_site_now(site: &'static CallSite, options: &EntryOptions) -> ScopeGuard {
    enter_now(Place::site(site), None, site.name(), options)
}

/// Enters `cache_scope!` with a computed name.
#[inline]
pub fn enter_named(name: &str, options: ScopeOptions<'_>) -> ScopeGuard {
    let entry = options.entry();
    if options.device.is_none() && entry == EntryOptions::NONE {
        return enter_name(name);
    }
    enter_name_now(name, options.device, &entry)
}

#[inline(never)]
fn enter_name(name: &str) -> ScopeGuard {
    if name.len() > Place::EXACT_NAME_BYTES {
        return enter_name_now(name, None, &EntryOptions::NONE);
    }
    match scope::reenter(Place::name(name), None, &EntryOptions::NONE) {
        Some(entered) => ScopeGuard(entered),
        None => enter_name_now(name, None, &EntryOptions::NONE),
    }
}

#[inline(never)]
fn enter_name_now(name: &str, device: Option<&Device>, options: &EntryOptions) -> ScopeGuard {
    enter_now(Place::name(name), device, name, options)
}

/// Enters the cache `name` on `device`. If `device` is `None`, enters the cache on the current
/// device. `place` identifies the call for later entries.
#[inline(never)]
fn enter_now(
    place: Place<'_>,
    device: Option<&Device>,
    name: &str,
    options: &EntryOptions,
) -> ScopeGuard {
    scope::settle();
    let known = scope::reenter(place, device.map(Device::caches), options);
    ScopeGuard(known.unwrap_or_else(|| {
        let entered = match device {
            Some(device) => scope::enter_name_on(device.caches(), name, options),
            None => {
                Device::with_current(|device| scope::enter_name(device.caches(), name, options))
            }
        };
        scope::remember(&entered, place, options);
        entered
    }))
}

/// Enters `uncached!`.
pub fn enter_uncached() -> ScopeGuard {
    ScopeGuard(scope::enter_uncached())
}
