//! Tests that device memory is limited, and that freed memory is unusable.

use std::ptr::null_mut;

use cudarc::driver::sys;

use crate::rules::device::{Code, Device, ok};

const MIB: usize = 1 << 20;

#[test]
fn memory_has_an_end() {
    let device = Device::new();
    let first = device.memory(10 * MIB);
    let mut address = 0;
    // SAFETY: `address`, `free` and `total` are writable.
    unsafe {
        let refused = sys::cuMemAlloc_v2(&raw mut address, 7 * MIB);
        assert_eq!(refused, Code::CUDA_ERROR_OUT_OF_MEMORY);
        let (mut free, mut total) = (0, 0);
        ok(sys::cuMemGetInfo_v2(&raw mut free, &raw mut total));
        assert_eq!((free, total), (6 * MIB, 16 * MIB));
        ok(sys::cuMemFree_v2(first));
        ok(sys::cuMemAlloc_v2(&raw mut address, 16 * MIB));
        assert_ne!(address, first);
    }
}

#[test]
fn freed_memory_is_no_memory() {
    let device = Device::new();
    let (stream, memory) = (device.stream(), device.memory(4096));
    let kernel = device.kernel("extern \"C\" __global__ void kernel(int* a) { a[0] = 1; }");
    let other = device.memory(4096);
    let before = device.control.complaints();
    // SAFETY: the emulator reports misuses instead of executing them.
    unsafe {
        ok(sys::cuMemFree_v2(memory));
        let again = sys::cuMemFree_v2(memory);
        assert_eq!(again, Code::CUDA_ERROR_INVALID_VALUE);
        let filled = sys::cuMemsetD8Async(memory, 0, 10, stream);
        assert_eq!(filled, Code::CUDA_ERROR_INVALID_VALUE);
        let beyond = sys::cuMemsetD8Async(other, 0, 4097, stream);
        assert_eq!(beyond, Code::CUDA_ERROR_INVALID_VALUE);
    }
    assert_eq!(device.control.complaints(), before + 3);
    // The launch succeeds. The wait and all later calls return the error.
    ok(device.launch(kernel, [1, 1, 0], &[memory], stream));
    assert_eq!(device.synchronize(stream), Code::CUDA_ERROR_ILLEGAL_ADDRESS);
    let launched = device.launch(kernel, [1, 1, 0], &[other], stream);
    assert_eq!(launched, Code::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(device.control.last_complaint().contains("kernel"));
}

#[test]
fn freeing_waits_for_work_and_freeing_pinned_memory_does_not() {
    let device = Device::new();
    let stream = device.stream();
    let (a, b) = (device.memory(4096), device.memory(4096));
    device.fill(a, 7, 1024, stream);
    device.copy(b, a, 1024, stream);
    // SAFETY: `a` is an allocation of the emulator, and is freed once.
    unsafe { ok(sys::cuMemFree_v2(a)) };
    assert_eq!(device.control.report().pending, 0);
    assert_eq!(device.words(b, 1024, stream), [7; 1024]);
    let mut pinned = null_mut();
    // SAFETY: only the emulator reads the memory after the free, and reports the read.
    unsafe {
        ok(sys::cuMemHostAlloc(&raw mut pinned, 4096, 0));
        ok(sys::cuMemcpyHtoDAsync_v2(b, pinned, 4096, stream));
        ok(sys::cuMemFreeHost(pinned));
    }
    assert_eq!(device.synchronize(stream), Code::CUDA_ERROR_ILLEGAL_ADDRESS);
}

fn on_device(ordinal: i32) -> sys::CUmemLocation {
    // SAFETY: the structure is plain data, for which zeros are valid.
    let mut location: sys::CUmemLocation = unsafe { std::mem::zeroed() };
    location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = ordinal;
    location
}

#[test]
fn mapped_pages_can_be_used_while_they_are_mapped_and_accessible() {
    let device = Device::new();
    let stream = device.stream();
    let page = 2 * MIB;
    // SAFETY: the structures are plain data, for which zeros are valid. All pointers refer to local
    // variables.
    unsafe {
        let mut properties: sys::CUmemAllocationProp = std::mem::zeroed();
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = on_device(device.ordinal);
        let (mut range, mut handle) = (0, 0);
        ok(sys::cuMemAddressReserve(&raw mut range, 4 * page, 0, 0, 0));
        let odd = sys::cuMemCreate(&raw mut handle, page + 4096, &raw const properties, 0);
        assert_eq!(odd, Code::CUDA_ERROR_INVALID_VALUE);
        let more = sys::cuMemCreate(&raw mut handle, 9 * page, &raw const properties, 0);
        assert_eq!(more, Code::CUDA_ERROR_OUT_OF_MEMORY);
        ok(sys::cuMemCreate(
            &raw mut handle,
            page,
            &raw const properties,
            0,
        ));
        ok(sys::cuMemMap(range + page as u64, page, 0, handle, 0));
        let early = sys::cuMemsetD32Async(range + page as u64, 7, 1, stream);
        assert_eq!(early, Code::CUDA_ERROR_INVALID_VALUE);
        let access = sys::CUmemAccessDesc {
            location: properties.location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        ok(sys::cuMemSetAccess(
            range + page as u64,
            page,
            &raw const access,
            1,
        ));
        device.fill(range + page as u64, 7, page / 4, stream);
        assert_eq!(device.words(range + page as u64, 2, stream), [7; 2]);
        let beside = sys::cuMemsetD32Async(range, 7, 1, stream);
        assert_eq!(beside, Code::CUDA_ERROR_INVALID_VALUE);

        // A page lives as long as its handle or one of its mappings.
        ok(sys::cuMemRelease(handle));
        assert_eq!((device.control.report().physical, device.used()), (1, page));
        let kept = sys::cuMemAddressFree(range, 4 * page);
        assert_eq!(kept, Code::CUDA_ERROR_INVALID_VALUE);
        device.fill(range + page as u64, 9, 1, stream);
        ok(sys::cuMemUnmap(range + page as u64, page));
        assert_eq!((device.control.report().physical, device.used()), (0, 0));
        ok(sys::cuMemAddressFree(range, 4 * page));
        // The memory was unmapped before the fill ran, because no call waited for the fill.
        assert_eq!(device.synchronize(stream), Code::CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

#[test]
fn a_pool_frees_in_stream_order() {
    let device = Device::new();
    let (a, b) = (device.stream(), device.stream());
    // SAFETY: the structures are plain data, for which zeros are valid. All pointers refer to local
    // variables.
    unsafe {
        let mut properties: sys::CUmemPoolProps = std::mem::zeroed();
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = on_device(device.ordinal);
        let mut pool = null_mut();
        ok(sys::cuMemPoolCreate(&raw mut pool, &raw const properties));
        let mut keep = u64::MAX;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        ok(sys::cuMemPoolSetAttribute(
            pool,
            threshold,
            (&raw mut keep).cast(),
        ));
        let take = |bytes: usize, stream| {
            let mut address = 0;
            ok(sys::cuMemAllocFromPoolAsync(
                &raw mut address,
                bytes,
                pool,
                stream,
            ));
            address
        };
        let first = take(MIB, a);
        device.fill(first, 7, 4, a);
        ok(sys::cuMemFreeAsync(first, a));
        let twice = sys::cuMemFreeAsync(first, a);
        assert_eq!(twice, Code::CUDA_ERROR_INVALID_VALUE);
        // While the free of a block is pending on stream `a`, stream `b` must not reuse the block.
        // Stream `a` may reuse it.
        let other = take(MIB, b);
        assert_ne!(other, first);
        assert_eq!(take(MIB, a), first);
        assert_eq!(device.used(), 2 * MIB);
        // Freed memory loses its contents.
        assert_eq!(device.words(first, 4, a), [0xDDDD_DDDD; 4]);
        ok(sys::cuMemFreeAsync(first, a));
        ok(sys::cuMemFreeAsync(other, b));
        ok(device.synchronize(a));
        ok(device.synchronize(b));
        assert_eq!(device.used(), 2 * MIB);
        ok(sys::cuMemPoolTrimTo(pool, MIB));
        assert_eq!(device.used(), MIB);
        ok(sys::cuMemPoolDestroy(pool));
        assert_eq!((device.used(), device.control.report().pools), (0, 0));
    }
}
