// Work that several streams do together, once each of them has come to it. The driver and the libraries over several
// devices include this. All of it is guarded by the driver's lock, which whoever calls these functions holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

struct Stream;

// A place in a stream: behind everything that it was given so far.
struct Place {
    std::shared_ptr<Stream> stream;
    uint64_t position = 0;
    bool done() const;
};

enum Failure { CIRCLE, DEAD_CONTEXT };

struct Rendezvous {
    size_t expected = 0;  // so many streams, each as often as it joins
    size_t bytes = 0;     // what the work moves
    std::function<void()> work;
    std::function<void(Failure)> fail;  // makes it over without the work
    std::vector<Place> parties;         // before the item of each stream that has joined
    bool over = false;
    double time = 0;  // by the virtual clock: when it was over
};

using Together = std::vector<std::shared_ptr<Rendezvous>>;
// Joins what a stream is about to do with others: called for each submission, and for each launch of a graph.
using Arrival = std::function<Together()>;

extern "C" {
std::mutex* emulator_lock();
// Gives the stream of that device an item that is done when all of this is over, and says where it stands.
int emulator_submit_together(Stream* stream, int ordinal, const Arrival& arrival, Place* behind);
// Runs what is before a place, or says "not ready" where another thread must submit something first.
int emulator_advance(const Place& place);
// Waits, with the lock released, until somebody submits something or tells of another change.
void emulator_await_change();
void emulator_tell_of_change();
// The device of the thread's current context; below 0: there is none.
int emulator_current_device();
// Of how many allocations, or handles of `cuMemCreate`, these bytes are; 0: of the device they are not all.
size_t emulator_spans(uint64_t address, size_t bytes, int ordinal);
void emulator_register(uint64_t address, size_t bytes);
void emulator_deregister(uint64_t address, size_t bytes);
void emulator_count_communicators(int change);
void emulator_complain(const char* text);
}
