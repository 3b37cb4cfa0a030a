// Device memory, which is host memory of a set capacity; pinned memory; copies and fills.
#include "emulator.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace {

// Half of a process's addresses: each range of the library takes twice its device's memory of them.
constexpr Size ARENA = Size(1) << 46;
// What stands between two allocations: touching it is a fault.
constexpr Size GUARD = 64u << 10;
constexpr Size MOST_FILLED = 1u << 20;

Size round_up(Size bytes, Size to) {
    return (bytes + to - 1) / to * to;
}

}  // namespace

static unsigned char* base = nullptr;

void arena_bounds(unsigned long long& begin, unsigned long long& end) {
    begin = (unsigned long long)base;
    end = begin + ARENA;
}

bool in_arena(const void* address) {
    return base && (unsigned char*)address >= base && (unsigned char*)address < base + ARENA;
}

void* arena_take(Size bytes) {
    static Size taken = 0;
    if (!base) {
        void* p = mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return nullptr;
        base = (unsigned char*)round_up((Size)p, PAGE);
    }
    Size span = round_up(bytes + GUARD, PAGE);
    if (span < bytes || span > ARENA - PAGE - taken) {
        static const int told = fprintf(stderr, "cuda-emulator: no addresses are left that were never used\n");
        (void)told;
        return nullptr;
    }
    void* address = base + taken;
    taken += span;
    return address;
}

void make_accessible(void* address, Size bytes) {
    mprotect(address, round_up(bytes, 4096), PROT_READ | PROT_WRITE);
}

void make_absent(void* address, Size bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    mmap(address, round_up(bytes, 4096), PROT_NONE, flags, -1, 0);
}

namespace {

int opened = 0;
pthread_t opener;
// What can be touched until the last `Opened` ends.
std::vector<std::pair<void*, Size>> visible;

bool is_guarded() {
    static const bool guarded = setting("CACHESCOPE_EMULATOR_GUARD", 0) != 0;
    return guarded;
}

bool is_of_device(const Region& region) {
    return region.kind == Region::ALLOCATED || region.kind == Region::POOLED ||
           (region.kind == Region::MAPPED && region.accessible);
}

}  // namespace

Opened::Opened() {
    if (opened++ == 0) opener = pthread_self();
}

Opened::~Opened() {
    if (--opened > 0) return;
    for (auto& [address, bytes] : visible) mprotect(address, bytes, PROT_NONE);
    visible.clear();
}

Closed::Closed() : depth(opened) {
    opened = 0;
    for (auto& [address, bytes] : visible) mprotect(address, bytes, PROT_NONE);
    visible.clear();
}

Closed::~Closed() {
    opened = depth;
    opener = pthread_self();
}

// Opens only what is touched, because to open and close all memory around each call takes longer than the call. Runs in the
// handler of a fault: kernels and copies touch memory, and neither allocates.
bool open_for_device(void* address) {
    if (opened == 0 || !is_guarded() || !pthread_equal(pthread_self(), opener)) return false;
    constexpr Size WINDOW = 64u << 10;
    auto& regions = driver().regions;
    auto next = regions.upper_bound((CUdeviceptr)address);
    if (next == regions.begin()) return false;
    auto& [start, region] = *std::prev(next);
    Size end = start + round_up(region.bytes, 4096);
    if ((Size)address >= end || !is_of_device(region)) return false;
    Size first = (Size)address / WINDOW * WINDOW;
    Size from = std::max<Size>(first, start), to = std::min<Size>(first + WINDOW, end);
    if (mprotect((void*)from, to - from, PROT_READ | PROT_WRITE) != 0) return false;
    visible.emplace_back((void*)from, to - from);
    return true;
}

void hide_from_host(void* address, Size bytes) {
    if (!is_guarded()) return;
    bytes = round_up(bytes, 4096);
    if (opened == 0) mprotect(address, bytes, PROT_NONE);
    else visible.emplace_back(address, bytes);
}

