// The functions of NCCL in use. Ranks are threads of one process, each on a device of its own. What they ask for runs
// in the order of their streams, when something waits for one of these and all have submitted their part.
#include <climits>
#include <tuple>

#include "communicator.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace nccl;

extern "C" int emulator_enter(const char* name);
extern "C" int cuMemAlloc_v2(unsigned long long* address, size_t bytes);
extern "C" int cuMemFree_v2(unsigned long long address);

namespace {

constexpr int VERSION = 23003;
constexpr int CUDA_NOT_READY = 600;
constexpr unsigned MAGIC = 0xcafebeef;

struct Id {
    char internal[128];
};

// What all versions of the structure begin with.
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

// A split that not all ranks have called yet.
struct Split {
    struct Part {
        int color, key, rank;
        Comm* child;
        bool operator<(const Part& other) const {
            return std::tie(color, key, rank) < std::tie(other.color, other.key, other.rank);
        }
    };
    Clique* parent;
    uint64_t number;
    std::vector<Part> parts;
    bool over = false;
};

// Never destroyed: threads call to the very end.
auto& cliques = *new std::map<uint64_t, std::shared_ptr<Clique>>;  // by the number in their id
auto& splits = *new std::vector<std::shared_ptr<Split>>;

Status read_config(const Config* config, bool& blocking) {
    if (!config) return OK;
    if (config->magic != MAGIC || config->size < sizeof(Config) || config->version < 21400)
        return refuse(INVALID_ARGUMENT, "a configuration was not initialized by NCCL_CONFIG_INITIALIZER");
    if (config->blocking != INT_MIN && config->blocking != 0 && config->blocking != 1)
        return refuse(INVALID_ARGUMENT, "a configuration says that `blocking` is %d", config->blocking);
    if (config->blocking != INT_MIN) blocking = config->blocking;
    return OK;
}

std::shared_ptr<Comm> make(int device, bool blocking) {
    auto comm = std::make_shared<Comm>();
    comm->device = device;
    comm->blocking = blocking;
    comms[comm.get()] = comm;
    emulator_count_communicators(1);
    return comm;
}

// Ends a handle. What its streams have been given stays.
void drop(Comm& comm) {
    comm.alive = false;
    comm.task = nullptr;
    comm.clique->ended += 1;
    emulator_tell_of_change();
    for (auto& [handle, range] : comm.registrations) emulator_deregister(range.address, range.bytes);
    emulator_count_communicators(-1);
    comms.erase(&comm);
}

Status init(Comm** handle, int size, const Id& id, int rank, const Config* config) {
    bool blocking = true;
    *handle = nullptr;
    if (Status error = read_config(config, blocking)) return error;
    int device = emulator_current_device();
    if (device < 0) return refuse(INVALID_USAGE, "rank %d makes a communicator without a current context", rank);
    uint64_t number;
    memcpy(&number, id.internal, sizeof number);
    auto found = cliques.find(number);
    if (found == cliques.end() || size < 1 || rank < 0 || rank >= size)
        return refuse(INVALID_ARGUMENT, "rank %d of %d: no such rank, or an id that nobody made, or that was used up", rank,
                      size);
    auto clique = found->second;
    if (clique->size == 0) clique->resize(size);
    clique->enter(size, rank, device);
    if (clique->arrived == size) cliques.erase(number);
    auto comm = make(device, blocking);
    comm->clique = clique;
    comm->rank = rank;
    *handle = comm.get();
    Status status = begin(comm, [=] { return clique->arrived == clique->size ? OK : IN_PROGRESS; });
    if (status == OK || status == IN_PROGRESS) return status;
    drop(*comm);
    *handle = nullptr;
    return status;
}

// Once all ranks have come, those of a color are ranks of a new communicator, in the order of their keys.
void form(Split& split) {
    std::sort(split.parts.begin(), split.parts.end());
    std::map<int, std::shared_ptr<Clique>> made;
    for (auto& part : split.parts) {
        if (part.color < 0 || !comms.count(part.child)) continue;
        auto& clique = made[part.color];
        if (!clique) clique = std::make_shared<Clique>();
        part.child->clique = clique;
        part.child->rank = clique->size;
        clique->devices.push_back(part.child->device);
        clique->arrived = clique->size += 1;
    }
    split.over = true;
    splits.erase(std::find_if(splits.begin(), splits.end(), [&](auto& other) { return other.get() == &split; }));
    emulator_tell_of_change();
}

std::shared_ptr<Split> find_split(Comm& comm) {
    uint64_t number = ++comm.splits;
    for (auto& split : splits)
        if (split->parent == comm.clique.get() && split->number == number) return split;
    splits.push_back(std::make_shared<Split>());
    splits.back()->parent = comm.clique.get();
    splits.back()->number = number;
    return splits.back();
}

Status split(const std::shared_ptr<Comm>& comm, int color, int key, Comm** handle, const Config* config) {
    bool blocking = comm->blocking;
    *handle = nullptr;
    if (Status error = ready("ncclCommSplit", *comm)) return error;
    if (Status error = read_config(config, blocking)) return error;
    if (color < -1) return refuse(INVALID_ARGUMENT, "ncclCommSplit of rank %d: there is no color %d", comm->rank, color);
    auto parts = find_split(*comm);
    auto parent = comm->clique;
    Task task = [=] { return parent->error ? parent->error : parts->over ? OK : IN_PROGRESS; };
    std::shared_ptr<Comm> child;
    if (color >= 0) {
        child = make(comm->device, blocking);
        child->clique = std::make_shared<Clique>();
        child->task = task;
        *handle = child.get();
    }
    parts->parts.push_back({color, key, comm->rank, child.get()});
    if ((int)parts->parts.size() == parent->size) form(*parts);
    Status status = begin(comm, task);
    if (child && blocking && group().depth) group().begun.push_back(child);
    else if (child && status != IN_PROGRESS) proceed(*child);
    if (status == OK || status == IN_PROGRESS || !child) return status;
    drop(*child);
    *handle = nullptr;
    return status;
}

// Whether what the rank's streams were given is done; what can run does.
Status flush(Comm& comm) {
    for (auto& [stream, place] : comm.places)
        if (int error = emulator_advance(place)) return error == CUDA_NOT_READY ? IN_PROGRESS : UNHANDLED_CUDA;
    return OK;
}

// Whether all ranks have finalized and are done with their work, which NCCL sees to in the background.
bool is_quiescent(const Clique& clique) {
    int count = clique.ended;
    for (auto& [handle, comm] : comms)
        if (comm->clique.get() == &clique && comm->finalizes && flush(*comm) == OK) count += 1;
    return count >= clique.size;
}

Status finalize(const std::shared_ptr<Comm>& comm) {
    if (Status error = ready("ncclCommFinalize", *comm)) return error;
    comm->finalizes = true;
    emulator_tell_of_change();
    return begin(comm, [own = comm.get()] {
        Status status = flush(*own);
        return status ? status : is_quiescent(*own->clique) ? OK : IN_PROGRESS;
    });
}

// Without a finalization before, a communicator that blocks waits for its own work.
Status destroy(const std::shared_ptr<Comm>& comm) {
    auto& clique = *comm->clique;
    while (comm->blocking && comm->alive && !clique.error && flush(*comm) == IN_PROGRESS) emulator_await_change();
    if (!comm->alive) return refuse(INVALID_USAGE, "two threads end one communicator");
    if (comm->task && !clique.error && clique.arrived == clique.size)
        return refuse(INVALID_ARGUMENT, "ncclCommDestroy of rank %d, whose last call is still in progress",
                      comm->rank);
    if (clique.arrived < clique.size) clique.fail(REMOTE);
    drop(*comm);
    return OK;
}

Status abort(const std::shared_ptr<Comm>& comm) {
    if (!is_quiescent(*comm->clique)) {
        snprintf(last_error, sizeof last_error, "rank %d was aborted", comm->rank);
        comm->clique->fail(REMOTE);
    }
    drop(*comm);
    return OK;
}

Status register_range(Comm& comm, uint64_t address, size_t bytes, void** handle) {
    static uint64_t last = 0x4E43430000;
    if (Status error = ready("ncclCommRegister", comm)) return error;
    size_t spans = bytes ? emulator_spans(address, bytes, comm.device) : 0;
    if (spans == 0)
        return refuse(INVALID_ARGUMENT, "ncclCommRegister of rank %d: %zu bytes at %#llx are not all memory of device %d",
                      comm.rank, bytes, (unsigned long long)address, comm.device);
    if (spans > 1)
        return refuse(INVALID_USAGE,
                      "ncclCommRegister of rank %d: %zu bytes at %#llx are of %zu handles, of which some versions "
                      "register the first alone",
                      comm.rank, bytes, (unsigned long long)address, spans);
    comm.registrations[++last] = {address, bytes};
    emulator_register(address, bytes);
    *handle = (void*)last;
    return OK;
}

Status deregister(Comm& comm, void* handle) {
    auto found = comm.registrations.find((uint64_t)handle);
    if (found == comm.registrations.end())
        return refuse(INVALID_ARGUMENT, "ncclCommDeregister of rank %d: nothing is registered by that handle", comm.rank);
    emulator_deregister(found->second.address, found->second.bytes);
    comm.registrations.erase(found);
    return OK;
}

Status async_error(Comm& comm, Status* status) {
    bool waits = !comm.blocking && comm.task && !comm.clique->error && comm.questions++ == 0;
    *status = waits ? IN_PROGRESS : proceed(comm);
    return OK;
}

Status made_to_fail(int error) {
    return error <= REMOTE ? (Status)error : INTERNAL;
}

}  // namespace

