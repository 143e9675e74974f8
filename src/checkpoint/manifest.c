/* SPDX-License-Identifier: MIT */
/* manifest.json: what a native checkpoint is made of. Large counts that JSON readers may
 * round (seed, checksums) are texts. */
#include "checkpoint/native.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

#define FORMAT_NAME "weft checkpoint"
enum { FORMAT_VERSION = 2, OLD_VERSION = 1, MAX_RANKS = 1000000 };
/* The file's last line is a checksum of all that stands before it; in version 1 there was
 * none. */
#define SEAL_BEGIN ",\n  \"manifest_xxh3\": \""
#define SEAL_END   "\"\n}\n"
enum { SEAL_BYTES = sizeof SEAL_BEGIN - 1 + 16 + sizeof SEAL_END - 1 };
enum { SECTIONS = 3 }; /* parameters, m, v */

void state_file_name(char *out, int rank, int ranks)
{
    (void)snprintf(out, STATE_NAME_BYTES, "state-%05d-of-%05d.bin", rank, ranks);
}

/* ---- in memory ---- */

static enum status add_range(struct manifest *m, struct manifest_file *f, size_t begin,
                             size_t elems)
{
    f->elems += elems;
    if (f->n_ranges > 0) {
        struct manifest_range *last = &m->ranges[m->n_ranges - 1];

        if (last->begin + last->elems == begin) {
            last->elems += elems;
            return ST_OK;
        }
    }
    if (m->n_ranges == m->range_capacity) {
        size_t capacity = m->range_capacity ? 2 * m->range_capacity : 256;
        struct manifest_range *grown = realloc(m->ranges, capacity * sizeof *grown);

        if (!grown)
            return fail(ST_NOMEM, "no memory for %zu ranges of a checkpoint", capacity);
        m->ranges = grown;
        m->range_capacity = capacity;
    }
    if (f->n_ranges++ == 0)
        f->first_range = m->n_ranges;
    m->ranges[m->n_ranges++] = (struct manifest_range){begin, elems};
    return ST_OK;
}

static int by_begin(const void *a, const void *b)
{
    size_t x = ((const struct manifest_range *)a)->begin;
    size_t y = ((const struct manifest_range *)b)->begin;

    return (x > y) - (x < y);
}

/* The ranges of all files cover [0, canonical_elems) exactly once. */
static enum status check_cover(const struct manifest *m, const char *path)
{
    struct manifest_range *sorted;
    size_t at = 0;
    enum status st = memory_alloc(m->n_ranges, sizeof *sorted, "ranges", &sorted);

    if (st != ST_OK)
        return st;
    if (m->n_ranges > 0)
        memcpy(sorted, m->ranges, m->n_ranges * sizeof *sorted);
    qsort(sorted, m->n_ranges, sizeof *sorted, by_begin);
    for (size_t i = 0; st == ST_OK && i < m->n_ranges; i++) {
        if (sorted[i].begin != at)
            st = fail(ST_FORMAT,
                      "%s: found a range at element %zu, needs one at %zu: the ranges "
                      "must cover all elements once",
                      path, sorted[i].begin, at);
        at = sorted[i].begin + sorted[i].elems;
    }
    if (st == ST_OK && at != m->canonical_elems)
        st = fail(ST_FORMAT, "%s: found ranges of %zu elements, needs %zu", path, at,
                  m->canonical_elems);
    free(sorted);
    return st;
}

