// Streams as queues that run as late as the rules allow, and events as places in them.
#include "emulator.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace {

// After so many questions without an answer, what is asked for runs: whoever polls comes to an end.
int patience() {
    static int patience = (int)setting("CACHESCOPE_EMULATOR_PATIENCE", 8);
    return patience;
}

double now_milliseconds() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
}

Stream* const LEGACY = reinterpret_cast<Stream*>(1);
Stream* const PER_THREAD = reinterpret_cast<Stream*>(2);

void sweep(Context& context) {
    auto& streams = context.streams;
    auto over = [](auto& stream) { return !stream->alive && stream->items.empty(); };
    streams.erase(std::remove_if(streams.begin(), streams.end(), over), streams.end());
}

}  // namespace

uint64_t thread_number() {
    static std::atomic<uint64_t> threads{0};
    thread_local uint64_t number = ++threads;
    return number;
}

// So many times are kept; what is older was done no later than the oldest of them.
static constexpr size_t TIMES = 1 << 16;

double Stream::time_of(uint64_t position) const {
    if (times.empty() || position == 0) return 0;
    uint64_t first = done - times.size();  // the items before it are not kept
    uint64_t index = position <= first ? 0 : position - first - 1;
    return times[std::min<uint64_t>(index, times.size() - 1)];
}

static void note_done(Stream& stream, double time) {
    if (!clock_on()) return;
    stream.times.push_back(std::max(time, stream.times.empty() ? 0 : stream.times.back()));
    if (stream.times.size() > TIMES) stream.times.pop_front();
}

bool Place::done() const {
    return !stream || stream->done >= position;
}

CUresult find_stream(Stream* handle, std::shared_ptr<Stream>& stream) {
    Context* context = current_context();
    if (!context) return INVALID_CONTEXT;
    if (!handle || handle == LEGACY || handle == PER_THREAD) {
        stream = context->legacy;
        return SUCCESS;
    }
    auto found = driver().streams.find(handle);
    if (found == driver().streams.end()) {
        complain("a stream that does not exist, or no longer, is used");
        return INVALID_HANDLE;
    }
    stream = found->second;
    return SUCCESS;
}

static double begin_of(const Stream& stream, const Item& item) {
    double begin = stream.times.empty() ? item.given : std::max(item.given, stream.times.back());
    if (item.before.stream) begin = std::max(begin, item.before.stream->time_of(item.before.position));
    for (auto& rendezvous : item.together) begin = std::max(begin, rendezvous->time);
    return begin;
}

static Rendezvous* first_open(const Item& item) {
    for (auto& rendezvous : item.together)
        if (!rendezvous->over) return rendezvous.get();
    return nullptr;
}

// Runs what stands before `place`, and what that waits for. The places still to be reached stand on a
// stack of their own, because a chain of waits may be longer than the thread's. Where another thread must submit
// something first, it waits for that with the lock released, after which everything may be different; or gives up.
static CUresult run_until(const Place& place, bool waits) {
    if (place.done()) return place.stream ? place.stream->context->sticky : SUCCESS;
    Opened opened;
    std::vector<Place> goals{place};
    while (!goals.empty()) {
        Place goal = goals.back();
        if (goal.done()) {
            goals.pop_back();
            continue;
        }
        Stream& stream = *goal.stream;
        Item& front = stream.items.front();
        if (!front.work && !front.before.done()) {
            goals.push_back(front.before);
            continue;
        }
        if (Rendezvous* open = first_open(front)) {
            Place next;
            Turn turn = take_turn(*open, goals, next);
            if (turn == GO_THERE) goals.push_back(next);
            if (turn == WAIT && !waits) return NOT_READY;
            if (turn == WAIT) await_change();
            continue;
        }
        Item item = std::move(front);
        stream.items.pop_front();
        stream.done += 1;
        Context& context = *stream.context;
        double begin = begin_of(stream, item);
        // Once a kernel has failed, nothing of its context runs any more.
        if (item.work && !context.sticky) context.sticky = item.work();
        note_done(stream, begin + take_work_time());
    }
    return place.stream ? place.stream->context->sticky : SUCCESS;
}

CUresult force(const Place& place) {
    return run_until(place, true);
}

CUresult advance(const Place& place) {
    return run_until(place, false);
}

CUresult force_all(Context& context) {
    // A copy, because what runs may end a stream's life.
    auto streams = context.streams;
    Opened opened;
    for (auto& stream : streams) force(stream->place());
    sweep(context);
    return context.sticky;
}

CUresult wait_for(const Place& place) {
    CUresult outcome = force(place);
    if (place.stream) host_waits_until(place.stream->time_of(place.position));
    return outcome;
}

