// Stream capture, and the graphs that it makes.
#include "emulator.hpp"

#include <algorithm>

namespace {
thread_local int thread_mode = GLOBAL_CAPTURE;
}

CUresult invalidate(Capture& capture, CUresult error) {
    capture.invalid = true;
    return error;
}

// Calls that a capture forbids to its thread, and a global one to every thread, unless a thread said
// that it knows better.
CUresult unsafe_in_capture() {
    if (thread_mode == RELAXED_CAPTURE) return SUCCESS;
    for (auto& capture : driver().captures) {
        if (capture->mode == RELAXED_CAPTURE) continue;
        bool own = capture->thread == thread_number();
        bool global = capture->mode == GLOBAL_CAPTURE && thread_mode == GLOBAL_CAPTURE;
        if (own || global) return invalidate(*capture, CAPTURE_UNSUPPORTED);
    }
    return SUCCESS;
}

// A wait for a whole context ends each capture in it, whatever its mode, and in whatever thread.
CUresult end_captures(Context& context) {
    CUresult outcome = SUCCESS;
    for (auto& capture : driver().captures)
        if (capture->origin->context == &context) outcome = invalidate(*capture, CAPTURE_UNSUPPORTED);
    return outcome;
}

CUresult capture_step(Stream& stream, Step step) {
    Capture& capture = *stream.capture;
    if (capture.invalid) return CAPTURE_INVALIDATED;
    capture.steps.push_back(std::move(step));
    capture.given[&stream] += 1;
    return SUCCESS;
}

void capture_record(Stream& stream, Mark& mark) {
    Capture& capture = *stream.capture;
    mark.capture = stream.capture;
    mark.seen = capture.seen[&stream];
    mark.seen[&stream] = capture.given[&stream];
}

