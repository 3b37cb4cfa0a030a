// The few functions of cuSOLVER in use, by plain algorithms that run in the order of the handle's stream. Everything is
// column-major.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" int emulator_enter(const char* name);
// Gives work to a stream; its error where that is no stream of the current context.
extern "C" int emulator_submit(void* stream, const std::function<void()>& work);
extern "C" int emulator_covered(uint64_t address, uint64_t bytes);
extern "C" int cuCtxSynchronize();

using Status = int;
enum : Status { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 3, EXECUTION_FAILED = 6, INTERNAL = 7, NOT_SUPPORTED = 9 };
enum { UPPER = 1 };

struct Handle {
    void* stream = nullptr;
};

#define BEGIN(name) \
    if (emulator_enter(#name)) return INTERNAL; \
    if (!handle) return NOT_INITIALIZED

EXPORT Status cusolverDnCreate(Handle** handle) {
    BEGIN(cusolverDnCreate);
    *handle = new Handle;
    return OK;
}

EXPORT Status cusolverDnDestroy(Handle* handle) {
    BEGIN(cusolverDnDestroy);
    // Nobody hears of it where that ends a capture.
    cuCtxSynchronize();
    delete handle;
    return OK;
}

EXPORT Status cusolverDnSetStream(Handle* handle, void* stream) {
    BEGIN(cusolverDnSetStream);
    handle->stream = stream;
    return OK;
}

namespace {

// Columns of a matrix.
template <class T>
struct Matrix {
    T* base;
    int64_t leading;
    T& operator()(int row, int column) const { return base[column * leading + row]; }
};

template <class T>
bool in_memory(const T* base, int64_t rows, int64_t columns, int64_t leading) {
    if (rows <= 0 || columns <= 0) return true;
    return emulator_covered((uint64_t)base, ((columns - 1) * leading + rows) * sizeof(T));
}

Status submit(Handle* handle, const std::function<void()>& work) {
    return emulator_submit(handle->stream, work) ? EXECUTION_FAILED : OK;
}

// The elements of every workspace; a shorter one is refused.
constexpr int ROOM = 32;

// A NaN is lost, as an H200 with CUDA 13.0 lost it: no pivot, and a factor of 0.
template <class T>
void factorize_lu(int m, int n, Matrix<T> a, int* pivots, int* info) {
    *info = 0;
    for (int k = 0; k < std::min(m, n); ++k) {
        int pivot = k;
        for (int i = k + 1; i < m; ++i)
            if (!(std::fabs(a(i, k)) <= std::fabs(a(pivot, k))) && a(i, k) == a(i, k)) pivot = i;
        pivots[k] = pivot + 1;
        if (a(pivot, k) == T(0)) {
            if (!*info) *info = k + 1;
            continue;
        }
        if (pivot != k)
            for (int j = 0; j < n; ++j) std::swap(a(k, j), a(pivot, j));
        for (int i = k + 1; i < m; ++i) a(i, k) = a(i, k) == a(i, k) ? a(i, k) / a(k, k) : T(0);
        for (int j = k + 1; j < n; ++j)
            for (int i = k + 1; i < m; ++i) a(i, j) -= a(i, k) * a(k, j);
    }
}

template <class T>
void solve_lu(int n, int count, Matrix<T> a, const int* pivots, Matrix<T> b, int* info) {
    *info = 0;
    for (int j = 0; j < count; ++j) {
        for (int k = 0; k < n; ++k) std::swap(b(k, j), b(pivots[k] - 1, j));
        for (int k = 0; k < n; ++k)
            for (int i = k + 1; i < n; ++i) b(i, j) -= a(i, k) * b(k, j);
        for (int k = n - 1; k >= 0; --k) {
            b(k, j) /= a(k, k);
            for (int i = 0; i < k; ++i) b(i, j) -= a(i, k) * b(k, j);
        }
    }
}

// Of the upper triangle. A pivot that is NaN is not reported, as it was not on an H200 with CUDA 13.0.
template <class T>
void factorize_cholesky(int n, Matrix<T> a, int* info) {
    *info = 0;
    for (int j = 0; j < n; ++j) {
        for (int i = 0; i <= j; ++i) {
            T sum = a(i, j);
            for (int k = 0; k < i; ++k) sum -= a(k, i) * a(k, j);
            if (i < j) {
                a(i, j) = sum / a(i, i);
                continue;
            }
            if (sum <= T(0)) {
                *info = j + 1;
                return;
            }
            a(j, j) = std::sqrt(sum);
        }
    }
}

template <class T>
T norm_of(const Matrix<T>& a, int from, int m, int column) {
    T largest = 0, sum = 0;
    for (int i = from; i < m; ++i) largest = std::max(largest, std::fabs(a(i, column)));
    if (largest == T(0)) return 0;
    for (int i = from; i < m; ++i) sum += (a(i, column) / largest) * (a(i, column) / largest);
    return largest * std::sqrt(sum);
}

template <class T>
void factorize_qr(int m, int n, Matrix<T> a, T* factors, int* info) {
    *info = 0;
    for (int k = 0; k < std::min(m, n); ++k) {
        T rest = norm_of(a, k + 1, m, k), first = a(k, k);
        factors[k] = 0;
        if (rest == T(0)) continue;
        T norm = std::hypot(first, rest), beta = first > T(0) ? -norm : norm;
        factors[k] = (beta - first) / beta;
        for (int i = k + 1; i < m; ++i) a(i, k) /= first - beta;
        a(k, k) = beta;
        for (int j = k + 1; j < n; ++j) {
            T sum = a(k, j);
            for (int i = k + 1; i < m; ++i) sum += a(i, k) * a(i, j);
            sum *= factors[k];
            a(k, j) -= sum;
            for (int i = k + 1; i < m; ++i) a(i, j) -= sum * a(i, k);
        }
    }
}

template <class T>
void form_q(int m, int n, int k, Matrix<T> a, const T* factors, int* info) {
    *info = 0;
    std::vector<T> q((size_t)m * n);
    for (int j = 0; j < n; ++j) q[(size_t)j * m + j] = 1;
    for (int r = k - 1; r >= 0; --r)
        for (int j = 0; j < n; ++j) {
            T* column = &q[(size_t)j * m];
            T sum = column[r];
            for (int i = r + 1; i < m; ++i) sum += a(i, r) * column[i];
            sum *= factors[r];
            column[r] -= sum;
            for (int i = r + 1; i < m; ++i) column[i] -= sum * a(i, r);
        }
    for (int j = 0; j < n; ++j)
        for (int i = 0; i < m; ++i) a(i, j) = q[(size_t)j * m + i];
}

// By Jacobi's rotations of the columns; in doubles, so that this is near enough for floats of any size.
template <class T>
void factorize_svd(int m, int n, Matrix<T> a, T* values, Matrix<T> u, Matrix<T> vt, bool with_vectors, int* info) {
    *info = 0;
    std::vector<double> w((size_t)m * n), v((size_t)n * n);
    double largest = 0;
    for (int j = 0; j < n; ++j)
        for (int i = 0; i < m; ++i) largest = std::max(largest, std::fabs((double)a(i, j)));
    if (largest == 0) largest = 1;
    for (int j = 0; j < n; ++j) {
        v[(size_t)j * n + j] = 1;
        for (int i = 0; i < m; ++i) w[(size_t)j * m + i] = (double)a(i, j) / largest;
    }
    auto dot = [&](int p, int q) {
        return std::inner_product(&w[(size_t)p * m], &w[(size_t)p * m] + m, &w[(size_t)q * m], 0.0);
    };
    auto rotate = [](double* p, double* q, int length, double c, double s) {
        for (int i = 0; i < length; ++i) {
            double first = p[i], second = q[i];
            p[i] = c * first - s * second;
            q[i] = s * first + c * second;
        }
    };
    bool turned = true;
    for (int sweep = 0; turned && sweep < 60; ++sweep) {
        turned = false;
        for (int p = 0; p < n; ++p)
            for (int q = p + 1; q < n; ++q) {
                double alpha = dot(p, p), beta = dot(q, q), gamma = dot(p, q);
                if (std::fabs(gamma) <= 1e-15 * std::sqrt(alpha * beta) || std::fabs(gamma) < 1e-300) continue;
                turned = true;
                double zeta = (beta - alpha) / (2 * gamma);
                double t = (zeta > 0 ? 1 : -1) / (std::fabs(zeta) + std::hypot(1.0, zeta));
                double c = 1 / std::hypot(1.0, t), s = c * t;
                rotate(&w[(size_t)p * m], &w[(size_t)q * m], m, c, s);
                rotate(&v[(size_t)p * n], &v[(size_t)q * n], n, c, s);
            }
    }
    if (turned) *info = 1;
    std::vector<double> lengths(n);
    for (int j = 0; j < n; ++j) lengths[j] = std::sqrt(dot(j, j));
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int p, int q) { return lengths[p] > lengths[q]; });
    for (int j = 0; j < n; ++j) values[j] = (T)(lengths[order[j]] * largest);
    if (!with_vectors) return;
    std::vector<double> left((size_t)m * n);
    for (int j = 0; j < n; ++j) {
        double* column = &left[(size_t)j * m];
        double length = lengths[order[j]];
        for (int i = 0; i < m; ++i) column[i] = length > 0 ? w[(size_t)order[j] * m + i] / length : 0;
        // Columns of nothing, or of what rounding left, become orthogonal to those before.
        for (int unit = -1; length < 1e-13 && unit < m; ++unit) {
            if (unit >= 0)
                for (int i = 0; i < m; ++i) column[i] = i == unit;
            for (int again = 0; again < 2; ++again)
                for (int before = 0; before < j; ++before) {
                    double* other = &left[(size_t)before * m];
                    double part = std::inner_product(column, column + m, other, 0.0);
                    for (int i = 0; i < m; ++i) column[i] -= part * other[i];
                }
            double norm = std::sqrt(std::inner_product(column, column + m, column, 0.0));
            if (norm < 0.5 / std::sqrt((double)m)) continue;
            for (int i = 0; i < m; ++i) column[i] /= norm;
            break;
        }
        for (int i = 0; i < m; ++i) u(i, j) = (T)column[i];
        for (int i = 0; i < n; ++i) vt(j, i) = (T)v[(size_t)order[j] * n + i];
    }
}

// By Jacobi's rotations of the whole matrix, of which the upper triangle is read; in doubles as well.
template <class T>
void factorize_eigen(int n, Matrix<T> a, T* values, bool with_vectors, int* info) {
    *info = 0;
    std::vector<double> w((size_t)n * n), v((size_t)n * n);
    double largest = 0;
    for (int j = 0; j < n; ++j)
        for (int i = 0; i <= j; ++i) largest = std::max(largest, std::fabs((double)a(i, j)));
    if (largest == 0) largest = 1;
    for (int j = 0; j < n; ++j) {
        v[(size_t)j * n + j] = 1;
        for (int i = 0; i <= j; ++i) w[(size_t)j * n + i] = w[(size_t)i * n + j] = (double)a(i, j) / largest;
    }
    auto at = [&](int i, int j) -> double& { return w[(size_t)j * n + i]; };
    bool turned = true;
    for (int sweep = 0; turned && sweep < 60; ++sweep) {
        turned = false;
        for (int p = 0; p < n; ++p)
            for (int q = p + 1; q < n; ++q) {
                if (std::fabs(at(p, q)) < 1e-17) continue;
                turned = true;
                double theta = (at(q, q) - at(p, p)) / (2 * at(p, q));
                double t = (theta > 0 ? 1 : -1) / (std::fabs(theta) + std::hypot(1.0, theta));
                double c = 1 / std::hypot(1.0, t), s = c * t;
                for (int i = 0; i < n; ++i) {
                    double first = at(i, p), second = at(i, q);
                    at(i, p) = c * first - s * second;
                    at(i, q) = s * first + c * second;
                }
                for (int i = 0; i < n; ++i) {
                    double first = at(p, i), second = at(q, i);
                    at(p, i) = c * first - s * second;
                    at(q, i) = s * first + c * second;
                }
                at(p, q) = at(q, p) = 0;
                for (int i = 0; i < n; ++i) {
                    double first = v[(size_t)p * n + i], second = v[(size_t)q * n + i];
                    v[(size_t)p * n + i] = c * first - s * second;
                    v[(size_t)q * n + i] = s * first + c * second;
                }
            }
    }
    if (turned) *info = 1;
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int p, int q) { return at(p, p) < at(q, q); });
    for (int j = 0; j < n; ++j) {
        values[j] = (T)(at(order[j], order[j]) * largest);
        if (with_vectors)
            for (int i = 0; i < n; ++i) a(i, j) = (T)v[(size_t)order[j] * n + i];
    }
}

}  // namespace

