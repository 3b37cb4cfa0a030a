//! `malloc`, `calloc`, `realloc` and `free` with the signatures of NEP 49.
//!
//! The 16 bytes before a block store its owner and its size. NumPy passes a size and a handler to
//! `free`. The size may differ from the requested size, and the cache of the handler may not own
//! the block. So `free` ignores the size and the handler. A table of owners, keyed by address,
//! would require a lock. The alignment of a block leaves space for the 16 bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::ptr;

use cachescope_memory::internal::cache::SharedBlock;
use cachescope_memory::internal::device::StreamId;

use crate::caches::{Cache, lock};
use crate::failure::{Code, Failure, Outcome, code, pointer};
use crate::opened;

/// The alignment of all blocks, equal to a cache line and to the widest vector.
const ALIGNMENT: usize = 64;
/// The offset of a block in its allocation from a cache: the prefix, padded to the alignment.
const PREFIX_BYTES: usize = ALIGNMENT;
/// The minimum size of a request that a cache serves. The C library serves smaller requests,
/// because page faults are not their main cost.
const LEAST_CACHED_BYTES: usize = 1024;
/// The alignment that the fast path of the C library supports.
const SYSTEM_ALIGNMENT: usize = 16;
/// The additional bytes in the allocation of a small block, for the prefix and the alignment.
const SMALL_EXTRA_BYTES: usize = size_of::<Prefix>() + ALIGNMENT - SYSTEM_ALIGNMENT;

/// The header of a block, stored directly before the block: its owner and its size.
#[repr(C)]
#[derive(Clone, Copy)]
struct Prefix {
    /// The address of a [`SharedBlock`], which is even. For a block of the C library: twice the
    /// offset of the block in its allocation, plus 1.
    owner: usize,
    /// The requested bytes.
    bytes: usize,
}

enum Owner {
    System { begin: *mut u8, layout: Layout },
    Cache(*mut ()),
}

fn out_of_range(bytes: usize) -> Failure {
    let text = format!("cs_malloc: {bytes} bytes exceed the address space");
    Failure::new(Code::Memory, text)
}

/// Writes the prefix of a block.
///
/// # Safety
///
/// `block` is aligned, and the bytes of a [`Prefix`] before it are writable.
#[inline]
unsafe fn write_prefix(block: *mut u8, owner: usize, bytes: usize) {
    // SAFETY: by contract, the bytes before `block` are writable and aligned.
    unsafe { block.cast::<Prefix>().sub(1).write(Prefix { owner, bytes }) };
}

/// Returns the prefix of a block.
///
/// # Safety
///
/// `block` is a live block of this module.
#[inline]
unsafe fn prefix(block: *mut u8) -> Prefix {
    // SAFETY: each block of this module was created with a prefix.
    unsafe { block.cast::<Prefix>().sub(1).read() }
}

/// Returns the owner of a block.
///
/// # Safety
///
/// `block` is a live block of this module.
#[inline]
unsafe fn owner(block: *mut u8) -> Owner {
    // SAFETY: by contract, `block` is a live block of this module.
    let Prefix { owner, bytes } = unsafe { prefix(block) };
    if owner & 1 == 0 {
        return Owner::Cache(ptr::with_exposed_provenance_mut(owner));
    }
    Owner::System {
        // SAFETY: `allocate_small` stored the offset of the block in its allocation.
        begin: unsafe { block.sub(owner >> 1) },
        layout: small_layout(bytes),
    }
}

#[inline]
fn small_layout(bytes: usize) -> Layout {
    let bytes = bytes + SMALL_EXTRA_BYTES;
    // SAFETY: the alignment is a power of two, and a small size cannot overflow.
    unsafe { Layout::from_size_align_unchecked(bytes, SYSTEM_ALIGNMENT) }
}