bool take_capacity(Device& device, Size bytes) {
    if (bytes > device.capacity - device.used) return false;
    device.used += bytes;
    return true;
}

bool covered(CUdeviceptr address, Size bytes) {
    auto& regions = driver().regions;
    CUdeviceptr end = address + bytes;
    // Pages mapped side by side are one range.
    while (address < end) {
        auto next = regions.upper_bound(address);
        if (next == regions.begin()) return false;
        auto& [start, region] = *std::prev(next);
        if (!region.accessible || address >= start + region.bytes) return false;
        address = start + region.bytes;
    }
    return true;
}

bool is_pinned(const void* address, Size bytes) {
    auto next = driver().regions.upper_bound((CUdeviceptr)address);
    if (next == driver().regions.begin()) return false;
    auto& [start, region] = *std::prev(next);
    return region.kind == Region::HOST && (CUdeviceptr)address + bytes <= start + region.bytes;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, Size bytes) {
    BEGIN_IN_CONTEXT(cuMemAlloc_v2);
    TRY(unsafe_in_capture());
    if (bytes == 0) return INVALID_VALUE;
    Device& device = *context->device;
    // What a driver hands out is cut from larger pages; nobody may rely on their rest.
    if (bytes > device.capacity || !take_capacity(device, round_up(bytes, 512))) return OUT_OF_MEMORY;
    charge_size("cuMemAlloc", bytes);
    void* fresh = arena_take(bytes);
    if (!fresh) return OUT_OF_MEMORY;
    make_accessible(fresh, bytes);
    memset(fresh, 0xA5, std::min(bytes, MOST_FILLED));
    hide_from_host(fresh, bytes);
    *address = (CUdeviceptr)fresh;
    driver().regions[*address] = {Region::ALLOCATED, bytes, &device, true};
    return SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    BEGIN_IN_CONTEXT(cuMemFree_v2);
    if (!address) return SUCCESS;
    TRY(unsafe_in_capture());
    auto found = driver().regions.find(address);
    if (found == driver().regions.end() || found->second.kind != Region::ALLOCATED) {
        complain("cuMemFree of %#llx, which is no allocation, or no longer", address);
        return INVALID_VALUE;
    }
    complain_of_registered("cuMemFree", address, found->second.bytes);
    TRY(wait_for_all(*context));
    Region region = found->second;
    charge_size("cuMemFree", region.bytes);
    make_absent((void*)address, region.bytes);
    region.device->used -= round_up(region.bytes, 512);
    driver().regions.erase(found);
    return SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(Size* free_bytes, Size* total) {
    BEGIN_IN_CONTEXT(cuMemGetInfo_v2);
    *free_bytes = context->device->capacity - context->device->used;
    *total = context->device->capacity;
    return SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, Size* bytes, CUdeviceptr address) {
    BEGIN_IN_CONTEXT(cuMemGetAddressRange_v2);
    auto next = driver().regions.upper_bound(address);
    if (next == driver().regions.begin()) return NOT_FOUND;
    auto& [start, region] = *std::prev(next);
    if (address >= start + region.bytes) return NOT_FOUND;
    if (base) *base = start;
    if (bytes) *bytes = region.bytes;
    return SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
    BEGIN_IN_CONTEXT(cuPointerGetAttribute);
    auto next = driver().regions.upper_bound(address);
    if (next == driver().regions.begin()) return INVALID_VALUE;
    auto& [start, region] = *std::prev(next);
    if (address >= start + region.bytes) return INVALID_VALUE;
    switch (attribute) {
        case 1: *(Context**)data = region.device->context.get(); return SUCCESS;
        case 2: *(unsigned*)data = region.kind == Region::HOST ? 1 : 2; return SUCCESS;
        case 3: *(CUdeviceptr*)data = address; return SUCCESS;
        case 9: *(int*)data = region.device->ordinal; return SUCCESS;
        default: return NOT_SUPPORTED;
    }
}

EXPORT CUresult cuMemHostAlloc(void** address, Size bytes, unsigned) {
    BEGIN_IN_CONTEXT(cuMemHostAlloc);
    TRY(unsafe_in_capture());
    if (bytes == 0) return INVALID_VALUE;
    charge_size("cuMemHostAlloc", bytes);
    static const Size most = setting("CACHESCOPE_EMULATOR_HOST_MEMORY", Size(1) << 40);
    void* fresh = bytes > most ? nullptr : arena_take(bytes);
    if (!fresh) return OUT_OF_MEMORY;
    make_accessible(fresh, bytes);
    memset(fresh, 0xA5, std::min(bytes, MOST_FILLED));
    *address = fresh;
    driver().regions[(CUdeviceptr)fresh] = {Region::HOST, bytes, context->device, true};
    return SUCCESS;
}

EXPORT CUresult cuMemAllocHost_v2(void** address, Size bytes) {
    return cuMemHostAlloc(address, bytes, 0);
}

// Work that still reads or writes the memory is a fault when it runs: nothing says that this waits.
EXPORT CUresult cuMemFreeHost(void* address) {
    BEGIN_IN_CONTEXT(cuMemFreeHost);
    TRY(unsafe_in_capture());
    auto found = driver().regions.find((CUdeviceptr)address);
    if (found == driver().regions.end() || found->second.kind != Region::HOST) {
        complain("cuMemFreeHost of %p, which is no allocation, or no longer", address);
        return INVALID_VALUE;
    }
    make_absent(address, found->second.bytes);
    driver().regions.erase(found);
    return SUCCESS;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned) {
    BEGIN_IN_CONTEXT(cuMemHostGetDevicePointer_v2);
    if (!is_pinned(host, 1)) return INVALID_VALUE;
    *device = (CUdeviceptr)host;
    return SUCCESS;
}

// What has to be memory of a device, or pinned, is; else says so.
static CUresult known(const char* call, CUdeviceptr address, Size bytes) {
    if (covered(address, bytes)) return SUCCESS;
    complain("%s: %zu bytes at %#llx are not, or no longer, all of the device", call, bytes, address);
    return INVALID_VALUE;
}

static Work copying(const char* kind, const void* source, void* target, Size bytes) {
    return [=] {
        work_moves(kind, bytes);
        return guarded("a copy", [&] { memmove(target, source, bytes); });
    };
}

static CUresult copy(const char* call, Stream* handle, CUdeviceptr source, CUdeviceptr target, Size bytes) {
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (bytes == 0) return SUCCESS;
    TRY(known(call, source, bytes));
    TRY(known(call, target, bytes));
    return submit(stream, copying("device:within", (void*)source, (void*)target, bytes));
}

static CUresult upload(const char* call, Stream* handle, CUdeviceptr target, const void* source, Size bytes) {
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (bytes == 0) return SUCCESS;
    TRY(known(call, target, bytes));
    if (is_pinned(source, bytes) || stream->capture)
        return submit(stream, copying("device:to-device", source, (void*)target, bytes));
    // Pageable memory is read before the call returns, and reaches the device in the stream's order.
    auto staged = std::make_shared<std::vector<unsigned char>>(
        (const unsigned char*)source, (const unsigned char*)source + bytes);
    return submit(stream, [=] {
        work_moves("device:to-device", bytes);
        return guarded("a copy", [&] { memcpy((void*)target, staged->data(), bytes); });
    });
}

static CUresult download(const char* call, Stream* handle, void* target, CUdeviceptr source, Size bytes) {
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (bytes == 0) return SUCCESS;
    TRY(known(call, source, bytes));
    TRY(submit(stream, copying("device:to-host", (void*)source, target, bytes)));
    // Into pageable memory, the call returns when the bytes are there.
    if (is_pinned(target, bytes) || stream->capture) return SUCCESS;
    return wait_for(stream->place());
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, Size bytes, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemcpyHtoDAsync_v2);
    return upload("cuMemcpyHtoDAsync", stream, target, source, bytes);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, Size bytes, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemcpyDtoHAsync_v2);
    return download("cuMemcpyDtoHAsync", stream, target, source, bytes);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, Size bytes, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemcpyDtoDAsync_v2);
    return copy("cuMemcpyDtoDAsync", stream, source, target, bytes);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, Size bytes, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemcpyAsync);
    return copy("cuMemcpyAsync", stream, source, target, bytes);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr target, Context*, CUdeviceptr source, Context*, Size bytes,
                                  Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemcpyPeerAsync);
    return copy("cuMemcpyPeerAsync", stream, source, target, bytes);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, Size bytes) {
    BEGIN_IN_CONTEXT(cuMemcpyHtoD_v2);
    TRY(unsafe_in_capture());
    TRY(upload("cuMemcpyHtoD", nullptr, target, source, bytes));
    return wait_for(context->legacy->place());
}

