// The elements and reductions of NCCL, in the order of the ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace nccl {

enum Type { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, TYPES };
enum Reduction { SUM, PRODUCT, MAX, MIN, MEAN, REDUCTIONS };

inline size_t size_of(Type type) {
    constexpr size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return SIZES[type];
}

// The elements of half precision are computed as floats, and rounded once, at the end.
struct Half {
    static float load(uint16_t bits) {
        uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
        float sign = bits >> 15 ? -1.0f : 1.0f;
        if (exponent == 31) return fraction ? NAN : sign * INFINITY;
        if (exponent == 0) return sign * std::ldexp((float)fraction, -24);
        return sign * std::ldexp((float)(fraction + 1024), (int)exponent - 25);
    }
    static uint16_t store(float value) {
        uint16_t sign = std::signbit(value) ? 0x8000 : 0;
        if (std::isnan(value)) return 0x7FFF;
        float size = std::fabs(value);
        if (size >= 65520.0f) return sign | 0x7C00;
        int exponent;
        std::frexp(size, &exponent);
        // The exponent of the last bit; numbers below the normal ones have the least, and so has 0.
        int last = size < 0x1p-14f ? -24 : exponent - 11;
        auto steps = (uint32_t)std::nearbyint(std::ldexp(size, -last));
        // What is rounded up to the next power of two carries into the exponent.
        return (uint16_t)(sign | (steps + ((uint32_t)(last + 24) << 10)));
    }
};

struct Bfloat {
    static float load(uint16_t bits) {
        uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, 4);
        return value;
    }
    static uint16_t store(float value) {
        if (std::isnan(value)) return 0x7FFF;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
};

// How a type is stored and computed with. Integers wrap around.
template <class T>
struct Plain {
    using Stored = T;
    using Computed = T;
    static T load(T value) { return value; }
    static T store(T value) { return value; }
};
template <class T>
struct Short {
    using Stored = uint16_t;
    using Computed = float;
    static float load(uint16_t bits) { return T::load(bits); }
    static uint16_t store(float value) { return T::store(value); }
};

template <class C>
C combine(Reduction reduction, C a, C b) {
    if constexpr (std::is_integral_v<C>) {
        auto sum = (C)((uint64_t)a + (uint64_t)b), product = (C)((uint64_t)a * (uint64_t)b);
        return reduction == PRODUCT ? product
               : reduction == MAX   ? std::max(a, b)
               : reduction == MIN   ? std::min(a, b)
                                    : sum;
    } else {
        switch (reduction) {
            case PRODUCT: return a * b;
            case MAX: return std::fmax(a, b);
            case MIN: return std::fmin(a, b);
            default: return a + b;
        }
    }
}

template <class Way>
void reduce_as(Reduction reduction, const std::vector<const void*>& sources, size_t count, void* target) {
    using Stored = typename Way::Stored;
    using Computed = typename Way::Computed;
    auto* to = (Stored*)target;
    for (size_t i = 0; i < count; ++i) {
        Computed result = Way::load(((const Stored*)sources[0])[i]);
        for (size_t rank = 1; rank < sources.size(); ++rank)
            result = combine<Computed>(reduction, result, Way::load(((const Stored*)sources[rank])[i]));
        if (reduction == MEAN) result = (Computed)(result / (Computed)sources.size());
        to[i] = Way::store(result);
    }
}

inline void reduce(Type type, Reduction reduction, const std::vector<const void*>& sources, size_t count, void* target) {
    switch (type) {
        case I8: return reduce_as<Plain<int8_t>>(reduction, sources, count, target);
        case U8: return reduce_as<Plain<uint8_t>>(reduction, sources, count, target);
        case I32: return reduce_as<Plain<int32_t>>(reduction, sources, count, target);
        case U32: return reduce_as<Plain<uint32_t>>(reduction, sources, count, target);
        case I64: return reduce_as<Plain<int64_t>>(reduction, sources, count, target);
        case U64: return reduce_as<Plain<uint64_t>>(reduction, sources, count, target);
        case F16: return reduce_as<Short<Half>>(reduction, sources, count, target);
        case BF16: return reduce_as<Short<Bfloat>>(reduction, sources, count, target);
        case F32: return reduce_as<Plain<float>>(reduction, sources, count, target);
        case F64: return reduce_as<Plain<double>>(reduction, sources, count, target);
        default: return;
    }
}

}  // namespace nccl
