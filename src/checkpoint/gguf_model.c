/* SPDX-License-Identifier: MIT */
/* GPT-2 in GGUF files, as llama.cpp reads and writes them: shape and tokenizer in the
 * keys, weights [out][in]. */
#include "checkpoint/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/gguf.h"
#include "data/vocabulary.h"

static const double layer_norm_eps = 1e-5;

static const struct naming names = {.layer_prefix = "blk.",
                                    .head = "output.weight",
                                    .names = {[WTE] = "token_embd.weight",
                                              [WPE] = "position_embd.weight",
                                              [LN1W] = "attn_norm.weight",
                                              [LN1B] = "attn_norm.bias",
                                              [QKVW] = "attn_qkv.weight",
                                              [QKVB] = "attn_qkv.bias",
                                              [ATTPROJW] = "attn_output.weight",
                                              [ATTPROJB] = "attn_output.bias",
                                              [LN2W] = "ffn_norm.weight",
                                              [LN2B] = "ffn_norm.bias",
                                              [FCW] = "ffn_up.weight",
                                              [FCB] = "ffn_up.bias",
                                              [FCPROJW] = "ffn_down.weight",
                                              [FCPROJB] = "ffn_down.bias",
                                              [LNFW] = "output_norm.weight",
                                              [LNFB] = "output_norm.bias"}};

/* ggml's numbers of types, and of files made of them. */
static const uint32_t ggml_types[DTYPES] = {
    [DTYPE_FP32] = 0, [DTYPE_BF16] = 30, [DTYPE_FP16] = 1};
static const uint32_t file_types[DTYPES] = {
    [DTYPE_FP32] = 0, [DTYPE_BF16] = 32, [DTYPE_FP16] = 1};

/* ---- reading ---- */

static bool is_gguf(const struct sniffed *s)
{
    return !s->folder && s->n_head >= 4 && !memcmp(s->head, GGUF_MAGIC, 4);
}

static enum status check_architecture(const struct gguf *g)
{
    char *text = NULL;
    enum status st = gguf_string(g, "general.architecture", &text);

    if (st == ST_OK && strcmp(text, "gpt2") != 0)
        st = fail(ST_FORMAT, "%s: found architecture %.60s, needs gpt2", g->path, text);
    free(text);
    return st;
}

/* Rows of the token embedding, as its declaration has them. */
static enum status find_vocabulary(const struct gguf *g, size_t *V)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (!strcmp(g->tensors[i].name, names.names[WTE]) && g->tensors[i].n_dims == 2) {
            *V = (size_t)g->tensors[i].dims[1];
            return ST_OK;
        }
    return fail(ST_FORMAT, "%s: found no tensor %s of two dimensions", g->path,
                names.names[WTE]);
}

static enum status read_shape(const struct gguf *g, struct shape *s)
{
    const struct {
        const char *key;
        size_t *to;
    } rows[] = {{"gpt2.block_count", &s->L},
                {"gpt2.attention.head_count", &s->H},
                {"gpt2.embedding_length", &s->C},
                {"gpt2.context_length", &s->T}};
    uint64_t value;
    double eps;
    size_t elems;
    enum status st = check_architecture(g);

    *s = (struct shape){0};
    for (size_t i = 0; st == ST_OK && i < sizeof rows / sizeof *rows; i++) {
        st = gguf_whole(g, rows[i].key, UINT32_MAX, &value);
        *rows[i].to = (size_t)value;
    }
    if (st == ST_OK)
        st = find_vocabulary(g, &s->V);
    s->Vp = s->V;
    if (st == ST_OK)
        st = shape_from_file(s, g->path, &elems);
    if (st == ST_OK && gguf_has(g, "gpt2.feed_forward_length")) {
        st = gguf_whole(g, "gpt2.feed_forward_length", UINT32_MAX, &value);
        if (st == ST_OK && value != 4 * s->C)
            st = fail(ST_FORMAT, "%s: gpt2.feed_forward_length is %" PRIu64 ", needs %zu",
                      g->path, value, 4 * s->C);
    }
    if (st == ST_OK && gguf_has(g, "gpt2.attention.layer_norm_epsilon")) {
        st = gguf_number(g, "gpt2.attention.layer_norm_epsilon", &eps);
        if (st == ST_OK && !(fabs(eps - layer_norm_eps) < 1e-3 * layer_norm_eps))
            st = fail(ST_FORMAT, "%s: gpt2.attention.layer_norm_epsilon is %g, needs %g",
                      g->path, eps, layer_norm_eps);
    }
    return st;
}

