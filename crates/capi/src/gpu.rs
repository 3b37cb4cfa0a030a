//! The caches of CUDA devices, for PyTorch and CuPy. The allocator functions of PyTorch and CuPy
//! have no argument for a cache. So a request uses the cache that was entered last and is still
//! open, even if another thread entered the cache.

use std::collections::BTreeMap;
use std::ffi::c_int;

use cachescope_memory::internal::cache::{SharedBlock, SharedCache};
use cachescope_memory::internal::device::cuda::CurrentContext;
use cachescope_memory::internal::device::{StreamId, Use};
use cachescope_memory::{CacheStats, Device};

use crate::caches::{Settings, State};
use crate::failure::{Code, Failure, Outcome};

#[derive(Debug)]
pub(crate) struct Gpus {
    caches: BTreeMap<(Box<str>, usize), SharedCache>,
    settings: BTreeMap<Box<str>, Settings>,
    /// The IDs of foreign streams, keyed by device and stream address.
    streams: BTreeMap<(usize, usize), StreamId>,
    /// The live blocks with their devices, keyed by block address.
    blocks: BTreeMap<u64, Block>,
    /// Freed blocks that could not be ordered after work on the stream with the given address. The
    /// next request or free retries.
    unfreed: Vec<(Block, usize)>,
}

/// A live block with the ordinal of its device.
type Block = (SharedBlock, usize);

