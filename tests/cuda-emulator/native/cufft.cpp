// The few functions of cuFFT in use, by plain algorithms in doubles that run in the order of the plan's stream. A plan
// has no memory of its own: where it takes a work area, each transform leaves garbage there, and one to real numbers in
// what it read. Its tables are filled by work on the legacy stream.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" int emulator_enter(const char* name);
// Gives work to a stream; its error where that is no stream of the current context.
extern "C" int emulator_submit(void* stream, const std::function<void()>& work);
extern "C" int emulator_covered(uint64_t address, uint64_t bytes);
extern "C" int cuCtxSynchronize();
// Complains of a stream that does not exist, or no longer.
extern "C" int cuStreamGetFlags(void* stream, unsigned* flags);

using Status = int;
using Length = long long;
using Number = std::complex<double>;
enum : Status {
    OK = 0, INVALID_PLAN = 1, ALLOC_FAILED = 2, INVALID_TYPE = 3, INVALID_VALUE = 4, INTERNAL = 5, EXEC_FAILED = 6,
    INVALID_SIZE = 8, UNALIGNED_DATA = 9, NO_WORKSPACE = 13, NOT_SUPPORTED = 16,
};
enum Type { R2C = 0x2a, C2R = 0x2c, C2C = 0x29, D2Z = 0x6a, Z2D = 0x6c, Z2Z = 0x69 };

namespace {

bool is_wide(Type type) { return type == D2Z || type == Z2D || type == Z2Z; }
bool is_forward(Type type) { return type == R2C || type == D2Z; }
bool is_inverse(Type type) { return type == C2R || type == Z2D; }

// Whether a prime above 127 divides the length: no kernel of the library has such a radix.
bool has_large_prime(Length length) {
    for (Length prime = 2; prime <= 127; ++prime)
        while (length % prime == 0) length /= prime;
    return length > 1;
}

// The numbers of one side of a transform, each of which is real, or complex.
struct Side {
    bool complex;
    Length rows, length;  // of a matrix that is there; one row where the rank is 1
    Length pitch;         // from one row to the next, in strides
    Length stride, distance;