enum status manifest_init(struct manifest *m, const struct checkpoint_view *view,
                          const struct run_state *state, const char *config_text)
{
    int ranks = view->plan->ranks;
    enum status st;

    *m = (struct manifest){.shape = view->layout->shape,
                           .state = *state,
                           .canonical_elems = view->layout->canonical_elems,
                           .ranks = ranks};
    m->config = strdup(config_text ? config_text : "");
    st = memory_alloc((size_t)ranks, sizeof *m->files, "manifest", &m->files);
    if (st == ST_OK && !m->config)
        st = fail(ST_NOMEM, "no memory for the options of a checkpoint");
    for (int r = 0; st == ST_OK && r < ranks; r++) {
        struct manifest_file *f = &m->files[r];
        struct owned own;

        state_file_name(f->name, r, ranks);
        st = owned_init(&own, view->layout, view->plan, r, OWNED);
        for (size_t i = 0; st == ST_OK && i < own.n; i++)
            st = add_range(m, f, own.ranges[i].canonical, own.ranges[i].elems);
        f->sums.bytes = SECTIONS * sizeof(float) * (uint64_t)f->elems;
        owned_release(&own);
    }
    if (st == ST_OK) /* a plan that misses elements would lose them here */
        require(check_cover(m, "plan") == ST_OK);
    else
        manifest_release(m);
    return st;
}

void manifest_release(struct manifest *m)
{
    free(m->files);
    free(m->ranges);
    free(m->config);
    *m = (struct manifest){0};
}

/* ---- writing ---- */

static json_t *hex_json(uint64_t value)
{
    char text[20];

    (void)snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

static json_t *data_json(const struct run_state *s)
{
    return json_pack("{s:I, s:o}", "tokens", (json_int_t)s->data_tokens, "xxh3_sample",
                     hex_json(s->data_hash));
}

static json_t *state_json(const struct run_state *s)
{
    char seed[24];

    (void)snprintf(seed, sizeof seed, "%" PRIu64, s->seed);
    json_t *best = isfinite(s->best_val_loss) ? json_real(s->best_val_loss) : json_null();
    return json_pack("{s:I, s:I, s:s, s:I, s:I, s:o, s:f, s:o}", "step",
                     (json_int_t)s->step, "tokens", (json_int_t)s->tokens, "seed", seed,
                     "batch_windows", (json_int_t)s->batch_windows, "adam_step",
                     (json_int_t)s->adam_step, "best_val_loss", best, "wall_s", s->wall_s,
                     "data", data_json(s));
}

static json_t *shape_json(const struct shape *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "L", (json_int_t)s->L, "H",
                     (json_int_t)s->H, "C", (json_int_t)s->C, "T", (json_int_t)s->T, "V",
                     (json_int_t)s->V, "Vp", (json_int_t)s->Vp);
}

/* For readers other than this program: which elements are which tensor. */
static json_t *tensors_json(const struct shape *shape)
{
    json_t *list = json_array();
    size_t offset = 0;

    for (int k = 0; list && k < TENSOR_KINDS; k++) {
        size_t layers = tensor_table[k].per_layer ? shape->L : 1;
        size_t rows, cols;

        tensor_dims(shape, (enum tensor_kind)k, &rows, &cols);
        if (json_array_append_new(
                list, json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", tensor_table[k].name,
                                "layers", (json_int_t)layers, "rows", (json_int_t)rows,
                                "cols", (json_int_t)cols, "begin", (json_int_t)offset)) !=
            0) {
            json_decref(list);
            return NULL;
        }
        offset += layers * rows * cols;
    }
    return list;
}

static json_t *file_json(const struct manifest *m, const struct manifest_file *f)
{
    json_t *ranges = json_array();

    for (size_t i = 0; i < f->n_ranges; i++) {
        const struct manifest_range *r = &m->ranges[f->first_range + i];

        if (json_array_append_new(ranges, json_integer((json_int_t)r->begin)) != 0 ||
            json_array_append_new(ranges, json_integer((json_int_t)r->elems)) != 0) {
            json_decref(ranges);
            return NULL;
        }
    }
    return json_pack("{s:s, s:I, s:o, s:o, s:o}", "name", f->name, "bytes",
                     (json_int_t)f->sums.bytes, "xxh3", hex_json(f->sums.hash),
                     "xxh3_params", hex_json(f->sums.params_hash), "ranges", ranges);
}