static enum status declare(const struct gguf *g, const struct gguf_tensor *t,
                           struct declared *d)
{
    *d = (struct declared){.name = t->name, .dtype = DTYPES, .n_dims = t->n_dims};
    for (int k = 0; k < DTYPES; k++)
        if (ggml_types[k] == t->type)
            d->dtype = (enum dtype)k;
    if (d->dtype == DTYPES)
        return fail(ST_FORMAT,
                    "%s: tensor %.200s: found ggml type %" PRIu32
                    ", needs 0 (F32), 1 (F16) or 30 (BF16): quantized weights are not "
                    "read",
                    g->path, t->name, t->type);
    for (size_t i = 0; i < t->n_dims; i++)
        d->dims[i] = t->dims[t->n_dims - 1 - i];
    if (__builtin_add_overflow(g->data, t->offset, &d->offset))
        return fail(ST_FORMAT,
                    "%s: tensor %.200s: found data at byte %" PRIu64
                    ", needs it in the file",
                    g->path, t->name, t->offset);
    return ST_OK;
}

static enum status add_tensor(struct weight_map *m, int file, const struct gguf *g,
                              const struct gguf_tensor *t, struct extent *extent)
{
    struct declared d;
    enum tensor_kind kind;
    size_t layer;
    uint64_t bytes;
    enum status st = declare(g, t, &d);

    if (st != ST_OK)
        return st;
    if (!naming_find(&names, t->name, &kind, &layer))
        return fail(ST_FORMAT, "%s: tensor %.200s: is no tensor of a GPT-2", g->path,
                    t->name);
    st = weight_map_add(m, file, kind, layer, false, 0, &d);
    bytes = dtype_bytes(d.dtype);
    for (size_t i = 0; i < d.n_dims; i++)
        bytes *= d.dims[i];
    *extent = (struct extent){t->offset, t->offset + bytes, t->name};
    return st;
}

static enum status map_gguf(const char *path, struct weight_map *out)
{
    struct extent *extents = NULL;
    struct shape shape;
    struct gguf g;
    int file = 0;
    enum status st = gguf_open(path, &g);

    if (st == ST_OK)
        st = read_shape(&g, &shape);
    if (st == ST_OK)
        st = weight_map_add_file(out, path, &file);
    if (st == ST_OK)
        st = weight_map_set_shape(out, &shape);
    if (st == ST_OK)
        st = memory_alloc(g.n_tensors, sizeof *extents, "list of tensors", &extents);
    for (size_t i = 0; st == ST_OK && i < g.n_tensors; i++)
        st = add_tensor(out, file, &g, &g.tensors[i], &extents[i]);
    if (st == ST_OK)
        st = weight_map_complete(out, path, &names);
    if (st == ST_OK)
        st = extents_check(extents, g.n_tensors, g.alignment, g.bytes - g.data, path);
    free(extents);
    gguf_close(&g);
    return st;
}

static enum status gguf_tokenizer(const char *path, char *out)
{
    char *model = NULL;
    struct gguf g;
    enum status st = gguf_open(path, &g);

