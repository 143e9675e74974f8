/* SPDX-License-Identifier: MIT */
/* Writes token shards. Invariant: files 0..files-1 of the set are complete apart from the
 * .tmp behind their names; the file after them is open (fd >= 0) while it has tokens. */
#include "data/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "shards are little-endian and written as they lie in memory"
#endif

enum { BUFFER_TOKENS = 1 << 16, HEADER_BYTES = SHARD_HEADER_WORDS * 4 };

struct shard_writer {
    char *folder, *stem, *split;
    uint32_t vocab;
    uint64_t shard_tokens;
    size_t id_bytes; /* 2 or 4 */
    size_t files;    /* finished */
    int fd;
    char tmp[PATH_MAX]; /* name of the open file */
    uint64_t count;     /* tokens of the open or last file, buffered ones included */
    size_t buffered;
    unsigned char buffer[BUFFER_TOKENS * sizeof(uint32_t)];
};

void shard_writer_name(const char *folder, const char *stem, const char *split,
                       size_t file, char *buf, size_t buf_bytes)
{
    size_t first = strcmp(split, "val") != 0;
    /* shard_writer_new has seen to the length. */
    int n =
        snprintf(buf, buf_bytes, "%s/%s_%s_%06zu.bin", folder, stem, split, file + first);

    require(n > 0 && (size_t)n < buf_bytes);
}

static void tmp_name(const struct shard_writer *w, size_t file, char buf[PATH_MAX])
{
    shard_writer_name(w->folder, w->stem, w->split, file, buf, PATH_MAX - 4);
    memcpy(buf + strlen(buf), ".tmp", 5);
}

static void writer_free(struct shard_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    free(w->folder);
    free(w->stem);
    free(w->split);
    free(w);
}

enum status shard_writer_new(const char *folder, const char *stem, const char *split,
                             uint32_t vocab, uint64_t shard_tokens,
                             struct shard_writer **out)
{
    struct shard_writer *w;

    *out = NULL;
    if (shard_tokens == 0 || shard_tokens > INT32_MAX)
        return fail(ST_USAGE, "shard tokens: found %llu, needs 1 to %d",
                    (unsigned long long)shard_tokens, INT32_MAX);
    /* Room for _, a number of 20 digits at most, .bin and .tmp. */
    if (strlen(folder) + strlen(stem) + strlen(split) + 32 > PATH_MAX)
        return fail(ST_USAGE, "%s/%s: path too long", folder, stem);
    w = malloc(sizeof *w);
    if (!w)
        return fail(ST_NOMEM, "no memory for a shard writer");
    w->folder = strdup(folder);
    w->stem = strdup(stem);
    w->split = strdup(split);
    w->vocab = vocab;
    w->shard_tokens = shard_tokens;
    w->id_bytes = vocab <= 65536 ? 2 : 4;
    w->files = 0;
    w->fd = -1;
    w->count = 0;
    w->buffered = 0;
    if (!w->folder || !w->stem || !w->split) {
        writer_free(w);
        return fail(ST_NOMEM, "no memory for a shard writer");
    }
    *out = w;
    return ST_OK;
}

static enum status begin_file(struct shard_writer *w)
{
    tmp_name(w, w->files, w->tmp);
    w->fd = open(w->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return fail(ST_IO, "%s: cannot create: %s", w->tmp, strerror(errno));
    w->count = 0;
    return ST_OK;
}

static enum status flush(struct shard_writer *w)
{
    uint64_t at = HEADER_BYTES + (w->count - w->buffered) * w->id_bytes;
    enum status st = fd_write_at(w->fd, w->tmp, w->buffer, w->buffered * w->id_bytes, at);

    if (st == ST_OK)
        w->buffered = 0;
    return st;
}

static enum status end_file(struct shard_writer *w)
{
    int32_t header[SHARD_HEADER_WORDS] = {
        w->id_bytes == 2 ? SHARD_MAGIC_16 : SHARD_MAGIC_32,
        w->id_bytes == 2 ? SHARD_VERSION_16 : SHARD_VERSION_32, (int32_t)w->count};
    enum status st = flush(w);

    if (st == ST_OK)
        st = fd_write_at(w->fd, w->tmp, header, sizeof header, 0);
    if (st == ST_OK && fsync(w->fd) != 0)
        st = fail(ST_IO, "%s: cannot sync: %s", w->tmp, strerror(errno));
    if (st != ST_OK)
        return st;
    int rc = close(w->fd);
    w->fd = -1;
    w->files++;
    return rc == 0 ? ST_OK : fail(ST_IO, "%s: cannot close: %s", w->tmp, strerror(errno));
}

static void put(struct shard_writer *w, const uint32_t *ids, size_t n)
{
    if (w->id_bytes == 4) {
        memcpy(w->buffer + 4 * w->buffered, ids, 4 * n);
    } else {
        for (size_t i = 0; i < n; i++) {
            uint16_t id = (uint16_t)ids[i];

            memcpy(w->buffer + 2 * (w->buffered + i), &id, sizeof id);
        }
    }
    w->buffered += n;
    w->count += n;
}

enum status shard_writer_add(struct shard_writer *w, const uint32_t *ids, size_t n)
{
    enum status st = ST_OK;

