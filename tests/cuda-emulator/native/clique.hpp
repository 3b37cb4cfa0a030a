// The ranks of a communicator, and what they do together: each call of a rank joins that of the others which matches it.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "reductions.hpp"
#include "rendezvous.hpp"

namespace nccl {

enum Status {
    OK = 0, UNHANDLED_CUDA = 1, SYSTEM = 2, INTERNAL = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6,
    IN_PROGRESS = 7,
};

// What `ncclGetLastError` says.
inline char last_error[1024];

// Tells of a misuse.
__attribute__((format(printf, 2, 3))) inline Status refuse(Status status, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    emulator_complain(last_error);
    return status;
}

enum Kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECEIVE };
constexpr const char* KINDS[] = {"ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclAllGather", "ncclReduceScatter",
                                 "ncclSend", "ncclRecv"};

// What a rank asks for.
struct Call {
    Kind kind;
    Type type = U8;
    Reduction reduction = SUM;
    int root = 0;  // of a message the peer
    size_t count = 0;
    uint64_t from = 0, to = 0;
    Stream* stream = nullptr;

    bool is_message() const { return kind == SEND || kind == RECEIVE; }
    bool reduces() const { return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER; }
    size_t bytes() const { return count * size_of(type); }
    std::string text() const {
        std::string text = std::string(KINDS[kind]) + " of " + std::to_string(count) + " of type " + std::to_string(type);
        if (reduces()) text += " by reduction " + std::to_string(reduction);
        if (kind == REDUCE || kind == BROADCAST) text += ", root " + std::to_string(root);
        return text;
    }
};

// What several ranks do as one; of a message, its sender and its receiver.
struct Operation : Rendezvous {
    Call first;  // of the rank that came first
    int first_rank = 0;
    size_t joined = 0;
    uint64_t number = 0;  // of a collective, among those of its communicator; from 1
    int sender = -1, receiver = -1;
    bool sent = false, received = false;
    std::vector<uint64_t> from, to;  // by rank

    bool suits(const Call& call) const {
        bool same = call.type == first.type && call.count == first.count;
        if (call.is_message()) return same && first.is_message();
        return same && call.kind == first.kind && call.root == first.root && call.reduction == first.reduction;
    }

    void add(int rank, const Call& call) {
        joined += 1;
        // Of a message to itself a rank has both sides.
        if (call.kind != RECEIVE) from[rank] = call.from;
        if (call.kind != SEND) to[rank] = call.to;
        sent |= call.kind == SEND;
        received |= call.kind == RECEIVE;
    }

    std::vector<const void*> sources(size_t offset) const {
        std::vector<const void*> sources;
        for (uint64_t address : from) sources.push_back((const void*)(address + offset));
        return sources;
    }

    void give_all(const std::vector<unsigned char>& made) const {
        for (uint64_t address : to) memcpy((void*)address, made.data(), made.size());
    }

    // Whatever is read is read before anything is written, which may stand in its place.
    void run() const {
        size_t share = first.bytes();
        std::vector<unsigned char> made(share * (first.kind == ALL_GATHER || first.kind == REDUCE_SCATTER ? from.size() : 1));
        if (first.reduces())
            reduce(first.type, first.reduction, sources(0), made.size() / size_of(first.type), made.data());
        switch (first.kind) {
            case ALL_REDUCE: return give_all(made);
            case REDUCE: memcpy((void*)to[first.root], made.data(), share); return;
            case BROADCAST: memcpy(made.data(), (const void*)from[first.root], share); return give_all(made);
            case ALL_GATHER:
                for (size_t rank = 0; rank < from.size(); ++rank)
                    memcpy(made.data() + rank * share, (const void*)from[rank], share);
                return give_all(made);
            case REDUCE_SCATTER:
                for (size_t rank = 0; rank < to.size(); ++rank) memcpy((void*)to[rank], made.data() + rank * share, share);
                return;
            default: memmove((void*)to[receiver], (const void*)from[sender], share);
        }
    }
};

struct Clique : std::enable_shared_from_this<Clique> {
    int size = 0;
    int arrived = 0;
    int ended = 0;  // ranks whose communicators are gone
    std::vector<int> devices;  // by rank; -1: it has not come
    Status error = OK;
    std::vector<std::shared_ptr<Operation>> open;

    void resize(int ranks) {
        size = ranks;
        devices.assign(ranks, -1);
    }

    // From now on nobody waits for anything.
    void fail(Status status) {
        if (!error) error = status;
        for (auto& operation : open) operation->over = true;
        open.clear();
        emulator_tell_of_change();
    }

    // A rank comes.
    Status enter(int ranks, int rank, int device) {
        Status status = OK;
        if (ranks != size)
            status = refuse(INVALID_USAGE, "rank %d makes a communicator of %d ranks, another one of %d", rank, ranks, size);
        else if (devices[rank] >= 0) status = refuse(INVALID_USAGE, "two threads are rank %d of a communicator", rank);
        for (int other = 0; !status && other < size; ++other)
            if (devices[other] == device)
                status = refuse(INVALID_USAGE, "ranks %d and %d of a communicator are both on device %d", other, rank, device);
        if (status) {
            fail(status);
            return status;
        }
        devices[rank] = device;
        arrived += 1;
        emulator_tell_of_change();
        return OK;
    }

    // The operation that a call is a part of; none where it does not suit the others' parts. `number` is that of the
    // rank's collective.
    std::shared_ptr<Operation> join(int rank, uint64_t number, const Call& call) {
        auto over = [](auto& operation) { return operation->over; };
        open.erase(std::remove_if(open.begin(), open.end(), over), open.end());
        auto operation = call.is_message() ? message(rank, call) : collective(number);
        if (operation->joined == 0) {
            operation->first = call;
            operation->first_rank = rank;
            operation->bytes = call.bytes();
        } else if (!operation->suits(call)) {
            refuse(INVALID_USAGE, "rank %d calls %s, where rank %d calls %s: all ranks call the same, in one order", rank,
                   call.text().c_str(), operation->first_rank, operation->first.text().c_str());
            fail(INVALID_USAGE);
            return nullptr;
        }
        operation->add(rank, call);
        return operation;
    }

private:
    std::shared_ptr<Operation> collective(uint64_t number) {
        for (auto& operation : open)
            if (operation->number == number) return operation;
        auto made = add(size);
        made->number = number;
        return made;
    }

    std::shared_ptr<Operation> message(int rank, const Call& call) {
        int sender = call.kind == SEND ? rank : call.root, receiver = call.kind == SEND ? call.root : rank;
        for (auto& operation : open) {
            bool is_there = call.kind == SEND ? operation->sent : operation->received;
            if (operation->sender == sender && operation->receiver == receiver && !is_there) return operation;
        }
        auto made = add(2);
        made->sender = sender;
        made->receiver = receiver;
        return made;
    }

    std::shared_ptr<Operation> add(size_t expected) {
        auto made = std::make_shared<Operation>();
        made->expected = expected;
        made->from.assign(size, 0);
        made->to.assign(size, 0);
        made->work = [operation = made.get()] { operation->run(); };
        made->fail = [operation = made.get(), clique = weak_from_this()](Failure failure) {
            if (failure == CIRCLE)
                refuse(INVALID_USAGE, "rank %d calls %s in another order than its peers: each waits for the other",
                       operation->first_rank, operation->first.text().c_str());
            operation->over = true;
            if (auto all = clique.lock()) all->fail(failure == CIRCLE ? INVALID_USAGE : REMOTE);
        };
        open.push_back(made);
        return made;
    }
};

}  // namespace nccl