    out[0] = 0;
    if (st == ST_OK && gguf_has(&g, "tokenizer.ggml.model")) {
        st = gguf_string(&g, "tokenizer.ggml.model", &model);
        if (st == ST_OK && strcmp(model, "none") != 0 && strcmp(model, "no_vocab") != 0)
            st = path_beside(out, path,
                             strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    }
    free(model);
    gguf_close(&g);
    return st;
}

/* ---- writing ---- */

/* The head grows in memory, then leaves as a whole. */
struct head_writer {
    FILE *out;
    const struct shape *shape;
    enum dtype dtype;
    uint64_t n_keys, n_tensors;
    uint64_t at; /* in the data */
};

static void put_bytes(FILE *out, const void *data, size_t bytes)
{
    (void)fwrite(data, 1, bytes, out);
}

static void put_u32(FILE *out, uint32_t x)
{
    put_bytes(out, &x, sizeof x);
}

static void put_u64(FILE *out, uint64_t x)
{
    put_bytes(out, &x, sizeof x);
}

static void put_text(FILE *out, const char *text, size_t bytes)
{
    put_u64(out, bytes);
    put_bytes(out, text, bytes);
}

static void put_key(struct head_writer *h, const char *key, enum gguf_type type)
{
    put_text(h->out, key, strlen(key));
    put_u32(h->out, type);
    h->n_keys++;
}

static void key_u32(struct head_writer *h, const char *key, size_t x)
{
    put_key(h, key, GGUF_U32);
    put_u32(h->out, (uint32_t)x);
}

static void key_text(struct head_writer *h, const char *key, const char *text)
{
    put_key(h, key, GGUF_STRING);
    put_text(h->out, text, strlen(text));
}

static void key_list(struct head_writer *h, const char *key, enum gguf_type type,
                     uint64_t n)
{
    put_key(h, key, GGUF_ARRAY);
    put_u32(h->out, type);
    put_u64(h->out, n);
}

static void put_shape_keys(struct head_writer *h)
{
    const struct shape *s = h->shape;
    const float eps = (float)layer_norm_eps;

    key_text(h, "general.architecture", "gpt2");
    key_text(h, "general.name", "weft");
    key_u32(h, "general.file_type", file_types[h->dtype]);
    key_u32(h, "gpt2.block_count", s->L);
    key_u32(h, "gpt2.context_length", s->T);
    key_u32(h, "gpt2.embedding_length", s->C);
    key_u32(h, "gpt2.feed_forward_length", 4 * s->C);
    key_u32(h, "gpt2.attention.head_count", s->H);
    put_key(h, "gpt2.attention.layer_norm_epsilon", GGUF_F32);
    put_bytes(h->out, &eps, sizeof eps);
    key_u32(h, "gpt2.vocab_size", s->V);
}

/* Ids of the model that no text gives get a name too: there is one for each row. */
static void put_tokens(struct head_writer *h, const struct vocabulary *v)
{
    enum { NORMAL = 1, CONTROL = 3, UNUSED = 5 };
    char name[32];

    key_list(h, "tokenizer.ggml.tokens", GGUF_STRING, h->shape->V);
    for (size_t i = 0; i < h->shape->V; i++)
        if (i < v->names.n)
            put_text(h->out, v->names.block + v->names.begin[i],
                     v->names.begin[i + 1] - v->names.begin[i] - 1);
        else
            put_text(h->out, name, (size_t)snprintf(name, sizeof name, "[PAD%zu]", i));
    key_list(h, "tokenizer.ggml.token_type", GGUF_I32, h->shape->V);
    for (size_t i = 0; i < h->shape->V; i++)
        put_u32(h->out, i >= v->names.n                         ? UNUSED
                        : (int64_t)i == (int64_t)v->end_of_text ? CONTROL
                                                                : NORMAL);
}

/* The lines of the table but for its heading. */
static void put_merges(struct head_writer *h, const struct vocabulary *v)
{
    const char *end = v->merges + v->merges_bytes, *first = v->merges;
    uint64_t n = 0;

    while (end > first && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    first = memchr(first, '\n', (size_t)(end - first));
    first = first ? first + 1 : end;
    for (const char *p = first; p < end; p++)
        n += *p == '\n';
    key_list(h, "tokenizer.ggml.merges", GGUF_STRING, n + (first < end));
    for (const char *p = first; p < end;) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        const char *stop = eol ? eol : end;

        put_text(h->out, p, (size_t)(stop - p) - (stop > p && stop[-1] == '\r'));
        p = stop + 1;
    }
}

static enum status put_tokenizer(struct head_writer *h, const struct tokenizer *t)
{
    struct vocabulary v;
    enum status st;

