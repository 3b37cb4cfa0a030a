// Addresses apart from memory: reservations, physical pages, mappings.
#include "emulator.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace {

struct Physical {
    Device* device;
    Size offset, bytes;  // in the file of all pages; never used twice
    Size mappings = 0;
    bool held = true;
};

struct Mapping {
    Size bytes;
    std::shared_ptr<Physical> physical;
};

struct Location {
    int type, id;
};

struct Properties {
    int type, handles;
    Location location;
    void* metadata;
    unsigned char flags[8];
};

struct Access {
    Location location;
    int flags;
};

// Never destroyed: the report at exit looks at them.
auto& reservations = *new std::map<CUdeviceptr, Size>;
auto& handles = *new std::map<unsigned long long, std::shared_ptr<Physical>>;
auto& mappings = *new std::map<CUdeviceptr, Mapping>;
Size pages_alive = 0;

int page_file() {
    static int file = memfd_create("device-pages", MFD_CLOEXEC);
    return file;
}

void release_if_unused(Physical& physical) {
    if (physical.held || physical.mappings) return;
    fallocate(page_file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical.offset, (off_t)physical.bytes);
    physical.device->used -= physical.bytes;
    pages_alive -= 1;
}

bool reserved(CUdeviceptr address, Size bytes) {
    auto next = reservations.upper_bound(address);
    if (next == reservations.begin()) return false;
    auto& [start, length] = *std::prev(next);
    return address + bytes <= start + length;
}

// The mappings that make up exactly this range, or none.
std::vector<CUdeviceptr> exactly(CUdeviceptr address, Size bytes) {
    std::vector<CUdeviceptr> found;
    CUdeviceptr at = address;
    while (at < address + bytes) {
        auto mapping = mappings.find(at);
        if (mapping == mappings.end()) return {};
        found.push_back(at);
        at += mapping->second.bytes;
    }
    return at == address + bytes ? found : std::vector<CUdeviceptr>();
}

}  // namespace

Size live_reservations() {
    return reservations.size();
}

Size live_physical() {
    return pages_alive;
}

EXPORT CUresult cuMemGetAllocationGranularity(Size* granularity, const Properties* properties, int) {
    BEGIN(cuMemGetAllocationGranularity);
    if (!properties || properties->type != 1 || properties->location.type != 1) return INVALID_VALUE;
    *granularity = PAGE;
    return SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, Size bytes, Size alignment, CUdeviceptr,
                                    unsigned long long flags) {
    BEGIN(cuMemAddressReserve);
    if (bytes == 0 || bytes % PAGE || flags || (alignment & (alignment - 1)) || alignment > PAGE) return INVALID_VALUE;
    void* fresh = arena_take(bytes);
    if (!fresh) return OUT_OF_MEMORY;
    *address = (CUdeviceptr)fresh;
    reservations[*address] = bytes;
    return SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, Size bytes) {
    BEGIN(cuMemAddressFree);
    auto found = reservations.find(address);
    bool mapped = false;
    for (auto& [at, mapping] : mappings) mapped |= at >= address && at < address + bytes;
    if (found == reservations.end() || found->second != bytes || mapped) {
        complain("cuMemAddressFree of %#llx, %zu bytes: %s", address, bytes,
                 mapped ? "something is still mapped there" : "that is no reservation");
        return INVALID_VALUE;
    }
    reservations.erase(found);
    return SUCCESS;
}

