// What the parts of the emulated driver share: its objects, its lock, and how a call begins.
//
// One lock guards everything, kernels included: work runs on the thread that waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "rendezvous.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using Size = std::size_t;

enum : CUresult {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    UNSUPPORTED_VERSION = 222,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    ILLEGAL_INSTRUCTION = 715,
    MISALIGNED_ADDRESS = 716,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
    UNKNOWN = 999,
};

constexpr Size PAGE = 2u << 20;

struct Context;
struct Stream;
struct Capture;

using Work = std::function<CUresult()>;

struct Item {
    Work work;   // empty: nothing behind this may run before `before` is done
    Place before;
    double given = 0;   // by the virtual clock
    Together together;  // nothing behind this may run before all of these are over
};

struct Stream : std::enable_shared_from_this<Stream> {
    Context* context = nullptr;
    bool blocking = false;
    bool alive = true;
    int priority = 0;
    unsigned flags = 0;
    int queries = 0;
    uint64_t done = 0;
    std::deque<Item> items;
    std::shared_ptr<Capture> capture;
    std::deque<double> times;  // by the virtual clock: when each of the last items was done

    double time_of(uint64_t position) const;
    Place place() { return {shared_from_this(), done + items.size()}; }
};

// What an event stood for when it was recorded last.
struct Mark {
    Place place;
    double milliseconds = 0;
    int queries = 0;
    std::shared_ptr<Capture> capture;
    std::map<Stream*, uint64_t> seen;  // in a capture: how much of each stream is before the event
};

struct Event {
    Context* context = nullptr;
    bool timed = true;
    std::shared_ptr<Mark> mark;
};

// What a graph does: work, or what it joins each time that it is launched.
struct Step {
    Work work;
    Arrival arrival;
};

// Steps of a capture in the order of the host's calls, which is one of the orders that a graph allows.
struct Graph {
    Context* context = nullptr;
    std::vector<Step> steps;
};

enum CaptureMode { GLOBAL_CAPTURE = 0, THREAD_LOCAL_CAPTURE = 1, RELAXED_CAPTURE = 2 };

struct Capture {
    Stream* origin = nullptr;
    CaptureMode mode = GLOBAL_CAPTURE;
    uint64_t thread = 0;
    bool invalid = false;
    std::vector<Step> steps;
    std::vector<std::shared_ptr<Stream>> streams;
    std::map<Stream*, uint64_t> given;                      // how many steps each stream has been given
    std::map<Stream*, std::map<Stream*, uint64_t>> seen;    // what each stream has waited for
};

struct Pool;

struct Device {
    int ordinal = 0;
    Size capacity = 0;
    Size used = 0;  // of the capacity
    std::unique_ptr<Context> context;
    std::shared_ptr<Pool> default_pool;
    std::shared_ptr<Pool> current_pool;
};

struct Module {
    Context* context = nullptr;
    void* library = nullptr;
    bool fibers = false;
    struct EmulatedTraffic* traffic = nullptr;  // where the program was compiled to count it
    Size static_shared = 0;
    std::map<std::string, struct Function*> functions;
    ~Module();
};

struct Context {
    Device* device = nullptr;
    unsigned retained = 0;
    CUresult sticky = SUCCESS;
    std::shared_ptr<Stream> legacy;
    std::vector<std::shared_ptr<Stream>> streams;  // those destroyed with work left included
};

// Memory that a device may be told to read or write.
struct Region {
    enum Kind { ALLOCATED, HOST, MAPPED, POOLED } kind;
    Size bytes = 0;
    Device* device = nullptr;
    bool accessible = true;
};

struct Driver {
    std::mutex lock;
    bool initialized = false;
    bool ended = false;
    std::vector<std::unique_ptr<Device>> devices;
    std::map<CUdeviceptr, Region> regions;
    std::map<Stream*, std::shared_ptr<Stream>> streams;
    std::map<Event*, std::unique_ptr<Event>> events;
    std::map<Module*, std::shared_ptr<Module>> modules;
    std::map<Graph*, std::shared_ptr<Graph>> graphs;
    std::map<Graph*, std::shared_ptr<Graph>> executables;
    std::map<Pool*, std::shared_ptr<Pool>> pools;
    std::vector<std::shared_ptr<Capture>> captures;
    std::vector<std::pair<CUdeviceptr, Size>> registered;  // with communicators
    Size communicators = 0;
    Size descriptors = 0;  // of cublasLt
};