EXPORT CUresult cuMemcpyDtoH_v2(void* target, CUdeviceptr source, Size bytes) {
    BEGIN_IN_CONTEXT(cuMemcpyDtoH_v2);
    TRY(unsafe_in_capture());
    TRY(download("cuMemcpyDtoH", nullptr, target, source, bytes));
    return wait_for(context->legacy->place());
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, Size bytes) {
    BEGIN_IN_CONTEXT(cuMemcpyDtoD_v2);
    return copy("cuMemcpyDtoD", nullptr, source, target, bytes);
}

template <class T>
static CUresult fill(const char* call, Stream* handle, CUdeviceptr target, Size pitch, T value, Size width,
                     Size height) {
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (width == 0 || height == 0) return SUCCESS;
    if (target % sizeof(T) || (height > 1 && (pitch % sizeof(T) || pitch < width * sizeof(T)))) return INVALID_VALUE;
    for (Size row = 0; row < height; ++row) TRY(known(call, target + row * pitch, width * sizeof(T)));
    return submit(stream, [=] {
        work_moves("device:fill", width * height * sizeof(T));
        return guarded("a fill", [&] {
            for (Size row = 0; row < height; ++row) {
                T* start = (T*)(target + row * pitch);
                std::fill(start, start + width, value);
            }
        });
    });
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, Size count, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemsetD8Async);
    return fill("cuMemsetD8Async", stream, target, count, value, count, 1);
}

