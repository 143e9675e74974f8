/* SPDX-License-Identifier: MIT */
/* Token shards by mmap. Headers and sizes are checked once, when a set is opened; ids are
 * checked in each window before anyone uses them, since a scan of all files at the start
 * would read the whole data set. After opening, a set is read-only: any number of threads
 * may ask it for windows.
 *
 * A file that somebody cuts while it is mapped, or that cannot be read any more, gives
 * SIGBUS at the first touch of a page that is gone. A handler leads out of the copying of
 * a window, which then fails like any other read; no window of wrong ids is ever trained
 * on. */
#include "data/shards.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/files.h"
#include "base/memory.h"
#include "data/shards_files.h"

enum { HEADER_BYTES = 4 * SHARD_HEADER_WORDS };

struct shard {
    const unsigned char *map; /* whole file; NULL before it is mapped */
    size_t map_bytes;
    size_t payload; /* where the ids begin */
    uint64_t tokens;
};

struct shards {
    struct path_list files;
    struct shard *shards; /* [files.count] */
    uint64_t tokens;
    unsigned id_bytes; /* 2 or 4 */
    uint32_t vocab;
};

struct header {
    uint32_t magic, version;
    uint64_t count;
    unsigned id_bytes;
    size_t bytes; /* of the header itself; 0 for nanoGPT's files */
};

static enum status check_header(const char *path, struct header *h)
{
    uint32_t version;

    if (h->magic == SHARD_MAGIC_16) {
        version = SHARD_VERSION_16;
        h->id_bytes = 2;
    } else if (h->magic == SHARD_MAGIC_32) {
        version = SHARD_VERSION_32;
        h->id_bytes = 4;
    } else {
        return fail(
            ST_FORMAT,
            "%s: not a token shard: begins with %" PRIu32 ", needs the magic number "
            "%d (16-bit ids) or %d (32-bit ids); nanoGPT's files without a header "
            "are called train.bin and val.bin",
            path, h->magic, SHARD_MAGIC_16, SHARD_MAGIC_32);
    }
    if (h->version != version)
        return fail(ST_FORMAT,
                    "%s: version %" PRIu32 " found, needs %" PRIu32
                    " with magic number %" PRIu32,
                    path, h->version, version, h->magic);
    if (h->count == 0)
        return fail(ST_FORMAT, "%s: header says 0 tokens, needs at least 1", path);
    return ST_OK;
}

/* 16-bit ids from the first byte on, as nanoGPT writes them. */
static enum status read_headerless(const char *path, uint64_t bytes, struct header *h)
{
    if (bytes == 0 || bytes % sizeof(uint16_t))
        return fail(ST_FORMAT,
                    "%s: found %" PRIu64 " bytes, needs 16-bit ids: an even number, at "
                    "least 2",
                    path, bytes);
    *h = (struct header){.count = bytes / sizeof(uint16_t), .id_bytes = sizeof(uint16_t)};
    return ST_OK;
}

/* Reads the header of an open file and holds it against the file's size. */
static enum status read_header(int fd, const char *path, uint64_t bytes, struct header *h)
{
    uint32_t words[SHARD_HEADER_WORDS] = {0};
    enum status st = fd_read_at(fd, path, words,
                                bytes < HEADER_BYTES ? (size_t)bytes : HEADER_BYTES, 0);

    if (st != ST_OK)
        return st;
    /* The count is an int32 of the format that is taken as unsigned: files of 2^31 tokens
     * and more are then read, and a negative count is a count the size does not fit. */
    *h = (struct header){.magic = le32toh(words[0]),
                         .version = le32toh(words[1]),
                         .count = le32toh(words[2]),
                         .bytes = HEADER_BYTES};
    if (shards_is_nanogpt(path) && h->magic != SHARD_MAGIC_16 &&
        h->magic != SHARD_MAGIC_32)
        return read_headerless(path, bytes, h);
    if (bytes == 0)
        return fail(ST_FORMAT, "%s: empty file, needs a header of %d bytes", path,
                    HEADER_BYTES);
    if (bytes < HEADER_BYTES)
        return fail(ST_FORMAT, "%s: has %" PRIu64 " bytes, needs a header of %d bytes",
                    path, bytes, HEADER_BYTES);
    st = check_header(path, h);
    if (st != ST_OK)
        return st;

