// A communicator, and how its calls begin and come to their end.
#pragma once

#include <map>

#include "clique.hpp"

namespace nccl {

// What a communicator is at: asked again until it is no longer in progress.
using Task = std::function<Status()>;

struct Registration {
    uint64_t address;
    size_t bytes;
};

struct Comm {
    std::shared_ptr<Clique> clique;
    int rank = 0, device = 0;
    bool blocking = true, alive = true, finalizes = false;
    uint64_t collectives = 0, splits = 0;
    Status error = OK;
    Task task;
    int questions = 0;
    std::map<Stream*, Place> places;  // behind the last work of each stream
    std::map<uint64_t, Registration> registrations;
};

// What a thread has called since it began a group.
struct Group {
    int depth = 0;
    Status error = OK;
    std::vector<std::pair<std::shared_ptr<Comm>, std::vector<Call>>> calls;
    std::vector<std::shared_ptr<Comm>> begun;
};

// Never destroyed: threads call to the very end.
inline auto& comms = *new std::map<Comm*, std::shared_ptr<Comm>>;

inline Group& group() {
    static thread_local Group* group = new Group;
    return *group;
}

inline std::shared_ptr<Comm> find(const char* name, Comm* handle) {
    auto found = comms.find(handle);
    if (found != comms.end()) return found->second;
    refuse(INVALID_ARGUMENT, "%s of a communicator that does not exist, or no longer", name);
    return nullptr;
}

inline Status proceed(Comm& comm) {
    if (!comm.error) comm.error = comm.clique->error;
    if (comm.error) comm.task = nullptr;
    if (!comm.task) return comm.error;
    Status status = comm.task();
    if (status == IN_PROGRESS) return status;
    comm.task = nullptr;
    return comm.error = status;
}

inline Status finish(Comm& comm) {
    for (;;) {
        Status status = proceed(comm);
        if (status != IN_PROGRESS) return status;
        emulator_await_change();
    }
}

// A communicator that blocks comes to the end of it here, or at the end of the group.
inline Status begin(const std::shared_ptr<Comm>& comm, Task task) {
    comm->task = std::move(task);
    comm->questions = 0;
    if (!comm->blocking) return IN_PROGRESS;
    if (group().depth == 0) return finish(*comm);
    group().begun.push_back(comm);
    return OK;
}

// Whether a new call may be made.
inline Status ready(const char* name, Comm& comm) {
    if (Status error = comm.error ? comm.error : comm.clique->error) return error;
    if (comm.finalizes) return refuse(INVALID_USAGE, "%s of rank %d, which is finalized", name, comm.rank);
    if (comm.task)
        return refuse(INVALID_ARGUMENT, "%s of rank %d, whose last call is still in progress", name, comm.rank);
    return OK;
}

inline Status check_memory(const char* name, const Comm& comm, uint64_t address, size_t bytes, Type type) {
    if (address % size_of(type) == 0 && emulator_spans(address, bytes, comm.device) > 0) return OK;
    return refuse(INVALID_ARGUMENT, "%s of rank %d: %zu bytes at %#llx are not, or no longer, all memory of device %d", name,
                  comm.rank, bytes, (unsigned long long)address, comm.device);
}

// Both sides are memory of the rank's device, and stand apart or where NCCL calls it in place.
inline Status check_sides(const Comm& comm, const Call& call) {
    const char* name = KINDS[call.kind];
    size_t share = call.bytes(), all = share * comm.clique->size, ahead = share * comm.rank;
    bool reads = call.kind != RECEIVE && (call.kind != BROADCAST || call.root == comm.rank);
    bool writes = call.kind != SEND && (call.kind != REDUCE || call.root == comm.rank);
    size_t read = call.kind == REDUCE_SCATTER ? all : share, written = call.kind == ALL_GATHER ? all : share;
    if (reads)
        if (Status error = check_memory(name, comm, call.from, read, call.type)) return error;
    if (writes)
        if (Status error = check_memory(name, comm, call.to, written, call.type)) return error;
    uint64_t from = call.kind == ALL_GATHER ? call.from - ahead : call.from;
    uint64_t to = call.kind == REDUCE_SCATTER ? call.to - ahead : call.to;
    bool apart = !reads || !writes || call.from + read <= call.to || call.to + written <= call.from;
    if (apart || from == to) return OK;
    return refuse(INVALID_ARGUMENT, "%s of rank %d: what is read and what is written overlap", name, comm.rank);
}

inline Status check(Comm& comm, const Call& call) {
    const char* name = KINDS[call.kind];
    if (Status error = ready(name, comm)) return error;
    if (call.type < 0 || call.type >= TYPES || call.reduction < 0 || call.reduction >= REDUCTIONS || call.root < 0 ||
        call.root >= comm.clique->size)
        return refuse(INVALID_ARGUMENT, "%s of rank %d: there is no such type %d, reduction %d or rank %d", name, comm.rank,
                      call.type, call.reduction, call.root);
    return call.count ? check_sides(comm, call) : OK;
}

inline Together arrive(Comm& comm, const std::vector<Call>& calls) {
    Together together;
    if (!comm.alive) refuse(INVALID_USAGE, "a graph runs %s of a communicator that is gone", calls.front().text().c_str());
    if (!comm.alive || comm.clique->error) return together;
    for (auto& call : calls) {
        if (!call.is_message()) comm.collectives += 1;
        auto operation = comm.clique->join(comm.rank, comm.collectives, call);
        if (!operation) break;
        together.push_back(operation);
    }
    return together;
}

// Gives the calls to their streams: those of one stream as one item, in which messages do not wait for each other.
inline Status issue(const std::shared_ptr<Comm>& comm, const std::vector<Call>& calls) {
    std::vector<std::pair<Stream*, std::vector<Call>>> by_stream;
    for (auto& call : calls) {
        auto same = [&](auto& part) { return part.first == call.stream; };
        auto found = std::find_if(by_stream.begin(), by_stream.end(), same);
        if (found == by_stream.end()) found = by_stream.insert(found, {call.stream, {}});
        found->second.push_back(call);
    }
    for (auto& [stream, part] : by_stream) {
        Place behind;
        auto arrival = [comm, part = part] { return arrive(*comm, part); };
        if (emulator_submit_together(stream, comm->device, arrival, &behind)) return UNHANDLED_CUDA;
        if (behind.stream) comm->places[behind.stream.get()] = behind;
    }
    return comm->clique->error;
}

inline Status call(Comm* handle, const Call& asked) {
    auto comm = find(KINDS[asked.kind], handle);
    Status status = comm ? check(*comm, asked) : INVALID_ARGUMENT;
    if (status && !group().error) group().error = status;
    if (status || asked.count == 0) return status;
    if (group().depth == 0) return begin(comm, [=] { return issue(comm, {asked}); });
    auto& calls = group().calls;
    auto found = std::find_if(calls.begin(), calls.end(), [&](auto& part) { return part.first == comm; });
    if (found == calls.end()) found = calls.insert(found, {comm, {}});
    found->second.push_back(asked);
    return OK;
}

inline Status end_group() {
    Group ended;
    std::swap(ended, group());
    if (ended.error) return ended.error;
    Status outcome = OK;
    for (auto& [comm, calls] : ended.calls) {
        Status status = begin(comm, [comm = comm, calls = calls] { return issue(comm, calls); });
        if (status && outcome <= OK) outcome = status;
    }
    for (auto& comm : ended.begun) {
        Status status = finish(*comm);
        if (status) outcome = status;
    }
    return outcome;
}

}  // namespace nccl
