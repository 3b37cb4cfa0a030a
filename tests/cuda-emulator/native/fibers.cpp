// Runs every thread of every block of a launch: in a plain loop, or, where a kernel has barriers or
// exchanges between lanes, each thread as a fiber of its own.
#include "emulator.hpp"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>

#include "abi.hpp"

namespace {

constexpr unsigned MOST_THREADS = 1024;
constexpr Size STACK = 128u << 10;
// Behind dynamic shared memory stands this pattern, which no kernel may change.
constexpr unsigned FENCE = 1024;
constexpr unsigned char FENCE_BYTE = 0x5C;

enum State { READY, AT_BARRIER, AT_EXCHANGE, DONE };

// An asynchronous copy that has not arrived.
struct Copy {
    void* to;
    const void* from;
    unsigned bytes;
    unsigned group;
};

struct Fiber {
    void* stack_pointer;
    State state;
    unsigned long long result;
    unsigned copy_groups;  // that ended
    std::vector<Copy> copies;
};

// Lanes of a warp that exchange values under one mask.
struct Group {
    unsigned mask = 0, arrived = 0;
    int kind = 0;
    unsigned long long values[32];
    unsigned sources[32];
};

struct Block {
    const Function* function;
    void** parameters;
    unsigned threads;
    unsigned current;  // the thread that runs
    void* scheduler;
    const char* failure;
    int counted, all, any;     // of this barrier's arrivals
    int results[3];            // of the last barrier
    bool copies_at_once;
    Fiber fibers[MOST_THREADS];
    std::vector<Group> groups[MOST_THREADS / 32];
};

Block* block = nullptr;  // the one that runs; guarded by the driver's lock

unsigned char* stacks() {
    static unsigned char* stacks = [] {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* p = mmap(nullptr, STACK * MOST_THREADS, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (p == MAP_FAILED) abort();
        // An overflow is a fault, not another thread's variables.
        for (unsigned i = 0; i < MOST_THREADS; ++i) mprotect((unsigned char*)p + i * STACK, 4096, PROT_NONE);
        return (unsigned char*)p;
    }();
    return stacks;
}

void fiber_main() {
    unsigned thread = block->current;
    block->function->entry->run(block->parameters, thread, thread + 1);
    block->fibers[thread].state = DONE;
}

#if defined(__x86_64__)
extern "C" void emulator_switch(void** save, void* to);
extern "C" void emulator_first();
asm(R"(
.text
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
emulator_first:
    call emulator_fiber
    ud2
)");

void prepare(unsigned thread) {
    auto** top = (void**)(stacks() + (thread + 1) * STACK);
    // As if it had called `emulator_switch` from the beginning of `emulator_first`.
    *--top = nullptr;
    *--top = nullptr;
    *--top = (void*)emulator_first;
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    block->fibers[thread].stack_pointer = top;
}

void resume(unsigned thread) {
    emulator_switch(&block->scheduler, block->fibers[thread].stack_pointer);
}

void suspend(unsigned thread) {
    emulator_switch(&block->fibers[thread].stack_pointer, block->scheduler);
}
#else
ucontext_t contexts[MOST_THREADS], scheduler_context;
extern "C" void emulator_fiber();

void prepare(unsigned thread) {
    getcontext(&contexts[thread]);
    contexts[thread].uc_stack.ss_sp = stacks() + thread * STACK + 4096;
    contexts[thread].uc_stack.ss_size = STACK - 4096;
    contexts[thread].uc_link = &scheduler_context;
    makecontext(&contexts[thread], emulator_fiber, 0);
}

void resume(unsigned thread) {
    swapcontext(&scheduler_context, &contexts[thread]);
}

void suspend(unsigned thread) {
    swapcontext(&contexts[thread], &scheduler_context);
}
#endif

}  // namespace

extern "C" void emulator_fiber() {
    fiber_main();
    suspend(block->current);
}

EXPORT void emulator_barrier() {
    emulator_barrier_reduce(1, 0);
}

EXPORT int emulator_barrier_reduce(int value, int kind) {
    block->counted += value != 0;
    block->all &= value != 0;
    block->any |= value != 0;
    unsigned thread = block->current;
    block->fibers[thread].state = AT_BARRIER;
    suspend(thread);
    return block->results[kind];
}

static void arrive(const Copy& copy) {
    unsigned char words[16] = {};
    if (copy.bytes) memcpy(words, copy.from, copy.bytes);
    memcpy(copy.to, words, sizeof(words));
}

// A copy may arrive at once, or not before the thread waits. Both happen, in turn by launches.
EXPORT void emulator_copy(void* to, const void* from, unsigned bytes) {
    Fiber& fiber = block->fibers[block->current];
    if ((Size)to % 16 || (bytes && (Size)from % 16) || bytes > 16) {
        block->failure = "an asynchronous copy of more than 16 bytes, or at an address that is no multiple of 16";
        suspend(block->current);
    }
    EmulatedTraffic* traffic = block->function->module->traffic;
    if (traffic && (Size)from >= traffic->begin && (Size)from < traffic->end) traffic->bytes += bytes;
    Copy copy = {to, from, bytes, fiber.copy_groups};
    if (block->copies_at_once) arrive(copy);
    else fiber.copies.push_back(copy);
}

EXPORT void emulator_end_copies() {
    block->fibers[block->current].copy_groups += 1;
}

EXPORT void emulator_await_copies(unsigned later) {
    Fiber& fiber = block->fibers[block->current];
    auto awaited = [&](const Copy& copy) { return copy.group + later < fiber.copy_groups; };
    Size kept = 0;
    for (Size i = 0; i < fiber.copies.size(); ++i) {
        if (awaited(fiber.copies[i])) arrive(fiber.copies[i]);
        else fiber.copies[kept++] = fiber.copies[i];
    }
    fiber.copies.resize(kept);
}

static void complete(Group& group, unsigned first) {
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
        if (group.mask >> lane & 1 && group.values[lane]) ballot |= 1u << lane;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(group.mask >> lane & 1)) continue;
        Fiber& fiber = block->fibers[first + lane];
        fiber.state = READY;
        if (group.kind == BALLOT) {
            fiber.result = ballot;
        } else if (group.kind == SHUFFLE) {
            unsigned source = group.sources[lane] & 31;
            // What a lane that takes no part has is not defined.
            fiber.result = group.mask >> source & 1 ? group.values[source] : 0xDEADBEEFDEADBEEFu;
        } else {
            unsigned equal = 0;
            for (unsigned other = 0; other < 32; ++other)
                if (group.mask >> other & 1 && group.values[other] == group.values[lane]) equal |= 1u << other;
            fiber.result = equal;
        }
    }
}

