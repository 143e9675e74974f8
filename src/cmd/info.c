/* SPDX-License-Identifier: MIT */
/* weft info: what a file or folder is, and whether it is whole.
 *
 * Every kind of path is described as one JSON object; the table for people is a rendering
 * of that object, so that both always say the same.
 */
#include "cmd/cmd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint.h"
#include "cmd/choices.h"
#include "data/shards.h"
#include "data/tokenizer.h"
#include "report/run.h"

enum { PATH_BYTES = 4096, MAX_COLUMNS = 8 };

#define KNOWN_KINDS                                                                      \
    "needs a run folder, a checkpoint folder, a model file (llm.c, safetensors, GGUF), " \
    "token shards, a vocabulary (tokens.json, vocab.json, vocab.bpe) or questions of "   \
    "llm.c"

/* ---- the report ---- */

struct report {
    json_t *root;
    bool no_memory;
    char damage[PATH_BYTES]; /* what is wrong with a run's newest checkpoint, or "" */
};

static void put(struct report *r, const char *key, json_t *value)
{
    if (json_object_set_new(r->root, key, value) != 0)
        r->no_memory = true;
}

static void put_text(struct report *r, const char *key, const char *text)
{
    put(r, key, utf8_json(text));
}

static void put_count(struct report *r, const char *key, uint64_t n)
{
    put(r, key, json_integer((json_int_t)n));
}

static void put_number(struct report *r, const char *key, double x)
{
    put(r, key, isfinite(x) ? json_real(x) : json_null());
}

static void put_shape(struct report *r, const struct shape *s)
{
    put(r, "shape",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "L", (json_int_t)s->L, "H",
                  (json_int_t)s->H, "C", (json_int_t)s->C, "T", (json_int_t)s->T, "V",
                  (json_int_t)s->V, "Vp", (json_int_t)s->Vp));
    put_count(r, "parameters", shape_parameters(s));
}

/* ---- the table ---- */

/* "1,234,567" */
static void format_count(json_int_t n, char *out, size_t out_bytes)
{
    char digits[32];
    size_t at = 0;
    int len = snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, n);

    for (int i = 0; i < len && at + 2 < out_bytes; i++) {
        if (i > 0 && (len - i) % 3 == 0 && digits[i - 1] != '-')
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
}

static void format_value(const json_t *v, char *out, size_t out_bytes)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        (void)snprintf(out, out_bytes, "%s", json_string_value(v));
        break;
    case JSON_INTEGER:
        format_count(json_integer_value(v), out, out_bytes);
        break;
    case JSON_REAL:
        (void)snprintf(out, out_bytes, "%.9g", json_real_value(v));
        break;
    case JSON_TRUE:
        (void)snprintf(out, out_bytes, "yes");
        break;
    case JSON_FALSE:
        (void)snprintf(out, out_bytes, "no");
        break;
    case JSON_ARRAY: /* lists of objects are printed as rows */
    case JSON_OBJECT:
    case JSON_NULL:
        (void)snprintf(out, out_bytes, "-");
        break;
    }
}

/* "L=12 H=12 C=768": the values of an object on one line. */
static void print_inline(json_t *object)
{
    const char *key, *space = "";
    json_t *value;

    json_object_foreach(object, key, value)
    {
        char text[PATH_BYTES];

        if (json_is_integer(value))
            (void)snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT,
                           json_integer_value(value));
        else
            format_value(value, text, sizeof text);
        printf("%s%s=%s", space, key, text);
        space = " ";
    }
    printf("\n");
}

/* The values of an object, one a line under its key, rounded for people. */
static void print_fields(json_t *object)
{
    const char *key;
    json_t *value;

    printf("\n");
    json_object_foreach(object, key, value)
    {
        char text[PATH_BYTES];

        if (!json_is_real(value))
            format_value(value, text, sizeof text);
        else if (fabs(json_real_value(value)) >= 1000)
            format_count(llround(json_real_value(value)), text, sizeof text);
        else
            (void)snprintf(text, sizeof text, "%.5g", json_real_value(value));
        printf("  %-12s %s\n", key, text);
    }
}