EXPORT CUresult cuMemCreate(unsigned long long* handle, Size bytes, const Properties* properties,
                            unsigned long long flags) {
    BEGIN(cuMemCreate);
    TRY(unsafe_in_capture());
    if (!properties || properties->type != 1 || properties->location.type != 1 || flags) return INVALID_VALUE;
    if (bytes == 0 || bytes % PAGE) return INVALID_VALUE;
    auto& devices = driver().devices;
    if (properties->location.id < 0 || (Size)properties->location.id >= devices.size()) return INVALID_DEVICE;
    Device& device = *devices[properties->location.id];
    if (!take_capacity(device, bytes)) return OUT_OF_MEMORY;
    charge_size("cuMemCreate", bytes);
    static Size end = 0;
    static unsigned long long next = 0x5EED0000;
    if (page_file() < 0 || ftruncate(page_file(), (off_t)(end + bytes))) {
        device.used -= bytes;
        return OUT_OF_MEMORY;
    }
    auto physical = std::make_shared<Physical>();
    physical->device = &device;
    physical->offset = end;
    physical->bytes = bytes;
    end += bytes;
    pages_alive += 1;
    *handle = ++next;
    handles[next] = physical;
    return SUCCESS;
}

EXPORT CUresult cuMemRelease(unsigned long long handle) {
    BEGIN(cuMemRelease);
    TRY(unsafe_in_capture());
    auto found = handles.find(handle);
    if (found == handles.end()) {
        complain("cuMemRelease of a handle that does not exist, or no longer");
        return INVALID_VALUE;
    }
    auto physical = found->second;
    handles.erase(found);
    physical->held = false;
    release_if_unused(*physical);
    return SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, Size bytes, Size offset, unsigned long long handle,
                         unsigned long long flags) {
    BEGIN(cuMemMap);
    TRY(unsafe_in_capture());
    auto found = handles.find(handle);
    if (found == handles.end() || flags || offset) return INVALID_VALUE;
    auto physical = found->second;
    if (bytes != physical->bytes || address % PAGE || !reserved(address, bytes)) return INVALID_VALUE;
    for (auto& [at, mapping] : mappings)
        if (at < address + bytes && address < at + mapping.bytes) {
            complain("cuMemMap of %zu bytes at %#llx, where something is mapped", bytes, address);
            return INVALID_VALUE;
        }
    // Without access until cuMemSetAccess says so.
    void* at = mmap((void*)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, page_file(), (off_t)physical->offset);
    if (at == MAP_FAILED) return OUT_OF_MEMORY;
    physical->mappings += 1;
    mappings[address] = {bytes, physical};
    driver().regions[address] = {Region::MAPPED, bytes, physical->device, false};
    return SUCCESS;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, Size bytes, const Access* accesses, Size count) {
    BEGIN(cuMemSetAccess);
    TRY(unsafe_in_capture());
    auto found = exactly(address, bytes);
    if (found.empty() || !accesses || count == 0) return INVALID_VALUE;
    // The cost is that of each mapping.
    charge_size("cuMemSetAccess", mappings[found.front()].bytes);
    for (Size i = 1; i < found.size(); ++i) charge_more("cuMemSetAccess", mappings[found[i]].bytes);
    for (CUdeviceptr at : found) {
        Mapping& mapping = mappings[at];
        for (Size i = 0; i < count; ++i) {
            if (accesses[i].location.type != 1) return INVALID_VALUE;
            bool allowed = accesses[i].flags == 3;
            mprotect((void*)at, mapping.bytes, allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
            driver().regions[at].accessible = allowed;
            if (allowed) memset((void*)at, 0xA5, 4096);
            if (allowed) hide_from_host((void*)at, mapping.bytes);
        }
    }
    return SUCCESS;
}

// Waits for nothing: work that still uses the pages is a fault when it runs.
EXPORT CUresult cuMemUnmap(CUdeviceptr address, Size bytes) {
    BEGIN(cuMemUnmap);
    TRY(unsafe_in_capture());
    auto found = exactly(address, bytes);
    if (found.empty()) {
        complain("cuMemUnmap of %zu bytes at %#llx, which are not whole mappings", bytes, address);
        return INVALID_VALUE;
    }
    complain_of_registered("cuMemUnmap", address, bytes);
    for (CUdeviceptr at : found) {
        auto physical = mappings[at].physical;
        make_absent((void*)at, mappings[at].bytes);
        mappings.erase(at);
        driver().regions.erase(at);
        physical->mappings -= 1;
        release_if_unused(*physical);
    }
    return SUCCESS;
}
