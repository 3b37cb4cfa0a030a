// A virtual clock: what calls and work would take on real hardware, by a table of costs.
//
// The host's clock goes on by the cost of each call; a stream's by what its work moves. Work begins when it was given, and
// when what stands before it is done; whoever waits for a place of a stream goes on when the stream has come there.
#include "emulator.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

static const char TABLES[] =
#include "costs.inc"
    ;

namespace {

struct Line {
    std::vector<std::pair<double, double>> points;  // bytes and microseconds
    bool linear = false;
    double at(double bytes) const {
        if (points.empty()) return 0;
        size_t next = 0;
        while (next < points.size() && points[next].first <= bytes) ++next;
        if (next == 0) return points.front().second;
        if (next == points.size()) {
            if (!linear || next == 1) return points.back().second;
            next -= 1;
        }
        auto [x0, y0] = points[next - 1];
        auto [x1, y1] = points[next];
        return y0 + (y1 - y0) * (bytes - x0) / (x1 - x0);
    }
};

struct Clock {
    bool on = false;
    std::map<std::string, Line> lines;
    double host = 0;
    double working = 0;  // of the work that runs now
    std::map<std::string, double> spent;

    void start() {
        std::istringstream rows(TABLES);
        std::string row;
        while (std::getline(rows, row)) {
            if (row.empty() || row[0] == '#') continue;
            std::istringstream fields(row);
            std::string call, bytes, microseconds, rule;
            std::getline(fields, call, ','), std::getline(fields, bytes, ',');
            std::getline(fields, microseconds, ','), std::getline(fields, rule, ',');
            if (call == "call") continue;
            Line& line = lines[call];
            line.points.push_back({strtod(bytes.c_str(), nullptr), strtod(microseconds.c_str(), nullptr)});
            line.linear = rule.find("linear") != std::string::npos;
        }
        on = true;
    }
};

Clock& state() {
    static Clock* clock = [] {
        auto* fresh = new Clock;
        const char* asked = getenv("CACHESCOPE_EMULATOR_COSTS");
        if (asked && *asked) fresh->start();
        return fresh;
    }();
    return *clock;
}

// The table names a function without its version.
std::string bare(const char* name) {
    std::string text = name;
    size_t version = text.rfind("_v");
    return version == std::string::npos ? text : text.substr(0, version);
}

void spend(const std::string& call, double microseconds) {
    state().host += microseconds;
    state().spent[call] += microseconds;
}

}  // namespace

bool clock_on() {
    return state().on;
}

void charge(const char* name) {
    if (!state().on) return;
    std::string call = bare(name);
    auto line = state().lines.find(call);
    if (line != state().lines.end()) spend(call, line->second.at(0));
}

void charge_size(const char* name, Size bytes) {
    if (!state().on) return;
    std::string call = bare(name);
    auto line = state().lines.find(call);
    if (line != state().lines.end()) spend(call, line->second.at((double)bytes) - line->second.at(0));
}

void charge_more(const char* name, Size bytes) {
    if (!state().on) return;
    std::string call = bare(name);
    auto line = state().lines.find(call);
    if (line != state().lines.end()) spend(call, line->second.at((double)bytes));
}

void work_moves(const char* kind, Size bytes) {
    if (!state().on) return;
    auto line = state().lines.find(kind);
    if (line != state().lines.end()) state().working += line->second.at((double)bytes);
}

double host_time() {
    return state().host;
}

double spent(const char* name) {
    auto found = state().spent.find(bare(name));
    return found == state().spent.end() ? 0 : found->second;
}

double take_work_time() {
    return std::exchange(state().working, 0.0);
}

void host_waits_until(double microseconds) {
    state().host = std::max(state().host, microseconds);
}

// Lets the clock run from now on.
EXPORT void emulator_run_clock() {
    std::lock_guard<std::mutex> hold(driver().lock);
    if (!state().on) state().start();
}

EXPORT int emulator_clock_on() {
    std::lock_guard<std::mutex> hold(driver().lock);
    return state().on;
}

// The host's clock, in microseconds; below 0 where it does not run.
EXPORT double emulator_clock() {
    std::lock_guard<std::mutex> hold(driver().lock);
    return state().on ? state().host : -1;
}

// What the calls of a function took by it.
EXPORT double emulator_spent(const char* name) {
    std::lock_guard<std::mutex> hold(driver().lock);
    return spent(name);
}
