// The few functions of cublasLt in use: one product, with a bias for each row of the result, as plain loops. A handle of
// cuBLAS is its handle.
#include "gemm.hpp"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

extern "C" void emulator_misuse(const char* text);
extern "C" void emulator_count_descriptors(int change);

namespace {

enum Kind { PRODUCT, LAYOUT, PREFERENCE };
enum { TRANS_A = 3, TRANS_B = 4, EPILOGUE = 7, BIAS_POINTER = 8 };
enum { MAX_WORKSPACE = 1, REDUCTION_SCHEMES = 3, ALIGNMENT_A = 5, ALIGNMENT_D = 8 };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4 };

struct Object {
    Kind kind;
    // Of a product.
    int compute = 0, scale = 0;
    int32_t transposed[2] = {0, 0};
    uint32_t epilogue = EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    // Of a layout.
    int type = 0;
    uint64_t rows = 0, columns = 0;
    int64_t leading = 0;
    // Of a preference.
    uint64_t most_workspace = 0;
    uint32_t schemes = 7, alignments[4] = {256, 256, 256, 256};
};

struct Algorithm {
    uint64_t magic, configuration, workspace, alignments[4], unused;
};
static_assert(sizeof(Algorithm) == 64, "an algorithm has eight words");

struct Found {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
static_assert(sizeof(Found) == 96, "the size of a result of the heuristic");

const uint64_t MAGIC = 0x6d756c74;

std::mutex lock;
std::map<const Object*, Kind>& alive() {
    // Never destroyed: threads and destructors call to the very end.
    static auto* alive = new std::map<const Object*, Kind>;
    return *alive;
}

Status create(Object** object, const Object& value) {
    if (!object) return INVALID_VALUE;
    *object = new Object(value);
    std::lock_guard<std::mutex> hold(lock);
    alive()[*object] = value.kind;
    emulator_count_descriptors(1);
    return OK;
}

bool is(const Object* object, Kind kind, const char* call) {
    std::lock_guard<std::mutex> hold(lock);
    auto found = alive().find(object);
    if (found != alive().end() && found->second == kind) return true;
    emulator_misuse((std::string(call) + ": not a descriptor of this kind").c_str());
    return false;
}

Status destroy(Object* object, Kind kind, const char* call) {
    if (!is(object, kind, call)) return INVALID_VALUE;
    std::lock_guard<std::mutex> hold(lock);
    alive().erase(object);
    emulator_count_descriptors(-1);
    delete object;
    return OK;
}

template <class T>
Status set(T& field, const void* value, size_t bytes) {
    if (!value || bytes != sizeof(T)) return INVALID_VALUE;
    memcpy((void*)&field, value, bytes);
    return OK;
}

// What the documentation lists for an epilogue with a bias; f64 and complex numbers have none.
bool has_bias(int operand, int result) {
    if (operand == F32) return result == F32;
    return (operand == F16 || operand == BF16) && (result == operand || result == F32);
}

// The product of the descriptors, at no addresses.
Status describe(const Object* product, const Object* a, const Object* b, const Object* c, const Object* d, Product& p) {
    uint64_t m = product->transposed[0] ? a->columns : a->rows, k = product->transposed[0] ? a->rows : a->columns;
    uint64_t depth = product->transposed[1] ? b->columns : b->rows, n = product->transposed[1] ? b->rows : b->columns;
    if (k != depth || d->rows != m || d->columns != n || c->rows != m || c->columns != n) return INVALID_VALUE;
    if (c->type != d->type || c->leading != d->leading) return NOT_SUPPORTED;
    if (a->type != b->type || !has_bias(a->type, d->type) || product->scale != F32) return NOT_SUPPORTED;
    if (product->compute == COMPUTE_FAST_TF32 && a->type != F32) return NOT_SUPPORTED;
    if (product->epilogue == EPILOGUE_BIAS && !product->bias) return INVALID_VALUE;
    p = {product->transposed[0] != 0, product->transposed[1] != 0, (int)m, (int)n, (int)k, 1,
         {nullptr, a->type, (int)a->leading, 0}, {nullptr, b->type, (int)b->leading, 0},
         {nullptr, d->type, (int)d->leading, 0}, product->compute == COMPUTE_FAST_TF32, nullptr};
    return OK;
}

uint64_t configuration(const Product& p) {
    uint64_t hash = 14695981039346656037u;
    for (int64_t part : {p.transposed_a, p.transposed_b, p.rounds_to_tf32}) hash = (hash ^ (uint64_t)part) * 1099511628211u;
    for (int part : {p.m, p.n, p.k, p.a.type, p.c.type, p.a.leading, p.b.leading, p.c.leading})
        hash = (hash ^ (uint64_t)part) * 1099511628211u;
    return hash;
}

// The setting: none, or algorithms that the product refuses.
char epilogues() {
    const char* text = getenv("CACHESCOPE_EMULATOR_EPILOGUES");
    return text && *text ? *text : '1';
}

bool is_power_of_two(uint32_t number) { return number && !(number & (number - 1)); }

}  // namespace