EXPORT unsigned long long emulator_exchange(int kind, unsigned mask, unsigned long long value, unsigned source) {
    unsigned thread = block->current, lane = thread % 32, first = thread - lane;
    if (!(mask >> lane & 1)) {
        block->failure = "a lane is not in the mask that it names";
        suspend(thread);
    }
    auto& groups = block->groups[thread / 32];
    Group* group = nullptr;
    for (auto& candidate : groups)
        if (candidate.mask == mask) group = &candidate;
    if (!group) {
        groups.emplace_back();
        group = &groups.back();
        group->mask = mask;
    }
    if (group->arrived && group->kind != kind) {
        block->failure = "lanes of a warp meet in different functions";
        suspend(thread);
    }
    group->kind = kind;
    group->arrived |= 1u << lane;
    group->values[lane] = value;
    group->sources[lane] = source;
    if (group->arrived == mask) {
        complete(*group, first);
        group->arrived = 0;
        if (groups.size() > 4) groups.erase(groups.begin() + (group - groups.data()));
    } else {
        block->fibers[thread].state = AT_EXCHANGE;
        suspend(thread);
    }
    return block->fibers[thread].result;
}

static void set_thread(const KernelModule& code, unsigned thread) {
    unsigned x = code.block_dim->x, y = code.block_dim->y;
    *code.thread = {thread % x, thread / x % y, thread / x / y};
}

