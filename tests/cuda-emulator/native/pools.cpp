// Stream-ordered memory: pools, which keep what is freed for the next request of its stream.
#include "emulator.hpp"

#include <algorithm>

// Free memory of a pool: of its stream from the moment of the free, of everybody once that has run.
struct Idle {
    CUdeviceptr address;
    Size bytes;
    Place freed;
};

struct Pool {
    Device* device;
    Size most = 0;
    bool by_default = false;
    unsigned long long threshold = 0;
    Size reserved = 0, used = 0, reserved_high = 0, used_high = 0;
    int reuse[4] = {0, 1, 1, 1};
    std::vector<Idle> idle;
};

namespace {

struct Properties {
    int type, handles, location_type, location_id;
    void* attributes;
    Size most;
    unsigned char rest[56];
};

struct Owned {
    std::shared_ptr<Pool> pool;
    bool alive;  // not freed by a call yet
};

auto& owned = *new std::map<CUdeviceptr, Owned>;

constexpr Size UNIT = 512;

std::shared_ptr<Pool> make_pool(Device& device) {
    auto pool = std::make_shared<Pool>();
    pool->device = &device;
    return pool;
}

std::shared_ptr<Pool> default_pool(Device& device) {
    if (!device.default_pool) {
        device.default_pool = make_pool(device);
        device.default_pool->by_default = true;
        device.current_pool = device.default_pool;
        driver().pools[device.default_pool.get()] = device.default_pool;
    }
    return device.default_pool;
}

CUresult find_pool(Pool* handle, std::shared_ptr<Pool>& pool) {
    auto found = driver().pools.find(handle);
    if (found == driver().pools.end()) {
        complain("a memory pool that does not exist, or no longer, is used");
        return INVALID_HANDLE;
    }
    pool = found->second;
    return SUCCESS;
}

// Gives idle memory back whose free has run, until no more than `keep` bytes are reserved.
void trim(Pool& pool, Size keep) {
    auto& idle = pool.idle;
    for (Size i = idle.size(); i-- > 0 && pool.reserved > keep;) {
        if (!idle[i].freed.done()) continue;
        make_absent((void*)idle[i].address, idle[i].bytes);
        driver().regions.erase(idle[i].address);
        owned.erase(idle[i].address);
        pool.reserved -= idle[i].bytes;
        pool.device->used -= idle[i].bytes;
        idle.erase(idle.begin() + (std::ptrdiff_t)i);
    }
}

bool take_idle(Pool& pool, Stream& stream, Size bytes, CUdeviceptr& address) {
    for (Size i = 0; i < pool.idle.size(); ++i) {
        Idle& idle = pool.idle[i];
        if (idle.bytes != bytes || (idle.freed.stream.get() != &stream && !idle.freed.done())) continue;
        address = idle.address;
        pool.idle.erase(pool.idle.begin() + (std::ptrdiff_t)i);
        return true;
    }
    return false;
}

bool take_fresh(Pool& pool, Size bytes, CUdeviceptr& address) {
    if (pool.most && pool.reserved + bytes > pool.most) return false;
    if (bytes > pool.device->capacity || !take_capacity(*pool.device, bytes)) return false;
    void* fresh = arena_take(bytes);
    if (!fresh) {
        pool.device->used -= bytes;
        return false;
    }
    make_accessible(fresh, bytes);
    memset(fresh, 0xA5, std::min<Size>(bytes, 1u << 20));
    hide_from_host(fresh, bytes);
    address = (CUdeviceptr)fresh;
    pool.reserved += bytes;
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
    return true;
}

CUresult allocate(CUdeviceptr* result, Size bytes, const std::shared_ptr<Pool>& pool, Stream* handle) {
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (bytes == 0) return INVALID_VALUE;
    // A graph with allocations of its own is nothing that is emulated.
    if (stream->capture) return invalidate(*stream->capture, CAPTURE_UNSUPPORTED);
    Size rounded = (bytes + UNIT - 1) / UNIT * UNIT;
    if (rounded < bytes) return OUT_OF_MEMORY;
    CUdeviceptr address = 0;
    bool taken = take_idle(*pool, *stream, rounded, address) || take_fresh(*pool, rounded, address);
    if (!taken) {
        // What streams have yet to free is waited for, and what is idle in other sizes makes room.
        force_all(*stream->context);
        taken = take_idle(*pool, *stream, rounded, address);
        if (!taken) trim(*pool, 0);
        taken = taken || take_fresh(*pool, rounded, address);
    }
    if (!taken) return OUT_OF_MEMORY;
    pool->used += rounded;
    pool->used_high = std::max(pool->used_high, pool->used);
    driver().regions[address] = {Region::POOLED, rounded, pool->device, true};
    owned[address] = {pool, true};
    *result = address;
    return SUCCESS;
}

}  // namespace

Size live_pools() {
    return std::count_if(driver().pools.begin(), driver().pools.end(), [](auto& pool) { return !pool.second->by_default; });
}

Size live_pooled() {
    return std::count_if(owned.begin(), owned.end(), [](auto& entry) { return entry.second.alive; });
}

