/* cachescope: scoped caching allocation for programs in C, and for libraries that let a program
 * replace their allocator (NumPy by NEP 49, PyTorch, CuPy).
 *
 * A cache has a name and belongs to the process. Any thread may call any function with any cache.
 * An entry (`cs_enter` to `cs_exit`) belongs to the cache, not to a thread: it may begin on one
 * thread and end on another. Entries of one cache that overlap count as one. "bump" and "plan" are
 * for entries that do not overlap: under "bump", entries that always overlap use more and more
 * memory. Between entries a cache serves requests from its idle blocks.
 *
 * No function unwinds. A function that returns `int` returns CS_OK or a negative cs_error; one
 * that returns a pointer returns null if it fails. `cs_last_error` returns the reason.
 *
 * The library may be used in a child after fork(). The child has the entries of the thread that
 * forked, and no others. The library has no destructors: blocks may be freed while the process
 * ends.
 */
#ifndef CACHESCOPE_H
#define CACHESCOPE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A named cache. */
typedef struct cs_cache cs_cache;

/* The codes of failures. */
typedef enum cs_error {
    CS_OK = 0,
    CS_ERROR_ARGUMENT = -1, /* A null pointer, an unknown policy, a file name without a format. */
    CS_ERROR_MEMORY = -2,   /* No memory, also because a limit is met. */
    CS_ERROR_STATE = -3,    /* An exit without an entry, a second recording. */
    CS_ERROR_IO = -4,       /* A file that cannot be written. */
    CS_ERROR_DEVICE = -5,   /* A CUDA device that is missing or fails. */
    CS_ERROR_INTERNAL = -6  /* A defect of the library. */
} cs_error;

/* The settings of a cache. */
typedef struct cs_options {
    const char *policy; /* "recycle", "release", "bump" or "plan"; null: no change. */
    uint64_t max_bytes; /* The most bytes, live and idle, that the cache holds; 0: no change;
                           UINT64_MAX: no maximum. */
} cs_options;

/* The counters of a cache, over all its threads and devices. Bytes of live blocks include 64 a
 * block, in which the owner of a host block is stored. Requests below 1 KiB are not counted. */
typedef struct cs_statistics {
    uint64_t entries;         /* Outermost entries. */
    uint64_t hits;            /* Requests that the cache served. */
    uint64_t misses;          /* Other requests. */
    uint64_t live_blocks;     /* Blocks that are not freed. */
    uint64_t live_bytes;      /* Bytes that the live blocks had when they were allocated. */
    uint64_t cached_blocks;   /* Idle blocks. */
    uint64_t cached_bytes;    /* Bytes of the idle blocks. */
    uint64_t escaped_blocks;  /* Live blocks of entries that have ended. */
    uint64_t peak_live_bytes; /* The highest live_bytes of each device, added. */
} cs_statistics;

/* --- Caches ----------------------------------------------------------------------------------- */

/* Opens the cache `name` (UTF-8), and makes it if there is none. Every call with one name returns
 * one pointer. A new cache has the policy "recycle" and no bound, unless `options` or the
 * environment sets them. A known one keeps what `options` does not set; `options` may be null. A
 * change takes effect at the next outermost entry. Returns null on failure. */
cs_cache *cs_cache_open(const char *name, const cs_options *options);

/* Adds a handle. */
void cs_cache_retain(cs_cache *cache);

/* Removes a handle. The last one invalidates the cache: see cs_invalidate. The cache itself, its
 * counters and its live blocks stay: the pointer remains valid until the process ends. */
void cs_cache_release(cs_cache *cache);

/* Begins an entry: counts it, and begins the policy's plan. Binds nothing to the thread. */
int cs_enter(cs_cache *cache);

/* Ends an entry, on any thread. Fails with CS_ERROR_STATE if the cache is not entered. */
int cs_exit(cs_cache *cache);

/* --- Blocks, with the signatures of NEP 49; `cache` is a cs_cache ------------------------------- */

/* Returns a block of `bytes` that is aligned to 64 bytes; for 0 bytes, a block that must be freed.
 * Below 1 KiB the block is of the C library. Returns null if there is no memory. */
void *cs_malloc(void *cache, size_t bytes);