// `direction` 1: from the last thread down. Which thread comes first must not matter.
static const char* run_fibers(unsigned direction) {
    for (unsigned i = 0; i < block->threads; ++i) {
        prepare(i);
        block->fibers[i].state = READY;
        block->fibers[i].copy_groups = 0;
        block->fibers[i].copies.clear();
    }
    for (auto& groups : block->groups) groups.clear();
    block->failure = nullptr;
    block->counted = 0, block->all = 1, block->any = 0;
    for (;;) {
        unsigned ran = 0, waiting = 0, done = 0;
        for (unsigned k = 0; k < block->threads; ++k) {
            unsigned i = direction & 1 ? block->threads - 1 - k : k;
            if (block->fibers[i].state == READY) {
                block->current = i;
                set_thread(*block->function->code, i);
                resume(i);
                ran += 1;
                if (block->failure) return block->failure;
            }
            waiting += block->fibers[i].state == AT_BARRIER;
            done += block->fibers[i].state == DONE;
        }
        if (done == block->threads) return nullptr;
        if (waiting == block->threads) {
            for (unsigned i = 0; i < block->threads; ++i) block->fibers[i].state = READY;
            block->results[0] = block->counted, block->results[1] = block->all, block->results[2] = block->any;
            block->counted = 0, block->all = 1, block->any = 0;
            direction += 1;
        } else if (!ran) {
            return done ? "a barrier or exchange that not all threads reach: some have ended"
                        : "a barrier or exchange that not all threads reach: some wait elsewhere";
        }
    }
}

namespace {

sigjmp_buf fault_return;
pthread_t fault_thread;
volatile sig_atomic_t fault_expected = 0;
void* volatile fault_address;

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction previous[4];

void on_fault(int number, siginfo_t* info, void*) {
    if (number == SIGSEGV && open_for_device(info->si_addr)) return;
    if (fault_expected && pthread_equal(pthread_self(), fault_thread)) {
        fault_address = info->si_addr;
        siglongjmp(fault_return, number);
    }
    static const bool stops = setting("CACHESCOPE_EMULATOR_ABORT", 0) != 0;
    if (number == SIGSEGV && in_arena(info->si_addr) && !stops) {
        // Told, and then let through, so that the program goes on and what else is wrong shows too.
        note_host_access();
        auto page = (void*)((Size)info->si_addr / 4096 * 4096);
        if (mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0) return;
    }
    // A fault of the program's own: as if nobody had been listening.
    for (int i = 0; i < 4; ++i)
        if (SIGNALS[i] == number) sigaction(number, &previous[i], nullptr);
}

}  // namespace

void listen_for_faults() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 4; ++i) sigaction(SIGNALS[i], &action, &previous[i]);
}

CUresult guarded(const char* what, const std::function<void()>& body) {
    fault_thread = pthread_self();
    CUresult outcome = SUCCESS;
    int number = sigsetjmp(fault_return, 1);
    if (number == 0) {
        fault_expected = 1;
        body();
    } else if (number == SIGFPE) {
        complain("%s divides an integer by zero, or the least by -1", what);
        outcome = ILLEGAL_INSTRUCTION;
    } else if (number == SIGILL) {
        complain("%s reads or writes at an address that is not aligned to the type, or traps", what);
        outcome = MISALIGNED_ADDRESS;
    } else {
        complain("%s reads or writes %p, which is not, or no longer, memory of the device", what, fault_address);
        outcome = ILLEGAL_ADDRESS;
    }
    fault_expected = 0;
    return outcome;
}