struct column {
    size_t width;
    bool right; /* numbers */
};

static void measure_rows(json_t *list, struct column *columns)
{
    json_t *row, *value;
    const char *key;
    char text[PATH_BYTES];
    size_t i;

    json_array_foreach(list, i, row)
    {
        struct column *c = columns;

        json_object_foreach(row, key, value)
        {
            require(c < columns + MAX_COLUMNS);
            format_value(value, text, sizeof text);
            c->width = max_size(max_size(c->width, strlen(key)), strlen(text));
            c->right |= json_is_number(value);
            c++;
        }
    }
}

/* A list of objects that all have the same keys, in columns under the keys. */
static void print_rows(json_t *list)
{
    struct column columns[MAX_COLUMNS] = {{0}};
    json_t *value;
    const char *key;
    char text[PATH_BYTES];

    measure_rows(list, columns);
    for (size_t line = 0; line <= json_array_size(list); line++) {
        json_t *row = json_array_get(list, line ? line - 1 : 0);
        const struct column *c = columns;

        printf(" ");
        json_object_foreach(row, key, value)
        {
            bool last = c + 1 == columns + json_object_size(row);

            format_value(value, text, sizeof text);
            printf(" %*s",
                   c->right ? (int)c->width
                   : last   ? 0
                            : -(int)c->width,
                   line ? text : key);
            c++;
        }
        printf("\n");
    }
}

static void print_table(json_t *root)
{
    const char *key;
    json_t *value;

    json_object_foreach(root, key, value)
    {
        char text[PATH_BYTES];

        printf("%-14s", key);
        if (json_is_object(value) && !strcmp(key, "last_metrics")) {
            print_fields(value);
        } else if (json_is_object(value)) {
            printf(" ");
            print_inline(value);
        } else if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
            printf("\n");
            print_rows(value);
        } else {
            format_value(value, text, sizeof text);
            printf(" %s\n", text);
        }
    }
}

/* ---- model files and checkpoints ---- */

/* How many tensors are stored as what, types without any left out. */
static json_t *dtypes_json(const struct model_numbers *n)
{
    json_t *out = json_object();

    for (int t = 0; t < DTYPES; t++)
        if (n->tensors[t])
            (void)json_object_set_new(out, dtype_name((enum dtype)t),
                                      json_integer((json_int_t)n->tensors[t]));
    return out;
}

/* A model file or folder of another program. */
static enum status describe_model(struct report *r, const char *path)
{
    static const char *const what[MODEL_KINDS] = {[MODEL_LLMC] = "llm.c model file",
                                                  [MODEL_SAFETENSORS] =
                                                      "Hugging Face model (safetensors)",
                                                  [MODEL_GGUF] = "GGUF model file"};
    struct model_file f;
    struct model_numbers numbers;
    enum status st = model_open(path, &f);

    if (st == ST_OK)
        st = model_check_numbers(&f, &numbers);
    if (st != ST_OK)
        return st;
    put_text(r, "what", what[f.kind]);
    put_text(r, "path", path);
    put_shape(r, &f.shape);
    put(r, "tensors", dtypes_json(&numbers));
    put_count(r, "not_finite", numbers.not_finite);
    if (numbers.not_finite)
        put_text(r, "not_finite_in", numbers.first);
    put(r, "tokens_json", f.tokens_json[0] ? utf8_json(f.tokens_json) : json_null());
    return ST_OK;
}

static enum status describe_checkpoint(struct report *r, const char *path)
{
    struct checkpoint_info info;
    char tokens_json[PATH_BYTES];
    enum status st = checkpoint_inspect(path, true, &info);

    if (st != ST_OK)
        return st;
    put_text(r, "what", "native checkpoint");
    put_text(r, "path", path);
    put_count(r, "step", info.state.step);
    put_count(r, "tokens", info.state.tokens);
    put_count(r, "ranks", (uint64_t)info.ranks);
    put_shape(r, &info.shape);
    put_number(r, "best_val_loss", info.state.best_val_loss);
    put_number(r, "wall_s", info.state.wall_s);
    put_count(r, "bytes", info.file_bytes);
    put_text(r, "checksums", "right");
    if (snprintf(tokens_json, sizeof tokens_json, "%s/tokens.json", path) <
            (int)sizeof tokens_json &&
        file_exists(tokens_json))
        put_text(r, "tokens_json", tokens_json);
    else
        put(r, "tokens_json", json_null());
    return ST_OK;
}

