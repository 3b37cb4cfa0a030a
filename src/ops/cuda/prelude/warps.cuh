// Operations of a warp: asynchronous copies to shared memory, loads of matrices from it, and
// products by tensor cores. All threads of the warp call the functions on matrices together.
//
// Names follow PTX. Thread l of a warp has the group g = l / 4 and the place t = l % 4. Element i
// of a fragment is at the row and the column
//
//     A (16 × 16)   g (+ 8 if i is 2, 3, 6 or 7)    2t + i % 2 (+ 8 if i ≥ 4)
//     B (16 × 8)    2t + i % 2 (+ 8 if i ≥ 2)       g
//     C (16 × 8)    g (+ 8 if i ≥ 2)                2t + i % 2
//
// A register of A or B has two elements, the first in the lower half.

// Returns the value of the thread whose number differs by `bits`.
CS_FN f32 cs_exchanged(f32 value, int bits) { return __shfl_xor_sync(0xffffffffu, value, bits); }

#ifdef __CUDA_ARCH__

CS_FN u32 cs_shared_address(const void* place) {
    u32 address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }"
        : "=r"(address) : "l"(place));
    return address;
}

// Copies `bytes` of 16 bytes from global to shared memory, and fills the rest with zeros. Both
// places are multiples of 16 bytes. The bytes arrive before `cs_await_copies` returns, for the
// thread that copied. A barrier must follow for other threads.
CS_FN void cs_copy(void* to, const void* from, u32 bytes) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(cs_shared_address(to)), "l"(from), "r"(bytes) : "memory");
#else
    uint4 words = {0, 0, 0, 0};
    if (bytes == 16) {
        words = *(const uint4*)from;
    } else {
        for (u32 at = 0; at < bytes; ++at) ((u8*)&words)[at] = ((const u8*)from)[at];
    }
    *(uint4*)to = words;
#endif
}

// Ends a group of copies.
CS_FN void cs_end_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of copies but the last `LATER`.
template <int LATER>
CS_FN void cs_await_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(LATER) : "memory");
#endif
}

// Loads four matrices of 8 × 8 elements of 16 bits. Thread 8m + r passes the address of row r of
// matrix m. Register m of a thread has the elements 2t and 2t + 1 of row g of matrix m.
CS_FN void cs_load_matrices(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(cs_shared_address(row)));
}

// Like `cs_load_matrices`, with each matrix transposed.
CS_FN void cs_load_transposed(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(cs_shared_address(row)));
}

// Returns two values, rounded. `first` is in the lower half.
CS_FN u32 cs_rounded_pair(f32 first, f32 second, f16) {
    u32 pair;
    asm("{ .reg .b16 low, high; cvt.rn.f16.f32 low, %1; cvt.rn.f16.f32 high, %2; mov.b32 %0, {low, high}; }"
        : "=r"(pair) : "f"(first), "f"(second));
    return pair;
}

CS_FN u32 cs_rounded_pair(f32 first, f32 second, bf16) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

// Adds the product of A and B to C.
#define CS_MULTIPLY(I)                                                                        \
    CS_FN void cs_multiply(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, I) {               \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #I "." #I ".f32 "               \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"        \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));         \
    }
CS_MULTIPLY(f16)
CS_MULTIPLY(bf16)

// Rounds a value to TF32, to nearest.
CS_FN u32 cs_tf32(f32 value) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

// Adds a product in TF32. A is 16 × 8: element i is at row g (+ 8 if i is odd) and column t (+ 4 if
// i ≥ 2). B is 8 × 8: element i is at row t + 4i and column g.
CS_FN void cs_multiply_tf32(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Returns 2^x with a relative error of at most 2^-22. A result below 2^-126 is 0.
CS_FN f32 cs_exp2(f32 x) {
    f32 power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

#else

// The emulated device: threads exchange their fragments, and each computes its own elements.

CS_FN void cs_copy(void* to, const void* from, u32 bytes) { __emulated_copy(to, from, bytes); }
CS_FN void cs_end_copies() { __emulated_end_copies(); }
template <int LATER>
CS_FN void cs_await_copies() { __emulated_await_copies(LATER); }

CS_FN void cs_load_matrices(u32 (&to)[4], const void* row) {
    const void* const* rows = __emulated_gather(row);
    const u32 lane = threadIdx.x % 32;
    for (u32 m = 0; m < 4; ++m) to[m] = ((const u32*)rows[8 * m + lane / 4])[lane % 4];
}

CS_FN void cs_load_transposed(u32 (&to)[4], const void* row) {
    const void* const* rows = __emulated_gather(row);
    const u32 lane = threadIdx.x % 32, group = lane / 4, first = lane % 4 * 2;
    for (u32 m = 0; m < 4; ++m) {
        const u32 low = ((const u16*)rows[8 * m + first])[group];
        const u32 high = ((const u16*)rows[8 * m + first + 1])[group];
        to[m] = low | high << 16;
    }
}

template <class I>
CS_FN u32 cs_rounded_pair(f32 first, f32 second, I) {
    return I(first).bits | (u32)I(second).bits << 16;
}

CS_FN f32 cs_half_of(u32 pair, u32 place, f16) { return cs_f16_of_bits(pair >> 16 * place & 0xffff); }
CS_FN f32 cs_half_of(u32 pair, u32 place, bf16) { return cs_bf16_of_bits(pair >> 16 * place & 0xffff); }

struct cs_factors {
    u32 a[4], b[2];
};

template <class I>
CS_FN void cs_multiply(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, I type) {
    const cs_factors* all = __emulated_gather(cs_factors{{a[0], a[1], a[2], a[3]}, {b0, b1}});
    const u32 lane = threadIdx.x % 32, group = lane / 4, first = lane % 4 * 2;
    for (u32 i = 0; i < 4; ++i) {
        for (u32 k = 0; k < 16; ++k) {
            const u32 place = k % 8 / 2, upper = k / 8;
            const u32 left = all[group * 4 + place].a[upper * 2 + i / 2];
            const u32 right = all[(first + i % 2) * 4 + place].b[upper];
            c[i] += cs_half_of(left, k % 2, type) * cs_half_of(right, k % 2, type);
        }
    }
}

CS_FN u32 cs_tf32(f32 value) {
    const u32 bits = cs_bits<u32>(value);
    return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu;
}

CS_FN void cs_multiply_tf32(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    const cs_factors* all = __emulated_gather(cs_factors{{a[0], a[1], a[2], a[3]}, {b0, b1}});
    const u32 lane = threadIdx.x % 32, group = lane / 4, first = lane % 4 * 2;
    for (u32 i = 0; i < 4; ++i) {
        for (u32 k = 0; k < 8; ++k) {
            const u32 left = all[group * 4 + k % 4].a[k / 4 * 2 + i / 2];
            const u32 right = all[(first + i % 2) * 4 + k % 4].b[k / 4];
            c[i] += cs_bits<f32>(left) * cs_bits<f32>(right);
        }
    }
}

CS_FN f32 cs_exp2(f32 x) {
    const f32 power = exp2f(x);
    return power < 1.17549435e-38f ? 0 : power;
}

#endif