    if (!t) {
        key_text(h, "tokenizer.ggml.model", "none");
        return ST_OK;
    }
    st = vocabulary_of(t, &v);
    if (st == ST_OK) {
        key_text(h, "tokenizer.ggml.model", "gpt2");
        key_text(h, "tokenizer.ggml.pre", "gpt-2");
        put_tokens(h, &v);
        put_merges(h, &v);
        if (v.end_of_text >= 0) {
            key_u32(h, "tokenizer.ggml.bos_token_id", (size_t)v.end_of_text);
            key_u32(h, "tokenizer.ggml.eos_token_id", (size_t)v.end_of_text);
            key_u32(h, "tokenizer.ggml.unknown_token_id", (size_t)v.end_of_text);
        }
        put_key(h, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
        put_bytes(h->out, "", 1);
    }
    vocabulary_release(&v);
    return st;
}

/* llama.cpp wants vectors in fp32, and its converter leaves positions so. */
static enum dtype stored_type(enum tensor_kind kind, enum dtype dtype)
{
    return tensor_table[kind].decays && kind != WPE ? dtype : DTYPE_FP32;
}

static uint64_t stored_bytes(const struct shape *s, enum tensor_kind kind, enum dtype d)
{
    size_t rows, cols;

    stored_dims(s, kind, &rows, &cols);
    return (uint64_t)rows * cols * dtype_bytes(stored_type(kind, d));
}

static void put_named(struct head_writer *h, const char *name, enum tensor_kind kind)
{
    size_t rows, cols;

    stored_dims(h->shape, kind, &rows, &cols);
    put_text(h->out, name, strlen(name));
    put_u32(h->out, tensor_table[kind].decays ? 2 : 1);
    put_u64(h->out, cols);
    if (tensor_table[kind].decays)
        put_u64(h->out, rows);
    put_u32(h->out, ggml_types[stored_type(kind, h->dtype)]);
    put_u64(h->out, h->at);
    h->at += round_up(stored_bytes(h->shape, kind, h->dtype), GGUF_ALIGNMENT);
    h->n_tensors++;
}

static enum status put_info(void *arg, enum tensor_kind kind, size_t layer)
{
    char name[TENSOR_NAME_BYTES];

    naming_put(&names, kind, layer, name);
    put_named(arg, name, kind);
    return ST_OK;
}

/* Keys and list of tensors; the counts that stand before them go to h. */
static enum status make_head(struct head_writer *h, const struct model_write_options *o,
                             char **text, size_t *bytes)
{
    enum status st;

    h->out = open_memstream(text, bytes);
    if (!h->out)
        return fail(ST_NOMEM, "no memory for the head of a GGUF file");
    put_shape_keys(h);
    st = put_tokenizer(h, o->tokenizer);
    if (st == ST_OK)
        st = each_by_layer(h->shape, put_info, h);
    if (o->head)
        put_named(h, names.head, WTE);
    int bad = ferror(h->out);
    if ((fclose(h->out) != 0 || bad) && st == ST_OK)
        st = fail(ST_NOMEM, "no memory for the head of a GGUF file");
    return st;
}

struct body_writer {
    struct weight_writer w;
    enum dtype dtype;
};

static enum status put_padding(struct weight_writer *w)
{
    uint64_t at = w->stream.bytes;

    return weight_writer_zeros(w, round_up(at, GGUF_ALIGNMENT) - at);
}

static enum status put_body(void *arg, enum tensor_kind kind, size_t layer)
{
    struct body_writer *b = arg;
    enum status st =
        weight_writer_put(&b->w, kind, layer, stored_type(kind, b->dtype), false);

    return st == ST_OK ? put_padding(&b->w) : st;
}

static enum status write_gguf(const char *path, const struct weight_source *source,
                              const struct model_write_options *o)
{
    struct head_writer h = {.shape = &source->shape, .dtype = o->dtype};
    struct body_writer b = {.dtype = o->dtype};
    char tmp[PATH_BYTES];
    char *head = NULL;
    size_t bytes = 0;
    enum status st = make_head(&h, o, &head, &bytes);

    if (st == ST_OK && snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        st = fail(ST_IO, "%s: path too long", path);
    if (st == ST_OK) {
        const struct {
            char magic[4];
            uint32_t version;
            uint64_t tensors, keys;
        } start = {{'G', 'G', 'U', 'F'}, GGUF_VERSION, h.n_tensors, h.n_keys};

        st = weight_writer_begin(&b.w, tmp, source);
        if (st == ST_OK)
            st = stream_put(&b.w.stream, &start, sizeof start);
        if (st == ST_OK)
            st = stream_put(&b.w.stream, head, bytes);
        if (st == ST_OK)
            st = put_padding(&b.w);
        if (st == ST_OK)
            st = each_by_layer(&source->shape, put_body, &b);
        if (st == ST_OK && o->head)
            st = put_body(&b, WTE, 0);
        st = weight_writer_end(&b.w, st);
        st = commit_path(tmp, path, st);
    }
    free(head);
    return st;
}

const struct model_format format_gguf = {.name = "gguf",
                                         .what = "a GGUF file",
                                         .is = is_gguf,
                                         .map = map_gguf,
                                         .tokenizer = gguf_tokenizer,
                                         .write = write_gguf};
