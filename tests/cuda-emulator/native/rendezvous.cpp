// What several streams do together: whoever waits for one of them runs the others up to their part of it.
#include "emulator.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>

namespace {

// So long nobody waits for a stream that is merely slow.
constexpr auto LONG = std::chrono::seconds(60);

// Never destroyed: threads wait to the very end.
auto& changed = *new std::condition_variable_any;

bool is_goal(const std::vector<Place>& goals, const Place& place) {
    return std::any_of(goals.begin(), goals.end(), [&](const Place& goal) {
        return goal.stream == place.stream && goal.position == place.position;
    });
}

void hold(Rendezvous& rendezvous) {
    Context& context = *rendezvous.parties.front().stream->context;
    double begin = 0;
    for (auto& party : rendezvous.parties) begin = std::max(begin, party.stream->time_of(party.position));
    work_moves("device:within", rendezvous.bytes);
    context.sticky = guarded("a collective", rendezvous.work);
    rendezvous.time = begin + take_work_time();
    rendezvous.over = true;
}

}  // namespace

Turn take_turn(Rendezvous& rendezvous, const std::vector<Place>& goals, Place& next) {
    for (auto& party : rendezvous.parties) {
        if (!party.stream->context->sticky) continue;
        rendezvous.fail(DEAD_CONTEXT);
        return OVER;
    }
    for (auto& party : rendezvous.parties) {
        if (party.done()) continue;
        if (!is_goal(goals, party)) {
            next = party;
            return GO_THERE;
        }
        rendezvous.fail(CIRCLE);
        return OVER;
    }
    if (rendezvous.parties.size() < rendezvous.expected) return WAIT;
    hold(rendezvous);
    return OVER;
}

void await_change() {
    Closed closed;
    if (changed.wait_for(driver().lock, LONG) == std::cv_status::timeout)
        complain("for a minute a thread has waited for another device, to which nobody submits its part");
}

CUresult submit_together(const std::shared_ptr<Stream>& stream, const Arrival& arrival, Place* behind) {
    if (stream->capture) return capture_step(*stream, {{}, arrival});
    TRY(order_behind_legacy(*stream));
    stream->queries = 0;
    Item item{Work(), {}, host_time(), arrival()};
    Place before = stream->place();
    for (auto& rendezvous : item.together) rendezvous->parties.push_back(before);
    stream->items.push_back(std::move(item));
    if (behind) *behind = stream->place();
    changed.notify_all();
    return SUCCESS;
}

void complain_of_registered(const char* call, CUdeviceptr address, Size bytes) {
    for (auto& [start, length] : driver().registered)
        if (start < address + bytes && address < start + length)
            complain("%s of %zu bytes at %#llx, which are registered with a communicator", call, bytes, address);
}

EXPORT std::mutex* emulator_lock() {
    return &driver().lock;
}

EXPORT int emulator_submit_together(Stream* handle, int ordinal, const Arrival& arrival, Place* behind) {
    Context* context = current_context();
    if (!context) return INVALID_CONTEXT;
    if (context->sticky) return context->sticky;
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (stream->context->device->ordinal != ordinal) {
        complain("a stream of device %d is given a part of device %d", stream->context->device->ordinal, ordinal);
        return INVALID_HANDLE;
    }
    return submit_together(stream, arrival, behind);
}

EXPORT int emulator_advance(const Place& place) {
    return advance(place);
}

EXPORT void emulator_await_change() {
    await_change();
}

EXPORT void emulator_tell_of_change() {
    changed.notify_all();
}

EXPORT int emulator_current_device() {
    Context* context = current_context();
    return context ? context->device->ordinal : -1;
}

EXPORT Size emulator_spans(uint64_t address, Size bytes, int ordinal) {
    auto& regions = driver().regions;
    Size count = 0;
    for (CUdeviceptr at = address; at < address + bytes; ++count) {
        auto next = regions.upper_bound(at);
        if (next == regions.begin()) return 0;
        auto& [start, region] = *std::prev(next);
        bool is_device = region.kind != Region::HOST && region.device->ordinal == ordinal;
        if (!is_device || !region.accessible || at >= start + region.bytes) return 0;
        at = start + region.bytes;
    }
    return count;
}

EXPORT void emulator_register(uint64_t address, Size bytes) {
    driver().registered.emplace_back(address, bytes);
}

EXPORT void emulator_deregister(uint64_t address, Size bytes) {
    auto& registered = driver().registered;
    auto found = std::find(registered.begin(), registered.end(), std::pair<CUdeviceptr, Size>(address, bytes));
    if (found != registered.end()) registered.erase(found);
}

EXPORT void emulator_count_communicators(int change) {
    driver().communicators += change;
}

EXPORT void emulator_complain(const char* text) {
    complain("%s", text);
}