    Length place(Length number, Length row, Length at) const {
        return number * distance + (row * pitch + at) * stride;
    }
    // One more than the last place.
    Length reach(Length count) const { return place(count - 1, rows - 1, length - 1) + 1; }
    bool is_disjoint(Length count) const {
        Length inside = ((rows - 1) * pitch + length - 1) * stride;
        return count == 1 || distance > inside || stride > (count - 1) * distance;
    }
};

struct Plan {
    bool allocates = true, made = false, filled = false, alive = true;
    Type type = C2C;
    int rank = 1;
    Length rows = 1, length = 1, count = 1;
    Side from{}, to{};
    size_t work_bytes = 0;
    void* work_area = nullptr;
    void* stream = nullptr;
};

std::mutex lock;
std::map<int, std::shared_ptr<Plan>> plans;
int last_number = 0;

std::shared_ptr<Plan> find(int number) {
    std::lock_guard<std::mutex> hold(lock);
    auto found = plans.find(number);
    return found == plans.end() ? nullptr : found->second;
}

int smallest_factor(int n) {
    for (int p = 2; p * p <= n; ++p)
        if (n % p == 0) return p;
    return n;
}

// The roots of unity: w[k] = exp(sign 2 pi i k / n); those of whole quarters are exact.
std::vector<Number> roots(Length n, double sign) {
    const Number quarters[] = {{1, 0}, {0, sign}, {-1, 0}, {0, -sign}};
    std::vector<Number> w(n);
    for (Length k = 0; k < n; ++k) {
        bool exact = 4 * k % n == 0;
        w[k] = exact ? quarters[4 * k / n] : std::polar(1.0, sign * 2 * M_PI * (double)k / (double)n);
    }
    return w;
}

// Cooley and Tukey's algorithm, by the smallest factor first; of a prime, its sums. `w` has the roots of the whole
// length, which is `n` times `step`.
void by_factors(const Number* from, Length step, Number* to, Length n, const std::vector<Number>& w) {
    if (n == 1) {
        *to = *from;
        return;
    }
    Length p = smallest_factor((int)n), m = n / p, all = (Length)w.size();
    for (Length r = 0; r < p; ++r) by_factors(from + r * step, step * p, to + r * m, m, w);
    std::vector<Number> terms(p);
    for (Length k = 0; k < m; ++k) {
        for (Length r = 0; r < p; ++r) terms[r] = to[r * m + k] * w[r * k * step % all];
        for (Length q = 0; q < p; ++q) {
            Number sum = 0;
            for (Length r = 0; r < p; ++r) sum += terms[r] * w[r * q % p * (all / p)];
            to[q * m + k] = sum;
        }
    }
}

// Bluestein's algorithm: a convolution, for lengths with large prime factors.
void by_chirp(Number* row, Length n, double sign) {
    Length m = 1;
    while (m < 2 * n - 1) m *= 2;
    std::vector<Number> chirp(n), a(m), b(m), spectrum_a(m), spectrum_b(m);
    // The square modulo 2n, so that the angle stays exact.
    for (Length k = 0; k < n; ++k) chirp[k] = std::polar(1.0, sign * M_PI * (double)(k * k % (2 * n)) / (double)n);
    for (Length k = 0; k < n; ++k) {
        a[k] = row[k] * chirp[k];
        b[k] = b[(m - k) % m] = std::conj(chirp[k]);
    }
    auto w = roots(m, -1);
    by_factors(a.data(), 1, spectrum_a.data(), m, w);
    by_factors(b.data(), 1, spectrum_b.data(), m, w);
    for (Length k = 0; k < m; ++k) spectrum_a[k] *= spectrum_b[k];
    by_factors(spectrum_a.data(), 1, a.data(), m, roots(m, 1));
    for (Length k = 0; k < n; ++k) row[k] = a[k] * chirp[k] / (double)m;
}

// Replaces a row by its transform.
void transform(std::vector<Number>& row, double sign) {
    Length n = (Length)row.size(), largest = 1;
    for (Length rest = n; rest > 1; rest /= largest) largest = std::max(largest, (Length)smallest_factor((int)rest));
    if (largest > 50) return by_chirp(row.data(), n, sign);
    std::vector<Number> made(n);
    by_factors(row.data(), 1, made.data(), n, roots(n, sign));
    row = std::move(made);
}

template <class T>
Number load(const void* base, const Side& side, Length place) {
    const T* numbers = (const T*)base;
    if (!side.complex) return numbers[place];
    return {numbers[2 * place], numbers[2 * place + 1]};
}

template <class T>
void store(void* base, const Side& side, Length place, Number value) {
    T* numbers = (T*)base;
    if (!side.complex) {
        numbers[place] = (T)value.real();
        return;
    }
    numbers[2 * place] = (T)value.real();
    numbers[2 * place + 1] = (T)value.imag();
}

template <class T>
void run(const Plan& plan, const void* from, void* to, double sign) {
    if (plan.work_bytes) memset(plan.work_area, 0xFF, plan.work_bytes);
    Length rows = plan.rows, n = plan.length;
    for (Length number = 0; number < plan.count; ++number) {
        std::vector<std::vector<Number>> matrix(rows, std::vector<Number>(n));
        for (Length row = 0; row < rows; ++row)
            for (Length at = 0; at < plan.from.length; ++at) {
                Number value = load<T>(from, plan.from, plan.from.place(number, row, at));
                matrix[row][at] = value;
                // What half of a spectrum says of the other one.
                if (is_inverse(plan.type) && at > 0 && 2 * at < n) matrix[row][n - at] = std::conj(value);
            }
        for (auto& row : matrix) transform(row, sign);
        for (Length at = 0; rows > 1 && at < n; ++at) {
            std::vector<Number> column(rows);
            for (Length row = 0; row < rows; ++row) column[row] = matrix[row][at];
            transform(column, sign);
            for (Length row = 0; row < rows; ++row) matrix[row][at] = column[row];
        }
        for (Length row = 0; row < rows; ++row)
            for (Length at = 0; at < plan.to.length; ++at)
                store<T>(to, plan.to, plan.to.place(number, row, at), matrix[row][at]);
    }
    if (!is_inverse(plan.type)) return;
    for (Length number = 0; number < plan.count; ++number)
        for (Length at = 0; at < plan.from.length; ++at)
            store<T>((void*)from, plan.from, plan.from.place(number, 0, at), {NAN, NAN});
}

bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

// Both sides must be memory of the device, suit their type, and stand apart or, with equal places, in one place.
Status check(const Plan& plan, uint64_t from, uint64_t to) {
    uint64_t real = is_wide(plan.type) ? 8 : 4;
    auto bytes = [&](const Side& side) { return side.reach(plan.count) * real * (side.complex ? 2 : 1); };
    uint64_t from_bytes = bytes(plan.from), to_bytes = bytes(plan.to);
    if (!from || !to) return INVALID_VALUE;
    // Real numbers too must stand where a complex one might.
    if (from % (2 * real) || to % (2 * real)) return UNALIGNED_DATA;
    if (!emulator_covered(from, from_bytes) || !emulator_covered(to, to_bytes)) return EXEC_FAILED;
    bool same = from == to && plan.from.complex == plan.to.complex && plan.from.stride == plan.to.stride &&
                (plan.count == 1 || plan.from.distance == plan.to.distance) &&
                (plan.rows == 1 || plan.from.pitch == plan.to.pitch);
    if (!same && overlap(from, from_bytes, to, to_bytes)) return INVALID_VALUE;
    if (!plan.work_bytes) return OK;
    uint64_t area = (uint64_t)plan.work_area;
    if (!area) return NO_WORKSPACE;
    if (area % 16 || overlap(area, plan.work_bytes, from, from_bytes) || overlap(area, plan.work_bytes, to, to_bytes))
        return INVALID_VALUE;
    return emulator_covered(area, plan.work_bytes) ? OK : EXEC_FAILED;
}

Status execute(int handle, Type type, void* from, void* to, int direction) {
    auto plan = find(handle);
    if (!plan || !plan->made) return INVALID_PLAN;
    if (plan->type != type) return INVALID_TYPE;
    if (direction != -1 && direction != 1) return INVALID_VALUE;
    if (Status status = check(*plan, (uint64_t)from, (uint64_t)to)) return status;
    Plan state = *plan;  // what is set later is for later transforms
    int error = emulator_submit(state.stream, [=] {
        // The plan's tables come after it, and are gone with it.
        if (!plan->filled || !plan->alive) *(volatile char*)nullptr = 0;
        if (is_wide(type)) run<double>(state, from, to, direction);
        else run<float>(state, from, to, direction);
    });
    return error ? EXEC_FAILED : OK;
}

}  // namespace