static json_t *tokens_file_json(const struct manifest *m)
{
    if (!m->tokens_json.there)
        return json_null();
    return json_pack("{s:I, s:o}", "bytes", (json_int_t)m->tokens_json.bytes, "xxh3",
                     hex_json(m->tokens_json.hash));
}

static json_t *manifest_json(const struct manifest *m)
{
    json_t *files = json_array();

    for (int r = 0; files && r < m->ranks; r++)
        if (json_array_append_new(files, file_json(m, &m->files[r])) != 0) {
            json_decref(files);
            files = NULL;
        }
    return json_pack(
        "{s:s, s:i, s:s, s:o, s:I, s:i, s:o, s:o, s:o, s:o, s:o}", "format", FORMAT_NAME,
        "version", FORMAT_VERSION, "program", "weft " WEFT_VERSION, "shape",
        shape_json(&m->shape), "elems", (json_int_t)m->canonical_elems, "ranks", m->ranks,
        "state", state_json(&m->state), "config", utf8_json(m->config), "tensors",
        tensors_json(&m->shape), "tokens_json", tokens_file_json(m), "files", files);
}

static int dump_to(const char *text, size_t bytes, void *arg)
{
    return fwrite(text, 1, bytes, arg) == bytes ? 0 : -1;
}

/* A line for every key and every element of a list of objects: short to read, and the
 * many numbers of "ranges" stay on one line. Without the closing bracket. */
static int print_lines(json_t *root, FILE *out)
{
    const char *key, *comma = "";
    json_t *value, *item;
    size_t i;
    int bad = 0;

    bad |= fputs("{", out) < 0;
    json_object_foreach(root, key, value)
    {
        bad |= fprintf(out, "%s\n  \"%s\": ", comma, key) < 0;
        comma = ",";
        if (!json_is_array(value)) {
            bad |= json_dump_callback(value, dump_to, out, JSON_ENCODE_ANY);
            continue;
        }
        json_array_foreach(value, i, item)
        {
            bad |= fputs(i ? ",\n    " : "[\n    ", out) < 0;
            bad |= json_dump_callback(item, dump_to, out, JSON_ENCODE_ANY);
        }
        bad |= fputs("]", out) < 0;
    }
    return bad;
}

/* Closes the text with its checksum; *text was made by open_memstream. */
static enum status seal(char **text, size_t *bytes, const char *path)
{
    char *sealed;
    enum status st = memory_alloc(*bytes + SEAL_BYTES + 1, 1, path, &sealed);

    if (st != ST_OK)
        return st;
    memcpy(sealed, *text, *bytes);
    (void)snprintf(sealed + *bytes, SEAL_BYTES + 1, SEAL_BEGIN "%016" PRIx64 SEAL_END,
                   (uint64_t)XXH3_64bits(*text, *bytes));
    *bytes += SEAL_BYTES;
    free(*text);
    *text = sealed;
    return ST_OK;
}

