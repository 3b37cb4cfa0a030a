// Initialisation, devices, contexts and the names of errors.
#include "emulator.hpp"

#include <algorithm>
#include <cstdio>

namespace {

// Without a destructor, because threads call to their last moment.
struct Stack {
    Context* contexts[32];
    int depth;
};
thread_local Stack stack;

}  // namespace

Context* current_context() {
    return stack.depth ? stack.contexts[stack.depth - 1] : nullptr;
}

EXPORT CUresult cuInit(unsigned flags) {
    std::lock_guard<std::mutex> hold(driver().lock);
    CUresult error = enter("cuInit");
    if (error && error != NOT_INITIALIZED) return error;
    if (flags) return INVALID_VALUE;
    Driver& d = driver();
    Size devices = setting("CACHESCOPE_EMULATOR_DEVICES", 1);
    if (devices == 0) return NO_DEVICE;
    for (Size ordinal = d.devices.size(); ordinal < devices; ++ordinal) {
        auto device = std::make_unique<Device>();
        device->ordinal = (int)ordinal;
        device->capacity = setting("CACHESCOPE_EMULATOR_MEMORY", 256u << 20);
        d.devices.push_back(std::move(device));
    }
    if (!d.initialized) listen_for_faults();
    d.initialized = true;
    return SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int* version) {
    std::lock_guard<std::mutex> hold(driver().lock);
    CUresult error = enter("cuDriverGetVersion");
    if (error && error != NOT_INITIALIZED) return error;
    *version = (int)setting("CACHESCOPE_EMULATOR_VERSION", 12040);
    return SUCCESS;
}

