//! The caches of CUDA devices, for PyTorch and CuPy. The functions of PyTorch and CuPy name no
//! cache. So a request goes to the cache that the process entered last, on any thread.

use std::collections::BTreeMap;
use std::ffi::c_int;

use cachescope_memory::internal::cache::{SharedBlock, SharedCache};
use cachescope_memory::internal::device::cuda::CurrentContext;
use cachescope_memory::internal::device::{StreamId, Use};
use cachescope_memory::{CacheStats, Device};

use crate::caches::{Settings, State};
use crate::failure::{Code, Failure, Outcome};

/// The state of all CUDA devices.
#[derive(Debug)]
pub(crate) struct Gpus {
    caches: BTreeMap<(Box<str>, usize), SharedCache>,
    settings: BTreeMap<Box<str>, Settings>,
    /// The number of each foreign stream, by its device and its address.
    streams: BTreeMap<(usize, usize), StreamId>,
    /// The blocks that are handed out, by address, each with its device.
    blocks: BTreeMap<u64, Block>,
    /// Freed blocks that could not be made to wait for the stream with this address. The next
    /// request or free tries again.
    unfreed: Vec<(Block, usize)>,
}

/// A block that is handed out, and its device.
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

    /// Returns a guard that makes the context of the calling thread current again. Returns `None`
    /// if there are no caches, because no call reaches the driver then.
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

    /// Returns the cache `name` of a device. A cache that is made here is inside as many entries as
    /// the host's.
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

    /// Returns the number of a foreign stream. The stream must live as long as the process.
    fn stream(&mut self, ordinal: usize, device: &Device, raw: usize) -> Outcome<StreamId> {
        if let Some(known) = self.streams.get(&(ordinal, raw)) {
            return Ok(*known);
        }
        let backend = device.backend().cuda();
        let backend = backend.ok_or_else(|| no_cuda(ordinal as c_int))?;
        // SAFETY: by the contract of the header, a stream of the device's primary context that is
        // not destroyed before the process ends.
        let number = unsafe { backend.import_stream(raw) }?;
        self.streams.insert((ordinal, raw), number);
        Ok(number)
    }

    /// Defers the reuse of a block, once it is freed, until the work on a foreign stream that is
    /// enqueued by then has completed.
    fn use_on(&mut self, (block, ordinal): &Block, raw_stream: usize) -> Outcome<()> {
        let device = Device::cuda(*ordinal)?;
        let stream = self.stream(*ordinal, &device, raw_stream)?;
        if block.stream() != stream {
            block.use_on(stream, Use::Read)?;
        }
        Ok(())
    }

    /// Frees a block that work on `raw_stream`, if given, may still use.
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
                format!("{address:#x} is no live block of cs_torch_malloc or cs_cupy_malloc");
            Failure::new(Code::Argument, text)
        })
    }

    fn retry_frees(&mut self) {
        for (block, raw_stream) in std::mem::take(&mut self.unfreed) {
            let _ = self.free(block, Some(raw_stream)); // Returned when the block was freed.
        }
    }
}

/// The addresses that the driver's header gives to default streams.
const LEGACY_STREAM: usize = 1;
const PER_THREAD_STREAM: usize = 2;

/// Returns 0 for the legacy default stream, and else the address of the stream.
fn address_of_stream(raw: usize) -> Outcome<usize> {
    match raw {
        LEGACY_STREAM => Ok(0),
        PER_THREAD_STREAM => {
            let text = "the per-thread default stream is another stream on each thread: pass a \
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
    /// Returns device memory for work on a foreign stream: of `cache`, or else of the cache that
    /// was entered last, or else of no cache.
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

    /// Frees device memory, which work on `raw_stream`, if given, may still use.
    pub(crate) fn free_on_gpu(&mut self, address: u64, raw_stream: Option<usize>) -> Outcome<()> {
        let _context = CurrentContext::get();
        let raw_stream = raw_stream.map(address_of_stream).transpose()?;
        self.gpus.retry_frees();
        let block = self.gpus.take(address)?;
        self.gpus.free(block, raw_stream)
    }

    /// Defers the reuse of device memory, once it is freed, until the work on a foreign stream that
    /// is enqueued by then has completed.
    pub(crate) fn use_on_gpu(&mut self, address: u64, raw_stream: usize) -> Outcome<()> {
        let _context = CurrentContext::get();
        let raw_stream = address_of_stream(raw_stream)?;
        let block = self.gpus.take(address)?;
        let used = self.gpus.use_on(&block, raw_stream);
        self.gpus.blocks.insert(address, block);
        used
    }
}