enum status manifest_write(const struct manifest *m, const char *folder)
{
    char path[PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    FILE *out = NULL;
    enum status st = path_in(path, folder, "manifest.json");

    if (st != ST_OK)
        return st;
    root = manifest_json(m);
    out = open_memstream(&text, &bytes);
    int bad = !root || !out || print_lines(root, out);
    if (out && fclose(out) != 0)
        bad = 1;
    st = bad ? fail(ST_NOMEM, "%s: no memory for its text", path)
             : seal(&text, &bytes, path);
    if (st == ST_OK)
        st = file_write_all(path, text, bytes);
    free(text);
    json_decref(root);
    return st;
}

/* ---- reading ---- */

/* Whole number of a key, 0 .. most. */
static enum status get_whole(const json_t *root, const char *path, const char *key,
                             uint64_t most, uint64_t *out)
{
    const json_t *v = json_object_get(root, key);

    *out = 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return fail(ST_FORMAT, "%s: no \"%s\" found, needs a whole number", path, key);
    *out = (uint64_t)json_integer_value(v);
    if (*out > most)
        return fail(ST_FORMAT, "%s: \"%s\" is %" PRIu64 ", needs at most %" PRIu64, path,
                    key, *out, most);
    return ST_OK;
}

static enum status get_text(const json_t *root, const char *path, const char *key,
                            const char **out)
{
    *out = json_string_value(json_object_get(root, key));
    if (!*out)
        return fail(ST_FORMAT, "%s: no \"%s\" found, needs a text", path, key);
    return ST_OK;
}

/* An unsigned number written as a text in this base. */
static enum status get_number_text(const json_t *root, const char *path, const char *key,
                                   int base, uint64_t *out)
{
    const char *text;
    char *end;
    enum status st = get_text(root, path, key, &text);

    *out = 0;
    if (st != ST_OK)
        return st;
    *out = strtoull(text, &end, base);
    if (end == text || *end)
        return fail(ST_FORMAT, "%s: \"%s\" is \"%.40s\", needs a number in base %d", path,
                    key, text, base);
    return ST_OK;
}

static enum status read_shape(struct manifest *m, const json_t *root, const char *path)
{
    const json_t *o = json_object_get(root, "shape");
    struct shape *s = &m->shape;
    struct {
        const char *key;
        size_t *to;
    } rows[] = {{"L", &s->L}, {"H", &s->H}, {"C", &s->C},
                {"T", &s->T}, {"V", &s->V}, {"Vp", &s->Vp}};
    uint64_t elems;
    enum status st = ST_OK;

    for (size_t i = 0; st == ST_OK && i < sizeof rows / sizeof *rows; i++) {
        uint64_t value;

        st = get_whole(o, path, rows[i].key, (uint64_t)1 << 40, &value);
        *rows[i].to = (size_t)value;
    }
    if (st == ST_OK)
        st = shape_from_file(s, path, &m->canonical_elems);
    if (st == ST_OK && s->Vp != round_up(s->V, VOCAB_PAD))
        st = fail(ST_FORMAT, "%s: found Vp=%zu for V=%zu, needs %zu", path, s->Vp, s->V,
                  round_up(s->V, VOCAB_PAD));
    if (st == ST_OK)
        st = get_whole(root, path, "elems", UINT64_MAX, &elems);
    if (st == ST_OK && elems != m->canonical_elems)
        st = fail(ST_FORMAT, "%s: found %" PRIu64 " elements, needs %zu for its shape",
                  path, elems, m->canonical_elems);
    return st;
}

static enum status read_state(struct run_state *s, const json_t *root, const char *path)
{
    const json_t *o = json_object_get(root, "state");
    const json_t *best = json_object_get(o, "best_val_loss");
    const json_t *wall = json_object_get(o, "wall_s");
    const json_t *data = json_object_get(o, "data"); /* not in version 1 */
    enum status st = get_whole(o, path, "step", INT64_MAX, &s->step);