EXPORT CUresult cuMemsetD16Async(CUdeviceptr target, unsigned short value, Size count, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemsetD16Async);
    return fill("cuMemsetD16Async", stream, target, 2 * count, value, count, 1);
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, Size count, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemsetD32Async);
    return fill("cuMemsetD32Async", stream, target, 4 * count, value, count, 1);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, Size count) {
    BEGIN_IN_CONTEXT(cuMemsetD8_v2);
    return fill("cuMemsetD8", nullptr, target, count, value, count, 1);
}

EXPORT CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned value, Size count) {
    BEGIN_IN_CONTEXT(cuMemsetD32_v2);
    return fill("cuMemsetD32", nullptr, target, 4 * count, value, count, 1);
}

EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr target, Size pitch, unsigned char value, Size width, Size height,
                                  Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemsetD2D8Async);
    return fill("cuMemsetD2D8Async", stream, target, pitch, value, width, height);
}

EXPORT CUresult cuMemsetD2D16Async(CUdeviceptr target, Size pitch, unsigned short value, Size width, Size height,
                                   Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemsetD2D16Async);
    return fill("cuMemsetD2D16Async", stream, target, pitch, value, width, height);
}

EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr target, Size pitch, unsigned value, Size width, Size height,
                                   Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemsetD2D32Async);
    return fill("cuMemsetD2D32Async", stream, target, pitch, value, width, height);
}