/* ---- run folders ---- */

/* The fields shown of a training line and of an evaluation line; NULL allowed. */
static json_t *pick_metrics(json_t *train, json_t *eval)
{
    static const char *const fields[] = {"step", "loss", "lr", "tokens_per_s"};
    json_t *out = json_object();

    for (size_t i = 0; train && i < sizeof fields / sizeof *fields; i++)
        (void)json_object_set(out, fields[i], json_object_get(train, fields[i]));
    if (eval) {
        (void)json_object_set(out, "val_step", json_object_get(eval, "step"));
        (void)json_object_set(out, "val_loss", json_object_get(eval, "val_loss"));
    }
    return out;
}

struct last_lines {
    json_t *train, *eval;
};

static enum status keep_last(void *arg, json_t *line)
{
    struct last_lines *last = arg;
    json_t **kept = json_object_get(line, "loss")       ? &last->train
                    : json_object_get(line, "val_loss") ? &last->eval
                                                        : NULL;

    if (kept) {
        json_decref(*kept);
        *kept = json_incref(line);
    }
    return ST_OK;
}

static enum status only_count(void *arg, json_t *line)
{
    (void)arg;
    (void)line;
    return ST_OK;
}

/* What the last training line and the last evaluation line of metrics.jsonl say, null
 * when there is neither; and lines that are damaged. A file that does not read is no
 * reason to say nothing of the run. */
static void put_lines(struct report *r, const char *run)
{
    struct last_lines last = {0};
    size_t damaged[RUN_FILES] = {0};
    bool read =
        run_each_line(run, RUN_NUMBERS, keep_last, &last, &damaged[RUN_NUMBERS]) == ST_OK;

    put(r, "last_metrics",
        read && (last.train || last.eval) ? pick_metrics(last.train, last.eval)
                                          : json_null());
    json_decref(last.train);
    json_decref(last.eval);
    if (run_each_line(run, RUN_EVENTS, only_count, NULL, &damaged[RUN_EVENTS]) != ST_OK)
        damaged[RUN_EVENTS] = 0;
    if (damaged[RUN_NUMBERS] + damaged[RUN_EVENTS] > 0)
        put(r, "damaged_lines",
            json_pack("{s:I, s:I}", run_file_names[RUN_NUMBERS],
                      (json_int_t)damaged[RUN_NUMBERS], run_file_names[RUN_EVENTS],
                      (json_int_t)damaged[RUN_EVENTS]));
}

/* verify: its contents too. *good: nothing wrong was found. */
static json_t *checkpoint_row(const char *path, bool verify, bool *good)
{
    struct checkpoint_info info;
    const char *name = strrchr(path, '/');

    name = name ? name + 1 : path;
    *good = checkpoint_inspect(path, verify, &info) == ST_OK;
    if (!*good)
        return json_pack("{s:o, s:n, s:n, s:n, s:n, s:o}", "name", utf8_json(name),
                         "step", "ranks", "bytes", "best_val_loss", "state",
                         utf8_json(fail_text()));
    return json_pack("{s:o, s:I, s:i, s:I, s:o, s:s}", "name", utf8_json(name), "step",
                     (json_int_t)info.state.step, "ranks", info.ranks, "bytes",
                     (json_int_t)info.file_bytes, "best_val_loss",
                     isfinite(info.state.best_val_loss)
                         ? json_real(info.state.best_val_loss)
                         : json_null(),
                     "state", verify ? "whole" : "sizes right, contents not read");
}

/* Rows of the checkpoints, oldest first. Contents are read from the newest one down to
 * one that is whole, *whole: what training would go on from. */
