//! The compared allocators, each as a pair of functions: allocate and free.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Mutex;

use offset_allocator::{Allocation, Allocator};

/// An allocator as a pair of functions.
pub trait Pair {
    /// A live block. Only the allocator that allocated the block may free it.
    type Block;

    fn allocate(&mut self, bytes: usize) -> Self::Block;
    fn free(&mut self, block: Self::Block);
}

/// A live block of a C allocator `P`.
#[derive(Debug)]
pub struct Raw<P>(*mut c_void, PhantomData<P>);

impl<P> Raw<P> {
    pub fn address(&self) -> *mut u8 {
        self.0.cast()
    }
}

/// Implements [`Pair`] by a `malloc` and a `free` of the C ABI.
macro_rules! c_pair {
    ($(#[$doc:meta])* $name:ident, $malloc:path, $free:path) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Pair for $name {
            type Block = Raw<Self>;

            #[inline]
            fn allocate(&mut self, bytes: usize) -> Raw<Self> {
                // SAFETY: `malloc` accepts any size.
                Raw(unsafe { $malloc(bytes) }, PhantomData)
            }

            #[inline]
            fn free(&mut self, block: Raw<Self>) {
                // SAFETY: only `allocate` creates a `Raw` of this type, and `free` consumes it.
                unsafe { $free(block.0) }
            }
        }
    };
}

c_pair!(
    /// The allocator of the C library.
    Glibc, libc::malloc, libc::free
);
c_pair!(
    /// jemalloc, with prefixed functions.
    Jemalloc, tikv_jemalloc_sys::malloc, tikv_jemalloc_sys::free
);
c_pair!(
    /// mimalloc.
    Mimalloc, libmimalloc_sys::mi_malloc, libmimalloc_sys::mi_free
);

/// The crate offset-allocator, for 4 GiB in units of 256 bytes.
pub struct Offsets(Allocator);

/// The allocation unit, which is the smallest size that the benchmarks request.
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

/// The cache of dfdx: a locked map from sizes to free blocks. This map is faster than dfdx itself,
/// which locks three times per request. When the vector of a size becomes empty, dfdx also drops
/// it.
#[derive(Debug, Default)]
pub struct LockedMap(Mutex<BTreeMap<usize, Vec<usize>>>);

/// A block of [`LockedMap`]. Its address is unused, because the benchmark times only the
/// bookkeeping.
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

/// The allocation and the drop of a `Buffer` in the caller's scope.
#[derive(Debug)]
pub struct Buffers(pub cachescope::Device);

impl Pair for Buffers {
    type Block = cachescope::Buffer;

    // The function is always inlined. Otherwise, the buffer would be returned through memory, and
    // the measured time would be 7 ns longer.

    #[inline(always)]
    fn allocate(&mut self, bytes: usize) -> cachescope::Buffer {
        cachescope::Buffer::new(&self.0, bytes).expect("the host has room")
    }

    #[inline(always)]
    fn free(&mut self, block: cachescope::Buffer) {
        drop(block);
    }
}
