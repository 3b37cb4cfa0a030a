//! The process's caches by name, and the lock around all calls except hits and frees.
//!
//! A cache is never freed, because the handlers of live arrays refer to it. A program has one cache
//! per name.

use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use cachescope_memory::internal::cache::SharedCache;
use cachescope_memory::record::{Format, Recording};
use cachescope_memory::{CacheStats, Device, Policy, RecordOptions};

use crate::failure::{Code, Failure, Outcome};
use crate::gpu::Gpus;

/// A named cache, which is `cs_cache` of the header.
#[derive(Debug)]
pub(crate) struct Cache {
    name: Box<str>,
    pub(crate) host: SharedCache,
}

impl Cache {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The state of the library, guarded by [`lock`].
#[derive(Debug)]
pub(crate) struct State {
    caches: Vec<NamedHandle>,
    /// The open entries in order, each with its cache and the thread that entered the cache.
    entered: Vec<(&'static Cache, ThreadId)>,
    recording: Option<(Recording, PathBuf)>,
    pub(crate) gpus: Gpus,
}

#[derive(Debug)]
struct NamedHandle {
    cache: &'static Cache,
    /// The number of handles that were opened or retained, and not released.
    handles: usize,
}

static STATE: Mutex<State> = Mutex::new(State {
    caches: Vec::new(),
    entered: Vec::new(),
    recording: None,
    gpus: Gpus::new(),
});

/// The cache settings of the header's `cs_options`. A setting that is `None` stays unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    policy: Option<Policy>,
    max_bytes: Option<u64>,
}

impl Settings {
    /// Parses the settings. A policy of `None` and a bound of 0 are not set.
    pub(crate) fn new(policy: Option<&str>, max_bytes: u64) -> Outcome<Self> {
        let parsed = policy.map(|name| {
            name.parse().map_err(|error: cachescope_memory::Error| {
                // The error does not name the setting, so the message adds it.
                let text = error.to_string();
                let text = text.replacen("unknown name", "cs_cache_open: unknown policy", 1);
                Failure::new(Code::Argument, text)
            })
        });
        Ok(Self {
            policy: parsed.transpose()?,
            max_bytes: (max_bytes > 0).then_some(max_bytes),
        })
    }

    /// Overwrites the settings that are set in `more`.
    pub(crate) fn update(&mut self, more: Self) {
        self.policy = more.policy.or(self.policy);
        self.max_bytes = more.max_bytes.or(self.max_bytes);
    }

