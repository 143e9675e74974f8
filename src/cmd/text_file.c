/* SPDX-License-Identifier: MIT */
#include "cmd/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/files.h"
#include "base/memory.h"
#include "data/shards.h"

enum { RAW_BYTES = 1 << 17, WINDOW_LOG = 27, GZIP_OR_ZLIB = 32 };

enum packing { PLAIN, GZIP, ZSTD };

struct text_file {
    const char *path; /* borrowed */
    int fd;
    uint64_t raw_bytes; /* size of the file */
    uint64_t at;        /* next byte to read of it */
    enum packing packing;
    z_stream gzip;
    ZSTD_DStream *zstd;
    ZSTD_inBuffer in; /* raw bytes read and not yet used, for both */
    bool inside;      /* a frame has begun and has not ended */
    char raw[RAW_BYTES];
};

/* ---- opening ---- */

static enum status find_packing(struct text_file *f)
{
    unsigned char head[4] = {0};
    int32_t magic;
    enum status st =
        fd_read_at(f->fd, f->path, head, f->raw_bytes < 4 ? (size_t)f->raw_bytes : 4, 0);

    if (st != ST_OK)
        return st;
    memcpy(&magic, head, sizeof magic);
    if (magic == SHARD_MAGIC_16 || magic == SHARD_MAGIC_32)
        return fail(ST_FORMAT, "%s: found a token shard, needs text", f->path);
    if (head[0] == 0x1f && head[1] == 0x8b)
        f->packing = GZIP;
    else if (!memcmp(head, "\x28\xb5\x2f\xfd", 4))
        f->packing = ZSTD;
    return ST_OK;
}

/* To the beginning, with a new decoder. */
static enum status rewind_file(struct text_file *f)
{
    bool ok = true;

    f->at = 0;
    f->in = (ZSTD_inBuffer){f->raw, 0, 0};
    f->inside = false;
    if (f->packing == GZIP) {
        (void)inflateEnd(&f->gzip);
        memset(&f->gzip, 0, sizeof f->gzip);
        ok = inflateInit2(&f->gzip, MAX_WBITS + GZIP_OR_ZLIB) == Z_OK;
    } else if (f->packing == ZSTD) {
        if (!f->zstd)
            f->zstd = ZSTD_createDStream();
        /* A file may ask for no larger window than zstd's own program allows. */
        ok = f->zstd && !ZSTD_isError(ZSTD_initDStream(f->zstd)) &&
             !ZSTD_isError(
                 ZSTD_DCtx_setParameter(f->zstd, ZSTD_d_windowLogMax, WINDOW_LOG));
    }
    return ok ? ST_OK : fail(ST_NOMEM, "%s: no memory to decompress it", f->path);
}

enum status text_file_open(const char *path, struct text_file **out)
{
    struct stat info;
    struct text_file *f;
    enum status st = memory_alloc(1, sizeof *f, "read buffer", &f);

    *out = NULL;
    if (st != ST_OK)
        return st;
    f->path = path;
    /* Not blocking: a pipe among the files must not stop us here. */
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        st = fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    else if (fstat(f->fd, &info) != 0 || !S_ISREG(info.st_mode))
        st = fail(ST_IO, "%s: not a regular file", path);
    if (st == ST_OK) {
        f->raw_bytes = (uint64_t)info.st_size;
        st = find_packing(f);
    }
    if (st == ST_OK)
        st = rewind_file(f);
    if (st == ST_OK)
        *out = f;
    else
        text_file_close(f);
    return st;
}

void text_file_close(struct text_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    if (f->packing == GZIP)
        (void)inflateEnd(&f->gzip);
    ZSTD_freeDStream(f->zstd);
    free(f);
}

/* ---- reading ---- */

/* More raw bytes when all are used; in.size stays 0 at the end of the file. */
static enum status refill(struct text_file *f)
{
    size_t n = f->raw_bytes - f->at < RAW_BYTES ? (size_t)(f->raw_bytes - f->at)
                                                : (size_t)RAW_BYTES;
    enum status st;

    if (f->in.pos < f->in.size)
        return ST_OK;
    st = fd_read_at(f->fd, f->path, f->raw, n, f->at);
    f->in = (ZSTD_inBuffer){f->raw, st == ST_OK ? n : 0, 0};
    f->at += f->in.size;
    return st;
}

static enum status damaged(const struct text_file *f, const char *why)
{
    return fail(ST_FORMAT, "%s: near byte %" PRIu64 ": cannot be decompressed: %s",
                f->path, f->at - (f->in.size - f->in.pos), why);
}

/* Some text, or 0 bytes when there is none before the decoder needs more. A file may hold
 * several members one after the other. */
static enum status step_gzip(struct text_file *f, char *buf, size_t most, size_t *got)
{
    z_stream *z = &f->gzip;

    if (!f->inside && inflateReset(z) != Z_OK)
        return damaged(f, "no decoder");
    f->inside = true;
    z->next_in = (unsigned char *)f->raw + f->in.pos;
    z->avail_in = (unsigned)(f->in.size - f->in.pos);
    z->next_out = (unsigned char *)buf;
    z->avail_out = (unsigned)min_size(most, RAW_BYTES);
    int rc = inflate(z, Z_NO_FLUSH);
    f->in.pos = f->in.size - z->avail_in;
    *got = (size_t)((char *)z->next_out - buf);
    if (rc == Z_STREAM_END)
        f->inside = false;
    else if (rc != Z_OK && rc != Z_BUF_ERROR)
        return damaged(f, z->msg ? z->msg : "a preset dictionary");
    return ST_OK;
}

static enum status step_zstd(struct text_file *f, char *buf, size_t most, size_t *got)
{
    ZSTD_outBuffer out = {buf, most, 0};
    size_t rc = ZSTD_decompressStream(f->zstd, &out, &f->in);

    *got = out.pos;
    if (ZSTD_isError(rc))
        return damaged(f, ZSTD_getErrorName(rc));
    f->inside = rc != 0;
    return ST_OK;
}

static enum status read_packed(struct text_file *f, char *buf, size_t most, size_t *got)
{
    enum status st = ST_OK;

    while (st == ST_OK && *got == 0) {
        st = refill(f);
        if (st != ST_OK)
            return st;
        bool no_more = f->in.size == 0;
        if (no_more && !f->inside)
            return ST_OK;
        st = f->packing == GZIP ? step_gzip(f, buf, most, got)
                                : step_zstd(f, buf, most, got);
        if (st == ST_OK && no_more && *got == 0 && f->inside)
            st = damaged(f, "the file ends too early");
    }
    return st;
}

enum status text_file_read(struct text_file *f, char *buf, size_t most, size_t *got)
{
    enum status st;

    *got = 0;
    if (f->packing != PLAIN)
        return read_packed(f, buf, most, got);
    size_t n = f->raw_bytes - f->at < most ? (size_t)(f->raw_bytes - f->at) : most;
    st = fd_read_at(f->fd, f->path, buf, n, f->at);
    if (st == ST_OK) {
        f->at += n;
        *got = n;
    }
    return st;
}

enum status text_file_size(struct text_file *f, uint64_t *bytes)
{
    char *buf;
    size_t got = 1;
    enum status st;

    *bytes = f->raw_bytes;
    if (f->packing == PLAIN)
        return ST_OK;
    *bytes = 0;
    st = memory_alloc(RAW_BYTES, 1, "read buffer", &buf);
    while (st == ST_OK && got > 0) {
        st = text_file_read(f, buf, RAW_BYTES, &got);
        *bytes += got;
    }
    free(buf);
    return st == ST_OK ? rewind_file(f) : st;
}