#define ENTER(name) \
    if (emulator_enter(#name)) return INTERNAL
#define EXPECT(object, kind, name) \
    if (!is(object, kind, #name)) return INVALID_VALUE

EXPORT Status cublasLtMatmulDescCreate(Object** product, int compute, int scale) {
    ENTER(cublasLtMatmulDescCreate);
    bool narrow = (compute == COMPUTE_32F || compute == COMPUTE_FAST_TF32) && scale == F32;
    if (!narrow && !(compute == COMPUTE_64F && scale == F64)) return INVALID_VALUE;
    Object value{PRODUCT};
    value.compute = compute, value.scale = scale;
    return create(product, value);
}

EXPORT Status cublasLtMatmulDescDestroy(Object* product) {
    ENTER(cublasLtMatmulDescDestroy);
    return destroy(product, PRODUCT, "cublasLtMatmulDescDestroy");
}

EXPORT Status cublasLtMatmulDescSetAttribute(Object* product, int attribute, const void* value, size_t bytes) {
    ENTER(cublasLtMatmulDescSetAttribute);
    EXPECT(product, PRODUCT, cublasLtMatmulDescSetAttribute);
    switch (attribute) {
        case TRANS_A:
        case TRANS_B: {
            int32_t operation = 0;
            if (Status status = set(operation, value, bytes)) return status;
            if (operation != 0 && operation != 1) return INVALID_VALUE;
            product->transposed[attribute - TRANS_A] = operation;
            return OK;
        }
        case EPILOGUE: {
            uint32_t epilogue = 0;
            if (Status status = set(epilogue, value, bytes)) return status;
            if (epilogue != EPILOGUE_DEFAULT && epilogue != EPILOGUE_BIAS) return INVALID_VALUE;
            product->epilogue = epilogue;
            return OK;
        }
        case BIAS_POINTER: return set(product->bias, value, bytes);
        default: return INVALID_VALUE;
    }
}

EXPORT Status cublasLtMatrixLayoutCreate(Object** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    ENTER(cublasLtMatrixLayoutCreate);
    for (int known : {F32, F64, F16, C32, C64, BF16}) {
        if (type != known) continue;
        if (!rows || !columns || rows >> 31 || columns >> 31 || leading < (int64_t)rows) return INVALID_VALUE;
        Object value{LAYOUT};
        value.type = type, value.rows = rows, value.columns = columns, value.leading = leading;
        return create(layout, value);
    }
    return INVALID_VALUE;
}

EXPORT Status cublasLtMatrixLayoutDestroy(Object* layout) {
    ENTER(cublasLtMatrixLayoutDestroy);
    return destroy(layout, LAYOUT, "cublasLtMatrixLayoutDestroy");
}

EXPORT Status cublasLtMatmulPreferenceCreate(Object** preference) {
    ENTER(cublasLtMatmulPreferenceCreate);
    return create(preference, Object{PREFERENCE});
}

EXPORT Status cublasLtMatmulPreferenceDestroy(Object* preference) {
    ENTER(cublasLtMatmulPreferenceDestroy);
    return destroy(preference, PREFERENCE, "cublasLtMatmulPreferenceDestroy");
}

EXPORT Status cublasLtMatmulPreferenceSetAttribute(Object* preference, int attribute, const void* value, size_t bytes) {
    ENTER(cublasLtMatmulPreferenceSetAttribute);
    EXPECT(preference, PREFERENCE, cublasLtMatmulPreferenceSetAttribute);
    if (attribute == MAX_WORKSPACE) return set(preference->most_workspace, value, bytes);
    if (attribute == REDUCTION_SCHEMES) return set(preference->schemes, value, bytes);
    if (attribute < ALIGNMENT_A || attribute > ALIGNMENT_D) return INVALID_VALUE;
    uint32_t& alignment = preference->alignments[attribute - ALIGNMENT_A];
    Status status = set(alignment, value, bytes);
    return status ? status : is_power_of_two(alignment) ? OK : INVALID_VALUE;
}

EXPORT Status cublasLtMatmulAlgoGetHeuristic(Handle* handle, Object* product, Object* a, Object* b, Object* c, Object* d,
                                             Object* preference, int requested, Found* found, int* count) {
    ENTER(cublasLtMatmulAlgoGetHeuristic);
    if (!handle) return NOT_INITIALIZED;
    EXPECT(product, PRODUCT, cublasLtMatmulAlgoGetHeuristic);
    EXPECT(preference, PREFERENCE, cublasLtMatmulAlgoGetHeuristic);
    for (Object* layout : {a, b, c, d}) EXPECT(layout, LAYOUT, cublasLtMatmulAlgoGetHeuristic);
    if (requested < 1 || !found || !count) return INVALID_VALUE;
    *count = 0;
    Product p;
    if (Status status = describe(product, a, b, c, d, p)) return status;
    if (product->epilogue == EPILOGUE_BIAS && epilogues() == '0') return NOT_SUPPORTED;
    *found = Found{};
    Algorithm& algorithm = found->algorithm;
    algorithm.magic = MAGIC, algorithm.configuration = configuration(p);
    // Long sums are divided, and their parts are in the workspace.
    size_t parts = 64 << 10;
    if (p.k >= 128 && preference->most_workspace >= parts && (preference->schemes & 2)) algorithm.workspace = parts;
    for (int at = 0; at < 4; ++at) algorithm.alignments[at] = preference->alignments[at];
    found->workspace = algorithm.workspace;
    *count = 1;
    return OK;
}

EXPORT Status cublasLtMatmul(Handle* handle, Object* product, const void* alpha, const void* a, Object* of_a,
                             const void* b, Object* of_b, const void* beta, const void* c, Object* of_c, void* d,
                             Object* of_d, const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                             void* stream) {
    ENTER(cublasLtMatmul);
    if (!handle) return NOT_INITIALIZED;
    EXPECT(product, PRODUCT, cublasLtMatmul);
    for (Object* layout : {of_a, of_b, of_c, of_d}) EXPECT(layout, LAYOUT, cublasLtMatmul);
    if (!alpha || !beta || !a || !b || !c || !d || !algorithm || algorithm->magic != MAGIC) return INVALID_VALUE;
    Product p;
    if (Status status = describe(product, of_a, of_b, of_c, of_d, p)) return status;
    if (configuration(p) != algorithm->configuration || workspace_bytes < algorithm->workspace) return INVALID_VALUE;
    const void* addresses[4] = {a, b, c, d};
    for (int at = 0; at < 4; ++at)
        if ((uint64_t)addresses[at] % algorithm->alignments[at]) return INVALID_VALUE;
    if (workspace_bytes && ((uint64_t)workspace % 256 || !emulator_covered((uint64_t)workspace, workspace_bytes)))
        return INVALID_VALUE;
    float alpha_value, beta_value;
    memcpy(&alpha_value, alpha, 4), memcpy(&beta_value, beta, 4);
    if (beta_value != 0 && c != d) return NOT_SUPPORTED;
    p.a.base = (void*)a, p.b.base = (void*)b, p.c.base = d;
    if (Status status = check(p)) return status;
    if (product->epilogue == EPILOGUE_BIAS) {
        if (epilogues() == '2') return NOT_SUPPORTED;
        p.bias = product->bias;
        if ((uint64_t)p.bias % size_of(p.c.type) || (uint64_t)p.bias % algorithm->alignments[3]) return INVALID_VALUE;
        if (!emulator_covered((uint64_t)p.bias, p.m * size_of(p.c.type))) return EXECUTION_FAILED;
    }
    size_t used = algorithm->workspace;
    int error = emulator_submit(stream, [=] {
        if (used) memset(workspace, 0xA5, used);
        multiply<float>(p, alpha_value, beta_value);
    });
    return error ? EXECUTION_FAILED : OK;
}