    for (size_t i = 0; i < n; i++)
        if (ids[i] >= w->vocab)
            return fail(ST_BUG, "%s/%s: id %u to write, the vocabulary has %u", w->folder,
                        w->stem, ids[i], w->vocab);
    while (n > 0 && st == ST_OK) {
        if (w->fd < 0)
            st = begin_file(w);
        if (st != ST_OK)
            break;
        size_t room = (size_t)(w->shard_tokens - w->count);
        size_t some = min_size(n, min_size(BUFFER_TOKENS - w->buffered, room));

        put(w, ids, some);
        ids += some;
        n -= some;
        if (w->count == w->shard_tokens)
            st = end_file(w);
        else if (w->buffered == BUFFER_TOKENS)
            st = flush(w);
    }
    return st;
}

enum status shard_writer_sync(struct shard_writer *w, struct shard_writer_place *out)
{
    enum status st = w->fd >= 0 ? flush(w) : ST_OK;

    *out = (struct shard_writer_place){w->files, w->fd >= 0 ? w->count : 0};
    if (st == ST_OK && w->fd >= 0 && fdatasync(w->fd) != 0)
        st = fail(ST_IO, "%s: cannot sync: %s", w->tmp, strerror(errno));
    return st;
}

/* A file of a killed writer must have at least these tokens. */
static enum status check_left(const char *path, uint64_t bytes, bool exactly)
{
    uint64_t found;
    enum status st = file_size(path, &found);

    if (st == ST_OK && (exactly ? found != bytes : found < bytes))
        st = fail(ST_FORMAT, "%s: found %llu bytes, needs %llu", path,
                  (unsigned long long)found, (unsigned long long)bytes);
    return st;
}

enum status shard_writer_resume(struct shard_writer *w,
                                const struct shard_writer_place *from)
{
    uint64_t whole = HEADER_BYTES + w->shard_tokens * w->id_bytes;
    uint64_t open_bytes = HEADER_BYTES + from->tokens * w->id_bytes;
    char tmp[PATH_MAX];
    enum status st = ST_OK;

    require(w->files == 0 && w->fd < 0);
    if (from->tokens >= w->shard_tokens)
        return fail(ST_FORMAT,
                    "%s/%s: found %llu tokens in a shard, needs less than %llu",
                    w->folder, w->stem, (unsigned long long)from->tokens,
                    (unsigned long long)w->shard_tokens);
    for (uint64_t i = 0; st == ST_OK && i < from->files; i++) {
        tmp_name(w, (size_t)i, tmp);
        st = check_left(tmp, whole, true);
    }
    if (st != ST_OK)
        return st;
    tmp_name(w, (size_t)from->files, w->tmp);
    if (from->tokens > 0) {
        st = check_left(w->tmp, open_bytes, false);
        if (st != ST_OK)
            return st;
        w->fd = open(w->tmp, O_WRONLY | O_CLOEXEC);
        if (w->fd < 0 || ftruncate(w->fd, (off_t)open_bytes) != 0)
            return fail(ST_IO, "%s: cannot go on: %s", w->tmp, strerror(errno));
    }
    w->files = (size_t)from->files;
    w->count = from->tokens > 0 ? from->tokens : from->files > 0 ? w->shard_tokens : 0;
    return ST_OK;
}

enum status shard_writer_finish(struct shard_writer *w)
{
    return w->fd >= 0 ? end_file(w) : ST_OK;
}

enum status shard_writer_close(struct shard_writer *w, size_t *files,
                               uint64_t *last_tokens)
{
    char tmp[PATH_MAX];
    char name[PATH_MAX];
    enum status st = shard_writer_finish(w);

    *files = st == ST_OK ? w->files : 0;
    *last_tokens = st == ST_OK ? w->count : 0;
    for (size_t i = 0; i < w->files && st == ST_OK; i++) {
        tmp_name(w, i, tmp);
        shard_writer_name(w->folder, w->stem, w->split, i, name, sizeof name);
        if (rename(tmp, name) != 0)
            st = fail(ST_IO, "%s: cannot rename to %s: %s", tmp, name, strerror(errno));
    }
    if (st == ST_OK && w->files > 0)
        st = folder_sync(w->folder);
    shard_writer_discard(w);
    return st;
}

void shard_writer_discard(struct shard_writer *w)
{
    char tmp[PATH_MAX];

    if (!w)
        return;
    /* One more than is finished: the open file. */
    for (size_t i = 0; i < w->files + (w->fd >= 0); i++) {
        tmp_name(w, i, tmp);
        unlink(tmp);
    }
    writer_free(w);
}