#define BEGIN(name) \
    if (int error = emulator_enter(#name)) return error == ALLOC_FAILED ? ALLOC_FAILED : INTERNAL
#define PLAN(handle)           \
    auto plan = find(handle);  \
    if (!plan) return INVALID_PLAN
#define CHECK(condition) \
    if (!(condition)) return INVALID_VALUE

EXPORT Status cufftCreate(int* handle) {
    BEGIN(cufftCreate);
    std::lock_guard<std::mutex> hold(lock);
    *handle = ++last_number;
    plans[*handle] = std::make_shared<Plan>();
    return OK;
}

EXPORT Status cufftDestroy(int handle) {
    BEGIN(cufftDestroy);
    PLAN(handle);
    unsigned flags;
    cuStreamGetFlags(plan->stream, &flags);
    std::lock_guard<std::mutex> hold(lock);
    plan->alive = false;
    plans.erase(handle);
    return OK;
}

EXPORT Status cufftSetAutoAllocation(int handle, int is_on) {
    BEGIN(cufftSetAutoAllocation);
    PLAN(handle);
    CHECK(!plan->made);
    plan->allocates = is_on != 0;
    return OK;
}

EXPORT Status cufftMakePlanMany64(int handle, int rank, Length* n, Length* from_rows, Length from_stride,
                                  Length from_distance, Length* to_rows, Length to_stride, Length to_distance, int type,
                                  Length count, size_t* work_bytes) {
    BEGIN(cufftMakePlanMany64);
    PLAN(handle);
    if (plan->made) return INVALID_PLAN;
    // What would take memory, and what nobody asks for.
    if (plan->allocates || rank < 1 || rank > 2 || !from_rows || !to_rows) return NOT_SUPPORTED;
    Type known = (Type)type;
    if (known != C2C && known != Z2Z && !is_forward(known) && !is_inverse(known)) return INVALID_TYPE;
    if (rank == 2 && known != C2C && known != Z2Z) return NOT_SUPPORTED;
    for (int axis = 0; axis < rank; ++axis)
        if (n[axis] < 1 || n[axis] > INT32_MAX) return INVALID_SIZE;
    if (count < 1) return INVALID_SIZE;
    CHECK(from_stride > 0 && to_stride > 0 && from_distance >= 0 && to_distance >= 0 && work_bytes);
    Length length = n[rank - 1], rows = rank == 2 ? n[0] : 1, half = length / 2 + 1;
    Side from{!is_forward(known), rows, is_inverse(known) ? half : length, from_rows[rank - 1], from_stride, from_distance};
    Side to{!is_inverse(known), rows, is_forward(known) ? half : length, to_rows[rank - 1], to_stride, to_distance};
    CHECK(from.pitch >= from.length && to.pitch >= to.length && to.is_disjoint(count));
    // Such a plan has a table that kernels fill, for which the library waits.
    if ((has_large_prime(length) || has_large_prime(rows)) && cuCtxSynchronize()) return INTERNAL;
    plan->type = known;
    plan->rank = rank;
    plan->rows = rows;
    plan->length = length;
    plan->count = count;
    plan->from = from;
    plan->to = to;
    // Short rows are transformed in registers.
    plan->work_bytes = rows * length <= 8 ? 0 : (size_t)(rows * length * count * (is_wide(known) ? 16 : 8));
    // The copy of the tables has left pageable memory, and may reach the device later.
    if (emulator_submit(nullptr, [plan] { plan->filled = true; })) return INTERNAL;
    plan->made = true;
    *work_bytes = plan->work_bytes;
    return OK;
}

EXPORT Status cufftSetStream(int handle, void* stream) {
    BEGIN(cufftSetStream);
    PLAN(handle);
    plan->stream = stream;
    return OK;
}

EXPORT Status cufftSetWorkArea(int handle, void* work_area) {
    BEGIN(cufftSetWorkArea);
    PLAN(handle);
    if (!plan->made) return INVALID_PLAN;
    plan->work_area = work_area;
    return OK;
}

EXPORT Status cufftExecC2C(int handle, void* from, void* to, int direction) {
    BEGIN(cufftExecC2C);
    return execute(handle, C2C, from, to, direction);
}

EXPORT Status cufftExecZ2Z(int handle, void* from, void* to, int direction) {
    BEGIN(cufftExecZ2Z);
    return execute(handle, Z2Z, from, to, direction);
}

EXPORT Status cufftExecR2C(int handle, void* from, void* to) {
    BEGIN(cufftExecR2C);
    return execute(handle, R2C, from, to, -1);
}

EXPORT Status cufftExecD2Z(int handle, void* from, void* to) {
    BEGIN(cufftExecD2Z);
    return execute(handle, D2Z, from, to, -1);
}

EXPORT Status cufftExecC2R(int handle, void* from, void* to) {
    BEGIN(cufftExecC2R);
    return execute(handle, C2R, from, to, 1);
}

EXPORT Status cufftExecZ2D(int handle, void* from, void* to) {
    BEGIN(cufftExecZ2D);
    return execute(handle, Z2D, from, to, 1);
}
