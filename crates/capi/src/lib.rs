//! The C ABI of `cachescope-memory`. `include/cachescope.h` documents all functions.
//!
//! Architecture invariant: no function unwinds. A hit and the free of its block cannot panic. All
//! other code runs in [`failure::call`].

mod blocks;
mod caches;
mod dlpack;
mod failure;
mod fork;
mod gpu;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use cachescope_memory::Device;

use caches::{Cache, Settings, lock};
use failure::{Code, Failure, Outcome, code, pointer};

/// The struct `cs_options` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    policy: *const c_char,
    max_bytes: u64,
}

/// The struct `cs_statistics` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    entries: u64,
    hits: u64,
    misses: u64,
    live_blocks: u64,
    live_bytes: u64,
    cached_blocks: u64,
    cached_bytes: u64,
    escaped_blocks: u64,
    peak_live_bytes: u64,
}

/// Returns the text at `text`, or `None` for null.
///
/// # Safety
///
/// `text` is null or a NUL-terminated string.
unsafe fn text<'a>(function: &str, what: &str, text: *const c_char) -> Outcome<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by contract, `text` is a NUL-terminated string, because it is not null.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some)
        .map_err(|_| Failure::new(Code::Argument, format!("{function}: {what} is not UTF-8")))
}

/// Returns the text at `pointer`. Returns an error for null.
///
/// # Safety
///
/// `pointer` is null or a NUL-terminated string.
unsafe fn required<'a>(function: &str, what: &str, pointer: *const c_char) -> Outcome<&'a str> {
    // SAFETY: by contract, `pointer` is null or a NUL-terminated string.
    unsafe { text(function, what, pointer) }?
        .ok_or_else(|| Failure::new(Code::Argument, format!("{function}: {what} is null")))
}

/// Returns the cache at `cache`. Returns an error for null.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`].
unsafe fn opened(function: &str, cache: *mut c_void) -> Outcome<&'static Cache> {
    // SAFETY: by contract, `cache` is null or a cache. Caches are never freed.
    let cache = unsafe { cache.cast::<Cache>().as_ref() };
    cache.ok_or_else(|| Failure::new(Code::Argument, format!("{function}: the cache is null")))
}

/// Implements `cs_cache_open` of the header.
///
/// # Safety
///
/// `name` is null or a string, and `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_cache_open(
    name: *const c_char,
    options: *const Options,
) -> *mut c_void {
    let open = || {
        // SAFETY: by contract, `name` is null or a string.
        let name = unsafe { required("cs_cache_open", "name", name) }?;
        // SAFETY: by contract, `options` is null or points to options.
        let settings = match unsafe { options.as_ref() } {
            None => Settings::default(),
            Some(options) => {
                // SAFETY: by the header's contract, `policy` is null or a string.
                let policy = unsafe { text("cs_cache_open", "policy", options.policy) }?;
                Settings::new(policy, options.max_bytes)?
            }
        };
        let cache: *const Cache = lock().open(name, settings);
        Ok(cache.cast_mut().cast())
    };
    pointer(open)
}

/// Implements `cs_cache_retain` of the header.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_cache_retain(cache: *mut c_void) {
    // SAFETY: by contract, `cache` is null or a cache.
    code(|| unsafe { opened("cs_cache_retain", cache) }.map(|cache| lock().retain(cache)));
}

/// Implements `cs_cache_release` of the header.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_cache_release(cache: *mut c_void) {
    // SAFETY: by contract, `cache` is null or a cache.
    code(|| unsafe { opened("cs_cache_release", cache) }.map(|cache| lock().release(cache)));
}

/// Implements `cs_enter` of the header.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_enter(cache: *mut c_void) -> c_int {
    // SAFETY: by contract, `cache` is null or a cache.
    code(|| unsafe { opened("cs_enter", cache) }.map(|cache| lock().enter(cache)))
}

/// Implements `cs_exit` of the header.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_exit(cache: *mut c_void) -> c_int {
    // SAFETY: by contract, `cache` is null or a cache.
    code(|| lock().exit(unsafe { opened("cs_exit", cache) }?))
}

/// Implements `cs_malloc` of the header.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_malloc(cache: *mut c_void, bytes: usize) -> *mut c_void {
    blocks::malloc(cache, bytes)
}

/// Implements `cs_calloc` of the header.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_calloc(cache: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    blocks::calloc(cache, count, bytes)
}

/// Implements `cs_realloc` of the header.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`]. `block` is null or a live block of this
/// library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_realloc(
    cache: *mut c_void,
    block: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: by contract, `block` is null or a live block of this library.
    unsafe { blocks::realloc(cache, block, bytes) }
}

/// Implements `cs_free` of the header.
///
/// # Safety
///
/// `block` is null or a live block of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_free(_cache: *mut c_void, block: *mut c_void, _bytes: usize) {
    // SAFETY: by contract, `block` is null or a live block of this library.
    unsafe { blocks::free(block) }
}

