// How a call begins: counted, made to fail where a test asked for it. And what is left at the end.
#include "emulator.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

struct Calls {
    uint64_t total = 0;
    std::map<std::string, uint64_t> by_name;
    // The call of this number, from 1, fails; 0: none does.
    uint64_t failing = 0;
    CUresult error = UNKNOWN;
    std::string failing_name;
    uint64_t failing_of_name = 0;
    uint64_t failed = 0;
    uint64_t complaints = 0;
    std::string last;
};

Calls& calls() {
    static Calls* calls = [] {
        auto* fresh = new Calls;
        if (const char* text = getenv("CACHESCOPE_EMULATOR_FAIL_CALL")) {
            char* rest = nullptr;
            fresh->failing = strtoull(text, &rest, 10);
            if (rest && *rest == ':') fresh->error = atoi(rest + 1);
        }
        return fresh;
    }();
    return *calls;
}

}  // namespace

Driver& driver() {
    // Never destroyed: threads and destructors call to the very end.
    static Driver* driver = new Driver;
    return *driver;
}

Size setting(const char* name, Size otherwise) {
    const char* text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

void complain(const char* format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "cuda-emulator: %s\n", text);
    calls().complaints += 1;
    calls().last = text;
}

static std::atomic<uint64_t> host_accesses{0};

void note_host_access() {
    static const char text[] = "cuda-emulator: the host itself reads or writes memory of the device\n";
    if (host_accesses++ == 0 && write(2, text, sizeof text - 1) < 0) return;
}

// What this thread does before a call of a function.
struct Before {
    std::string name;
    uint64_t calls = 0;  // of the function, until that one; 0: nothing is done
    void (*work)(void*) = nullptr;
    void* data = nullptr;
};
static thread_local Before before;

static CUresult count(const char* name) {
    if (before.calls && before.name == name && --before.calls == 0) {
        // The caller holds the lock, and has not looked at anything yet.
        driver().lock.unlock();
        before.work(before.data);
        driver().lock.lock();
    }
    Calls& c = calls();
    c.total += 1;
    c.by_name[name] += 1;
    charge(name);
    bool fails = c.failing && c.total == c.failing;
    if (c.failing_of_name && c.failing_name == name && --c.failing_of_name == 0) fails = true;
    if (fails) c.failed += 1;
    return fails ? c.error : SUCCESS;
}

CUresult enter(const char* name) {
    if (driver().ended) return DEINITIALIZED;
    TRY(count(name));
    return driver().initialized ? SUCCESS : NOT_INITIALIZED;
}

// For the other libraries: counts a call of theirs; not 0 where it shall fail.
EXPORT int emulator_enter(const char* name) {
    std::lock_guard<std::mutex> hold(driver().lock);
    begin_library_call();
    return driver().ended ? DEINITIALIZED : count(name);
}

// How often a function was called, or any with a null name.
EXPORT uint64_t emulator_calls(const char* name) {
    std::lock_guard<std::mutex> hold(driver().lock);
    if (!name) return calls().total;
    auto found = calls().by_name.find(name);
    return found == calls().by_name.end() ? 0 : found->second;
}

// Compilations that wait for each other, until so many are under way.
static std::mutex meeting;
static std::condition_variable met;
static unsigned expected = 0, arrived = 0;

EXPORT void emulator_meet(unsigned count) {
    std::lock_guard<std::mutex> hold(meeting);
    expected = count, arrived = 0;
}

// Whether as many come as are expected. They do not where something else lets in one at a time.
EXPORT int emulator_await_meeting() {
    std::unique_lock<std::mutex> hold(meeting);
    if (!expected) return 1;
    if (++arrived == expected) {
        expected = 0;
        met.notify_all();
        return 1;
    }
    return met.wait_for(hold, std::chrono::seconds(30), [] { return !expected; });
}

// Lets the n-th call from now fail with `error`; 0: none.
EXPORT void emulator_fail_call(uint64_t n, int error) {
    std::lock_guard<std::mutex> hold(driver().lock);
    calls().failing = n ? calls().total + n : 0;
    calls().error = error;
}

// Lets the n-th call of that function from now fail with `error`; 0: none.
EXPORT void emulator_fail_named(const char* name, uint64_t n, int error) {
    std::lock_guard<std::mutex> hold(driver().lock);
    calls().failing_name = name;
    calls().failing_of_name = n;
    calls().error = error;
}

// Lets this thread do `work` before its n-th call of that function from now.
EXPORT void emulator_before_named(const char* name, uint64_t n, void (*work)(void*), void* data) {
    before = {name, n, work, data};
}

// How many calls were made to fail.
EXPORT uint64_t emulator_failed() {
    std::lock_guard<std::mutex> hold(driver().lock);
    return calls().failed;
}

