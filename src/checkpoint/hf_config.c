/* SPDX-License-Identifier: MIT */
#include "checkpoint/hf_config.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "checkpoint/native.h"
#include "data/vocabulary.h"

enum { MOST_JSON_BYTES = 16 << 20 };
static const double layer_norm_eps = 1e-5;

/* ---- reading ---- */

static enum status get_size(const json_t *root, const char *path, const char *key,
                            size_t *out)
{
    const json_t *v = json_object_get(root, key);

    *out = 0;
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return fail(ST_FORMAT, "%s: no \"%s\" found, needs a count of at least 1", path,
                    key);
    *out = (size_t)json_integer_value(v);
    return ST_OK;
}

/* A key that may be missing or null; else it must be that text. */
static enum status need_text(const json_t *root, const char *path, const char *key,
                             const char *needed, const char *or_needed)
{
    const json_t *v = json_object_get(root, key);
    const char *found = json_string_value(v);

    if (!v || json_is_null(v) ||
        (found && (!strcmp(found, needed) || (or_needed && !strcmp(found, or_needed)))))
        return ST_OK;
    return fail(ST_FORMAT, "%s: \"%s\" is %s%.60s, needs \"%s\"", path, key,
                found ? "" : "no text", found ? found : "", needed);
}

static enum status need_bool(const json_t *root, const char *path, const char *key,
                             bool needed)
{
    const json_t *v = json_object_get(root, key);

    if (!v || json_is_null(v) || (json_is_boolean(v) && json_is_true(v) == needed))
        return ST_OK;
    return fail(ST_FORMAT, "%s: \"%s\" is not %s, needs it for a GPT-2", path, key,
                needed ? "true" : "false");
}

/* What would make the same weights another function. */
static enum status check_function(const json_t *root, const char *path,
                                  const struct shape *s)
{
    const json_t *inner = json_object_get(root, "n_inner");
    const json_t *eps = json_object_get(root, "layer_norm_epsilon");
    enum status st = need_text(root, path, "model_type", "gpt2", NULL);

    /* Two names of the same function. */
    if (st == ST_OK)
        st =
            need_text(root, path, "activation_function", "gelu_new", "gelu_pytorch_tanh");
    if (st == ST_OK)
        st = need_bool(root, path, "scale_attn_weights", true);
    if (st == ST_OK)
        st = need_bool(root, path, "scale_attn_by_inverse_layer_idx", false);
    if (st == ST_OK)
        st = need_bool(root, path, "add_cross_attention", false);
    if (st == ST_OK)
        st = need_bool(root, path, "tie_word_embeddings", true);
    if (st == ST_OK && inner && !json_is_null(inner) &&
        json_integer_value(inner) != 4 * (json_int_t)s->C)
        st = fail(ST_FORMAT, "%s: \"n_inner\" is %" JSON_INTEGER_FORMAT ", needs %zu",
                  path, json_integer_value(inner), 4 * s->C);
    if (st == ST_OK && eps &&
        !(fabs(json_number_value(eps) - layer_norm_eps) < 1e-3 * layer_norm_eps))
        st = fail(ST_FORMAT, "%s: \"layer_norm_epsilon\" is %g, needs %g", path,
                  json_number_value(eps), layer_norm_eps);
    return st;
}

enum status hf_config_read(const char *path, struct shape *out)
{
    json_error_t error;
    uint64_t size = 0;
    json_t *root = NULL;
    char *text = NULL;
    size_t bytes, elems;
    enum status st = file_size(path, &size);

    *out = (struct shape){0};
    if (st == ST_OK && size > MOST_JSON_BYTES)
        st = fail(ST_FORMAT, "%s: found %" PRIu64 " bytes, needs at most %d", path, size,
                  MOST_JSON_BYTES);
    if (st == ST_OK)
        st = file_read_all(path, &text, &bytes);
    if (st != ST_OK)
        return st;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(root))
        st = fail(ST_FORMAT, "%s: line %d: not a JSON object%s%s", path,
                  root ? 1 : error.line, root ? "" : ": ", root ? "" : error.text);
    if (st == ST_OK)
        st = need_text(root, path, "model_type", "gpt2", NULL);
    if (st == ST_OK)
        st = get_size(root, path, "n_layer", &out->L);
    if (st == ST_OK)
        st = get_size(root, path, "n_head", &out->H);
    if (st == ST_OK)
        st = get_size(root, path, "n_embd", &out->C);
    if (st == ST_OK)
        st = get_size(root, path, "n_positions", &out->T);
    if (st == ST_OK)
        st = get_size(root, path, "vocab_size", &out->V);
    out->Vp = out->V;
    if (st == ST_OK)
        st = shape_from_file(out, path, &elems);
    if (st == ST_OK)
        st = check_function(root, path, out);
    json_decref(root);
    free(text);
    return st;
}