/// Allocates a block with the C library. If the C library is out of memory, returns null.
#[inline]
fn allocate_small(bytes: usize, zeroed: bool) -> *mut u8 {
    let layout = small_layout(bytes);
    // SAFETY: the layout is not empty.
    let begin = unsafe {
        if zeroed {
            System.alloc_zeroed(layout)
        } else {
            System.alloc(layout)
        }
    };
    if begin.is_null() {
        return begin;
    }
    let first = begin.addr() + size_of::<Prefix>();
    let offset = first.next_multiple_of(ALIGNMENT) - begin.addr();
    // SAFETY: `SMALL_EXTRA_BYTES` includes the prefix and the alignment.
    unsafe {
        let block = begin.add(offset);
        write_prefix(block, offset << 1 | 1, bytes);
        block
    }
}

/// Converts an allocation of the cache to a block.
#[inline]
fn finish(allocation: SharedBlock, bytes: usize) -> *mut u8 {
    let begin: *mut u8 = ptr::with_exposed_provenance_mut(allocation.address() as usize);
    let owner = allocation.into_raw().expose_provenance();
    // SAFETY: the allocation has `PREFIX_BYTES` more bytes than `bytes`, and this function is its
    // only user. The allocation is aligned to more than `ALIGNMENT`.
    unsafe {
        let block = begin.add(PREFIX_BYTES);
        write_prefix(block, owner, bytes);
        block
    }
}

/// Returns an idle block of the cache, or `None` on a miss.
#[inline]
fn hit(cache: &Cache, bytes: usize) -> Option<*mut u8> {
    let whole = bytes.checked_add(PREFIX_BYTES)?;
    let allocation = cache.host.hit(whole as u64, StreamId::default())?;
    Some(finish(allocation, bytes))
}

/// Returns a block, and true if an idle block of the cache served the request.
#[track_caller]
fn allocate_slowly(cache: &Cache, bytes: usize) -> Outcome<(*mut u8, bool)> {
    let whole = bytes.checked_add(PREFIX_BYTES);
    let whole = whole.ok_or_else(|| out_of_range(bytes))?;
    let call_site = Location::caller();
    let _state = lock();
    let host = &cache.host;
    let (allocation, is_hit) = host.allocate(whole as u64, StreamId::default(), call_site)?;
    Ok((finish(allocation, bytes), is_hit))
}

/// Returns a small block. On failure, records the error and returns null.
fn small(bytes: usize, zeroed: bool) -> *mut u8 {
    let block = allocate_small(bytes, zeroed);
    if block.is_null() {
        let text = format!("cs_malloc: the C library has no memory for {bytes} bytes");
        return pointer(|| Err(Failure::new(Code::Memory, text)));
    }
    block
}

/// Implements `cs_malloc` of the header.
#[inline]
pub(crate) fn malloc(cache: *mut c_void, bytes: usize) -> *mut c_void {
    if bytes < LEAST_CACHED_BYTES {
        return small(bytes, false).cast();
    }
    // SAFETY: by the header's contract, `cache` is null or was returned by `cs_cache_open`. Caches
    // are never freed.
    let hit = unsafe { cache.cast::<Cache>().as_ref() }.and_then(|cache| hit(cache, bytes));
    match hit {
        Some(block) => block.cast(),
        None => malloc_slowly(cache, bytes),
    }
}

#[cold]
#[inline(never)]
fn malloc_slowly(cache: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: by the header's contract, `cache` is null or was returned by `cs_cache_open`.
    let cache = || unsafe { opened("cs_malloc", cache) };
    pointer(|| Ok(allocate_slowly(cache()?, bytes)?.0.cast()))
}

/// Implements `cs_calloc` of the header.
pub(crate) fn calloc(cache: *mut c_void, count: usize, each: usize) -> *mut c_void {
    let zeroed = || {
        let bytes = count.checked_mul(each);
        let bytes = bytes.ok_or_else(|| out_of_range(usize::MAX))?;
        if bytes < LEAST_CACHED_BYTES {
            return Ok(small(bytes, true));
        }
        // SAFETY: by the header's contract, `cache` is null or was returned by `cs_cache_open`.
        let cache = unsafe { opened("cs_malloc", cache) }?;
        let (block, is_hit) = match hit(cache, bytes) {
            Some(block) => (block, true),
            None => allocate_slowly(cache, bytes)?,
        };
        // SAFETY: the block is new, and has `bytes` bytes.
        unsafe {
            if is_hit {
                block.write_bytes(0, bytes);
            } else {
                zero_new(block, bytes);
            }
        }
        Ok(block)
    };
    pointer(zeroed).cast()
}