    if (st == ST_OK)
        st = get_whole(o, path, "tokens", INT64_MAX, &s->tokens);
    if (st == ST_OK)
        st = get_number_text(o, path, "seed", 10, &s->seed);
    if (st == ST_OK)
        st = get_whole(o, path, "batch_windows", INT64_MAX, &s->batch_windows);
    if (st == ST_OK)
        st = get_whole(o, path, "adam_step", INT64_MAX, &s->adam_step);
    if (st == ST_OK && data)
        st = get_whole(data, path, "tokens", INT64_MAX, &s->data_tokens);
    if (st == ST_OK && data)
        st = get_number_text(data, path, "xxh3_sample", 16, &s->data_hash);
    if (st != ST_OK)
        return st;
    if (!json_is_number(wall))
        return fail(ST_FORMAT, "%s: no \"wall_s\" found, needs a number", path);
    if (!json_is_number(best) && !json_is_null(best))
        return fail(ST_FORMAT, "%s: no \"best_val_loss\" found, needs a number or null",
                    path);
    s->wall_s = json_number_value(wall);
    s->best_val_loss = json_is_null(best) ? (double)INFINITY : json_number_value(best);
    return ST_OK;
}

static enum status read_ranges(struct manifest *m, struct manifest_file *f,
                               const json_t *list, const char *path)
{
    enum status st = ST_OK;
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n % 2)
        return fail(ST_FORMAT, "%s: ranges of %s: needs pairs of first element and count",
                    path, f->name);
    for (size_t i = 0; st == ST_OK && i < n; i += 2) {
        json_int_t begin = json_integer_value(json_array_get(list, i));
        json_int_t elems = json_integer_value(json_array_get(list, i + 1));
        json_int_t limit = (json_int_t)m->canonical_elems;

        if (begin < 0 || elems < 1 || begin > limit || elems > limit - begin)
            return fail(ST_FORMAT,
                        "%s: %s: found a range of %" JSON_INTEGER_FORMAT
                        " elements at %" JSON_INTEGER_FORMAT
                        ", needs ranges within %zu elements",
                        path, f->name, elems, begin, m->canonical_elems);
        st = add_range(m, f, (size_t)begin, (size_t)elems);
    }
    return st;
}

static enum status read_file(struct manifest *m, int rank, const json_t *o,
                             const char *path)
{
    struct manifest_file *f = &m->files[rank];
    const char *name;
    enum status st = get_text(o, path, "name", &name);

    state_file_name(f->name, rank, m->ranks);
    if (st == ST_OK && strcmp(name, f->name) != 0)
        st = fail(ST_FORMAT, "%s: found a file named \"%.60s\", needs %s", path, name,
                  f->name);
    if (st == ST_OK)
        st = get_whole(o, path, "bytes", INT64_MAX, &f->sums.bytes);
    if (st == ST_OK)
        st = get_number_text(o, path, "xxh3", 16, &f->sums.hash);
    if (st == ST_OK)
        st = get_number_text(o, path, "xxh3_params", 16, &f->sums.params_hash);
    if (st == ST_OK)
        st = read_ranges(m, f, json_object_get(o, "ranges"), path);
    if (st == ST_OK && f->sums.bytes != SECTIONS * sizeof(float) * (uint64_t)f->elems)
        st = fail(ST_FORMAT,
                  "%s: %s: found %" PRIu64 " bytes, needs %zu for its %zu elements", path,
                  f->name, f->sums.bytes, SECTIONS * sizeof(float) * f->elems, f->elems);
    return st;
}

static enum status read_files(struct manifest *m, const json_t *root, const char *path)
{
    const json_t *list = json_object_get(root, "files");
    uint64_t ranks;
    enum status st = get_whole(root, path, "ranks", MAX_RANKS, &ranks);

    if (st != ST_OK)
        return st;
    if (ranks == 0 || json_array_size(list) != ranks)
        return fail(ST_FORMAT,
                    "%s: found %zu files, needs one for each of %" PRIu64
                    " ranks (at least one)",
                    path, json_array_size(list), ranks);
    m->ranks = (int)ranks;
    st = memory_alloc(ranks, sizeof *m->files, "manifest", &m->files);
    for (int r = 0; st == ST_OK && r < m->ranks; r++)
        st = read_file(m, r, json_array_get(list, (size_t)r), path);
    if (st == ST_OK)
        st = check_cover(m, path);
    return st;
}

static enum status read_tokens_file(struct manifest *m, const json_t *root,
                                    const char *path)
{
    const json_t *o = json_object_get(root, "tokens_json");
    enum status st;

    if (!json_is_object(o))
        return ST_OK;
    m->tokens_json.there = true;
    st = get_whole(o, path, "bytes", INT64_MAX, &m->tokens_json.bytes);
    return st == ST_OK ? get_number_text(o, path, "xxh3", 16, &m->tokens_json.hash) : st;
}

static enum status check_seal(const char *text, size_t bytes, const char *path)
{
    size_t n = bytes - SEAL_BYTES;
    const char *seal_text = text + n;
    char needed[SEAL_BYTES + 1];