// As `wait_for`, for a question: it does not wait for what others have not submitted.
static CUresult look_for(const Place& place) {
    CUresult outcome = advance(place);
    if (place.done()) host_waits_until(place.stream->time_of(place.position));
    return outcome;
}

CUresult wait_for_all(Context& context) {
    auto streams = context.streams;
    CUresult outcome = force_all(context);
    for (auto& stream : streams) host_waits_until(stream->time_of(stream->done));
    return outcome;
}

static void push_wait(Stream& stream, const Place& before) {
    // What is done may be so later by the virtual clock.
    if (!before.done() || (clock_on() && before.stream)) stream.items.push_back({Work(), before, host_time()});
}

// The legacy stream and those that block on it run in the order of the calls.
CUresult order_behind_legacy(Stream& stream) {
    Context& context = *stream.context;
    if (&stream == context.legacy.get()) {
        for (auto& other : context.streams) {
            if (other.get() == &stream || !other->blocking) continue;
            if (other->capture) return invalidate(*other->capture, CAPTURE_IMPLICIT);
            push_wait(stream, other->place());
        }
    } else if (stream.blocking) {
        push_wait(stream, context.legacy->place());
    }
    return SUCCESS;
}

CUresult submit(const std::shared_ptr<Stream>& stream, Work work) {
    if (stream->capture) return capture_step(*stream, {std::move(work), {}});
    TRY(order_behind_legacy(*stream));
    stream->queries = 0;
    stream->items.push_back({std::move(work), {}, host_time()});
    return SUCCESS;
}

EXPORT CUresult cuStreamCreateWithPriority(Stream** handle, unsigned flags, int priority) {
    BEGIN_IN_CONTEXT(cuStreamCreateWithPriority);
    if (flags > 1) return INVALID_VALUE;
    auto stream = std::make_shared<Stream>();
    stream->context = context;
    stream->blocking = flags == 0;
    stream->flags = flags;
    stream->priority = std::max(-5, std::min(0, priority));
    context->streams.push_back(stream);
    driver().streams[stream.get()] = stream;
    *handle = stream.get();
    return SUCCESS;
}

EXPORT CUresult cuStreamCreate(Stream** handle, unsigned flags) {
    return cuStreamCreateWithPriority(handle, flags, 0);
}

EXPORT CUresult cuStreamGetPriority(Stream* handle, int* priority) {
    BEGIN_IN_CONTEXT(cuStreamGetPriority);
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    *priority = stream->priority;
    return SUCCESS;
}