#define BEGIN(name)                                                     \
    if (int error = emulator_enter(#name)) return made_to_fail(error);  \
    std::lock_guard<std::mutex> hold(*emulator_lock())
#define COMM(name, handle)                \
    BEGIN(name);                          \
    auto comm = find(#name, handle);      \
    if (!comm) return INVALID_ARGUMENT

EXPORT Status ncclGetVersion(int* version) {
    BEGIN(ncclGetVersion);
    *version = VERSION;
    return OK;
}

EXPORT Status ncclGetUniqueId(Id* id) {
    BEGIN(ncclGetUniqueId);
    static uint64_t last = 0x1D00000000;
    memset(id, 0x5A, sizeof *id);
    memcpy(id->internal, &++last, sizeof last);
    cliques[last] = std::make_shared<Clique>();
    return OK;
}

EXPORT Status ncclCommInitRank(Comm** comm, int size, Id id, int rank) {
    BEGIN(ncclCommInitRank);
    return init(comm, size, id, rank, nullptr);
}

EXPORT Status ncclCommInitRankConfig(Comm** comm, int size, Id id, int rank, Config* config) {
    BEGIN(ncclCommInitRankConfig);
    return init(comm, size, id, rank, config);
}

EXPORT Status ncclCommSplit(Comm* handle, int color, int key, Comm** made, Config* config) {
    COMM(ncclCommSplit, handle);
    return split(comm, color, key, made, config);
}

EXPORT Status ncclCommFinalize(Comm* handle) {
    COMM(ncclCommFinalize, handle);
    return finalize(comm);
}

EXPORT Status ncclCommDestroy(Comm* handle) {
    COMM(ncclCommDestroy, handle);
    return destroy(comm);
}

EXPORT Status ncclCommAbort(Comm* handle) {
    COMM(ncclCommAbort, handle);
    return abort(comm);
}

EXPORT Status ncclCommGetAsyncError(Comm* handle, Status* status) {
    COMM(ncclCommGetAsyncError, handle);
    return async_error(*comm, status);
}

EXPORT const char* ncclGetErrorString(Status status) {
    constexpr const char* TEXTS[] = {
        "no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage",
        "remote process exited or there was a network error", "NCCL operation in progress",
    };
    return status >= OK && status <= IN_PROGRESS ? TEXTS[status] : "unknown result code";
}

EXPORT const char* ncclGetLastError(Comm*) {
    return last_error;
}

EXPORT Status ncclCommCount(Comm* handle, int* count) {
    COMM(ncclCommCount, handle);
    *count = comm->clique->size;
    return OK;
}

EXPORT Status ncclCommUserRank(Comm* handle, int* rank) {
    COMM(ncclCommUserRank, handle);
    *rank = comm->rank;
    return OK;
}

EXPORT Status ncclCommCuDevice(Comm* handle, int* device) {
    COMM(ncclCommCuDevice, handle);
    *device = comm->device;
    return OK;
}

EXPORT Status ncclAllReduce(uint64_t from, uint64_t to, size_t count, Type type, Reduction reduction, Comm* comm,
                            Stream* stream) {
    BEGIN(ncclAllReduce);
    return call(comm, {ALL_REDUCE, type, reduction, 0, count, from, to, stream});
}

EXPORT Status ncclReduce(uint64_t from, uint64_t to, size_t count, Type type, Reduction reduction, int root, Comm* comm,
                         Stream* stream) {
    BEGIN(ncclReduce);
    return call(comm, {REDUCE, type, reduction, root, count, from, to, stream});
}

EXPORT Status ncclBroadcast(uint64_t from, uint64_t to, size_t count, Type type, int root, Comm* comm, Stream* stream) {
    BEGIN(ncclBroadcast);
    return call(comm, {BROADCAST, type, SUM, root, count, from, to, stream});
}

EXPORT Status ncclAllGather(uint64_t from, uint64_t to, size_t count, Type type, Comm* comm, Stream* stream) {
    BEGIN(ncclAllGather);
    return call(comm, {ALL_GATHER, type, SUM, 0, count, from, to, stream});
}

EXPORT Status ncclReduceScatter(uint64_t from, uint64_t to, size_t count, Type type, Reduction reduction, Comm* comm,
                                Stream* stream) {
    BEGIN(ncclReduceScatter);
    return call(comm, {REDUCE_SCATTER, type, reduction, 0, count, from, to, stream});
}

EXPORT Status ncclSend(uint64_t from, size_t count, Type type, int peer, Comm* comm, Stream* stream) {
    BEGIN(ncclSend);
    return call(comm, {SEND, type, SUM, peer, count, from, 0, stream});
}

EXPORT Status ncclRecv(uint64_t to, size_t count, Type type, int peer, Comm* comm, Stream* stream) {
    BEGIN(ncclRecv);
    return call(comm, {RECEIVE, type, SUM, peer, count, 0, to, stream});
}

EXPORT Status ncclGroupStart() {
    BEGIN(ncclGroupStart);
    group().depth += 1;
    return OK;
}

EXPORT Status ncclGroupEnd() {
    BEGIN(ncclGroupEnd);
    if (group().depth == 0) return refuse(INVALID_USAGE, "ncclGroupEnd without ncclGroupStart");
    if (group().depth > 1) return group().depth -= 1, OK;
    return end_group();
}

EXPORT Status ncclCommRegister(Comm* handle, uint64_t address, size_t bytes, void** registration) {
    COMM(ncclCommRegister, handle);
    return register_range(*comm, address, bytes, registration);
}

EXPORT Status ncclCommDeregister(Comm* handle, void* registration) {
    COMM(ncclCommDeregister, handle);
    return deregister(*comm, registration);
}

EXPORT Status ncclMemAlloc(unsigned long long* address, size_t bytes) {
    if (int error = emulator_enter("ncclMemAlloc")) return made_to_fail(error);
    return cuMemAlloc_v2(address, bytes) ? UNHANDLED_CUDA : OK;
}

EXPORT Status ncclMemFree(unsigned long long address) {
    if (int error = emulator_enter("ncclMemFree")) return made_to_fail(error);
    return cuMemFree_v2(address) ? UNHANDLED_CUDA : OK;
}