// What `__shared__` variables hold at first is nobody's to rely on; and behind the dynamic ones is nothing.
static void spoil_shared(const KernelModule& code, unsigned shared_bytes, unsigned char garbage) {
    // The linker may have put the dynamic part, which is much longer, among the others.
    bool among = code.dynamic && code.dynamic >= code.shared && code.dynamic < code.shared_end;
    const unsigned char* end = among ? code.dynamic : code.shared_end;
    if (end > code.shared) memset(code.shared, garbage, end - code.shared);
    if (!code.dynamic) return;
    const unsigned char* rest = code.dynamic + code.dynamic_bytes + FENCE;
    if (among && code.shared_end > rest) memset((void*)rest, garbage, code.shared_end - rest);
    memset(code.dynamic, garbage, shared_bytes);
    memset(code.dynamic + shared_bytes, FENCE_BYTE, FENCE);
}

static bool fence_stands(const KernelModule& code, unsigned shared_bytes) {
    for (unsigned i = 0; code.dynamic && i < FENCE; ++i)
        if (code.dynamic[shared_bytes + i] != FENCE_BYTE) return false;
    return true;
}

static Size kernel_bytes = 0;  // guarded by the driver's lock

// What kernels have read and written of the device, of those that were compiled to count it.
EXPORT uint64_t emulator_kernel_bytes() {
    std::lock_guard<std::mutex> hold(driver().lock);
    return kernel_bytes;
}

CUresult run_kernel(const Function& function, const unsigned grid[3], const unsigned dims[3], unsigned shared_bytes,
                    std::vector<unsigned char>& arguments) {
    static unsigned launches = 0;
    static Block* storage = new Block;
    block = storage;
    launches += 1;
    const KernelModule& code = *function.code;
    std::vector<void*> parameters(function.entry->count + 1);
    Size offset = 0;
    for (unsigned i = 0; i < function.entry->count; ++i) {
        offset = (offset + 15) / 16 * 16;
        parameters[i] = arguments.data() + offset;
        offset += function.entry->sizes[i];
    }
    block->function = &function;
    block->parameters = parameters.data();
    block->threads = dims[0] * dims[1] * dims[2];
    block->copies_at_once = launches & 1;
    const char* failure = nullptr;
    auto run = [&] {
        *code.block_dim = {dims[0], dims[1], dims[2]};
        *code.grid_dim = {grid[0], grid[1], grid[2]};
        unsigned number = launches;
        // No block may count on one that stands before it to have run: in every other launch those behind do.
        const bool backwards = launches & 1;
        const Size count = (Size)grid[0] * grid[1] * grid[2];
        for (Size k = 0; k < count; ++k, ++number) {
            const Size at = backwards ? count - 1 - k : k;
            const unsigned x = at % grid[0], y = at / grid[0] % grid[1], z = at / grid[0] / grid[1];
            *code.block = {x, y, z};
            spoil_shared(code, shared_bytes, number & 1 ? 0xFF : 0x7F);
            if (function.module->fibers) failure = run_fibers(number);
            else function.entry->run(parameters.data(), 0, block->threads);
            if (!failure && !fence_stands(code, shared_bytes))
                failure = "it writes behind its shared memory";
            if (failure) return;
        }
    };
    std::string name = "kernel `" + function.name + "`";
    EmulatedTraffic unknown{}, *traffic = function.module->traffic ? function.module->traffic : &unknown;
    arena_bounds(traffic->begin, traffic->end);
    traffic->bytes = 0;
    CUresult outcome = guarded(name.c_str(), run);
    kernel_bytes += traffic->bytes;
    work_moves("device:kernel", traffic->bytes);
    if (outcome || failure)
        complain("%s: %s, in block (%u, %u, %u), thread (%u, %u, %u)", name.c_str(), failure ? failure : "stopped",
                 code.block->x, code.block->y, code.block->z, code.thread->x, code.thread->y, code.thread->z);
    return outcome ? outcome : failure ? LAUNCH_FAILED : SUCCESS;
}