    if (bytes < SEAL_BYTES || strncmp(seal_text, SEAL_BEGIN, sizeof SEAL_BEGIN - 1) != 0)
        return fail(ST_FORMAT, "%s: does not end with its checksum: the file is damaged",
                    path);
    (void)snprintf(needed, sizeof needed, SEAL_BEGIN "%016" PRIx64 SEAL_END,
                   (uint64_t)XXH3_64bits(text, n));
    if (memcmp(seal_text, needed, SEAL_BYTES) != 0)
        return fail(ST_FORMAT,
                    "%s: found checksum %.16s, needs %.16s: the file is damaged", path,
                    seal_text + sizeof SEAL_BEGIN - 1, needed + sizeof SEAL_BEGIN - 1);
    return ST_OK;
}

static enum status read_version(const json_t *root, const char *path, uint64_t *version)
{
    enum status st = get_whole(root, path, "version", INT64_MAX, version);

    if (st == ST_OK && *version != FORMAT_VERSION && *version != OLD_VERSION)
        st = fail(ST_FORMAT, "%s: found format version %" PRIu64 ", needs %d or %d", path,
                  *version, OLD_VERSION, FORMAT_VERSION);
    return st;
}

static enum status read_root(struct manifest *m, const json_t *root, const char *text,
                             size_t bytes, const char *path)
{
    const char *format, *config;
    uint64_t version = 0;
    enum status st = get_text(root, path, "format", &format);

    if (st == ST_OK && strcmp(format, FORMAT_NAME) != 0)
        st = fail(ST_FORMAT, "%s: found format \"%.60s\", needs \"" FORMAT_NAME "\"",
                  path, format);
    if (st == ST_OK)
        st = read_version(root, path, &version);
    if (st == ST_OK && version != OLD_VERSION)
        st = check_seal(text, bytes, path);
    if (st == ST_OK)
        st = read_shape(m, root, path);
    if (st == ST_OK)
        st = read_state(&m->state, root, path);
    if (st == ST_OK)
        st = get_text(root, path, "config", &config);
    if (st == ST_OK && !(m->config = strdup(config)))
        st = fail(ST_NOMEM, "%s: no memory for its options", path);
    if (st == ST_OK)
        st = read_tokens_file(m, root, path);
    if (st == ST_OK)
        st = read_files(m, root, path);
    return st;
}

enum status manifest_read(struct manifest *m, const char *folder)
{
    char path[PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    json_error_t error;
    enum status st;

    *m = (struct manifest){0};
    st = path_in(path, folder, "manifest.json");
    if (st == ST_OK)
        st = file_read_all(path, &text, &bytes);
    if (st != ST_OK)
        return st;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    st = root ? read_root(m, root, text, bytes, path)
              : fail(ST_FORMAT, "%s: line %d is no JSON: %s", path, error.line,
                     error.text);
    json_decref(root);
    free(text);
    if (st != ST_OK)
        manifest_release(m);
    return st;
}

static enum status check_size(const char *folder, const char *name, uint64_t needed)
{
    char path[PATH_BYTES];
    uint64_t bytes = 0;
    enum status st = path_in(path, folder, name);

    if (st == ST_OK)
        st = file_size(path, &bytes);
    if (st == ST_OK && bytes != needed)
        st = fail(ST_FORMAT, "%s: found %" PRIu64 " bytes, needs %" PRIu64, path, bytes,
                  needed);
    return st;
}

enum status manifest_check_sizes(const struct manifest *m, const char *folder)
{
    enum status st = ST_OK;

    for (int r = 0; st == ST_OK && r < m->ranks; r++)
        st = check_size(folder, m->files[r].name, m->files[r].sums.bytes);
    if (st == ST_OK && m->tokens_json.there)
        st = check_size(folder, "tokens.json", m->tokens_json.bytes);
    return st;
}
