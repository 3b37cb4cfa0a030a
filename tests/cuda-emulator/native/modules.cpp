// Modules, functions and launches. An "image" is a shared library behind a header.
#include "emulator.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "abi.hpp"
#include "image.hpp"

Module::~Module() {
    for (auto& [name, function] : functions) delete function;
    // What still waits in a stream holds the module, so no code is gone before it has run.
    if (library) dlclose(library);
}

static void* open_library(const std::string& bytes, std::string& why) {
    int file = memfd_create("kernel", MFD_CLOEXEC);
    if (file < 0) return nullptr;
    Size written = 0;
    while (written < bytes.size()) {
        ssize_t n = write(file, bytes.data() + written, bytes.size() - written);
        if (n <= 0) break;
        written += (Size)n;
    }
    // The loader takes a name that it has seen for the same library, and numbers of files come again:
    // each name is the same path, spelled in another way.
    static unsigned spelling = 0;
    std::string path = "/proc/self/fd/";
    for (unsigned rest = ++spelling; rest; rest /= 2) path += rest & 1 ? "./" : "/";
    path += std::to_string(file);
    void* library = written == bytes.size() ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) {
        const char* error = dlerror();
        why = error ? error : "the library could not be written";
    }
    close(file);
    return library;
}

static CUresult load(Module** handle, const void* image) {
    BEGIN_IN_CONTEXT(cuModuleLoadData);
    TRY(unsafe_in_capture());
    std::string bytes;
    if (!image || !unpack_image(image, bytes)) return INVALID_IMAGE;
    // A driver takes no code of a compiler of a later major version.
    if (setting("CACHESCOPE_EMULATOR_NVRTC", 12040) / 1000 > setting("CACHESCOPE_EMULATOR_VERSION", 12040) / 1000)
        return UNSUPPORTED_VERSION;
    auto module = std::make_shared<Module>();
    module->context = context;
    std::string why;
    module->library = open_library(bytes, why);
    if (!module->library) {
        complain("a module cannot be loaded: %s", why.c_str());
        return INVALID_IMAGE;
    }
    module->fibers = bytes.find("emulator_barrier") != std::string::npos ||
                     bytes.find("emulator_exchange") != std::string::npos;
    module->traffic = (EmulatedTraffic*)dlsym(module->library, "emulator_traffic");
    *handle = module.get();
    driver().modules[module.get()] = module;
    return SUCCESS;
}

EXPORT CUresult cuModuleLoadData(Module** handle, const void* image) {
    return load(handle, image);
}

EXPORT CUresult cuModuleLoadDataEx(Module** handle, const void* image, unsigned, void*, void*) {
    return load(handle, image);
}

static CUresult find_module(Module* handle, std::shared_ptr<Module>& module) {
    auto found = driver().modules.find(handle);
    if (found == driver().modules.end()) {
        complain("a module that does not exist, or no longer, is used");
        return INVALID_HANDLE;
    }
    module = found->second;
    return SUCCESS;
}

EXPORT CUresult cuModuleUnload(Module* handle) {
    BEGIN(cuModuleUnload);
    TRY(unsafe_in_capture());
    std::shared_ptr<Module> module;
    TRY(find_module(handle, module));
    driver().modules.erase(handle);
    return module->context->sticky;
}

EXPORT CUresult cuModuleGetFunction(Function** handle, Module* of, const char* name) {
    BEGIN_IN_CONTEXT(cuModuleGetFunction);
    std::shared_ptr<Module> module;
    TRY(find_module(of, module));
    Function*& function = module->functions[name];
    if (!function) {
        std::string symbol = std::string("emulator_entry_") + name;
        void* entry = dlsym(module->library, symbol.c_str());
        void* code = dlsym(module->library, "emulator_module");
        if (!entry || !code) {
            module->functions.erase(name);
            return NOT_FOUND;
        }
        function = new Function;
        function->module = module.get();
        function->name = name;
        function->entry = (const KernelEntry*)entry;
        function->code = (const KernelModule*)code;
    }
    *handle = function;
    return SUCCESS;
}