    /// Applies the settings to a cache. The settings take effect at its next outermost entry.
    pub(crate) fn apply(self, cache: &SharedCache) {
        cache.configure(self.policy, self.max_bytes);
    }
}

/// Locks the state. Each call holds this lock while it holds any lock of `cachescope_memory`. So no
/// lock is held at a fork.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Opens the cache `name`. The settings take effect at its next outermost entry.
    pub(crate) fn open(&mut self, name: &str, settings: Settings) -> &'static Cache {
        let cache = self.open_unconfigured(name);
        settings.apply(&cache.host);
        self.gpus.configure(name, settings);
        cache
    }

    fn open_unconfigured(&mut self, name: &str) -> &'static Cache {
        if let Some(known) = self.caches.iter_mut().find(|own| *own.cache.name == *name) {
            known.handles += 1;
            return known.cache;
        }
        let cache = Box::leak(Box::new(Cache {
            name: name.into(),
            host: Device::host().shared_cache(name),
        }));
        self.caches.push(NamedHandle { cache, handles: 1 });
        cache
    }

    pub(crate) fn retain(&mut self, cache: &Cache) {
        if let Some(own) = self.find(cache) {
            own.handles += 1;
        }
    }

    /// Removes a handle from a cache. If it was the last handle, releases the cache's idle memory.
    pub(crate) fn release(&mut self, cache: &Cache) {
        let Some(own) = self.find(cache) else { return };
        own.handles = own.handles.saturating_sub(1);
        if own.handles == 0 {
            self.invalidate(&cache.name);
        }
    }

    fn find(&mut self, cache: &Cache) -> Option<&mut NamedHandle> {
        self.caches.iter_mut().find(|own| ptr::eq(own.cache, cache))
    }

    pub(crate) fn caches(&self) -> impl Iterator<Item = &'static Cache> {
        self.caches.iter().map(|own| own.cache)
    }

    pub(crate) fn enter(&mut self, cache: &'static Cache) {
        cache.host.enter();
        self.gpus.for_each(&cache.name, SharedCache::enter);
        self.entered.push((cache, thread::current().id()));
    }

    /// Ends the innermost entry of the cache on this thread. Without such an entry, ends the
    /// innermost entry of any thread.
    pub(crate) fn exit(&mut self, cache: &Cache) -> Outcome<()> {
        let own = thread::current().id();
        let mut entries = self.entered.iter().rev();
        let mine = entries.position(|(entered, by)| ptr::eq(*entered, cache) && *by == own);
        let mut entries = self.entered.iter().rev();
        let last = mine.or_else(|| entries.position(|(entered, _)| ptr::eq(*entered, cache)));
        let Some(last) = last else {
            let text = format!("cs_exit: the cache \"{}\" has not been entered", cache.name);
            return Err(Failure::new(Code::State, text));
        };
        self.entered.remove(self.entered.len() - 1 - last);
        cache.host.exit();
        self.gpus.for_each(&cache.name, SharedCache::exit);
        Ok(())
    }

    /// Ends the entries of all other threads, for a child process that lacks these threads. Does
    /// not access CUDA devices, because they are unusable in the child.
    pub(crate) fn exit_other_threads(&mut self) {
        let own = thread::current().id();
        self.entered.retain(|(cache, by)| {
            let is_own = *by == own;
            if !is_own {
                cache.host.exit();
            }
            is_own
        });
    }

    /// Returns the name of the cache with the innermost open entry, and the number of the cache's
    /// open entries.
    pub(crate) fn innermost(&self) -> Option<(&'static str, usize)> {
        let (last, _) = *self.entered.last()?;
        Some((&last.name, self.depth(&last.name)))
    }

    /// Returns the number of open entries of a cache.
    pub(crate) fn depth(&self, name: &str) -> usize {
        let own = self.entered.iter().filter(|(own, _)| *own.name == *name);
        own.count()
    }

    /// Returns the statistics of a cache, summed over all devices.
    pub(crate) fn stats(&self, cache: &Cache) -> CacheStats {
        let mut sum = Device::host().cache_stats(&cache.name).unwrap_or_default();
        for more in self.gpus.stats(&cache.name) {
            sum.hits += more.hits;
            sum.misses += more.misses;
            sum.live_blocks += more.live_blocks;
            sum.live_bytes += more.live_bytes;
            sum.cached_blocks += more.cached_blocks;
            sum.cached_bytes += more.cached_bytes;
            sum.escaped_blocks += more.escaped_blocks;
            sum.peak_live_bytes += more.peak_live_bytes;
        }
        sum
    }

    /// Releases the idle memory of a cache and of the pools to the system.
    pub(crate) fn invalidate(&self, name: &str) {
        let host = Device::host();
        host.invalidate_cache(name);
        host.trim(0);
        self.gpus.invalidate(name);
    }

    /// Starts a recording of the host's memory, for a report at `path`.
    pub(crate) fn record(&mut self, path: PathBuf) -> Outcome<()> {
        if let Some((_, path)) = &self.recording {
            let text = format!(
                "cs_record: the recording for {} has not ended: call cs_record_end first",
                path.display()
            );
            return Err(Failure::new(Code::State, text));
        }
        if Format::of(&path).is_none() {
            let text = format!(
                "cs_record: {} has an unknown ending, expected one of {}",
                path.display(),
                Format::ENDINGS.join(", ")
            );
            return Err(Failure::new(Code::Argument, text));
        }
        let recording = Device::host().record(RecordOptions::default())?;
        self.recording = Some((recording, path));
        Ok(())
    }

    /// Stops the recording, and writes its report.
    pub(crate) fn record_end(&mut self) -> Outcome<()> {
        let Some((recording, path)) = self.recording.take() else {
            let text = "cs_record_end: no recording is active: call cs_record first";
            return Err(Failure::new(Code::State, text));
        };
        Ok(recording.write(path)?)
    }
}
