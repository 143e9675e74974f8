/* shard_file.h - token shards and a scratch folder for the tests of src/data.
 *
 * Written by hand from the format's description and not by shard_writer, so that a
 * mistake in one is not hidden by the same mistake in the other. Little-endian hosts.
 */
#ifndef WEFT_TESTS_SHARD_FILE_H
#define WEFT_TESTS_SHARD_FILE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/status.h"

static char scratch[256]; /* this program's folder */

static inline int scratch_make(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    snprintf(scratch, sizeof scratch, "%s/weft-data-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_remove(void **state)
{
    (void)state;
    return folder_remove(scratch) == ST_OK ? 0 : -1;
}

/* Full name of a file in the scratch folder; four names live at a time. */
static inline const char *scratch_path(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static inline void shard_header(uint32_t *words, uint32_t magic, uint32_t version,
                                uint32_t count)
{
    memset(words, 0, 1024);
    words[0] = magic;
    words[1] = version;
    words[2] = count;
}

/* A shard of `id_bytes` (2 or 4) an id; payload as it is in memory. */
static inline const char *shard_make(const char *name, unsigned id_bytes, const void *ids,
                                     size_t n)
{
    const char *path = scratch_path(name);
    size_t bytes = 1024 + n * id_bytes;
    uint32_t *file = malloc(bytes);

    assert_non_null(file);
    if (id_bytes == 2)
        shard_header(file, 20240520, 1, (uint32_t)n);
    else
        shard_header(file, 20240801, 7, (uint32_t)n);
    memcpy(file + 256, ids, n * id_bytes);
    assert_int_equal(file_write_all(path, file, bytes), ST_OK);
    free(file);
    return path;
}

/* A 16-bit shard whose token i is i / divisor. */
static inline const char *shard_make_count(const char *name, size_t n, size_t divisor)
{
    uint16_t *ids = malloc(n * sizeof *ids);
    const char *path;

    assert_non_null(ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint16_t)(i / divisor);
    path = shard_make(name, 2, ids, n);
    free(ids);
    return path;
}

/* The last error has to hold every one of the texts (the list ends with NULL). */
static inline void assert_fail_text(const char *first, ...)
{
    va_list ap;

    va_start(ap, first);
    for (const char *text = first; text; text = va_arg(ap, const char *))
        if (!strstr(fail_text(), text))
            fail_msg("'%s' is not in '%s'", text, fail_text());
    va_end(ap);
}

#endif