static CUresult find_function(Function* handle, std::shared_ptr<Module>& module) {
    for (auto& [key, candidate] : driver().modules)
        for (auto& [name, function] : candidate->functions)
            if (function == handle) return module = candidate, SUCCESS;
    complain("a function that does not exist, or no longer, is used");
    return INVALID_HANDLE;
}

EXPORT CUresult cuFuncGetAttribute(int* value, int attribute, Function* handle) {
    BEGIN_IN_CONTEXT(cuFuncGetAttribute);
    std::shared_ptr<Module> module;
    TRY(find_function(handle, module));
    const KernelModule& code = *handle->code;
    switch (attribute) {
        case 0: *value = 1024; break;
        case 1: *value = (int)(code.shared_end - code.shared); break;
        case 4: *value = 32; break;
        case 5: case 6: *value = 80; break;
        case 8: *value = (int)handle->most_shared; break;
        default: *value = 0;
    }
    return SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(Function* handle, int attribute, int value) {
    BEGIN_IN_CONTEXT(cuFuncSetAttribute);
    std::shared_ptr<Module> module;
    TRY(find_function(handle, module));
    if (attribute == 8) {
        if (value < 0 || (unsigned)value > handle->code->dynamic_bytes) return INVALID_VALUE;
        handle->most_shared = (unsigned)value;
    }
    return SUCCESS;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* handle, int threads, Size shared) {
    BEGIN_IN_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    std::shared_ptr<Module> module;
    TRY(find_function(handle, module));
    if (threads < 1 || threads > 1024) return INVALID_VALUE;
    Size by_memory = shared ? (164u << 10) / (shared + 1024) : 32;
    *blocks = (int)std::min<Size>({32, by_memory, Size(2048 / threads)});
    return SUCCESS;
}

// The launches of each kernel, guarded by the driver's lock.
static std::map<std::string, uint64_t> launches;

// Writes the name and the count of each kernel that was launched, a line each; returns the size of all lines.
EXPORT uint64_t emulator_launches(char* text, uint64_t bytes) {
    std::lock_guard<std::mutex> hold(driver().lock);
    std::string lines;
    for (auto& [name, count] : launches) lines += name + " " + std::to_string(count) + "\n";
    if (bytes) snprintf(text, bytes, "%s", lines.c_str());
    return lines.size();
}

EXPORT CUresult cuLaunchKernel(Function* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream* of,
                               void** parameters, void** extra) {
    BEGIN_IN_CONTEXT(cuLaunchKernel);
    std::shared_ptr<Module> module;
    TRY(find_function(handle, module));
    std::shared_ptr<Stream> stream;
    TRY(find_stream(of, stream));
    if (stream->context != context || module->context != context) return INVALID_HANDLE;
    if (extra) return NOT_SUPPORTED;
    uint64_t threads = uint64_t(block_x) * block_y * block_z;
    bool in_range = grid_x && grid_y && grid_z && threads && grid_x <= 0x7FFFFFFFu && grid_y <= 65535 &&
                    grid_z <= 65535 && threads <= 1024 && block_z <= 64 && shared_bytes <= handle->most_shared;
    if (!in_range) {
        complain("%s: a launch of %u x %u x %u blocks of %u x %u x %u threads with %u bytes of shared memory",
                 handle->name.c_str(), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes);
        return INVALID_VALUE;
    }
    launches[handle->name] += 1;
    // The values are read now, as the sizes of the kernel's own parameters say.
    std::vector<unsigned char> arguments;
    for (unsigned i = 0; i < handle->entry->count; ++i) {
        if (!parameters || !parameters[i]) return INVALID_VALUE;
        auto* bytes = (const unsigned char*)parameters[i];
        arguments.resize((arguments.size() + 15) / 16 * 16);
        arguments.insert(arguments.end(), bytes, bytes + handle->entry->sizes[i]);
    }
    return submit(stream, [=]() mutable {
        const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
        (void)module;  // held until this has run
        return run_kernel(*handle, grid, block, shared_bytes, arguments);
    });
}