EXPORT CUresult cuStreamGetFlags(Stream* handle, unsigned* flags) {
    BEGIN_IN_CONTEXT(cuStreamGetFlags);
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    *flags = stream->flags;
    return SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(Stream* handle, Context** of) {
    BEGIN_IN_CONTEXT(cuStreamGetCtx);
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    *of = stream->context;
    return SUCCESS;
}

// What the stream was given is done all the same, whenever something waits for it.
EXPORT CUresult cuStreamDestroy_v2(Stream* handle) {
    BEGIN(cuStreamDestroy_v2);
    auto found = driver().streams.find(handle);
    if (found == driver().streams.end()) {
        complain("a stream is destroyed that does not exist, or no longer");
        return INVALID_HANDLE;
    }
    auto stream = found->second;
    if (stream->capture) invalidate(*stream->capture, CAPTURE_INVALIDATED);
    stream->alive = false;
    driver().streams.erase(found);
    sweep(*stream->context);
    return stream->context->sticky;
}

EXPORT CUresult cuStreamSynchronize(Stream* handle) {
    BEGIN_IN_CONTEXT(cuStreamSynchronize);
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (stream->capture) return invalidate(*stream->capture, CAPTURE_UNSUPPORTED);
    TRY(unsafe_in_capture());
    if (stream == context->legacy)
        for (auto& other : std::vector<std::shared_ptr<Stream>>(context->streams))
            if (other->blocking) wait_for(other->place());
    wait_for(stream->place());
    return context->sticky;
}

EXPORT CUresult cuStreamQuery(Stream* handle) {
    BEGIN_IN_CONTEXT(cuStreamQuery);
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (stream->capture) return invalidate(*stream->capture, CAPTURE_UNSUPPORTED);
    TRY(unsafe_in_capture());
    if (stream->items.empty()) return SUCCESS;
    if (++stream->queries <= patience()) return NOT_READY;
    return look_for(stream->place());
}

static CUresult find_event(Event* handle, Event*& event) {
    auto found = driver().events.find(handle);
    if (found == driver().events.end()) {
        complain("an event that does not exist, or no longer, is used");
        return INVALID_HANDLE;
    }
    event = found->second.get();
    return SUCCESS;
}

EXPORT CUresult cuEventCreate(Event** handle, unsigned flags) {
    BEGIN_IN_CONTEXT(cuEventCreate);
    if (flags & ~7u) return INVALID_VALUE;
    auto event = std::make_unique<Event>();
    event->context = context;
    event->timed = !(flags & 2);
    *handle = event.get();
    driver().events[event.get()] = std::move(event);
    return SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(Event* handle) {
    BEGIN(cuEventDestroy_v2);
    Event* event;
    TRY(find_event(handle, event));
    CUresult sticky = event->context->sticky;
    driver().events.erase(handle);
    return sticky;
}

EXPORT CUresult cuEventRecord(Event* handle, Stream* of) {
    BEGIN_IN_CONTEXT(cuEventRecord);
    Event* event;
    TRY(find_event(handle, event));
    std::shared_ptr<Stream> stream;
    TRY(find_stream(of, stream));
    if (stream->context != event->context) return INVALID_HANDLE;
    auto mark = std::make_shared<Mark>();
    if (stream->capture) {
        if (stream->capture->invalid) return CAPTURE_INVALIDATED;
        capture_record(*stream, *mark);
    } else {
        // Holds the mark, so that an event destroyed or recorded again before this runs does no harm.
        TRY(submit(stream, [mark] {
            mark->milliseconds = now_milliseconds();
            return SUCCESS;
        }));
        mark->place = stream->place();
    }
    event->mark = mark;
    return SUCCESS;
}

EXPORT CUresult cuEventRecordWithFlags(Event* handle, Stream* of, unsigned) {
    return cuEventRecord(handle, of);
}

EXPORT CUresult cuEventQuery(Event* handle) {
    BEGIN_IN_CONTEXT(cuEventQuery);
    Event* event;
    TRY(find_event(handle, event));
    if (event->mark && event->mark->capture) return invalidate(*event->mark->capture, CAPTURED_EVENT);
    TRY(unsafe_in_capture());
    if (!event->mark || event->mark->place.done()) return SUCCESS;
    if (++event->mark->queries <= patience()) return NOT_READY;
    return look_for(event->mark->place);
}

EXPORT CUresult cuEventSynchronize(Event* handle) {
    BEGIN_IN_CONTEXT(cuEventSynchronize);
    Event* event;
    TRY(find_event(handle, event));
    if (event->mark && event->mark->capture) return invalidate(*event->mark->capture, CAPTURED_EVENT);
    TRY(unsafe_in_capture());
    return event->mark ? wait_for(event->mark->place) : SUCCESS;
}

EXPORT CUresult cuStreamWaitEvent(Stream* of, Event* handle, unsigned) {
    BEGIN_IN_CONTEXT(cuStreamWaitEvent);
    Event* event;
    TRY(find_event(handle, event));
    std::shared_ptr<Stream> stream;
    TRY(find_stream(of, stream));
    if (stream->capture && stream->capture->invalid) return CAPTURE_INVALIDATED;
    if (!event->mark) return SUCCESS;
    if (stream->capture || event->mark->capture) return capture_wait(*stream, *event->mark);
    push_wait(*stream, event->mark->place);
    return SUCCESS;
}

static CUresult elapsed(float* milliseconds, Event* first, Event* last) {
    Event *start, *end;
    TRY(find_event(first, start));
    TRY(find_event(last, end));
    if (!start->timed || !end->timed || !start->mark || !end->mark) return INVALID_HANDLE;
    if (!start->mark->place.done() || !end->mark->place.done()) return NOT_READY;
    *milliseconds = (float)(end->mark->milliseconds - start->mark->milliseconds);
    return SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float* milliseconds, Event* first, Event* last) {
    BEGIN_IN_CONTEXT(cuEventElapsedTime);
    return elapsed(milliseconds, first, last);
}

// What a library's call named as its operands since it began.
static thread_local Size named_bytes = 0;

void begin_library_call() {
    named_bytes = 0;
}

// For the other libraries: gives work to a stream.
EXPORT int emulator_submit(Stream* handle, const std::function<void()>& work) {
    std::lock_guard<std::mutex> hold(driver().lock);
    Context* context = current_context();
    if (!context) return INVALID_CONTEXT;
    if (context->sticky) return context->sticky;
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    Size bytes = named_bytes;
    return submit(stream, [work, bytes] {
        work_moves("device:kernel", bytes);
        return guarded("a library's work", work);
    });
}

// For the other libraries: whether all of these bytes are memory of a device.
EXPORT int emulator_covered(CUdeviceptr address, Size bytes) {
    std::lock_guard<std::mutex> hold(driver().lock);
    named_bytes += bytes;
    return covered(address, bytes);
}