    uint64_t needed = HEADER_BYTES + h->count * h->id_bytes;

    if (bytes != needed)
        return fail(ST_FORMAT,
                    "%s: file is too %s: has %" PRIu64 " bytes, needs %" PRIu64
                    " (header of %d bytes and %" PRIu64 " tokens of %u bytes)",
                    path, bytes < needed ? "short" : "long", bytes, needed, HEADER_BYTES,
                    h->count, h->id_bytes);
    return ST_OK;
}

/* ---- pages that are gone ---- */

/* Where to go on when a page is gone; NULL while no mapped file is read. The compiler
 * does not see who reads it. */
static _Thread_local sigjmp_buf *volatile way_out;
static struct sigaction other_handler;

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)info;
    (void)context;
    if (way_out)
        siglongjmp(*way_out, 1);
    /* Not ours: the instruction is tried again under the handler that was here before. */
    (void)sigaction(number, &other_handler, NULL);
}

static void handle_bus_errors(void)
{
    /* Not blocked in the handler, which may never return. */
    struct sigaction action = {.sa_sigaction = on_bus_error,
                               .sa_flags = SA_SIGINFO | SA_NODEFER};

    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, &other_handler);
}

static enum status map_file(int fd, const char *path, uint64_t bytes, struct shard *f)
{
    if (bytes > SIZE_MAX)
        return fail(ST_NOMEM, "%s: %" PRIu64 " bytes do not fit the address space", path,
                    bytes);
    void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED)
        return fail(ST_IO, "%s: cannot map %" PRIu64 " bytes: %s", path, bytes,
                    strerror(errno));
    /* Windows come in random order: reading ahead would fetch what nobody asks for. A
     * refusal of this advice changes nothing but speed. */
    (void)madvise(map, (size_t)bytes, MADV_RANDOM);
    f->map = map;
    f->map_bytes = (size_t)bytes;
    return ST_OK;
}

static enum status open_shard(struct shards *s, size_t i)
{
    const char *path = s->files.paths[i];
    struct header h = {0};
    struct stat info;
    enum status st;
    /* O_NONBLOCK: a pipe by that name is refused below and not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        st = fail(ST_IO, "%s: cannot stat: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = fail(ST_IO, "%s: not a regular file", path);
        goto done;
    }
    st = read_header(fd, path, (uint64_t)info.st_size, &h);
    if (st != ST_OK)
        goto done;
    if (i == 0)
        s->id_bytes = h.id_bytes;
    if (h.id_bytes != s->id_bytes) {
        st = fail(ST_FORMAT, "%s: has %u-bit ids, needs %u-bit ids as %s has", path,
                  8 * h.id_bytes, 8 * s->id_bytes, s->files.paths[0]);
        goto done;
    }
    st = map_file(fd, path, (uint64_t)info.st_size, &s->shards[i]);
    if (st != ST_OK)
        goto done;
    s->shards[i].payload = h.bytes;
    s->shards[i].tokens = h.count;
    s->tokens += h.count;
done:
    close(fd);
    return st;
}

enum status shards_open(const char *where, const char *split, uint32_t vocab,
                        struct shards **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct shards *s = NULL;
    enum status st;

    *out = NULL;
    require(vocab >= 1);
    (void)pthread_once(&once, handle_bus_errors);
    st = memory_alloc(1, sizeof *s, "a shard set", &s);
    if (st != ST_OK)
        return st;
    /* Ids leave as int32_t. */
    *s = (struct shards){.vocab = vocab > INT32_MAX ? INT32_MAX : vocab};
    st = shards_find(where, split, &s->files);
    if (st != ST_OK)
        goto done;
    st = memory_alloc(s->files.count, sizeof *s->shards, "a list of shards", &s->shards);
    if (st != ST_OK)
        goto done;
    memset(s->shards, 0, s->files.count * sizeof *s->shards);
    for (size_t i = 0; st == ST_OK && i < s->files.count; i++)
        st = open_shard(s, i);
    if (st != ST_OK)
        goto done;
    *out = s;
    s = NULL; /* the caller's now */
done:
    shards_close(s);
    return st;
}