static json_t *checkpoint_rows(struct report *r, const struct path_list *list,
                               const char **whole)
{
    json_t *rows = json_array();

    *whole = NULL;
    for (size_t i = list->count; i-- > 0;) {
        bool good;
        json_t *row = checkpoint_row(list->paths[i], !*whole, &good);

        if (json_array_insert_new(rows, 0, row) != 0)
            r->no_memory = true;
        if (!good && i + 1 == list->count)
            (void)snprintf(r->damage, sizeof r->damage, "%s", fail_text());
        if (good && !*whole)
            *whole = list->paths[i];
    }
    return rows;
}

static enum status describe_run(struct report *r, const char *path)
{
    struct path_list list = {0};
    const char *newest = NULL;
    enum status st = checkpoint_list(path, &list);
    json_t *rows = checkpoint_rows(r, &list, &newest);

    put_text(r, "what", "run folder");
    put_text(r, "path", path);
    put(r, "newest", newest ? utf8_json(newest) : json_null());
    if (newest && st == ST_OK) {
        struct checkpoint_info info;

        st = checkpoint_inspect(newest, false, &info);
        if (st == ST_OK)
            put_shape(r, &info.shape);
    }
    put(r, "checkpoints", rows);
    put_lines(r, path);
    path_list_release(&list);
    return st;
}

/* ---- token data ---- */

static enum status file_magic(const char *path, int32_t *magic, unsigned char *head,
                              size_t *n)
{
    /* Not blocking: a pipe must not stop us here. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *magic = 0;
    if (fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    ssize_t got = read(fd, head, 8);
    close(fd);
    if (got < 0)
        return fail(ST_IO, "%s: cannot read: %s", path, strerror(errno));
    *n = (size_t)got;
    if (*n >= sizeof *magic)
        memcpy(magic, head, sizeof *magic);
    return ST_OK;
}

static void put_tokenizer(struct report *r, const struct shards_meta *meta)
{
    put(r, "tokenizer", meta->path[0] ? utf8_json(meta->kind) : json_null());
    if (meta->path[0]) {
        put_count(r, "vocab", meta->vocab);
        put_text(r, "tokens_json", meta->path);
    }
}

static enum status describe_shards(struct report *r, const char *path)
{
    struct shards *s = NULL;
    struct shards_meta meta;
    json_t *rows = json_array();
    uint64_t bytes = 0;
    int32_t magic = 0;
    unsigned char head[8];
    size_t n;
    enum status st = shards_open(path, NULL, UINT32_MAX, &s);

    if (st == ST_OK)
        st = shards_read_meta(path, &meta);
    if (st == ST_OK && shards_files(s) > 0)
        st = file_magic(shards_path(s, 0), &magic, head, &n);
    for (size_t i = 0; st == ST_OK && i < shards_files(s); i++) {
        const char *name = strrchr(shards_path(s, i), '/');
        uint64_t size = 0;

        st = file_size(shards_path(s, i), &size);
        bytes += size;
        if (json_array_append_new(
                rows, json_pack("{s:o, s:I, s:I}", "name",
                                utf8_json(name ? name + 1 : shards_path(s, i)), "tokens",
                                (json_int_t)shards_file_tokens(s, i), "bytes",
                                (json_int_t)size)) != 0)
            r->no_memory = true;
    }
    if (st != ST_OK) {
        json_decref(rows);
        shards_close(s);
        return st;
    }
    put_text(r, "what", "token shards");
    put_text(r, "path", path);
    put_count(r, "tokens", shards_tokens(s));
    put_count(r, "bits", magic == SHARD_MAGIC_32 ? 32 : 16);
    put_count(r, "bytes", bytes);
    put_tokenizer(r, &meta);
    put(r, "files", rows);
    shards_close(s);
    return ST_OK;
}

/* The folder or file named tokens.json, or nanoGPT's meta.json; long lists are left to
 * the file itself. */
static enum status describe_tokens_json(struct report *r, const char *path)
{
    struct shards_meta meta;
    json_t *root, *value;
    const char *key;
    enum status st = shards_read_meta(path, &meta);

    if (st != ST_OK)
        return st;
    root = json_load_file(meta.path, 0, NULL);
    if (!root)
        return fail(ST_FORMAT, "%s: cannot be read as JSON", meta.path);
    put_text(r, "what", "tokenizer of token shards");
    put_text(r, "path", meta.path);
    json_object_foreach(root, key, value)
    {
        if (json_is_array(value))
            put_count(r, key, json_array_size(value));
        else if (json_is_object(value))
            put_count(r, key, json_object_size(value));
        else
            put(r, key, json_incref(value));
    }
    json_decref(root);
    return ST_OK;
}

/* Hugging Face's vocab.json or the merges.txt beside it; or GPT-2's table by itself. */
static enum status describe_vocabulary(struct report *r, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct tokenizer *t = NULL;
    char names[PATH_BYTES];
    enum status st;

    (void)snprintf(names, sizeof names, "%.*svocab.json",
                   slash ? (int)(slash - path) + 1 : 0, path);
    st = file_exists(names) ? tokenizer_load(names, &t) : tokenizer_new_gpt2(path, &t);
    if (st != ST_OK)
        return st;
    put_text(r, "what", "vocabulary of byte pairs");
    put_text(r, "path", path);
    put_count(r, "vocab", tokenizer_vocab(t));
    put(r, "end_of_text",
        tokenizer_end_of_text(t) < 0 ? json_null()
                                     : json_integer(tokenizer_end_of_text(t)));
    tokenizer_free(t);
    return ST_OK;
}

/* llm.c's multiple-choice questions, for a model of any vocabulary. */
static enum status describe_questions(struct report *r, const char *path)
{
    const struct loaded model = {.file.shape.V = UINT16_MAX + 1};
    struct choices c = {0};
    enum status st = choices_read(&c, path, &model, NULL);

    if (st == ST_OK) {
        put_text(r, "what", "multiple-choice questions (llm.c)");
        put_text(r, "path", path);
        put_count(r, "examples", c.count);
        put_count(r, "tokens", c.tokens.count);
    }
    choices_release(&c);
    return st;
}

/* ---- which is it? ---- */

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];

    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           file_exists(path);
}