EXPORT CUresult cuMemPoolCreate(Pool** handle, const Properties* properties) {
    BEGIN(cuMemPoolCreate);
    if (!properties || properties->type != 1 || properties->location_type != 1) return INVALID_VALUE;
    auto& devices = driver().devices;
    if (properties->location_id < 0 || (Size)properties->location_id >= devices.size()) return INVALID_DEVICE;
    auto pool = make_pool(*devices[properties->location_id]);
    pool->most = properties->most;
    driver().pools[pool.get()] = pool;
    *handle = pool.get();
    return SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(Pool* handle) {
    BEGIN(cuMemPoolDestroy);
    std::shared_ptr<Pool> pool;
    TRY(find_pool(handle, pool));
    if (pool->by_default) return INVALID_VALUE;
    // Work that frees into it is waited for by nobody; what has been freed goes when that has run.
    if (pool->device->context) force_all(*pool->device->context);
    if (pool->used) complain("a memory pool is destroyed with %zu bytes in use", pool->used);
    trim(*pool, 0);
    driver().pools.erase(handle);
    return SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(Pool* handle, int attribute, void* value) {
    BEGIN(cuMemPoolSetAttribute);
    std::shared_ptr<Pool> pool;
    TRY(find_pool(handle, pool));
    switch (attribute) {
        case 1: case 2: case 3: pool->reuse[attribute] = *(int*)value; return SUCCESS;
        case 4: pool->threshold = *(unsigned long long*)value; return SUCCESS;
        case 6: pool->reserved_high = pool->reserved; return SUCCESS;
        case 8: pool->used_high = pool->used; return SUCCESS;
        default: return INVALID_VALUE;
    }
}

EXPORT CUresult cuMemPoolGetAttribute(Pool* handle, int attribute, void* value) {
    BEGIN(cuMemPoolGetAttribute);
    std::shared_ptr<Pool> pool;
    TRY(find_pool(handle, pool));
    auto* wide = (unsigned long long*)value;
    switch (attribute) {
        case 1: case 2: case 3: *(int*)value = pool->reuse[attribute]; return SUCCESS;
        case 4: *wide = pool->threshold; return SUCCESS;
        case 5: *wide = pool->reserved; return SUCCESS;
        case 6: *wide = pool->reserved_high; return SUCCESS;
        case 7: *wide = pool->used; return SUCCESS;
        case 8: *wide = pool->used_high; return SUCCESS;
        default: return INVALID_VALUE;
    }
}

EXPORT CUresult cuMemPoolTrimTo(Pool* handle, Size keep) {
    BEGIN(cuMemPoolTrimTo);
    TRY(unsafe_in_capture());
    std::shared_ptr<Pool> pool;
    TRY(find_pool(handle, pool));
    trim(*pool, keep);
    return SUCCESS;
}

EXPORT CUresult cuMemPoolSetAccess(Pool* handle, const void*, Size) {
    BEGIN(cuMemPoolSetAccess);
    std::shared_ptr<Pool> pool;
    return find_pool(handle, pool);
}

EXPORT CUresult cuDeviceGetDefaultMemPool(Pool** handle, CUdevice device) {
    BEGIN(cuDeviceGetDefaultMemPool);
    auto& devices = driver().devices;
    if (device < 0 || (Size)device >= devices.size()) return INVALID_DEVICE;
    *handle = default_pool(*devices[device]).get();
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(Pool** handle, CUdevice device) {
    BEGIN(cuDeviceGetMemPool);
    auto& devices = driver().devices;
    if (device < 0 || (Size)device >= devices.size()) return INVALID_DEVICE;
    default_pool(*devices[device]);
    *handle = devices[device]->current_pool.get();
    return SUCCESS;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, Size bytes, Pool* handle, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemAllocFromPoolAsync);
    std::shared_ptr<Pool> pool;
    TRY(find_pool(handle, pool));
    return allocate(address, bytes, pool, stream);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, Size bytes, Stream* stream) {
    BEGIN_IN_CONTEXT(cuMemAllocAsync);
    return allocate(address, bytes, default_pool(*context->device), stream);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, Stream* handle) {
    BEGIN_IN_CONTEXT(cuMemFreeAsync);
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    auto found = owned.find(address);
    if (found == owned.end() || !found->second.alive) {
        complain("cuMemFreeAsync of %#llx, which is no allocation of a pool, or no longer", address);
        return INVALID_VALUE;
    }
    if (stream->capture) return invalidate(*stream->capture, CAPTURE_UNSUPPORTED);
    auto pool = found->second.pool;
    Size bytes = driver().regions[address].bytes;
    complain_of_registered("cuMemFreeAsync", address, bytes);
    found->second.alive = false;
    pool->used -= bytes;
    driver().regions[address].accessible = false;
    // Whoever still reads it after this place of the stream finds that it is gone.
    TRY(submit(stream, [=] {
        memset((void*)address, 0xDD, std::min<Size>(bytes, 4u << 20));
        if (pool->reserved > pool->threshold) trim(*pool, pool->threshold);
        return SUCCESS;
    }));
    pool->idle.push_back({address, bytes, stream->place()});
    return SUCCESS;
}
