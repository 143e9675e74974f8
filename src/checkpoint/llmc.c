/* SPDX-License-Identifier: MIT */
/* llm.c model files: a header of 256 words, then the tensors in storage order, wte with
 * the padding rows that the header counts. Version 3 is fp32, version 5 bf16. */
#include "checkpoint/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum {
    MAGIC = 20240326,
    VERSION_FP32 = 3,
    VERSION_BF16 = 5,
    HEADER_WORDS = 256,
    HEADER_BYTES = 4 * HEADER_WORDS
};

static bool is_llmc(const struct sniffed *s)
{
    int32_t magic;

    memcpy(&magic, s->head, sizeof magic);
    return !s->folder && s->n_head >= sizeof magic && magic == MAGIC;
}

static enum status check_words(const char *path, const int32_t *words)
{
    if (words[0] != MAGIC)
        return fail(ST_FORMAT, "%s: found magic %" PRId32 ", needs %d (llm.c model)",
                    path, words[0], MAGIC);
    if (words[1] != VERSION_FP32 && words[1] != VERSION_BF16)
        return fail(ST_FORMAT,
                    "%s: found llm.c model version %" PRId32
                    ", needs %d (fp32) or %d (bf16)",
                    path, words[1], VERSION_FP32, VERSION_BF16);
    for (int i = 2; i <= 7; i++)
        if (words[i] < 0)
            return fail(ST_FORMAT, "%s: header word %d is %" PRId32 ", needs a count",
                        path, i, words[i]);
    return ST_OK;
}

/* Reads and checks the header; shape->Vp is the file's own. */
static enum status read_shape(const char *path, uint64_t bytes, int fd,
                              struct shape *shape, enum dtype *dtype)
{
    int32_t words[HEADER_WORDS] = {0};
    size_t elems = 0;
    /* A shorter file gives zeros. */
    enum status st = fd_read_at(fd, path, words,
                                bytes < HEADER_BYTES ? (size_t)bytes : HEADER_BYTES, 0);

    if (st == ST_OK)
        st = check_words(path, words);
    if (st != ST_OK)
        return st;
    *dtype = words[1] == VERSION_BF16 ? DTYPE_BF16 : DTYPE_FP32;
    *shape = (struct shape){.T = (size_t)words[2],
                            .V = (size_t)words[3],
                            .L = (size_t)words[4],
                            .H = (size_t)words[5],
                            .C = (size_t)words[6],
                            .Vp = (size_t)words[7]};
    st = shape_from_file(shape, path, &elems);
    if (st == ST_OK && bytes != HEADER_BYTES + elems * dtype_bytes(*dtype))
        st = fail(ST_FORMAT,
                  "%s: found %" PRIu64 " bytes, needs %zu for L=%zu,H=%zu,C=%zu,T=%zu,"
                  "V=%zu (padded to %zu)",
                  path, bytes, HEADER_BYTES + elems * dtype_bytes(*dtype), shape->L,
                  shape->H, shape->C, shape->T, shape->V, shape->Vp);
    return st;
}

static enum status map_llmc(const char *path, struct weight_map *out)
{
    struct declared d = {.offset = HEADER_BYTES};
    struct shape shape;
    int file = 0;
    enum status st = weight_map_add_file(out, path, &file);

    if (st == ST_OK)
        st = read_shape(path, out->file_bytes[file], out->fds[file], &shape, &d.dtype);
    if (st == ST_OK)
        st = weight_map_set_shape(out, &shape);
    for (int k = 0; st == ST_OK && k < TENSOR_KINDS; k++) {
        size_t layers = tensor_table[k].per_layer ? shape.L : 1;
        size_t rows, cols;

        tensor_dims(&shape, (enum tensor_kind)k, &rows, &cols);
        d.name = tensor_table[k].name;
        d.n_dims = tensor_table[k].decays ? 2 : 1;
        d.dims[0] = tensor_table[k].decays ? rows : cols;
        d.dims[1] = cols;
        for (size_t l = 0; st == ST_OK && l < layers; l++) {
            st = weight_map_add(out, file, (enum tensor_kind)k, l, false,
                                k == WTE ? rows : 0, &d);
            d.offset += (uint64_t)rows * cols * dtype_bytes(d.dtype);
        }
    }
    return st;
}

static enum status llmc_tokenizer(const char *path, char *out)
{
    return path_beside(out, path, "tokens.json");
}

static enum status put_all(struct weight_writer *w, const struct shape *s,
                           enum dtype dtype)
{
    const int32_t words[HEADER_WORDS] = {
        MAGIC,         dtype == DTYPE_BF16 ? VERSION_BF16 : VERSION_FP32,
        (int32_t)s->T, (int32_t)s->V,
        (int32_t)s->L, (int32_t)s->H,
        (int32_t)s->C, (int32_t)s->Vp};
    enum status st = stream_put(&w->stream, words, sizeof words);

    for (int k = 0; st == ST_OK && k < TENSOR_KINDS; k++)
        for (size_t l = 0; st == ST_OK && l < (tensor_table[k].per_layer ? s->L : 1);
             l++) {
            st = weight_writer_put(w, (enum tensor_kind)k, l, dtype, false);
            if (st == ST_OK && k == WTE)
                st = weight_writer_zeros(w, (s->Vp - s->V) * s->C * dtype_bytes(dtype));
        }
    return st;
}

static enum status write_llmc(const char *path, const struct weight_source *source,
                              const struct model_write_options *o)
{
    struct weight_writer w;
    char tmp[PATH_BYTES];
    enum status st;

    if (o->dtype == DTYPE_FP16)
        return fail(ST_USAGE, "--dtype fp16: llm.c models are fp32 or bf16");
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return fail(ST_IO, "%s: path too long", path);
    st = weight_writer_begin(&w, tmp, source);
    if (st == ST_OK)
        st = put_all(&w, &source->shape, o->dtype);
    st = weight_writer_end(&w, st);
    return commit_path(tmp, path, st);
}

const struct model_format format_llmc = {.name = "llmc",
                                         .what = "an llm.c model file",
                                         .is = is_llmc,
                                         .map = map_llmc,
                                         .tokenizer = llmc_tokenizer,
                                         .write = write_llmc};