static CUresult find_device(CUdevice ordinal, Device*& device) {
    auto& devices = driver().devices;
    if (ordinal < 0 || (Size)ordinal >= devices.size()) return INVALID_DEVICE;
    device = devices[ordinal].get();
    return SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    BEGIN(cuDeviceGet);
    Device* found;
    TRY(find_device(ordinal, found));
    *device = ordinal;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int* count) {
    BEGIN(cuDeviceGetCount);
    *count = (int)driver().devices.size();
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
    BEGIN(cuDeviceGetName);
    Device* found;
    TRY(find_device(device, found));
    if (bytes > 0) snprintf(name, bytes, "Emulated device %d", device);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(unsigned char* uuid, CUdevice device) {
    BEGIN(cuDeviceGetUuid_v2);
    Device* found;
    TRY(find_device(device, found));
    for (int i = 0; i < 16; ++i) uuid[i] = (unsigned char)(0xE0 + i + device);
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(unsigned char* uuid, CUdevice device) {
    return cuDeviceGetUuid_v2(uuid, device);
}

EXPORT CUresult cuDeviceTotalMem_v2(Size* bytes, CUdevice device) {
    BEGIN(cuDeviceTotalMem_v2);
    Device* found;
    TRY(find_device(device, found));
    *bytes = found->capacity;
    return SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
    BEGIN(cuDeviceGetAttribute);
    Device* found;
    TRY(find_device(device, found));
    int arch = (int)setting("CACHESCOPE_EMULATOR_ARCH", 80);
    switch (attribute) {
        case 1: case 2: case 3: *value = 1024; break;        // threads of a block, its x and y
        case 4: *value = 64; break;                          // its z
        case 5: *value = 0x7FFFFFFF; break;                  // grid x
        case 6: case 7: *value = 65535; break;               // grid y, z
        case 8: *value = 48 << 10; break;                    // shared memory of a block
        case 9: *value = 64 << 10; break;                    // constant memory
        case 10: *value = 32; break;                         // warp
        case 12: case 82: *value = 65536; break;             // registers
        case 13: case 36: *value = 1000000; break;           // clock rates
        case 14: *value = 512; break;                        // texture alignment
        case 15: case 19: case 31: case 41: *value = 1; break;  // overlap, mapped host memory, kernels, addresses
        case 16: *value = (int)setting("CACHESCOPE_EMULATOR_MULTIPROCESSORS", 4); break;
        case 33: *value = 1 + device; break;                 // PCI bus
        case 37: *value = 256; break;                        // bus width
        case 38: *value = 4 << 20; break;                    // L2
        case 39: *value = 2048; break;                       // threads of a multiprocessor
        case 40: *value = 2; break;                          // copy engines
        case 75: *value = arch / 10; break;
        case 76: *value = arch % 10; break;
        case 78: *value = 1; break;                          // priorities
        case 81: *value = 164 << 10; break;                  // shared memory of a multiprocessor
        case 97: *value = 163 << 10; break;                  // of a block, by choice
        case 102: *value = (int)setting("CACHESCOPE_EMULATOR_VIRTUAL_MEMORY", 1); break;
        case 106: *value = 32; break;                        // blocks of a multiprocessor
        case 111: *value = 1024; break;                      // reserved shared memory
        case 115: *value = (int)setting("CACHESCOPE_EMULATOR_POOLS", 1); break;
        default: *value = 0;
    }
    return SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    BEGIN(cuDeviceCanAccessPeer);
    *can = device != peer;
    return SUCCESS;
}

EXPORT CUresult cuCtxEnablePeerAccess(Context*, unsigned) {
    BEGIN_IN_CONTEXT(cuCtxEnablePeerAccess);
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(Context** context, CUdevice ordinal) {
    BEGIN(cuDevicePrimaryCtxRetain);
    Device* device;
    TRY(find_device(ordinal, device));
    if (!device->context) {
        device->context = std::make_unique<Context>();
        device->context->device = device;
        auto legacy = std::make_shared<Stream>();
        legacy->context = device->context.get();
        legacy->blocking = true;
        device->context->legacy = legacy;
        device->context->streams.push_back(legacy);
    }
    device->context->retained += 1;
    *context = device->context.get();
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    BEGIN(cuDevicePrimaryCtxRelease_v2);
    Device* device;
    TRY(find_device(ordinal, device));
    if (!device->context || device->context->retained == 0) return INVALID_CONTEXT;
    // The context itself stays, as an address that threads may still name: what a driver destroys with
    // it is what `emulator_report` then shows as left.
    if (--device->context->retained == 0) force_all(*device->context);
    return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
    BEGIN(cuDevicePrimaryCtxGetState);
    Device* device;
    TRY(find_device(ordinal, device));
    *flags = 0;
    *active = device->context && device->context->retained > 0;
    return SUCCESS;
}

static bool is_context(Context* context) {
    auto& devices = driver().devices;
    return std::any_of(devices.begin(), devices.end(), [&](auto& device) {
        return device->context.get() == context && context->retained > 0;
    });
}

EXPORT CUresult cuCtxSetCurrent(Context* context) {
    BEGIN(cuCtxSetCurrent);
    if (context && !is_context(context)) return INVALID_CONTEXT;
    if (stack.depth) stack.depth -= 1;
    if (context) stack.contexts[stack.depth++] = context;
    return SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(Context* context) {
    BEGIN(cuCtxPushCurrent_v2);
    if (!context || !is_context(context) || stack.depth == 32) return INVALID_CONTEXT;
    stack.contexts[stack.depth++] = context;
    return SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(Context** context) {
    BEGIN(cuCtxPopCurrent_v2);
    if (!stack.depth) return INVALID_CONTEXT;
    stack.depth -= 1;
    if (context) *context = stack.contexts[stack.depth];
    return SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(Context** context) {
    BEGIN(cuCtxGetCurrent);
    *context = current_context();
    return SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
    BEGIN_IN_CONTEXT(cuCtxGetDevice);
    *device = context->device->ordinal;
    return SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    BEGIN_IN_CONTEXT(cuCtxGetStreamPriorityRange);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

EXPORT CUresult cuCtxSynchronize() {
    BEGIN_IN_CONTEXT(cuCtxSynchronize);
    TRY(end_captures(*context));
    return wait_for_all(*context);
}

namespace {
struct Named {
    CUresult error;
    const char* name;
    const char* text;
};
const Named NAMES[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {ILLEGAL_INSTRUCTION, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};
}  // namespace

// These two answer at any time, as the driver's do, and are no calls that could fail.
EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
    for (auto& named : NAMES)
        if (named.error == error) return *name = named.name, SUCCESS;
    *name = nullptr;
    return INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
    for (auto& named : NAMES)
        if (named.error == error) return *text = named.text, SUCCESS;
    *text = nullptr;
    return INVALID_VALUE;
}