static bool has_bin(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir))) {
        size_t n = strlen(entry->d_name);

        found =
            n > 4 && entry->d_name[0] != '.' && !strcmp(entry->d_name + n - 4, ".bin");
    }
    if (dir)
        closedir(dir);
    return found;
}

static bool is_run(const char *path)
{
    return has_file(path, "checkpoints") || has_file(path, "metrics.jsonl") ||
           has_file(path, "config.ini");
}

/* A folder that holds what is looked for: names some of it, in the order of names. */
static enum status suggest(const char *path)
{
    const size_t most = 3;
    struct dirent **entries = NULL;
    char names[PATH_BYTES] = "", inner[PATH_BYTES];
    size_t found = 0, used = 0;
    int n = scandir(path, &entries, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;

        if (name[0] != '.' &&
            snprintf(inner, sizeof inner, "%s/%s", path, name) < (int)sizeof inner &&
            (is_run(inner) || has_file(inner, "manifest.json")) && found++ < most &&
            used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used ? ", " : "", inner);
        free(entries[i]);
    }
    free(entries);
    const char *last = strrchr(path, '/');

    if (found > 0 && last && !strcmp(last, "/checkpoints"))
        return fail(ST_FORMAT,
                    "%s: found the checkpoints of a run, needs the run folder, %.*s, or "
                    "one of them: %s%s",
                    path, (int)(last - path), path, names, found > most ? ", ..." : "");
    if (found > 0)
        return fail(ST_FORMAT,
                    "%s: found a folder of runs or checkpoints, needs one of them: %s%s",
                    path, names, found > most ? ", ..." : "");
    return fail(ST_FORMAT,
                "%s: found a folder without manifest.json, checkpoints/, metrics.jsonl, "
                "config.ini, config.json, *.bin or tokens.json, " KNOWN_KINDS,
                path);
}