// How many misuses were seen: faults of kernels, barriers that not all threads reach, and the like.
EXPORT uint64_t emulator_complaints() {
    std::lock_guard<std::mutex> hold(driver().lock);
    return calls().complaints + host_accesses;
}

// Takes the last `count` of them back, which a test provoked.
EXPORT void emulator_forgive(uint64_t count) {
    std::lock_guard<std::mutex> hold(driver().lock);
    calls().complaints -= count < calls().complaints ? count : calls().complaints;
}

// The text of the last one, cut to `bytes` with its end.
EXPORT void emulator_last_complaint(char* text, Size bytes) {
    std::lock_guard<std::mutex> hold(driver().lock);
    if (bytes) snprintf(text, bytes, "%s", calls().last.c_str());
}

// For cublasLt, which does not hold the driver's lock.
EXPORT void emulator_count_descriptors(int change) {
    std::lock_guard<std::mutex> hold(driver().lock);
    driver().descriptors += change;
}

EXPORT void emulator_misuse(const char* text) {
    std::lock_guard<std::mutex> hold(driver().lock);
    complain("%s", text);
}

struct Report {
    uint64_t allocations, allocated_bytes, host_allocations, pool_allocations, physical, reservations,
        mappings, streams, events, modules, graphs, executables, pools, contexts, pending, used_bytes, communicators,
        registrations, descriptors;
};

// What is alive.
EXPORT void emulator_report(Report* report) {
    std::lock_guard<std::mutex> hold(driver().lock);
    Driver& d = driver();
    *report = Report{};
    for (auto& [address, region] : d.regions) {
        switch (region.kind) {
            case Region::ALLOCATED:
                report->allocations += 1;
                report->allocated_bytes += region.bytes;
                break;
            case Region::HOST: report->host_allocations += 1; break;
            case Region::MAPPED: report->mappings += 1; break;
            case Region::POOLED: break;
        }
    }
    report->pool_allocations = live_pooled();
    report->physical = live_physical();
    report->reservations = live_reservations();
    report->streams = d.streams.size();
    report->events = d.events.size();
    report->modules = d.modules.size();
    report->graphs = d.graphs.size();
    report->executables = d.executables.size();
    report->pools = live_pools();
    report->communicators = d.communicators;
    report->registrations = d.registered.size();
    report->descriptors = d.descriptors;
    for (auto& device : d.devices) {
        report->used_bytes += device->used;
        report->contexts += device->context != nullptr;
        if (!device->context) continue;
        for (auto& stream : device->context->streams) report->pending += stream->items.size();
    }
}

namespace {

// From here on the driver is as gone as a real one is after `exit`.
struct AtExit {
    ~AtExit() {
        Report report;
        emulator_report(&report);
        const char* asked = getenv("CACHESCOPE_EMULATOR_REPORT");
        if (asked && *asked && *asked != '0') {
            fprintf(stderr,
                    "cuda-emulator: %llu calls, %llu misuses; alive: %llu allocations, %llu host allocations, "
                    "%llu pool allocations, %llu physical, %llu reservations, %llu mappings, %llu streams, "
                    "%llu events, %llu modules, %llu graphs, %llu executables, %llu pools, %llu communicators, "
                    "%llu registrations, %llu descriptors; %llu items not run\n",
                    (unsigned long long)calls().total, (unsigned long long)(calls().complaints + host_accesses),
                    (unsigned long long)report.allocations, (unsigned long long)report.host_allocations,
                    (unsigned long long)report.pool_allocations, (unsigned long long)report.physical,
                    (unsigned long long)report.reservations, (unsigned long long)report.mappings,
                    (unsigned long long)report.streams, (unsigned long long)report.events,
                    (unsigned long long)report.modules, (unsigned long long)report.graphs,
                    (unsigned long long)report.executables, (unsigned long long)report.pools,
                    (unsigned long long)report.communicators, (unsigned long long)report.registrations,
                    (unsigned long long)report.descriptors, (unsigned long long)report.pending);
        } else if (calls().complaints + host_accesses) {
            fprintf(stderr, "cuda-emulator: %llu misuses in all, the last: %s\n",
                    (unsigned long long)(calls().complaints + host_accesses), calls().last.c_str());
        }
        std::lock_guard<std::mutex> hold(driver().lock);
        const char* path = getenv("CACHESCOPE_EMULATOR_CALLS");
        if (FILE* file = path && *path ? fopen(path, "w") : nullptr) {
            for (auto& [name, count] : calls().by_name)
                fprintf(file, "%s %llu %.3f\n", name.c_str(), (unsigned long long)count, spent(name.c_str()));
            fclose(file);
        }
        driver().ended = true;
    }
} at_exit;

}  // namespace