Driver& driver();

// report.cpp
CUresult enter(const char* name);
void complain(const char* format, ...) __attribute__((format(printf, 1, 2)));
void note_host_access();  // by a signal handler, hence without memory of its own
Size setting(const char* name, Size otherwise);

// clock.cpp
bool clock_on();
void charge(const char* call);                   // what the call takes at least
void charge_size(const char* call, Size bytes);  // what it takes beyond that
void charge_more(const char* call, Size bytes);  // another one in the same call
void work_moves(const char* kind, Size bytes);   // by the work that runs now
double host_time();
double spent(const char* call);
double take_work_time();
void host_waits_until(double microseconds);

// contexts.cpp
Context* current_context();

// memory.cpp
void* arena_take(Size bytes);                 // fresh addresses, never used before, without access
void make_accessible(void* address, Size bytes);
bool in_arena(const void* address);
void arena_bounds(unsigned long long& begin, unsigned long long& end);
// As long as one lives, device memory can be touched; else the host that touches it is told so.
struct Opened {
    Opened();
    ~Opened();
};
// As long as one lives, it is as if no `Opened` did: other threads come to the lock meanwhile.
struct Closed {
    Closed();
    ~Closed();
    int depth;
};
bool open_for_device(void* address);  // where a fault is the device's, in memory that is hidden from the host
void hide_from_host(void* address, Size bytes);
void make_absent(void* address, Size bytes);  // gives the memory back and keeps the addresses from use
bool covered(CUdeviceptr address, Size bytes);
bool is_pinned(const void* address, Size bytes);
bool take_capacity(Device& device, Size bytes);

// streams.cpp
CUresult find_stream(Stream* handle, std::shared_ptr<Stream>& stream);
CUresult order_behind_legacy(Stream& stream);
CUresult submit(const std::shared_ptr<Stream>& stream, Work work);
CUresult force(const Place& place);
CUresult advance(const Place& place);  // as `force`, or "not ready" where another thread must do something first
CUresult force_all(Context& context);
CUresult wait_for(const Place& place);  // as `force`, and the host waits
CUresult wait_for_all(Context& context);
uint64_t thread_number();
void begin_library_call();

// rendezvous.cpp
CUresult submit_together(const std::shared_ptr<Stream>& stream, const Arrival& arrival, Place* behind);
// The next step towards the end of a rendezvous: a place that must be reached first, which no goal is yet; or that
// somebody else must come, or that it is over.
enum Turn { GO_THERE, WAIT, OVER };
Turn take_turn(Rendezvous& rendezvous, const std::vector<Place>& goals, Place& next);
void await_change();
void complain_of_registered(const char* call, CUdeviceptr address, Size bytes);

// graphs.cpp
CUresult unsafe_in_capture();
CUresult capture_step(Stream& stream, Step step);
CUresult capture_wait(Stream& stream, const Mark& mark);
void capture_record(Stream& stream, Mark& mark);
CUresult invalidate(Capture& capture, CUresult error);
CUresult end_captures(Context& context);

// pools.cpp and virtual.cpp
Size live_pools();
Size live_reservations();
Size live_physical();
Size live_pooled();

// fibers.cpp
struct Function;
CUresult run_kernel(const Function& function, const unsigned grid[3], const unsigned block[3],
                    unsigned shared_bytes, std::vector<unsigned char>& arguments);
void listen_for_faults();
// Runs `body`, and answers the error that a fault of it stands for.
CUresult guarded(const char* what, const std::function<void()>& body);

struct Function {
    Module* module = nullptr;
    std::string name;
    const struct KernelEntry* entry = nullptr;
    const struct KernelModule* code = nullptr;
    unsigned most_shared = 48u << 10;
};

#define BEGIN(name)                                  \
    std::lock_guard<std::mutex> hold(driver().lock); \
    if (CUresult error = enter(#name)) return error
// For calls that need a context, and that fail once a kernel has failed in it.
#define BEGIN_IN_CONTEXT(name)                    \
    BEGIN(name);                                  \
    Context* context = current_context();         \
    if (!context) return INVALID_CONTEXT;         \
    if (context->sticky) return context->sticky;  \
    (void)context
#define TRY(call) \
    if (CUresult error = (call)) return error