/* Like cs_malloc, for `count * bytes` bytes that are 0. A block that the cache held is written; one
 * that it did not hold gets new pages from the kernel. */
void *cs_calloc(void *cache, size_t count, size_t bytes);

/* Returns a block of `bytes` with the contents of `block`, which it frees; `block` may be null. A
 * block with enough memory stays where it is. On failure returns null, and `block` stays valid. */
void *cs_realloc(void *cache, void *block, size_t bytes);

/* Frees a block of cs_malloc, cs_calloc or cs_realloc, on any thread. The block knows its owner:
 * neither `cache` nor `bytes` is read. `block` may be null. */
void cs_free(void *cache, void *block, size_t bytes);

/* --- DLPack 1.x ------------------------------------------------------------------------------- */

struct DLManagedTensorVersioned; /* Of dlpack.h. */

/* Makes a host block a row-major tensor without gaps, whose elements have the DLDataTypeCode `code`
 * and `bits` bits; `shape` has `ndim` lengths. The tensor owns the block: its deleter frees it, on any
 * thread. On failure returns null, and the block stays valid. A tensor of another library needs no
 * call: its consumer reads the fields, and calls the deleter. */
struct DLManagedTensorVersioned *cs_to_dlpack(void *block, int ndim, const int64_t *shape, int code, int bits);

/* --- The process -------------------------------------------------------------------------------- */

/* Returns the version, such as "0.1.0". */
const char *cs_version(void);

/* Limits the memory that all caches of the host reserve together; 0: no limit. A request beyond it
 * fails after all idle memory was released. If more is reserved, idle memory is released at once. */
int cs_memory_limit(uint64_t bytes);

/* Writes the counters of a cache. */
int cs_stats(cs_cache *cache, cs_statistics *statistics);

/* Releases the idle memory of the cache `name`, and all memory that is idle in the pools, to the
 * system. Live blocks go to the pool when they are freed, and to the system at the next call. So do
 * the blocks of "release", and those beyond max_bytes. An unknown name only empties the pools. */
int cs_invalidate(const char *name);

/* Begins to record every block of the host. The ending of `path` selects the report: .html, .json,
 * .pickle, .dhat, .folded, .svg or .txt. There is one recording at a time. */
int cs_record(const char *path);

/* Ends the recording, and writes the report. */
int cs_record_end(void);

/* Returns the text of the last failure on this thread, "" if there was none. It is valid until the
 * next failure on this thread. */
const char *cs_last_error(void);

/* --- CUDA: entry points of other libraries ------------------------------------------------------ */

/* These functions name no cache, and are called on threads of the library's own, such as PyTorch's
 * backward pass. So a request belongs to the cache that the process entered last, on any thread;
 * outside all entries, to none. A stream must not be destroyed before the process ends. Null and
 * CU_STREAM_LEGACY are the legacy default stream. The per-thread default stream is refused with
 * CS_ERROR_ARGUMENT. The functions leave the thread's current context as it is.
 *
 * Use one GPU in a process: memory has no access from a peer. Do not capture graphs under this
 * allocator: the memory of a graph is handed out again. */

/* Returns device memory for work on `stream`; null for 0 bytes and on failure, and for less than 0
 * bytes, which is CS_ERROR_ARGUMENT. To be passed to
 * torch.cuda.memory.CUDAPluggableAllocator. */
void *cs_torch_malloc(ssize_t bytes, int device, void *stream);

/* Frees device memory. It is reused on its stream at once, and elsewhere after the work on `stream`
 * and on all recorded streams. */
void cs_torch_free(void *block, ssize_t bytes, int device, void *stream);

/* Defers the reuse of `block`, once it is freed, until the work on `stream` has completed. */
void cs_torch_record_stream(void *block, void *stream);

/* For cupy.cuda.CFunctionAllocator. `param` is a cs_cache, or null for the cache that the process
 * entered last. CuPy names no stream: the memory is for work on the legacy default stream, and for
 * no other one. On other streams, pass the stream to cs_torch_malloc and cs_torch_free in functions
 * of cupy.cuda.PythonFunctionAllocator. */
void *cs_cupy_malloc(void *param, size_t bytes, int device);
void cs_cupy_free(void *param, void *block, int device);

#ifdef __cplusplus
}
#endif

#endif /* CACHESCOPE_H */