void shards_close(struct shards *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->shards && i < s->files.count; i++)
        if (s->shards[i].map)
            munmap((void *)s->shards[i].map, s->shards[i].map_bytes);
    free(s->shards);
    path_list_release(&s->files);
    free(s);
}

size_t shards_files(const struct shards *s)
{
    return s->files.count;
}

uint64_t shards_tokens(const struct shards *s)
{
    return s->tokens;
}

const char *shards_path(const struct shards *s, size_t file)
{
    require(file < s->files.count);
    return s->files.paths[file];
}

uint64_t shards_file_tokens(const struct shards *s, size_t file)
{
    require(file < s->files.count);
    return s->shards[file].tokens;
}

uint64_t shards_windows(const struct shards *s, size_t T, size_t *n_skipped)
{
    uint64_t windows = 0;
    size_t skipped = 0;

    require(T >= 1);
    for (size_t i = 0; i < s->files.count; i++) {
        uint64_t n = (s->shards[i].tokens - 1) / T;

        windows += n;
        skipped += n == 0;
    }
    if (n_skipped)
        *n_skipped = skipped;
    return windows;
}

/* Copies T + 1 ids from token `first` on: x gets all but the last, y all but the first.
 * Returns the largest id of them. */
static uint32_t copy_window(const struct shards *s, const struct shard *f, uint64_t first,
                            size_t T, int32_t *x, int32_t *y)
{
    const unsigned char *payload = f->map + f->payload;
    uint32_t largest, id;

    if (s->id_bytes == 2) {
        const uint16_t *ids = (const uint16_t *)(const void *)payload + first;

        largest = le16toh(ids[0]);
        x[0] = (int32_t)largest;
        for (size_t i = 1; i <= T; i++) {
            id = le16toh(ids[i]);
            y[i - 1] = (int32_t)id;
            largest = id > largest ? id : largest;
        }
    } else {
        const uint32_t *ids = (const uint32_t *)(const void *)payload + first;

        largest = le32toh(ids[0]);
        x[0] = (int32_t)largest;
        for (size_t i = 1; i <= T; i++) {
            id = le32toh(ids[i]);
            y[i - 1] = (int32_t)id;
            largest = id > largest ? id : largest;
        }
    }
    memcpy(x + 1, y, (T - 1) * sizeof *x);
    return largest;
}

static enum status fail_gone(const char *path, uint64_t needed)
{
    uint64_t bytes = 0;

    if (file_size(path, &bytes) == ST_OK && bytes < needed)
        return fail(ST_IO,
                    "%s: found %" PRIu64 " bytes, needs the %" PRIu64
                    " it had: it was cut while it is read",
                    path, bytes, needed);
    return fail(ST_IO, "%s: a page cannot be read any more", path);
}

/* copy_window, and ST_IO when a page of the file is gone. */
static enum status copy_if_there(const struct shards *s, size_t file, uint64_t first,
                                 size_t T, int32_t *x, int32_t *y, uint32_t *largest)
{
    sigjmp_buf here;

    if (sigsetjmp(here, 0) != 0) {
        way_out = NULL;
        return fail_gone(s->files.paths[file], s->shards[file].map_bytes);
    }
    way_out = &here;
    *largest = copy_window(s, &s->shards[file], first, T, x, y);
    way_out = NULL;
    return ST_OK;
}

