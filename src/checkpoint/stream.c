/* SPDX-License-Identifier: MIT */
/* Files written front to back in large pieces, hashed while the bytes are in cache. */
#include "checkpoint/native.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { STREAM_BYTES = 4 << 20 };

enum status stream_open(struct stream *s, const char *path)
{
    enum status st;

    *s = (struct stream){.fd = -1, .path = path};
    st = memory_alloc(STREAM_BYTES, 1, "write buffer", &s->buf);
    if (st != ST_OK)
        return st;
    s->hash = XXH3_createState();
    if (!s->hash || XXH3_64bits_reset(s->hash) != XXH_OK)
        return fail(ST_NOMEM, "%s: no memory for a checksum", path);
    s->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (s->fd < 0)
        return fail(ST_IO, "%s: cannot create: %s", path, strerror(errno));
    return ST_OK;
}

static enum status stream_flush(struct stream *s)
{
    size_t used = s->used;

    s->used = 0;
    if (used == 0)
        return ST_OK;
    (void)XXH3_64bits_update(s->hash, s->buf, used);
    return fd_write_at(s->fd, s->path, s->buf, used, s->bytes - used);
}

enum status stream_put(struct stream *s, const void *data, size_t bytes)
{
    const char *from = data;
    enum status st = ST_OK;

    while (st == ST_OK && bytes > 0) {
        size_t n = min_size(bytes, STREAM_BYTES - s->used);

        if (s->used == 0 && n == STREAM_BYTES) { /* large enough without a copy */
            (void)XXH3_64bits_update(s->hash, from, n);
            st = fd_write_at(s->fd, s->path, from, n, s->bytes);
            s->bytes += n;
        } else {
            memcpy(s->buf + s->used, from, n);
            s->used += n;
            s->bytes += n;
            if (s->used == STREAM_BYTES)
                st = stream_flush(s);
        }
        from += n;
        bytes -= n;
    }
    return st;
}

enum status stream_digest(struct stream *s, uint64_t *hash)
{
    enum status st = stream_flush(s);

    *hash = XXH3_64bits_digest(s->hash);
    return st;
}

enum status stream_close(struct stream *s, enum status st)
{
    if (st == ST_OK)
        st = stream_flush(s);
    if (st == ST_OK && fsync(s->fd) != 0)
        st = fail(ST_IO, "%s: cannot sync: %s", s->path, strerror(errno));
    if (s->fd >= 0 && close(s->fd) != 0 && st == ST_OK)
        st = fail(ST_IO, "%s: cannot close: %s", s->path, strerror(errno));
    XXH3_freeState(s->hash);
    free(s->buf);
    *s = (struct stream){.fd = -1};
    return st;
}

enum status file_hash(const char *path, uint64_t bytes, uint64_t *hash)
{
    enum status st;
    char *buf = NULL;
    XXH3_state_t *state = NULL;
    int fd = -1;

    *hash = 0;
    st = memory_alloc(STREAM_BYTES, 1, "read buffer", &buf);
    if (st != ST_OK)
        goto done;
    state = XXH3_createState();
    if (!state || XXH3_64bits_reset(state) != XXH_OK) {
        st = fail(ST_NOMEM, "%s: no memory for a checksum", path);
        goto done;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        st = fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
        goto done;
    }
    for (uint64_t at = 0; st == ST_OK && at < bytes; at += STREAM_BYTES) {
        size_t n = (size_t)(bytes - at < STREAM_BYTES ? bytes - at : STREAM_BYTES);

        st = fd_read_at(fd, path, buf, n, at);
        if (st == ST_OK)
            (void)XXH3_64bits_update(state, buf, n);
    }
    *hash = XXH3_64bits_digest(state);
done:
    if (fd >= 0)
        close(fd);
    XXH3_freeState(state);
    free(buf);
    return st;
}