#define CHECK(condition) \
    if (!(condition)) return INVALID_VALUE
#define REACHES(condition) \
    if (!(condition)) return EXECUTION_FAILED

#define FUNCTIONS(S, T)                                                                                                \
    EXPORT Status cusolverDn##S##getrf_bufferSize(Handle* handle, int m, int n, T*, int leading, int* length) {       \
        BEGIN(cusolverDn##S##getrf_bufferSize);                                                                        \
        CHECK(m >= 0 && n >= 0 && leading >= std::max(m, 1));                                                          \
        *length = ROOM;                                                                                                \
        return OK;                                                                                                     \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##getrf(Handle* handle, int m, int n, T* a, int leading, T* room, int* pivots,          \
                                       int* info) {                                                                    \
        BEGIN(cusolverDn##S##getrf);                                                                                   \
        CHECK(m >= 0 && n >= 0 && leading >= std::max(m, 1) && pivots);                                                \
        REACHES(in_memory(a, m, n, leading) && in_memory(room, ROOM, 1, ROOM) && in_memory(info, 1, 1, 1));            \
        REACHES(in_memory(pivots, std::min(m, n), 1, m));                                                              \
        return submit(handle, [=] { factorize_lu<T>(m, n, {a, leading}, pivots, info); });                             \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##getrs(Handle* handle, int operation, int n, int count, const T* a, int leading,       \
                                       const int* pivots, T* b, int leading_b, int* info) {                            \
        BEGIN(cusolverDn##S##getrs);                                                                                   \
        if (operation) return NOT_SUPPORTED;                                                                           \
        CHECK(n >= 0 && count >= 0 && leading >= std::max(n, 1) && leading_b >= std::max(n, 1));                       \
        REACHES(in_memory(a, n, n, leading) && in_memory(b, n, count, leading_b) && in_memory(info, 1, 1, 1));         \
        REACHES(in_memory(pivots, n, 1, n));                                                                           \
        return submit(handle, [=] { solve_lu<T>(n, count, {(T*)a, leading}, pivots, {b, leading_b}, info); });         \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##potrf_bufferSize(Handle* handle, int fill, int n, T*, int leading, int* length) {     \
        BEGIN(cusolverDn##S##potrf_bufferSize);                                                                        \
        CHECK(n >= 0 && leading >= std::max(n, 1) && (fill == 0 || fill == UPPER));                                    \
        *length = ROOM;                                                                                                \
        return OK;                                                                                                     \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##potrf(Handle* handle, int fill, int n, T* a, int leading, T* room, int length,        \
                                       int* info) {                                                                    \
        BEGIN(cusolverDn##S##potrf);                                                                                   \
        if (fill != UPPER) return NOT_SUPPORTED;                                                                       \
        CHECK(n >= 0 && leading >= std::max(n, 1) && length >= ROOM);                                                  \
        REACHES(in_memory(a, n, n, leading) && in_memory(room, length, 1, length) && in_memory(info, 1, 1, 1));        \
        return submit(handle, [=] { factorize_cholesky<T>(n, {a, leading}, info); });                                  \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##geqrf_bufferSize(Handle* handle, int m, int n, T*, int leading, int* length) {       \
        BEGIN(cusolverDn##S##geqrf_bufferSize);                                                                        \
        CHECK(m >= 0 && n >= 0 && leading >= std::max(m, 1));                                                          \
        *length = ROOM;                                                                                                \
        return OK;                                                                                                     \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##geqrf(Handle* handle, int m, int n, T* a, int leading, T* factors, T* room,           \
                                       int length, int* info) {                                                        \
        BEGIN(cusolverDn##S##geqrf);                                                                                   \
        CHECK(m >= 0 && n >= 0 && leading >= std::max(m, 1) && length >= ROOM);                                        \
        REACHES(in_memory(a, m, n, leading) && in_memory(room, length, 1, length) && in_memory(info, 1, 1, 1));        \
        REACHES(in_memory(factors, std::min(m, n), 1, m));                                                             \
        return submit(handle, [=] { factorize_qr<T>(m, n, {a, leading}, factors, info); });                            \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##orgqr_bufferSize(Handle* handle, int m, int n, int k, const T*, int leading,          \
                                                  const T*, int* length) {                                             \
        BEGIN(cusolverDn##S##orgqr_bufferSize);                                                                        \
        CHECK(m >= n && n >= k && k >= 0 && leading >= std::max(m, 1));                                                \
        *length = ROOM;                                                                                                \
        return OK;                                                                                                     \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##orgqr(Handle* handle, int m, int n, int k, T* a, int leading, const T* factors,       \
                                       T* room, int length, int* info) {                                               \
        BEGIN(cusolverDn##S##orgqr);                                                                                   \
        CHECK(m >= n && n >= k && k >= 0 && leading >= std::max(m, 1) && length >= ROOM);                              \
        REACHES(in_memory(a, m, n, leading) && in_memory(room, length, 1, length) && in_memory(info, 1, 1, 1));        \
        REACHES(in_memory(factors, k, 1, m));                                                                          \
        return submit(handle, [=] { form_q<T>(m, n, k, {a, leading}, factors, info); });                               \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##gesvd_bufferSize(Handle* handle, int m, int n, int* length) {                         \
        BEGIN(cusolverDn##S##gesvd_bufferSize);                                                                        \
        CHECK(m >= n && n >= 0);                                                                                       \
        *length = ROOM;                                                                                                \
        return OK;                                                                                                     \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##gesvd(Handle* handle, signed char job_u, signed char job_vt, int m, int n, T* a,      \
                                       int leading, T* values, T* u, int leading_u, T* vt, int leading_vt, T* room,    \
                                       int length, T*, int* info) {                                                    \
        BEGIN(cusolverDn##S##gesvd);                                                                                   \
        bool vectors = job_u == 'S';                                                                                   \
        if (job_u != job_vt || (!vectors && job_u != 'N')) return NOT_SUPPORTED;                                       \
        CHECK(m >= n && n >= 0 && leading >= std::max(m, 1) && length >= ROOM);                                        \
        CHECK(!vectors || (leading_u >= std::max(m, 1) && leading_vt >= std::max(n, 1)));                              \
        REACHES(in_memory(a, m, n, leading) && in_memory(room, length, 1, length) && in_memory(info, 1, 1, 1));        \
        REACHES(in_memory(values, n, 1, n));                                                                           \
        REACHES(!vectors || (in_memory(u, m, n, leading_u) && in_memory(vt, n, n, leading_vt)));                       \
        return submit(handle, [=] {                                                                                    \
            factorize_svd<T>(m, n, {a, leading}, values, {u, leading_u}, {vt, leading_vt}, vectors, info);             \
        });                                                                                                            \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##syevd_bufferSize(Handle* handle, int mode, int fill, int n, const T*, int leading,    \
                                                  const T*, int* length) {                                             \
        BEGIN(cusolverDn##S##syevd_bufferSize);                                                                        \
        CHECK(n >= 0 && leading >= std::max(n, 1) && (mode == 0 || mode == 1) && (fill == 0 || fill == UPPER));        \
        *length = ROOM;                                                                                                \
        return OK;                                                                                                     \
    }                                                                                                                  \
    EXPORT Status cusolverDn##S##syevd(Handle* handle, int mode, int fill, int n, T* a, int leading, T* values,        \
                                       T* room, int length, int* info) {                                               \
        BEGIN(cusolverDn##S##syevd);                                                                                   \
        if (fill != UPPER) return NOT_SUPPORTED;                                                                       \
        CHECK(n >= 0 && leading >= std::max(n, 1) && (mode == 0 || mode == 1) && length >= ROOM);                      \
        REACHES(in_memory(a, n, n, leading) && in_memory(room, length, 1, length) && in_memory(info, 1, 1, 1));        \
        REACHES(in_memory(values, n, 1, n));                                                                           \
        return submit(handle, [=] { factorize_eigen<T>(n, {a, leading}, values, mode == 1, info); });                  \
    }

FUNCTIONS(S, float)
FUNCTIONS(D, double)
