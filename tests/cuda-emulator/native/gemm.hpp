// Matrix products as plain loops, and a handle of cuBLAS. cublasLt accepts such a handle, too.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" int emulator_enter(const char* name);
// Gives work to a stream; its error where that is no stream of the current context.
extern "C" int emulator_submit(void* stream, const std::function<void()>& work);
extern "C" int emulator_covered(uint64_t address, uint64_t bytes);

using Status = int;
enum : Status { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, INTERNAL = 14, NOT_SUPPORTED = 15 };
enum DataType { F32 = 0, F64 = 1, F16 = 2, C32 = 4, C64 = 5, BF16 = 14 };
enum ComputeType { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32F_PEDANTIC = 69, COMPUTE_64F_PEDANTIC = 71, COMPUTE_FAST_TF32 = 77 };

struct Handle {
    void* stream = nullptr;
    int pointer_mode = 0, math_mode = 0, atomics_mode = 0;
    void* workspace = nullptr;
    size_t workspace_bytes = 0;
};

namespace {

float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

float from_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7FFF;
    if (rest >= 0x7C00) return from_bits(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    float magnitude = rest < 0x400 ? std::ldexp((float)rest, -24) : from_bits((rest << 13) + (112u << 23));
    return sign ? -magnitude : magnitude;
}

// To the nearest, ties to even.
uint16_t to_half(float value) {
    uint16_t sign = (uint16_t)(to_bits(value) >> 16 & 0x8000);
    float magnitude = std::fabs(value);
    if (magnitude != magnitude) return sign | 0x7E00;
    if (magnitude >= 65520.0f) return sign | 0x7C00;
    if (magnitude < 6.103515625e-05f) return sign | (uint16_t)std::nearbyint(std::ldexp(magnitude, 24));
    uint32_t bits = to_bits(magnitude);
    bits += 0xFFF + (bits >> 13 & 1);
    return sign | (uint16_t)((bits - (112u << 23)) >> 13);
}

uint16_t to_brain(float value) {
    uint32_t bits = to_bits(value);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

size_t size_of(int type) {
    return type == C64 ? 16 : type == F64 || type == C32 ? 8 : type == F32 ? 4 : 2;
}

template <class T>
T load(const void* base, int type, int64_t index) {
    switch (type) {
        case F64: return (T)((const double*)base)[index];
        case F32: return (T)((const float*)base)[index];
        case F16: return (T)from_half(((const uint16_t*)base)[index]);
        default: return (T)from_bits((uint32_t)((const uint16_t*)base)[index] << 16);
    }
}

template <class T>
void store(void* base, int type, int64_t index, T value) {
    switch (type) {
        case F64: ((double*)base)[index] = (double)value; break;
        case F32: ((float*)base)[index] = (float)value; break;
        case F16: ((uint16_t*)base)[index] = to_half((float)value); break;
        default: ((uint16_t*)base)[index] = to_brain((float)value);
    }
}

// Complex numbers are multiplied among themselves alone.
template <class R>
std::complex<R> load_complex(const void* base, int64_t index) {
    return ((const std::complex<R>*)base)[index];
}

template <>
std::complex<float> load(const void* base, int, int64_t index) {
    return load_complex<float>(base, index);
}

template <>
std::complex<double> load(const void* base, int, int64_t index) {
    return load_complex<double>(base, index);
}

template <>
void store(void* base, int, int64_t index, std::complex<float> value) {
    ((std::complex<float>*)base)[index] = value;
}

template <>
void store(void* base, int, int64_t index, std::complex<double> value) {
    ((std::complex<double>*)base)[index] = value;
}

struct Operand {
    void* base;
    int type, leading;
    long long stride;
};

struct Product {
    bool transposed_a, transposed_b;
    int m, n, k, batches;
    Operand a, b, c;
    bool rounds_to_tf32;
    const void* bias;  // of the type of c, an element for each row; or null
};

float to_tf32(float value) {
    if (!std::isfinite(value)) return value;
    uint32_t bits = to_bits(value);
    return from_bits((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFu);
}

float rounded(float value, bool to_tf) { return to_tf ? to_tf32(value) : value; }
double rounded(double value, bool) { return value; }
template <class R>
std::complex<R> rounded(std::complex<R> value, bool to_tf) {
    return {rounded(value.real(), to_tf), rounded(value.imag(), to_tf)};
}

// Everything is column-major.
template <class T>
void multiply(const Product& p, T alpha, T beta) {
    std::vector<T> a((size_t)p.m * p.k), sums(p.m);
    for (int batch = 0; batch < p.batches; ++batch) {
        auto at = [&](const Operand& o) { return (char*)o.base + (int64_t)size_of(o.type) * o.stride * batch; };
        char *from_a = at(p.a), *from_b = at(p.b), *to = at(p.c);
        for (int l = 0; l < p.k; ++l)
            for (int i = 0; i < p.m; ++i) {
                int64_t index = p.transposed_a ? (int64_t)i * p.a.leading + l : (int64_t)l * p.a.leading + i;
                a[(size_t)l * p.m + i] = rounded(load<T>(from_a, p.a.type, index), p.rounds_to_tf32);
            }
        for (int j = 0; j < p.n; ++j) {
            std::fill(sums.begin(), sums.end(), T(0));
            for (int l = 0; l < p.k; ++l) {
                int64_t index = p.transposed_b ? (int64_t)l * p.b.leading + j : (int64_t)j * p.b.leading + l;
                T value = rounded(load<T>(from_b, p.b.type, index), p.rounds_to_tf32);
                const T* column = a.data() + (size_t)l * p.m;
                for (int i = 0; i < p.m; ++i) sums[i] += column[i] * value;
            }
            for (int i = 0; i < p.m; ++i) {
                int64_t index = (int64_t)j * p.c.leading + i;
                T old = beta == T(0) ? T(0) : beta * load<T>(to, p.c.type, index);
                T added = p.bias ? load<T>(p.bias, p.c.type, i) : T(0);
                store<T>(to, p.c.type, index, alpha * sums[i] + old + added);
            }
        }
    }
}

bool in_memory(const Operand& o, int rows, int columns, int batches) {
    if (!rows || !columns || !batches) return true;
    uint64_t last = (uint64_t)(columns - 1) * o.leading + rows;
    uint64_t elements = o.stride > 0 ? (uint64_t)o.stride * (batches - 1) + last : last;
    return emulator_covered((uint64_t)o.base, elements * size_of(o.type));
}

Status check(const Product& p) {
    if (p.m < 0 || p.n < 0 || p.k < 0 || p.batches < 0) return INVALID_VALUE;
    int rows_a = p.transposed_a ? p.k : p.m, rows_b = p.transposed_b ? p.n : p.k;
    auto fits = [](int leading, int rows) { return leading >= (rows > 1 ? rows : 1); };
    if (!fits(p.a.leading, rows_a) || !fits(p.b.leading, rows_b) || !fits(p.c.leading, p.m)) return INVALID_VALUE;
    bool known = in_memory(p.a, rows_a, p.transposed_a ? p.m : p.k, p.batches) &&
                 in_memory(p.b, rows_b, p.transposed_b ? p.k : p.n, p.batches) && in_memory(p.c, p.m, p.n, p.batches);
    return known ? OK : EXECUTION_FAILED;
}

}  // namespace
