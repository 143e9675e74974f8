/* SPDX-License-Identifier: MIT */
/* A record is: length (u64), its checksum, the event, its checksum, all little-endian.
 * The checksum is CRC-32C, rotated and shifted so that checksums of checksums stay good
 * ones. Event: 1 wall time (double), 2 step (varint), 3 file version (string), 5 summary,
 * of values: 1 tag (string), 2 value (float). */
#include "report/tensorboard.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"

struct tensorboard {
    char path[PATH_MAX];
    FILE *file;
};

/* Room for an event; tags are short. */
struct buffer {
    unsigned char bytes[2048];
    size_t n;
};

static uint32_t crc32c(const unsigned char *p, size_t n)
{
    const uint32_t reflected_polynomial = 0x82f63b78;
    uint32_t crc = ~UINT32_C(0);

    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? reflected_polynomial : 0);
    }
    return ~crc;
}

static uint32_t masked(const unsigned char *p, size_t n)
{
    uint32_t crc = crc32c(p, n);

    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void put(struct buffer *b, const void *data, size_t n)
{
    require(b->n + n <= sizeof b->bytes);
    memcpy(b->bytes + b->n, data, n);
    b->n += n;
}

static void put_little(struct buffer *b, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, v >>= 8)
        put(b, &(unsigned char){(unsigned char)v}, 1);
}

static void put_varint(struct buffer *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        put(b, &(unsigned char){(unsigned char)(v | 0x80)}, 1);
    put(b, &(unsigned char){(unsigned char)v}, 1);
}

/* Field number and kind: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes. */
static void put_key(struct buffer *b, unsigned field, unsigned kind)
{
    put_varint(b, field << 3 | kind);
}

static void put_bytes(struct buffer *b, unsigned field, const void *data, size_t n)
{
    put_key(b, field, 2);
    put_varint(b, n);
    put(b, data, n);
}

static void put_double(struct buffer *b, unsigned field, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    put_key(b, field, 1);
    put_little(b, bits, sizeof bits);
}

static void put_float(struct buffer *b, unsigned field, double v)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    put_key(b, field, 5);
    put_little(b, bits, sizeof bits);
}

static double wall_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum status write_record(struct tensorboard *t, const struct buffer *event)
{
    struct buffer record = {.n = 0};

    put_little(&record, event->n, 8);
    put_little(&record, masked(record.bytes, 8), 4);
    put(&record, event->bytes, event->n);
    put_little(&record, masked(event->bytes, event->n), 4);
    if (fwrite(record.bytes, 1, record.n, t->file) != record.n || fflush(t->file) != 0)
        return fail(ST_IO, "%s: cannot write: %s", t->path, strerror(errno));
    return ST_OK;
}

static enum status write_version(struct tensorboard *t)
{
    static const char version[] = "brain.Event:2";
    struct buffer event = {.n = 0};

    put_double(&event, 1, wall_time());
    put_bytes(&event, 3, version, sizeof version - 1);
    return write_record(t, &event);
}

static enum status open_file(struct tensorboard *t, const char *folder)
{
    char host[256] = "host";

    (void)gethostname(host, sizeof host - 1);
    if (snprintf(t->path, sizeof t->path,
                 "%s/events.out.tfevents.%010" PRId64 ".%s.%ld.0", folder,
                 (int64_t)time(NULL), host, (long)getpid()) >= (int)sizeof t->path)
        return fail(ST_IO, "%s: path too long", folder);
    t->file = fopen(t->path, "ae");
    return t->file ? write_version(t)
                   : fail(ST_IO, "%s: cannot open: %s", t->path, strerror(errno));
}

enum status tensorboard_open(const char *folder, struct tensorboard **out)
{
    struct tensorboard *t = NULL;
    enum status st = folder_make(folder);

    *out = NULL;
    if (st == ST_OK)
        st = memory_alloc(1, sizeof *t, "event file", &t);
    if (st == ST_OK)
        st = open_file(t, folder);
    if (st != ST_OK) {
        tensorboard_close(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

enum status tensorboard_write(struct tensorboard *t, uint64_t step,
                              const struct tensorboard_scalar *s, size_t n)
{
    struct buffer event = {.n = 0};
    struct buffer summary = {.n = 0};

    require(n <= TENSORBOARD_MOST_SCALARS);
    for (size_t i = 0; i < n; i++) {
        struct buffer value = {.n = 0};

        put_bytes(&value, 1, s[i].tag, strlen(s[i].tag));
        put_float(&value, 2, s[i].value);
        put_bytes(&summary, 1, value.bytes, value.n);
    }
    put_double(&event, 1, wall_time());
    put_key(&event, 2, 0);
    put_varint(&event, step);
    put_bytes(&event, 5, summary.bytes, summary.n);
    return write_record(t, &event);
}

void tensorboard_close(struct tensorboard *t)
{
    if (!t)
        return;
    if (t->file)
        fclose(t->file);
    free(t);
}