/// Sets all bytes of a newly allocated block to 0. Most pages of the block are new to the process,
/// and writing zeros would make the kernel allocate them. Therefore whole pages are replaced by the
/// kernel's zero pages. A zero page costs nothing until it is written.
///
/// # Safety
///
/// The `bytes` bytes at `block` are writable private memory of the process.
unsafe fn zero_new(block: *mut u8, bytes: usize) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // SAFETY: the call only reads a constant of the system.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let first = block.addr().next_multiple_of(page) - block.addr();
        let end = (block.addr() + bytes) / page * page;
        let whole = end.saturating_sub(block.addr() + first);
        // SAFETY: the pages are inside of the block.
        let replaced = whole > 0
            && unsafe { libc::madvise(block.add(first).cast(), whole, libc::MADV_DONTNEED) } == 0;
        if replaced {
            // SAFETY: the bytes before and after the pages are inside of the block.
            unsafe {
                block.write_bytes(0, first);
                block
                    .add(first + whole)
                    .write_bytes(0, bytes - first - whole);
            }
            return;
        }
    }
    // SAFETY: by contract, the `bytes` bytes are writable.
    unsafe { block.write_bytes(0, bytes) };
}

/// Implements `cs_realloc` of the header.
///
/// # Safety
///
/// `block` is null or a live block of this module.
pub(crate) unsafe fn realloc(cache: *mut c_void, block: *mut c_void, bytes: usize) -> *mut c_void {
    let old: *mut u8 = block.cast();
    if old.is_null() {
        return malloc(cache, bytes);
    }
    // SAFETY: `block` is a live block of this module, because it is not null.
    let before = unsafe { prefix(old) };
    // SAFETY: `block` is a live block of this module, because it is not null.
    if let Owner::Cache(raw) = unsafe { owner(old) } {
        // SAFETY: the block owns the allocation, and `ManuallyDrop` prevents a drop here.
        let allocation = ManuallyDrop::new(unsafe { SharedBlock::from_raw(raw) });
        let room = allocation.size_bytes() as usize - PREFIX_BYTES;
        if bytes >= LEAST_CACHED_BYTES && bytes <= room && bytes >= room / 2 {
            // SAFETY: the block already has a prefix at this address.
            unsafe { write_prefix(old, before.owner, bytes) };
            return block;
        }
    }
    let new = malloc(cache, bytes);
    if !new.is_null() {
        // SAFETY: both blocks have the copied bytes, and the new block overlaps no other block.
        unsafe {
            ptr::copy_nonoverlapping(old, new.cast(), before.bytes.min(bytes));
            free(block);
        }
    }
    new
}

/// Returns the requested bytes of a block.
///
/// # Safety
///
/// `block` is a live block of this module.
pub(crate) unsafe fn size_bytes(block: *mut c_void) -> usize {
    // SAFETY: by contract, `block` is a live block of this module.
    unsafe { prefix(block.cast()) }.bytes
}

/// Implements `cs_free` of the header.
///
/// # Safety
///
/// `block` is null or a live block of this module.
#[inline]
pub(crate) unsafe fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: `block` is a live block of this module, because it is not null.
    match unsafe { owner(block.cast()) } {
        // SAFETY: the allocation was created with an equal layout.
        Owner::System { begin, layout } => unsafe { System.dealloc(begin, layout) },
        Owner::Cache(raw) => {
            // SAFETY: the block owned the allocation, and is not used any more.
            if let Some(busy) = unsafe { SharedBlock::from_raw(raw) }.free() {
                free_slowly(busy);
            }
        }
    }
}

#[cold]
#[inline(never)]
fn free_slowly(block: SharedBlock) {
    code(|| {
        let _state = lock();
        drop(block);
        Ok(())
    });
}