/* ---- writing ---- */

/* Writes and releases a value. */
static enum status put_json(const char *folder, const char *name, json_t *root)
{
    char path[PATH_BYTES];
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    size_t n = text ? strlen(text) : 0;
    enum status st = path_in(path, folder, name);

    if (text)
        text[n] = '\n'; /* in place of the final 0 */
    if (st == ST_OK)
        st = text ? file_write_all(path, text, n + 1)
                  : fail(ST_NOMEM, "%s: no memory for its text", path);
    free(text);
    json_decref(root);
    return st;
}

static json_t *id_or_null(int32_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

static json_t *config_json(const struct shape *s, enum dtype dtype, int32_t end_of_text)
{
    static const char *const torch_names[DTYPES] = {"float32", "bfloat16", "float16"};

    return json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:n, s:I, s:f, s:f, s:f, s:f, s:f,"
        " s:o, s:o, s:b, s:b, s:s}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function",
        "gelu_new", "n_embd", (json_int_t)s->C, "n_layer", (json_int_t)s->L, "n_head",
        (json_int_t)s->H, "n_positions", (json_int_t)s->T, "n_ctx", (json_int_t)s->T,
        "n_inner", "vocab_size", (json_int_t)s->V, "layer_norm_epsilon", layer_norm_eps,
        "initializer_range", 0.02, "attn_pdrop", 0.0, "embd_pdrop", 0.0, "resid_pdrop",
        0.0, "bos_token_id", id_or_null(end_of_text), "eos_token_id",
        id_or_null(end_of_text), "scale_attn_weights", 1, "tie_word_embeddings", 1,
        "torch_dtype", torch_names[dtype]);
}

static enum status put_names(const char *folder, const struct vocabulary *v)
{
    json_t *root = json_object();
    bool bad = !root;

    for (size_t i = 0; !bad && i < v->names.n; i++)
        bad = json_object_set_new(root, v->names.block + v->names.begin[i],
                                  json_integer((json_int_t)i)) != 0;
    if (bad) {
        json_decref(root);
        root = NULL;
    }
    return put_json(folder, "vocab.json", root);
}

static enum status put_tokenizer(const char *folder, const struct shape *s,
                                 const struct tokenizer *t)
{
    struct vocabulary v;
    char merges[PATH_BYTES];
    enum status st = vocabulary_of(t, &v);
    const char *special = v.end_of_text < 0 ? NULL : END_OF_TEXT_NAME;

    if (st == ST_OK)
        st = put_names(folder, &v);
    if (st == ST_OK)
        st = path_in(merges, folder, "merges.txt");
    if (st == ST_OK)
        st = file_write_all(merges, v.merges, v.merges_bytes);
    if (st == ST_OK)
        st = put_json(folder, "tokenizer_config.json",
                      json_pack("{s:s, s:I, s:s?, s:s?, s:s?, s:b}", "tokenizer_class",
                                "GPT2Tokenizer", "model_max_length", (json_int_t)s->T,
                                "bos_token", special, "eos_token", special, "unk_token",
                                special, "add_prefix_space", 0));
    if (st == ST_OK)
        st = put_json(folder, "special_tokens_map.json",
                      special ? json_pack("{s:s, s:s, s:s}", "bos_token", special,
                                          "eos_token", special, "unk_token", special)
                              : json_object());
    vocabulary_release(&v);
    return st;
}

enum status hf_files_write(const char *folder, const struct shape *s,
                           const struct model_write_options *o)
{
    int32_t eot = o->tokenizer ? tokenizer_end_of_text(o->tokenizer) : -1;
    enum status st = put_json(folder, "config.json", config_json(s, o->dtype, eot));

    if (st == ST_OK)
        st =
            put_json(folder, "generation_config.json",
                     json_pack("{s:b, s:o, s:o}", "_from_model_config", 1, "bos_token_id",
                               id_or_null(eot), "eos_token_id", id_or_null(eot)));
    if (st == ST_OK && o->tokenizer)
        st = put_tokenizer(folder, s, o->tokenizer);
    return st;
}
