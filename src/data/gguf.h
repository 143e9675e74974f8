/* gguf.h - the container of GGUF files, version 3: keys with values, then the list of
 * tensors, then their data at multiples of an alignment.
 *
 * Nothing in a file is believed: every length is held against what is left of the file
 * before memory is taken for it, so a file costs at most a few times its own head. Error
 * texts name file, key or tensor, found and needed.
 */
#ifndef WEFT_DATA_GGUF_H
#define WEFT_DATA_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};

enum { GGUF_VERSION = 3, GGUF_ALIGNMENT = 32, GGUF_MOST_DIMS = 4 };
#define GGUF_MAGIC "GGUF"

struct gguf_tensor {
    char *name;
    uint32_t n_dims;
    uint64_t dims[GGUF_MOST_DIMS]; /* the fastest first */
    uint32_t type;                 /* ggml's number */
    uint64_t offset;               /* from the start of the data */
};

struct gguf_key;

struct gguf {
    const char *path; /* borrowed */
    int fd;
    uint64_t bytes; /* size of the file */
    uint64_t data;  /* where the data begins */
    size_t n_keys, n_tensors;
    struct gguf_key *keys;
    struct gguf_tensor *tensors;
    size_t alignment;
};

/* Reads all but the data. gguf_close is due afterwards, on failure too. */
MUST_USE enum status gguf_open(const char *path, struct gguf *g);
void gguf_close(struct gguf *g);

bool gguf_has(const struct gguf *g, const char *key);
/* A whole number of any integer type, 0 .. most. */
MUST_USE enum status gguf_whole(const struct gguf *g, const char *key, uint64_t most,
                                uint64_t *out);
MUST_USE enum status gguf_number(const struct gguf *g, const char *key, double *out);
/* A string without zero bytes; the caller frees. */
MUST_USE enum status gguf_string(const struct gguf *g, const char *key, char **out);

/* An array of strings as one block: string i is block + begin[i], zero-terminated, and
 * has begin[i + 1] - begin[i] - 1 bytes. The caller frees both. */
struct gguf_strings {
    size_t n;
    char *block;
    size_t *begin; /* [n + 1] */
};
MUST_USE enum status gguf_strings(const struct gguf *g, const char *key,
                                  struct gguf_strings *out);
void gguf_strings_release(struct gguf_strings *s);

#endif