CUresult capture_wait(Stream& stream, const Mark& mark) {
    if (!mark.capture) return invalidate(*stream.capture, CAPTURE_ISOLATION);
    if (stream.capture && stream.capture != mark.capture) {
        invalidate(*stream.capture, CAPTURE_MERGE);
        return invalidate(*mark.capture, CAPTURE_MERGE);
    }
    Capture& capture = *mark.capture;
    bool active = std::find(driver().captures.begin(), driver().captures.end(), mark.capture) != driver().captures.end();
    if (!active) return CAPTURED_EVENT;
    if (capture.invalid) return CAPTURE_INVALIDATED;
    if (!stream.capture) {
        stream.capture = mark.capture;
        capture.streams.push_back(stream.shared_from_this());
    }
    auto& seen = capture.seen[&stream];
    for (auto& [other, position] : mark.seen) seen[other] = std::max(seen[other], position);
    return SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
    BEGIN(cuThreadExchangeStreamCaptureMode);
    if (!mode || *mode < 0 || *mode > 2) return INVALID_VALUE;
    std::swap(*mode, thread_mode);
    return SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture_v2(Stream* handle, int mode) {
    BEGIN_IN_CONTEXT(cuStreamBeginCapture_v2);
    if (mode < 0 || mode > 2) return INVALID_VALUE;
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (stream == context->legacy) return CAPTURE_UNSUPPORTED;
    if (stream->capture) return ILLEGAL_STATE;
    auto capture = std::make_shared<Capture>();
    capture->origin = stream.get();
    capture->mode = (CaptureMode)mode;
    capture->thread = thread_number();
    capture->streams.push_back(stream);
    stream->capture = capture;
    driver().captures.push_back(capture);
    return SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(Stream* handle, Graph** graph) {
    BEGIN_IN_CONTEXT(cuStreamEndCapture);
    *graph = nullptr;
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    auto capture = stream->capture;
    if (!capture) return ILLEGAL_STATE;
    if (capture->origin != stream.get()) return invalidate(*capture, CAPTURE_UNMATCHED);
    if (capture->mode != RELAXED_CAPTURE && capture->thread != thread_number()) return CAPTURE_WRONG_THREAD;
    auto& seen = capture->seen[stream.get()];
    bool joined = std::all_of(capture->streams.begin(), capture->streams.end(), [&](auto& other) {
        return other == stream || seen[other.get()] >= capture->given[other.get()];
    });
    for (auto& other : capture->streams) other->capture = nullptr;
    auto& captures = driver().captures;
    captures.erase(std::find(captures.begin(), captures.end(), capture));
    if (capture->invalid) return CAPTURE_INVALIDATED;
    if (!joined) return CAPTURE_UNJOINED;
    auto made = std::make_shared<Graph>();
    made->context = context;
    made->steps = std::move(capture->steps);
    driver().graphs[made.get()] = made;
    *graph = made.get();
    return SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(Stream* handle, int* status) {
    BEGIN_IN_CONTEXT(cuStreamIsCapturing);
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
    return SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(Stream* handle, int* status, uint64_t* id, Graph** graph, const void** nodes,
                                          Size* count) {
    BEGIN_IN_CONTEXT(cuStreamGetCaptureInfo_v2);
    std::shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
    if (id) *id = (uint64_t)stream->capture.get();
    if (graph) *graph = nullptr;
    if (nodes) *nodes = nullptr;
    if (count) *count = 0;
    return SUCCESS;
}

static CUresult find_graph(std::map<Graph*, std::shared_ptr<Graph>>& graphs, Graph* handle,
                           std::shared_ptr<Graph>& graph) {
    auto found = graphs.find(handle);
    if (found == graphs.end()) {
        complain("a graph that does not exist, or no longer, is used");
        return INVALID_HANDLE;
    }
    graph = found->second;
    return SUCCESS;
}

static CUresult instantiate(Graph** executable, Graph* handle) {
    Context* context = current_context();
    std::shared_ptr<Graph> graph;
    TRY(find_graph(driver().graphs, handle, graph));
    auto made = std::make_shared<Graph>(*graph);
    made->context = context;
    driver().executables[made.get()] = made;
    *executable = made.get();
    return SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
    BEGIN_IN_CONTEXT(cuGraphInstantiateWithFlags);
    return instantiate(executable, graph);
}

EXPORT CUresult cuGraphUpload(Graph* handle, Stream*) {
    BEGIN_IN_CONTEXT(cuGraphUpload);
    std::shared_ptr<Graph> graph;
    return find_graph(driver().executables, handle, graph);
}

EXPORT CUresult cuGraphLaunch(Graph* handle, Stream* of) {
    BEGIN_IN_CONTEXT(cuGraphLaunch);
    std::shared_ptr<Graph> graph;
    TRY(find_graph(driver().executables, handle, graph));
    std::shared_ptr<Stream> stream;
    TRY(find_stream(of, stream));
    for (auto& step : graph->steps)
        TRY(step.arrival ? submit_together(stream, step.arrival, nullptr) : submit(stream, step.work));
    return SUCCESS;
}

EXPORT CUresult cuGraphGetNodes(Graph* handle, void** nodes, Size* count) {
    BEGIN(cuGraphGetNodes);
    std::shared_ptr<Graph> graph;
    TRY(find_graph(driver().graphs, handle, graph));
    Size given = nodes ? std::min(*count, graph->steps.size()) : 0;
    for (Size i = 0; i < given; ++i) nodes[i] = &graph->steps[i];
    *count = nodes ? given : graph->steps.size();
    return SUCCESS;
}

EXPORT CUresult cuGraphDestroy(Graph* handle) {
    BEGIN(cuGraphDestroy);
    std::shared_ptr<Graph> graph;
    TRY(find_graph(driver().graphs, handle, graph));
    driver().graphs.erase(handle);
    return SUCCESS;
}

// A launch that has not run yet keeps what it needs.
EXPORT CUresult cuGraphExecDestroy(Graph* handle) {
    BEGIN(cuGraphExecDestroy);
    std::shared_ptr<Graph> graph;
    TRY(find_graph(driver().executables, handle, graph));
    driver().executables.erase(handle);
    return SUCCESS;
}
