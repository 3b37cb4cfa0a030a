// PyTorch's own caching allocator, run over a list of events above a CUDA runtime that reserves nothing.
//
// The library c10_cuda calls the runtime and the driver by name. This program has functions of these names, which hand out
// addresses and count bytes, so that no GPU and no driver is needed; nothing is ever written to the addresses. Built and run
// by allocator.py.
//
//     allocator LIMIT < EVENTS
//
// A line of EVENTS is `a SLOT BYTES`, an allocation, or `f SLOT 0`, a free. Prints what was reserved at most after an event,
// and how many allocations failed.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

// What the device says it has. Ranges of expandable segments are as long, so that their addresses never run out.
constexpr size_t device_bytes = size_t(1) << 46;
constexpr size_t page_bytes = size_t(2) << 20;

size_t limit_bytes = device_bytes;
size_t reserved_bytes = 0;
size_t next_address = size_t(1) << 44;
std::map<size_t, size_t> segments;
std::map<size_t, size_t> handles;

bool reserve(size_t bytes) {
  if (bytes > limit_bytes - reserved_bytes) {
    return false;
  }
  reserved_bytes += bytes;
  return true;
}

void release(std::map<size_t, size_t>& sizes, size_t key) {
  reserved_bytes -= sizes.at(key);
  sizes.erase(key);
}

size_t new_addresses(size_t bytes) {
  size_t address = next_address;
  next_address += (bytes + 2 * page_bytes - 1) / page_bytes * page_bytes;
  return address;
}

CUresult device_get(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult no_attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult address_reserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  *address = new_addresses(bytes);
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*, unsigned long long) {
  static size_t last = 0;
  if (!reserve(bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = ++last;
  handles[last] = bytes;
  return CUDA_SUCCESS;
}

CUresult release_handle(CUmemGenericAllocationHandle handle) {
  release(handles, handle);
  return CUDA_SUCCESS;
}

CUresult granularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = page_bytes;
  return CUDA_SUCCESS;
}

CUresult error_string(CUresult, const char** text) {
  *text = "an error of the driver that reserves nothing";
  return CUDA_SUCCESS;
}

CUresult current_context(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(1);
  return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult map(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) { return CUDA_SUCCESS; }
CUresult unmap(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
CUresult logs_register(void*, void*, void**) { return CUDA_SUCCESS; }
CUresult logs_unregister(void*) { return CUDA_SUCCESS; }

CUresult unexpected() {
  std::fprintf(stderr, "a call of the driver that no allocation makes\n");
  std::abort();
}

template <typename Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

const std::map<std::string, void*> driver = {
    {"cuDeviceGet", address_of(device_get)},
    {"cuDeviceGetAttribute", address_of(no_attribute)},
    {"cuMemAddressReserve", address_of(address_reserve)},
    {"cuMemAddressFree", address_of(address_free)},
    {"cuMemCreate", address_of(create)},
    {"cuMemRelease", address_of(release_handle)},
    {"cuMemMap", address_of(map)},
    {"cuMemUnmap", address_of(unmap)},
    {"cuMemSetAccess", address_of(set_access)},
    {"cuMemGetAllocationGranularity", address_of(granularity)},
    {"cuCtxGetCurrent", address_of(current_context)},
    {"cuLogsRegisterCallback", address_of(logs_register)},
    {"cuLogsUnregisterCallback", address_of(logs_unregister)},
    {"cuGetErrorString", address_of(error_string)},
};

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->totalGlobalMem = device_bytes;
  properties->major = 9;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = limit_bytes - reserved_bytes;
  *total_bytes = limit_bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  if (!reserve(bytes)) {
    return cudaErrorMemoryAllocation;
  }
  // A page apart: two segments are never neighbours.
  size_t start = new_addresses(bytes + page_bytes);
  segments[start] = bytes;
  *address = reinterpret_cast<void*>(start);
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  release(segments, reinterpret_cast<size_t>(address));
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the runtime that reserves nothing"; }

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned int, unsigned long long, cudaDriverEntryPointQueryResult* result) {
  auto found = driver.find(name);
  *function = found == driver.end() ? address_of(unexpected) : found->second;
  if (result != nullptr) {
    *result = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}

}  // extern "C"

int main(int count, char** arguments) {
  if (count > 1) {
    limit_bytes = std::strtoull(arguments[1], nullptr, 10);
  }
  // Pages that are shared with nobody, or the allocator asks NVML for what the device can share.
  setenv("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "0", 1);
  c10::cuda::detail::init_p2p_access_cache(1);
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  allocator->init(1);
  std::vector<void*> live;
  size_t peak_bytes = 0, failures = 0, slot = 0, bytes = 0;
  for (char action = 0; std::cin >> action >> slot >> bytes;) {
    live.resize(std::max(live.size(), slot + 1));
    if (action == 'a') {
      try {
        live[slot] = allocator->raw_alloc(bytes);
      } catch (const c10::OutOfMemoryError&) {
        ++failures;
      }
    } else if (live[slot] != nullptr) {
      allocator->raw_delete(live[slot]);
      live[slot] = nullptr;
    }
    peak_bytes = std::max(peak_bytes, reserved_bytes);
  }
  std::printf("%zu %zu\n", peak_bytes, failures);
  std::fflush(stdout);
  // Without the destructors of libraries that think there is a driver.
  std::_Exit(0);
}