static enum status describe_folder(struct report *r, const char *path)
{
    if (has_file(path, "manifest.json"))
        return describe_checkpoint(r, path);
    if (model_recognised(path))
        return describe_model(r, path);
    if (is_run(path))
        return describe_run(r, path);
    if (has_bin(path))
        return describe_shards(r, path);
    if (has_file(path, "tokens.json"))
        return describe_tokens_json(r, path);
    return suggest(path);
}

static enum status describe_file(struct report *r, const char *path)
{
    const char *name = strrchr(path, '/');
    unsigned char head[8] = {0};
    char hex[32] = "nothing";
    int32_t magic;
    int at = 0;
    size_t n = 0;
    enum status st = file_magic(path, &magic, head, &n);

    if (st != ST_OK)
        return st;
    name = name ? name + 1 : path;
    if (model_recognised(path))
        return describe_model(r, path);
    if (magic == SHARD_MAGIC_16 || magic == SHARD_MAGIC_32 || shards_is_nanogpt(path))
        return describe_shards(r, path);
    if (!strcmp(name, "tokens.json") || !strcmp(name, "meta.json"))
        return describe_tokens_json(r, path);
    if (magic == CHOICES_MAGIC)
        return describe_questions(r, path);
    if (!strcmp(name, "vocab.json") ||
        (n == sizeof head && !memcmp(head, "#version", sizeof head)))
        return describe_vocabulary(r, path);
    for (size_t i = 0; i < n; i++)
        at +=
            snprintf(hex + at, sizeof hex - (size_t)at, "%s%02x", i ? " " : "", head[i]);
    return fail(ST_FORMAT, "%s: starts with %s, no known file; " KNOWN_KINDS, path, hex);
}

static enum status describe(struct report *r, const char *path)
{
    char clean[PATH_BYTES];
    struct stat info;

    if (snprintf(clean, sizeof clean, "%s", path) >= (int)sizeof clean)
        return fail(ST_IO, "%s: path too long", path);
    for (size_t n = strlen(clean); n > 1 && clean[n - 1] == '/'; n--)
        clean[n - 1] = 0;
    if (stat(clean, &info) != 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return describe_folder(r, clean);
    if (!S_ISREG(info.st_mode))
        return fail(ST_FORMAT, "%s: neither a file nor a folder, " KNOWN_KINDS, path);
    return describe_file(r, clean);
}

enum status cmd_info(int argc, char **argv, int *exit_code)
{
    bool json = false, help = false;
    struct option_row table[] = {
        {.name = "json",
         .kind = OPTION_SWITCH,
         .value = &json,
         .help = "one JSON object instead of a table"},
        {.name = "help", .kind = OPTION_SWITCH, .value = &help, .help = "this text"},
        {0}};
    struct report r = {0};
    char **rest = NULL;
    int n_rest = 0;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    *exit_code = 0;
    if (st == ST_OK && help) {
        printf(
            "usage: weft info [--json] PATH\n\n"
            "Says what a run folder, checkpoint folder, model of another program "
            "(llm.c, safetensors,\nGGUF), folder or file of tokens, vocabulary, or file "
            "of questions is, and checks it.\nOf a run's newest checkpoint the checksums "
            "are checked, of the others only the sizes: give\nthe folder of one to have "
            "it "
            "read. Exit code 1 when what was read is damaged.\n\n"
            "example: weft info runs/a\n\noptions:\n");
        options_print_help(table);
        return ST_OK;
    }
    if (st == ST_OK && n_rest != 1)
        st = fail(ST_USAGE, "info: found %d paths, needs one", n_rest);
    if (st == ST_OK) {
        r.root = json_object();
        st = describe(&r, rest[0]);
    }
    if (st == ST_OK && (!r.root || r.no_memory))
        st = fail(ST_NOMEM, "%s: no memory to describe it", rest[0]);
    if (st == ST_OK && json) {
        (void)json_dumpf(r.root, stdout, JSON_INDENT(2));
        printf("\n");
    } else if (st == ST_OK) {
        print_table(r.root);
    }
    if (st == ST_OK && r.damage[0])
        st = fail(ST_FORMAT, "%s", r.damage);
    json_decref(r.root);
    return st;
}
