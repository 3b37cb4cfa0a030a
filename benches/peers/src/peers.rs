//! The other allocators, each behind the two calls that are compared.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Mutex;

use offset_allocator::{Allocation, Allocator};

/// An allocator seen as a pair of calls.
pub trait Pair {
    /// A live block; the same allocator frees it.
    type Block;

    fn allocate(&mut self, bytes: usize) -> Self::Block;
    fn free(&mut self, block: Self::Block);
}

/// A live block of a C allocator `P`.
#[derive(Debug)]
pub struct Raw<P>(*mut c_void, PhantomData<P>);

impl<P> Raw<P> {
    /// Returns the address of the first byte.
    pub fn address(&self) -> *mut u8 {
        self.0.cast()
    }
}

/// `malloc` and `free` under three names, called through the C ABI as Rust calls them.
macro_rules! c_pair {
    ($(#[$doc:meta])* $name:ident, $malloc:path, $free:path) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Pair for $name {
            type Block = Raw<Self>;

            #[inline]
            fn allocate(&mut self, bytes: usize) -> Raw<Self> {
                // SAFETY: the function accepts any size.
                Raw(unsafe { $malloc(bytes) }, PhantomData)
            }

            #[inline]
            fn free(&mut self, block: Raw<Self>) {
                // SAFETY: only `allocate` makes a `Raw` of this type, and this consumes it.
                unsafe { $free(block.0) }
            }
        }
    };
}

c_pair!(
    /// The C library's.
    Glibc, libc::malloc, libc::free
);
c_pair!(
    /// jemalloc, under its prefixed names.
    Jemalloc, tikv_jemalloc_sys::malloc, tikv_jemalloc_sys::free
);
c_pair!(
    /// mimalloc.
    Mimalloc, libmimalloc_sys::mi_malloc, libmimalloc_sys::mi_free
);

/// offset-allocator over 4 GiB, in units of 256 bytes.
pub struct Offsets(Allocator);

/// One unit: the smallest size that the benchmarks ask for.
const UNIT_BYTES: usize = 256;

impl Default for Offsets {
    fn default() -> Self {
        Self(Allocator::new(((4usize << 30) / UNIT_BYTES) as u32))
    }
}

impl Pair for Offsets {
    type Block = Allocation;

    #[inline]
    fn allocate(&mut self, bytes: usize) -> Allocation {
        let units = bytes.div_ceil(UNIT_BYTES) as u32;
        self.0.allocate(units).expect("4 GiB suffice")
    }

    #[inline]
    fn free(&mut self, block: Allocation) {
        self.0.free(block);
    }
}

/// The cache of dfdx: free blocks by size, in a map behind a lock. Kinder than its model, which
/// locks three times a request and drops a size's vector whenever it empties.
#[derive(Debug, Default)]
pub struct LockedMap(Mutex<BTreeMap<usize, Vec<usize>>>);

/// A block of [`LockedMap`]: an address of nothing, since only the book-keeping is timed.
#[derive(Debug)]
pub struct Mapped {
    bytes: usize,
    address: usize,
}

impl LockedMap {
    pub fn allocate(&self, bytes: usize) -> Mapped {
        let mut free = self.0.lock().expect("nobody panics holding it");
        let address = free.get_mut(&bytes).and_then(Vec::pop).unwrap_or(bytes);
        Mapped { bytes, address }
    }

    pub fn free(&self, block: Mapped) {
        let mut free = self.0.lock().expect("nobody panics holding it");
        free.entry(block.bytes).or_default().push(block.address);
    }
}

impl Pair for &LockedMap {
    type Block = Mapped;

    #[inline]
    fn allocate(&mut self, bytes: usize) -> Mapped {
        LockedMap::allocate(self, bytes)
    }

    #[inline]
    fn free(&mut self, block: Mapped) {
        LockedMap::free(self, block);
    }
}

/// `Buffer::new` and its drop, served by whatever scope the caller is in.
#[derive(Debug)]
pub struct Buffers(pub cachescope::Device);

impl Pair for Buffers {
    type Block = cachescope::Buffer;

    // Always: a buffer that is returned through memory and copied from there takes 7 ns more, which
    // is not what is measured.

    #[inline(always)]
    fn allocate(&mut self, bytes: usize) -> cachescope::Buffer {
        cachescope::Buffer::new(&self.0, bytes).expect("the host has room")
    }

    #[inline(always)]
    fn free(&mut self, block: cachescope::Buffer) {
        drop(block);
    }
}