/* The error of the first id of a window that is not in the vocabulary. */
static enum status fail_id(const struct shards *s, size_t file, uint64_t first, size_t T,
                           const int32_t *x, const int32_t *y)
{
    size_t i = 0;
    uint32_t id = (uint32_t)x[0];

    while (id < s->vocab && i < T)
        id = (uint32_t)y[i++];
    return fail(ST_FORMAT,
                "%s: token %" PRIu64 " is id %" PRIu32
                ", needs ids below the vocabulary size of %" PRIu32,
                s->files.paths[file], first + i, id, s->vocab);
}

enum status shards_window(const struct shards *s, size_t T, uint64_t w, int32_t *x,
                          int32_t *y)
{
    size_t file = 0;

    require(T >= 1);
    /* One division a file and window: 10 us for 1,000 files, little beside a row's work,
     * and no table to keep for each T. */
    for (;; file++) {
        require(file < s->files.count);
        uint64_t windows = (s->shards[file].tokens - 1) / T;

        if (w < windows)
            break;
        w -= windows;
    }
    uint32_t largest = 0;
    enum status st = copy_if_there(s, file, w * T, T, x, y, &largest);

    return st == ST_OK && largest >= s->vocab ? fail_id(s, file, w * T, T, x, y) : st;
}

/* Feeds one file in pieces, and gives the pages of each back, so that hashing 100 GB does
 * not make the process 100 GB large. */
static bool hash_file(const struct shard *f, XXH3_state_t *state)
{
    const size_t piece = (size_t)16 << 20; /* a multiple of every page size */
    unsigned char *map = (unsigned char *)f->map;
    bool ok = true;

    (void)madvise(map, f->map_bytes, MADV_SEQUENTIAL);
    for (size_t at = 0; ok && at < f->map_bytes; at += piece) {
        size_t end = min_size(at + piece, f->map_bytes);
        size_t begin = max_size(at, f->payload);

        ok = XXH3_64bits_update(state, map + begin, end - begin) == XXH_OK;
        (void)madvise(map + at, end - at, MADV_DONTNEED);
    }
    (void)madvise(map, f->map_bytes, MADV_RANDOM);
    return ok;
}

/* The size of a file and a few stretches of it, evenly spaced. */
static bool sample_file(const struct shard *f, XXH3_state_t *state)
{
    enum { STRETCHES = 8, STRETCH_BYTES = 512 };
    size_t bytes = f->map_bytes - f->payload;
    size_t n = min_size(bytes, STRETCH_BYTES);
    uint64_t tokens = f->tokens;
    bool ok = XXH3_64bits_update(state, &tokens, sizeof tokens) == XXH_OK;

    for (size_t i = 0; ok && i < STRETCHES; i++) {
        size_t at = (bytes - n) / (STRETCHES - 1) * i;

        ok = XXH3_64bits_update(state, f->map + f->payload + at, n) == XXH_OK;
    }
    return ok;
}

enum status shards_sample_hash(const struct shards *s, uint64_t *hash)
{
    XXH3_state_t *state = XXH3_createState();
    bool ok = true;

    if (!state)
        return fail(ST_NOMEM, "no memory for a checksum state");
    ok = XXH3_64bits_reset(state) == XXH_OK;
    for (size_t i = 0; ok && i < s->files.count; i++)
        ok = sample_file(&s->shards[i], state);
    require(ok);
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return ST_OK;
}

enum status shards_hash(const struct shards *s, uint64_t *hash)
{
    XXH3_state_t *state = XXH3_createState();
    bool ok = true;

    if (!state)
        return fail(ST_NOMEM, "no memory for a checksum state");
    ok = XXH3_64bits_reset(state) == XXH_OK;
    for (size_t i = 0; ok && i < s->files.count; i++)
        ok = hash_file(&s->shards[i], state);
    require(ok);
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return ST_OK;
}