impl Gpus {
    pub(crate) const fn new() -> Self {
        Self {
            caches: BTreeMap::new(),
            settings: BTreeMap::new(),
            streams: BTreeMap::new(),
            blocks: BTreeMap::new(),
            unfreed: Vec::new(),
        }
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (usize, &'a SharedCache)> {
        let own = self
            .caches
            .iter()
            .filter(move |((own, _), _)| **own == *name);
        own.map(|((_, ordinal), cache)| (*ordinal, cache))
    }

    pub(crate) fn configure(&mut self, name: &str, settings: Settings) {
        self.settings
            .entry(name.into())
            .or_default()
            .update(settings);
        for (_, cache) in self.of(name) {
            settings.apply(cache);
        }
    }

    /// Returns a guard that restores the current context of the calling thread. Returns `None`
    /// without caches, because then no call reaches the driver.
    fn current_context(&self) -> Option<CurrentContext> {
        (!self.caches.is_empty()).then(CurrentContext::get)
    }

    pub(crate) fn for_each(&self, name: &str, enter_or_exit: fn(&SharedCache) -> bool) {
        let _context = self.current_context();
        for (_, cache) in self.of(name) {
            enter_or_exit(cache);
        }
    }

    pub(crate) fn stats(&self, name: &str) -> Vec<CacheStats> {
        let _context = self.current_context();
        let own = self.of(name);
        own.filter_map(|(ordinal, _)| Device::cuda(ordinal).ok()?.cache_stats(name))
            .collect()
    }

    pub(crate) fn invalidate(&self, name: &str) {
        let _context = self.current_context();
        for (ordinal, _) in self.of(name) {
            if let Ok(device) = Device::cuda(ordinal) {
                device.invalidate_cache(name);
                device.trim(0);
            }
        }
    }

    /// Returns the cache `name` of a device. A new cache is entered `depth` times, like the host's
    /// cache.
    fn cache(&mut self, name: &str, depth: usize, ordinal: usize, device: &Device) -> &SharedCache {
        let settings = self.settings.get(name).copied().unwrap_or_default();
        let key = (name.into(), ordinal);
        self.caches.entry(key).or_insert_with(|| {
            let cache = device.shared_cache(name);
            settings.apply(&cache);
            for _ in 0..depth {
                cache.enter();
            }
            cache
        })
    }

    /// Returns the ID of a foreign stream. The stream must live as long as the process.
    fn stream(&mut self, ordinal: usize, device: &Device, raw: usize) -> Outcome<StreamId> {
        if let Some(known) = self.streams.get(&(ordinal, raw)) {
            return Ok(*known);
        }
        let backend = device.backend().cuda();
        let backend = backend.ok_or_else(|| no_cuda(ordinal as c_int))?;
        // SAFETY: by the header's contract, the stream is in the device's primary context, and
        // lives until the process ends.
        let number = unsafe { backend.import_stream(raw) }?;
        self.streams.insert((ordinal, raw), number);
        Ok(number)
    }

    /// Records that work on a foreign stream uses the block. After its free, the block is not
    /// reused before this work has completed.
    fn use_on(&mut self, (block, ordinal): &Block, raw_stream: usize) -> Outcome<()> {
        let device = Device::cuda(*ordinal)?;
        let stream = self.stream(*ordinal, &device, raw_stream)?;
        if block.stream() != stream {
            block.use_on(stream, Use::Read)?;
        }
        Ok(())
    }

    /// Frees a block. Work on `raw_stream`, if given, may still use the block.
    fn free(&mut self, block: Block, raw_stream: Option<usize>) -> Outcome<()> {
        if let Some(raw_stream) = raw_stream
            && let Err(failure) = self.use_on(&block, raw_stream)
        {
            self.unfreed.push((block, raw_stream));
            return Err(failure);
        }
        drop(block.0.free());
        Ok(())
    }

    fn take(&mut self, address: u64) -> Outcome<Block> {
        self.blocks.remove(&address).ok_or_else(|| {
            let text =
                format!("{address:#x} is not a live block of cs_torch_malloc or cs_cupy_malloc");
            Failure::new(Code::Argument, text)
        })
    }

    fn retry_frees(&mut self) {
        for (block, raw_stream) in std::mem::take(&mut self.unfreed) {
            let _ = self.free(block, Some(raw_stream)); // The first `free` reported the failure.
        }
    }
}

/// The addresses that the driver's header defines for the default streams.
const LEGACY_STREAM: usize = 1;
const PER_THREAD_STREAM: usize = 2;

/// Returns the address of a stream, or 0 for the legacy default stream.
fn address_of_stream(raw: usize) -> Outcome<usize> {
    match raw {
        LEGACY_STREAM => Ok(0),
        PER_THREAD_STREAM => {
            let text = "the per-thread default stream differs from thread to thread: pass a \
                        stream of cudaStreamCreate";
            Err(Failure::new(Code::Argument, text))
        }
        raw => Ok(raw),
    }
}

fn no_cuda(ordinal: c_int) -> Failure {
    Failure::new(Code::Device, format!("cuda:{ordinal}: no CUDA device"))
}

fn device_of(ordinal: c_int) -> Outcome<(usize, Device)> {
    let number = usize::try_from(ordinal).map_err(|_| no_cuda(ordinal))?;
    Ok((number, Device::cuda(number)?))
}

impl State {
    /// Allocates device memory for work on a foreign stream. The memory belongs to `cache`,
    /// otherwise to the cache with the innermost open entry, otherwise to no cache.
    pub(crate) fn allocate_on_gpu(
        &mut self,
        cache: Option<&str>,
        bytes: usize,
        ordinal: c_int,
        raw_stream: usize,
    ) -> Outcome<u64> {
        let _context = CurrentContext::get();
        let raw_stream = address_of_stream(raw_stream)?;
        self.gpus.retry_frees();
        let (ordinal, device) = device_of(ordinal)?;
        let stream = self.gpus.stream(ordinal, &device, raw_stream)?;
        let cache = match cache {
            Some(name) => Some((name, self.depth(name))),
            None => self.innermost(),
        };
        let block = match cache {
            None => device.shared_block(bytes as u64, stream)?,
            Some((name, depth)) => {
                let cache = self.gpus.cache(name, depth, ordinal, &device);
                match cache.hit(bytes as u64, stream) {
                    Some(block) => block,
                    None => {
                        cache
                            .allocate(bytes as u64, stream, std::panic::Location::caller())?
                            .0
                    }
                }
            }
        };
        let address = block.address();
        self.gpus.blocks.insert(address, (block, ordinal));
        Ok(address)
    }

    /// Frees device memory. Work on `raw_stream`, if given, may still use the memory.
    pub(crate) fn free_on_gpu(&mut self, address: u64, raw_stream: Option<usize>) -> Outcome<()> {
        let _context = CurrentContext::get();
        let raw_stream = raw_stream.map(address_of_stream).transpose()?;
        self.gpus.retry_frees();
        let block = self.gpus.take(address)?;
        self.gpus.free(block, raw_stream)
    }

    /// Records that work on a foreign stream uses device memory. After its free, the memory is not
    /// reused before this work has completed.
    pub(crate) fn use_on_gpu(&mut self, address: u64, raw_stream: usize) -> Outcome<()> {
        let _context = CurrentContext::get();
        let raw_stream = address_of_stream(raw_stream)?;
        let block = self.gpus.take(address)?;
        let used = self.gpus.use_on(&block, raw_stream);
        self.gpus.blocks.insert(address, block);
        used
    }
}
