// The few functions of cuBLAS in use, as plain loops that run in the order of the handle's stream.
#include "gemm.hpp"

extern "C" int cuCtxSynchronize();

#define BEGIN(name) \
    if (emulator_enter(#name)) return INTERNAL; \
    if (!handle) return NOT_INITIALIZED

EXPORT Status cublasCreate_v2(Handle** handle) {
    BEGIN(cublasCreate_v2);
    *handle = new Handle;
    return OK;
}

EXPORT Status cublasDestroy_v2(Handle* handle) {
    BEGIN(cublasDestroy_v2);
    // Nobody hears of it where that ends a capture.
    cuCtxSynchronize();
    delete handle;
    return OK;
}

EXPORT Status cublasGetVersion_v2(Handle* handle, int* version) {
    if (emulator_enter("cublasGetVersion_v2")) return INTERNAL;
    (void)handle;
    *version = 120400;
    return OK;
}

// As cuBLAS does, this goes back to the workspace of its own.
EXPORT Status cublasSetStream_v2(Handle* handle, void* stream) {
    BEGIN(cublasSetStream_v2);
    handle->stream = stream;
    handle->workspace = nullptr;
    handle->workspace_bytes = 0;
    return OK;
}

EXPORT Status cublasGetStream_v2(Handle* handle, void** stream) {
    BEGIN(cublasGetStream_v2);
    *stream = handle->stream;
    return OK;
}

EXPORT Status cublasSetWorkspace_v2(Handle* handle, void* workspace, size_t bytes) {
    BEGIN(cublasSetWorkspace_v2);
    if (bytes && ((uint64_t)workspace % 256 || !emulator_covered((uint64_t)workspace, bytes))) return INVALID_VALUE;
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return OK;
}

EXPORT Status cublasSetMathMode(Handle* handle, int mode) {
    BEGIN(cublasSetMathMode);
    handle->math_mode = mode;
    return OK;
}

EXPORT Status cublasGetMathMode(Handle* handle, int* mode) {
    BEGIN(cublasGetMathMode);
    *mode = handle->math_mode;
    return OK;
}

EXPORT Status cublasSetPointerMode_v2(Handle* handle, int mode) {
    BEGIN(cublasSetPointerMode_v2);
    handle->pointer_mode = mode;
    return OK;
}

EXPORT Status cublasSetAtomicsMode(Handle* handle, int mode) {
    BEGIN(cublasSetAtomicsMode);
    handle->atomics_mode = mode;
    return OK;
}

EXPORT const char* cublasGetStatusName(Status status) {
    switch (status) {
        case OK: return "CUBLAS_STATUS_SUCCESS";
        case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case INTERNAL: return "CUBLAS_STATUS_INTERNAL_ERROR";
        case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        default: return "CUBLAS_STATUS unknown";
    }
}

EXPORT const char* cublasGetStatusString(Status status) {
    return cublasGetStatusName(status);
}

namespace {

Status gemm(Handle* handle, Product p, const void* alpha, const void* beta, int compute) {
    for (int type : {p.a.type, p.b.type, p.c.type})
        if (type != F32 && type != F64 && type != F16 && type != BF16 && type != C32 && type != C64) return NOT_SUPPORTED;
    bool wide = compute == COMPUTE_64F || compute == COMPUTE_64F_PEDANTIC;
    bool narrow = compute == COMPUTE_32F || compute == COMPUTE_32F_PEDANTIC || compute == COMPUTE_FAST_TF32;
    auto is_wide = [](int type) { return type == F64 || type == C64; };
    bool complex = p.a.type == C32 || p.a.type == C64;
    // What cuBLAS has: operands of one type, doubles for themselves alone.
    if (p.a.type != p.b.type || wide != is_wide(p.a.type) || wide != is_wide(p.c.type) || !(wide || narrow)) return NOT_SUPPORTED;
    if (p.c.type != p.a.type && (complex || p.c.type != F32)) return NOT_SUPPORTED;
    if (handle->pointer_mode) return NOT_SUPPORTED;
    if (Status status = check(p)) return status;
    p.rounds_to_tf32 = (p.a.type == F32 || p.a.type == C32) && (compute == COMPUTE_FAST_TF32 || handle->math_mode == 3);
    // The factors are of the type of the sums; those of real numbers have no imaginary part.
    std::complex<double> wide_alpha = 0, wide_beta = 0;
    std::complex<float> narrow_alpha = 0, narrow_beta = 0;
    size_t parts = complex ? 2 : 1;
    if (wide) memcpy((void*)&wide_alpha, alpha, 8 * parts), memcpy((void*)&wide_beta, beta, 8 * parts);
    else memcpy((void*)&narrow_alpha, alpha, 4 * parts), memcpy((void*)&narrow_beta, beta, 4 * parts);
    int error = emulator_submit(handle->stream, [=] {
        if (complex && wide) multiply<std::complex<double>>(p, wide_alpha, wide_beta);
        else if (complex) multiply<std::complex<float>>(p, narrow_alpha, narrow_beta);
        else if (wide) multiply<double>(p, wide_alpha.real(), wide_beta.real());
        else multiply<float>(p, narrow_alpha.real(), narrow_beta.real());
    });
    return error ? EXECUTION_FAILED : OK;
}

}  // namespace

EXPORT Status cublasGemmStridedBatchedEx(Handle* handle, int transposed_a, int transposed_b, int m, int n, int k,
                                         const void* alpha, const void* a, int type_a, int leading_a, long long stride_a,
                                         const void* b, int type_b, int leading_b, long long stride_b, const void* beta,
                                         void* c, int type_c, int leading_c, long long stride_c, int batches, int compute,
                                         int) {
    BEGIN(cublasGemmStridedBatchedEx);
    Product p{transposed_a != 0, transposed_b != 0, m, n, k, batches, {(void*)a, type_a, leading_a, stride_a},
              {(void*)b, type_b, leading_b, stride_b}, {c, type_c, leading_c, stride_c}, false, nullptr};
    return gemm(handle, p, alpha, beta, compute);
}

EXPORT Status cublasGemmEx(Handle* handle, int transposed_a, int transposed_b, int m, int n, int k, const void* alpha,
                           const void* a, int type_a, int leading_a, const void* b, int type_b, int leading_b,
                           const void* beta, void* c, int type_c, int leading_c, int compute, int) {
    BEGIN(cublasGemmEx);
    Product p{transposed_a != 0, transposed_b != 0, m, n, k, 1, {(void*)a, type_a, leading_a, 0},
              {(void*)b, type_b, leading_b, 0}, {c, type_c, leading_c, 0}, false, nullptr};
    return gemm(handle, p, alpha, beta, compute);
}