/// Implements `cs_to_dlpack` of the header.
///
/// # Safety
///
/// `block` is null or a live block of this library, and `shape` has `ndim` lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_to_dlpack(
    block: *mut c_void,
    ndim: c_int,
    shape: *const i64,
    code: c_int,
    bits: c_int,
) -> *mut dlpack::Managed {
    // SAFETY: by contract, `block` is null or a live block, and `shape` has `ndim` lengths.
    let export = || unsafe { dlpack::export(block, (ndim, shape), (code, bits)) };
    pointer(export)
}

/// Implements `cs_version` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cs_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Implements `cs_memory_limit` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cs_memory_limit(bytes: u64) -> c_int {
    code(|| {
        let _state = lock();
        let host = Device::host();
        let limit = (bytes > 0).then_some(bytes);
        host.set_memory_limit(limit);
        if limit.is_some_and(|limit| host.memory_stats().reserved_bytes > limit) {
            // Otherwise, idle memory of the caches would serve requests although more than the
            // limit is reserved.
            host.invalidate_all_caches();
            host.trim(0);
        }
        Ok(())
    })
}

/// Implements `cs_stats` of the header.
///
/// # Safety
///
/// `cache` is null or was returned by [`cs_cache_open`]. `statistics` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_stats(cache: *mut c_void, statistics: *mut Statistics) -> c_int {
    code(|| {
        // SAFETY: by contract, `cache` is null or a cache.
        let cache = unsafe { opened("cs_stats", cache) }?;
        if statistics.is_null() {
            let text = "cs_stats: statistics is null";
            return Err(Failure::new(Code::Argument, text));
        }
        let stats = lock().stats(cache);
        let filled = Statistics {
            entries: stats.entries,
            hits: stats.hits,
            misses: stats.misses,
            live_blocks: stats.live_blocks,
            live_bytes: stats.live_bytes,
            cached_blocks: stats.cached_blocks,
            cached_bytes: stats.cached_bytes,
            escaped_blocks: stats.escaped_blocks,
            peak_live_bytes: stats.peak_live_bytes,
        };
        // SAFETY: by contract, `statistics` is writable, because it is not null.
        unsafe { statistics.write(filled) };
        Ok(())
    })
}

/// Implements `cs_invalidate` of the header.
///
/// # Safety
///
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_invalidate(name: *const c_char) -> c_int {
    // SAFETY: by contract, `name` is null or a string.
    let name = || unsafe { required("cs_invalidate", "name", name) };
    code(|| name().map(|name| lock().invalidate(name)))
}

/// Implements `cs_record` of the header.
///
/// # Safety
///
/// `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_record(path: *const c_char) -> c_int {
    code(|| {
        // SAFETY: by contract, `path` is null or a string.
        lock().record(unsafe { required("cs_record", "path", path) }?.into())
    })
}

/// Implements `cs_record_end` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cs_record_end() -> c_int {
    code(|| lock().record_end())
}

/// Implements `cs_last_error` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cs_last_error() -> *const c_char {
    failure::last_error()
}

/// Allocates device memory for the cache `name`. By default, uses the cache with the innermost open
/// entry.
fn device_malloc(name: Option<&str>, bytes: usize, device: c_int, stream: usize) -> *mut c_void {
    let allocate = || {
        if bytes == 0 {
            return Ok(ptr::null_mut());
        }
        let address = lock().allocate_on_gpu(name, bytes, device, stream)?;
        Ok(ptr::without_provenance_mut(address as usize))
    };
    pointer(allocate)
}

/// Frees device memory. Work on `stream`, if given, may still use the memory.
fn device_free(block: *mut c_void, stream: Option<usize>) {
    code(|| match block.addr() {
        0 => Ok(()),
        address => lock().free_on_gpu(address as u64, stream),
    });
}

/// Implements `cs_torch_malloc` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cs_torch_malloc(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    match usize::try_from(bytes) {
        Ok(bytes) => device_malloc(None, bytes, device, stream.addr()),
        Err(_) => pointer(|| {
            let text = format!("cs_torch_malloc: bytes is {bytes}, expected at least 0");
            Err(Failure::new(Code::Argument, text))
        }),
    }
}

/// Implements `cs_torch_free` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cs_torch_free(
    block: *mut c_void,
    _bytes: isize,
    _device: c_int,
    stream: *mut c_void,
) {
    device_free(block, Some(stream.addr()));
}

/// Implements `cs_torch_record_stream` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cs_torch_record_stream(block: *mut c_void, stream: *mut c_void) {
    code(|| lock().use_on_gpu(block.addr() as u64, stream.addr()));
}

/// Implements `cs_cupy_malloc` of the header.
///
/// # Safety
///
/// `param` is null or was returned by [`cs_cache_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cs_cupy_malloc(
    param: *mut c_void,
    bytes: usize,
    device: c_int,
) -> *mut c_void {
    // SAFETY: by contract, `param` is null or a cache. Caches are never freed.
    let cache = unsafe { param.cast::<Cache>().as_ref() };
    device_malloc(cache.map(Cache::name), bytes, device, 0)
}

/// Implements `cs_cupy_free` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn cs_cupy_free(_param: *mut c_void, block: *mut c_void, _device: c_int) {
    device_free(block, None);
}
