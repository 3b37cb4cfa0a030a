/* Uses every host function of cachescope.h, as a program in C would. Prints "ok" at the end. */
#include "cachescope.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, cs_last_error()); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

#define MEGABYTE ((size_t)1 << 20)

static cs_statistics stats(cs_cache *cache) {
    cs_statistics now;
    CHECK(cs_stats(cache, &now) == CS_OK);
    return now;
}

static int is_aligned(void *block) { return block != NULL && (uintptr_t)block % 64 == 0; }

static volatile int stop;

static void *limit(void *nothing) {
    while (!stop)
        CHECK(cs_memory_limit(0) == CS_OK);
    return nothing;
}

/* A fork beside a busy thread, before any cache is opened. */
static void test_fork_before_the_first_cache(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, limit, NULL) == 0);
    for (int number = 0; number < 100; number++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            CHECK(cs_memory_limit(0) == CS_OK);
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static void test_errors(void) {
    CHECK(strlen(cs_version()) >= 5);
    CHECK(strcmp(cs_last_error(), "") == 0);
    cs_options unknown = {"fastest", 0};
    CHECK(cs_cache_open("errors", &unknown) == NULL);
    CHECK(strstr(cs_last_error(), "unknown policy \"fastest\", expected one of recycle") != NULL);
    CHECK(cs_torch_malloc(-1, 0, NULL) == NULL);
    CHECK(strstr(cs_last_error(), "bytes is -1") != NULL);
    CHECK(cs_torch_malloc(-123456789, 0, NULL) == NULL);
    CHECK(strstr(cs_last_error(), "expected at least 0") != NULL);
    CHECK(cs_cache_open(NULL, NULL) == NULL);
    CHECK(cs_cache_open("\xff", NULL) == NULL);
    CHECK(cs_enter(NULL) == CS_ERROR_ARGUMENT);
    CHECK(cs_malloc(NULL, MEGABYTE) == NULL);
    cs_cache *cache = cs_cache_open("errors", NULL);
    CHECK(cs_exit(cache) == CS_ERROR_STATE);
    CHECK(cs_stats(cache, NULL) == CS_ERROR_ARGUMENT);
    CHECK(cs_record("run.unknown") == CS_ERROR_ARGUMENT);
    CHECK(cs_record_end() == CS_ERROR_STATE);
    CHECK(cs_malloc(cache, SIZE_MAX) == NULL);
    CHECK(cs_calloc(cache, SIZE_MAX / 2, 4) == NULL);
    CHECK(cs_invalidate("nobody") == CS_OK);
    cs_free(cache, NULL, 5);
    cs_cache_release(NULL);
}

static void test_hits(const char *policy, size_t expected_hits) {
    cs_options options = {policy, 0};
    cs_cache *cache = cs_cache_open(policy, &options);
    for (int step = 0; step < 10; step++) {
        CHECK(cs_enter(cache) == CS_OK);
        void *blocks[4];
        for (size_t part = 0; part < 4; part++) {
            blocks[part] = cs_malloc(cache, (part + 1) * MEGABYTE);
            CHECK(is_aligned(blocks[part]));
            memset(blocks[part], 1, (part + 1) * MEGABYTE);
        }
        for (size_t part = 0; part < 4; part++)
            cs_free(cache, blocks[part], 3); /* The size is not read. */
        CHECK(cs_exit(cache) == CS_OK);
    }
    cs_statistics now = stats(cache);
    CHECK(now.entries == 10 && now.live_blocks == 0 && now.live_bytes == 0);
    CHECK(now.hits + now.misses == 40);
    if (now.hits < expected_hits)
        fprintf(stderr, "%s: %d hits\n", policy, (int)now.hits);
    CHECK(now.hits >= expected_hits);
    CHECK(cs_invalidate(policy) == CS_OK && stats(cache).cached_bytes == 0);
}

static void test_small_and_zeroed(void) {
    cs_cache *cache = cs_cache_open("zeroed", NULL);
    CHECK(cs_enter(cache) == CS_OK);
    for (size_t bytes = 0; bytes < 1024; bytes++) {
        unsigned char *block = cs_calloc(cache, bytes, 1);
        CHECK(is_aligned(block));
        for (size_t at = 0; at < bytes; at++)
            CHECK(block[at] == 0);
        memset(block, 255, bytes);
        cs_free(NULL, block, 0);
    }
    CHECK(stats(cache).hits + stats(cache).misses == 0);
    for (int turn = 0; turn < 3; turn++)
        for (size_t bytes = 1024; bytes <= 4 * MEGABYTE; bytes = bytes * 3 + 1) {
            unsigned char *block = cs_calloc(cache, 1, bytes);
            CHECK(is_aligned(block));
            for (size_t at = 0; at < bytes; at++)
                CHECK(block[at] == 0);
            memset(block, 255, bytes);
            cs_free(cache, block, bytes);
        }
    CHECK(cs_exit(cache) == CS_OK);
}

static void test_realloc(void) {
    cs_cache *cache = cs_cache_open("realloc", NULL);
    CHECK(cs_enter(cache) == CS_OK);
    unsigned char *block = cs_realloc(cache, NULL, 1);
    size_t filled = 1;
    block[0] = 0;
    for (size_t bytes = 2; bytes < 2 * MEGABYTE; bytes += bytes / 2 + 1) {
        block = cs_realloc(cache, block, bytes);
        CHECK(is_aligned(block));
        for (; filled < bytes; filled++)
            block[filled] = (unsigned char)(filled * 31);
    }
    CHECK(cs_realloc(cache, block, SIZE_MAX) == NULL); /* It stays valid. */
    for (size_t bytes = filled; bytes > 0; bytes = bytes * 2 / 3) {
        block = cs_realloc(cache, block, bytes);
        CHECK(is_aligned(block));
        for (size_t at = 0; at < bytes; at++)
            CHECK(block[at] == (unsigned char)(at * 31));
    }
    cs_free(cache, block, 1);
    CHECK(stats(cache).live_blocks == 0);
    CHECK(cs_exit(cache) == CS_OK);
}

static void test_interleaved_entries(void) {
    cs_cache *first = cs_cache_open("first", NULL), *second = cs_cache_open("second", NULL);
    CHECK(cs_cache_open("first", NULL) == first && first != second);
    CHECK(cs_enter(first) == CS_OK && cs_enter(second) == CS_OK);
    void *of_first = cs_malloc(first, MEGABYTE), *of_second = cs_malloc(second, MEGABYTE);
    CHECK(cs_exit(first) == CS_OK); /* Not the one that was entered last. */
    CHECK(stats(first).escaped_blocks == 1 && stats(second).escaped_blocks == 0);
    void *more = cs_malloc(second, MEGABYTE);
    CHECK(cs_exit(second) == CS_OK);
    cs_free(second, of_first, 0); /* The owner is `first`. */
    CHECK(stats(first).live_blocks == 0 && stats(second).live_blocks == 2);
    cs_free(first, of_second, 0);
    cs_free(first, more, 0);
    CHECK(stats(first).cached_blocks == 1 && stats(second).cached_blocks == 2);
    cs_cache_retain(first);
    cs_cache_release(first);
    cs_cache_release(first);
    CHECK(stats(first).cached_blocks == 1); /* One of three handles is left. */
    cs_cache_release(first);
    CHECK(stats(first).cached_blocks == 0);
}

/* A request between two entries gets no memory that the next entry hands out. */
static void test_between_entries(const char *policy) {
    char name[32];
    snprintf(name, sizeof name, "between %s", policy);
    cs_options options = {policy, 0};
    cs_cache *cache = cs_cache_open(name, &options);
    for (int step = 0; step < 8; step++) {
        unsigned char *before = step < 5 ? NULL : cs_malloc(cache, MEGABYTE);
        if (before != NULL)
            memset(before, 1, MEGABYTE);
        CHECK(cs_enter(cache) == CS_OK);
        unsigned char *inside = cs_malloc(cache, MEGABYTE);
        CHECK(is_aligned(inside) && inside != before);
        memset(inside, 2, MEGABYTE);
        CHECK(before == NULL || (before[0] == 1 && before[MEGABYTE - 1] == 1));
        cs_free(cache, inside, 0);
        CHECK(cs_exit(cache) == CS_OK);
        cs_free(cache, before, 0);
    }
    cs_options recycle = {"recycle", 0};
    CHECK(cs_cache_open(name, &recycle) == cache);
    CHECK(cs_enter(cache) == CS_OK && cs_exit(cache) == CS_OK);
    CHECK(cs_invalidate(name) == CS_OK);
    CHECK(stats(cache).cached_bytes == 0 && stats(cache).live_blocks == 0);
}

/* An option that is not set stays as it is. */
static void test_options(void) {
    cs_options release = {"release", 0}, bounded = {NULL, 4 * MEGABYTE}, recycle = {"recycle", 0};
    cs_cache *cache = cs_cache_open("options", &release);
    CHECK(cs_cache_open("options", &bounded) == cache);
    CHECK(cs_enter(cache) == CS_OK);
    cs_free(cache, cs_malloc(cache, MEGABYTE), 0);
    CHECK(cs_exit(cache) == CS_OK && stats(cache).cached_blocks == 0);
    CHECK(cs_cache_open("options", &recycle) == cache);
    CHECK(cs_enter(cache) == CS_OK);
    void *blocks[2] = {cs_malloc(cache, 3 * MEGABYTE), cs_malloc(cache, 3 * MEGABYTE)};
    CHECK(stats(cache).live_blocks == 1); /* The other one is beyond the bound. */
    cs_free(cache, blocks[0], 0);
    cs_free(cache, blocks[1], 0);
    CHECK(cs_exit(cache) == CS_OK && stats(cache).cached_blocks == 1);
    cs_options unbounded = {NULL, UINT64_MAX};
    CHECK(cs_cache_open("options", &unbounded) == cache);
    blocks[0] = cs_malloc(cache, 3 * MEGABYTE), blocks[1] = cs_malloc(cache, 3 * MEGABYTE);
    CHECK(stats(cache).live_blocks == 2);
    cs_free(cache, blocks[0], 0);
    cs_free(cache, blocks[1], 0);
}

static void *enter(void *cache) {
    CHECK(cs_enter(cache) == CS_OK);
    return NULL;
}

/* A child has the entries of the thread that forked. */
static void test_entries_in_a_child(void) {
    cs_cache *cache = cs_cache_open("child", NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, enter, cache) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cs_enter(cache) == CS_OK);
    pid_t child = fork();
    if (child == 0) {
        CHECK(cs_exit(cache) == CS_OK);
        CHECK(cs_exit(cache) == CS_ERROR_STATE);
        CHECK(cs_enter(cache) == CS_OK && stats(cache).entries == 2);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(cs_exit(cache) == CS_OK && cs_exit(cache) == CS_OK);
}

static void *leave(void *cache) {
    CHECK(cs_exit(cache) == CS_OK);
    return NULL;
}

static void *work(void *cache) {
    void *blocks[16] = {0};
    for (size_t step = 0; step < 4000; step++) {
        size_t at = step * 7 % 16, bytes = 512 + (step * 997 % 64) * 1024;
        cs_free(cache, blocks[at], 0);
        blocks[at] = cs_malloc(cache, bytes);
        CHECK(is_aligned(blocks[at]));
        memset(blocks[at], (int)at, bytes);
        if (step % 64 == 0) {
            CHECK(cs_enter(cache) == CS_OK);
            CHECK(cs_exit(cache) == CS_OK);
        }
        if (step % 1000 == 0)
            CHECK(cs_invalidate("threads") == CS_OK);
    }
    for (size_t at = 0; at < 16; at++)
        cs_free(cache, blocks[at], 0);
    return NULL;
}

static void test_threads(void) {
    cs_cache *cache = cs_cache_open("threads", NULL);
    pthread_t threads[4], leaver;
    CHECK(cs_enter(cache) == CS_OK);
    for (int number = 0; number < 4; number++)
        CHECK(pthread_create(&threads[number], NULL, work, cache) == 0);
    for (int number = 0; number < 30; number++) { /* Children of a process with busy threads. */
        pid_t child = fork();
        if (child == 0) {
            void *block = cs_malloc(cache, 3 * MEGABYTE);
            CHECK(is_aligned(block));
            cs_free(cache, block, 0);
            CHECK(cs_enter(cache) == CS_OK && cs_exit(cache) == CS_OK);
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int number = 0; number < 4; number++)
        CHECK(pthread_join(threads[number], NULL) == 0);
    CHECK(pthread_create(&leaver, NULL, leave, cache) == 0);
    CHECK(pthread_join(leaver, NULL) == 0);
    CHECK(stats(cache).live_blocks == 0);
}

static void test_limits(void) {
    cs_options options = {"recycle", 4 * MEGABYTE};
    cs_cache *cache = cs_cache_open("limited", &options);
    CHECK(cs_enter(cache) == CS_OK);
    void *inside = cs_malloc(cache, 3 * MEGABYTE), *outside = cs_malloc(cache, 3 * MEGABYTE);
    CHECK(is_aligned(inside) && is_aligned(outside));
    CHECK(stats(cache).live_blocks == 1); /* The other one belongs to no cache. */
    cs_free(cache, inside, 0);
    cs_free(cache, outside, 0);
    CHECK(cs_memory_limit(16 * MEGABYTE) == CS_OK);
    CHECK(cs_malloc(cache, 64 * MEGABYTE) == NULL);
    CHECK(strstr(cs_last_error(), "limit") != NULL);
    void *again = cs_malloc(cache, 2 * MEGABYTE);
    CHECK(is_aligned(again));
    cs_free(cache, again, 0);
    CHECK(cs_memory_limit(0) == CS_OK);
    void *large = cs_malloc(cache, 64 * MEGABYTE);
    CHECK(is_aligned(large));
    cs_free(cache, large, 0);
    CHECK(cs_exit(cache) == CS_OK);
}

/* The structures of dlpack.h. */
typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;

struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    tensor dl_tensor;
};

static void test_dlpack(void) {
    cs_cache *cache = cs_cache_open("dlpack", NULL);
    const int64_t shape[2] = {100, 30}, negative[2] = {100, -1}, large[2] = {INT64_MAX, INT64_MAX};
    size_t blocks[2] = {100 * 30 * 4, 16}; /* One of the cache, and one of the C library. */
    CHECK(cs_enter(cache) == CS_OK);
    for (int which = 0; which < 2; which++) {
        float *block = cs_malloc(cache, blocks[which]);
        CHECK(cs_to_dlpack(block, 2, negative, 2, 32) == NULL);
        CHECK(cs_to_dlpack(block, 2, large, 2, 32) == NULL);
        CHECK(cs_to_dlpack(block, 2, shape, 2, 64) == NULL);
        CHECK(cs_to_dlpack(block, 65, shape, 2, 32) == NULL);
        CHECK(cs_to_dlpack(block, 2, NULL, 2, 32) == NULL);
        CHECK(cs_to_dlpack(block, 2, shape, 9, 32) == NULL);
        CHECK(cs_to_dlpack(NULL, 0, NULL, 2, 32) == NULL);
        CHECK(strstr(cs_last_error(), "cs_to_dlpack") != NULL);
        block[3] = 7.0f;
        struct DLManagedTensorVersioned *made = cs_to_dlpack(block, which ? 0 : 2, which ? NULL : shape, 2, 32);
        CHECK(made != NULL && made->major == 1 && made->flags == 0);
        const tensor *view = &made->dl_tensor;
        CHECK(view->data == block && ((float *)view->data)[3] == 7.0f && view->byte_offset == 0);
        CHECK(view->device_type == 1 && view->device_id == 0 && view->code == 2 && view->bits == 32 && view->lanes == 1);
        if (which == 0) {
            CHECK(view->ndim == 2 && view->shape[0] == 100 && view->shape[1] == 30);
            CHECK(view->strides[0] == 30 && view->strides[1] == 1);
            CHECK(stats(cache).live_blocks == 1);
        }
        made->deleter(made);
    }
    CHECK(stats(cache).live_blocks == 0);
    /* Axes of length 1 and axes before one without elements have the steps of a row-major tensor. */
    const int64_t shapes[2][4] = {{1, 3, 1, 2}, {2, 1, 0, 5}}, steps[2][4] = {{6, 2, 2, 1}, {5, 5, 5, 1}};
    for (int which = 0; which < 2; which++) {
        struct DLManagedTensorVersioned *made = cs_to_dlpack(cs_malloc(cache, 4096), 4, shapes[which], 2, 32);
        CHECK(made != NULL && memcmp(made->dl_tensor.strides, steps[which], sizeof steps[which]) == 0);
        made->deleter(made);
    }
    CHECK(cs_exit(cache) == CS_OK);
}

static void test_record(const char *path) {
    cs_cache *cache = cs_cache_open("recorded", NULL);
    CHECK(cs_record(path) == CS_OK);
    CHECK(cs_record(path) == CS_ERROR_STATE);
    for (int step = 0; step < 3; step++) {
        CHECK(cs_enter(cache) == CS_OK);
        void *block = cs_malloc(cache, 123456);
        CHECK(is_aligned(block));
        cs_free(cache, block, 0);
        CHECK(cs_exit(cache) == CS_OK);
    }
    CHECK(cs_record_end() == CS_OK);
    CHECK(stats(cache).hits == 2 && stats(cache).misses == 1);
    FILE *report = fopen(path, "r");
    CHECK(report != NULL && fgetc(report) != EOF);
    fclose(report);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    test_fork_before_the_first_cache();
    test_errors();
    test_hits("recycle", 36);
    test_hits("bump", 30);
    test_hits("plan", 30);
    test_hits("release", 0);
    test_small_and_zeroed();
    test_realloc();
    test_interleaved_entries();
    test_between_entries("recycle");
    test_between_entries("release");
    test_between_entries("bump");
    test_between_entries("plan");
    test_options();
    test_entries_in_a_child();
    test_threads();
    test_limits();
    test_dlpack();
    test_record(arguments[1]);
    puts("ok");
    return 0;
}
