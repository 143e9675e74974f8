/* SPDX-License-Identifier: MIT */
#include "cmd/corpus.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/progress.h"
#include "cmd/jsonl.h"
#include "data/tokenizer.h"

enum {
    LOOK_BYTES = 1 << 12, /* read beyond a part in search of a place to cut */
    LEAST_PIECE = 1 << 12 /* no room is left in a part for less */
};

/* ---- the files ---- */

static enum status measure(const char *path, uint64_t *bytes)
{
    struct text_file *f;
    enum status st = text_file_open(path, &f);

    if (st == ST_OK)
        st = text_file_size(f, bytes);
    text_file_close(f);
    return st;
}

static void drop_empty(struct corpus *c)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->files.count; i++) {
        if (c->bytes[i] == 0) {
            free(c->files.paths[i]);
            continue;
        }
        c->files.paths[kept] = c->files.paths[i];
        c->bytes[kept++] = c->bytes[i];
    }
    c->files.count = kept;
}

enum status corpus_open(struct corpus *c, char **inputs, int n, bool show)
{
    struct progress progress;
    enum status st = ST_OK;

    for (int i = 0; i < n && st == ST_OK; i++)
        st = path_list_add_tree(&c->files, inputs[i]);
    if (st == ST_OK)
        st = memory_alloc(c->files.count, sizeof *c->bytes, "list of files", &c->bytes);
    if (st != ST_OK)
        return st;
    progress_begin(&progress, "look", "files", (double)c->files.count,
                   show && c->files.count > 1);
    for (size_t i = 0; i < c->files.count && st == ST_OK; i++) {
        st = measure(c->files.paths[i], &c->bytes[i]);
        if (st == ST_OK && c->bytes[i] == 0)
            st = path_list_add(&c->empty, c->files.paths[i]);
        c->total += c->bytes[i];
        progress_update(&progress, (double)i + 1, NULL);
    }
    progress_clear_line();
    if (st == ST_OK && c->total == 0)
        st = fail(ST_FORMAT, "%s%s: found no text in %zu file%s", inputs[0],
                  n > 1 ? " and the others" : "", c->files.count,
                  c->files.count == 1 ? "" : "s");
    if (st == ST_OK)
        drop_empty(c);
    return st;
}

void corpus_split(struct corpus *c, double fraction)
{
    c->cut = c->total - (uint64_t)(fraction * (double)c->total);
    if (c->cut == 0)
        c->cut = 1; /* something must be left to train on */
}

void corpus_release(struct corpus *c)
{
    path_list_release(&c->files);
    path_list_release(&c->empty);
    free(c->bytes);
}

void corpus_part_release(struct corpus_part *part)
{
    free(part->text);
    free(part->segments);
    *part = (struct corpus_part){0};
}

/* ---- reading ahead ---- */

void corpus_reader_init(struct corpus_reader *r, const struct corpus *c)
{
    *r = (struct corpus_reader){.corpus = c};
}

void corpus_reader_release(struct corpus_reader *r)
{
    text_file_close(r->text);
    free(r->buf);
    free(r->document);
    *r = (struct corpus_reader){0};
}

static const char *path_of(const struct corpus_reader *r)
{
    return r->corpus->files.paths[r->file];
}

static size_t ahead(const struct corpus_reader *r)
{
    return r->end - r->begin;
}

/* Reads until `need` bytes are ahead, or all that there are. */
static enum status fill(struct corpus_reader *r, size_t need)
{
    enum status st = ST_OK;

    if (ahead(r) >= need || r->eof)
        return ST_OK;
    if (r->begin > 0) {
        memmove(r->buf, r->buf + r->begin, ahead(r));
        r->end -= r->begin;
        r->begin = 0;
    }
    if (need > r->capacity) {
        char *buf = realloc(r->buf, need);

        if (!buf)
            return fail(ST_NOMEM, "%s: no memory for %zu bytes of text", path_of(r),
                        need);
        r->buf = buf;
        r->capacity = need;
    }
    while (st == ST_OK && !r->eof && r->end < need) {
        size_t got;

        st = text_file_read(r->text, r->buf + r->end, need - r->end, &got);
        r->eof = st == ST_OK && got == 0;
        r->end += got;
    }
    return st;
}

static void pass(struct corpus_reader *r, size_t bytes)
{
    r->begin += bytes;
    r->at += bytes;
}

/* Bytes of a run that tokenizes by itself: about `want`, and at least a word. More text
 * is read when there is no place to cut. */
static enum status find_cut(struct corpus_reader *r, size_t want, size_t *bytes)
{
    size_t need = want + LOOK_BYTES, searched = want;
    bool found = false;

    while (!found && searched <= want + CORPUS_MOST_WORD) {
        enum status st = fill(r, need);

        if (st != ST_OK)
            return st;
        /* What was searched before need not be searched again. */
        *bytes = tokenizer_cut(r->buf + r->begin, ahead(r), searched);
        found = *bytes < ahead(r) || r->eof;
        searched = *bytes;
        need = 2 * ahead(r);
    }
    if (searched <= want + CORPUS_MOST_WORD)
        return ST_OK;
    return fail(ST_FORMAT,
                "%s: byte %" PRIu64 ": found no white space in %zu bytes, needs words of "
                "at most %d",
                path_of(r), r->at + want, searched - want, CORPUS_MOST_WORD);
}

/* ---- documents ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

static bool is_jsonl(const char *path)
{
    return ends_with(path, ".jsonl") || ends_with(path, ".jsonl.gz") ||
           ends_with(path, ".jsonl.zst");
}

/* The next line, without its line break, and how many bytes it takes with it. */
static enum status find_line(struct corpus_reader *r, size_t *bytes, size_t *all)
{
    size_t searched = 0;

    for (size_t need = LOOK_BYTES;; need = 2 * ahead(r)) {
        enum status st = fill(r, need);

        if (st != ST_OK)
            return st;
        const char *from = r->buf + r->begin;
        const char *eol = ahead(r) > searched
                              ? memchr(from + searched, '\n', ahead(r) - searched)
                              : NULL;

        searched = ahead(r);
        *bytes = eol ? (size_t)(eol - from) : searched;
        *all = *bytes + (eol ? 1 : 0);
        if (*bytes > JSONL_MOST_BYTES)
            return fail(ST_FORMAT,
                        "%s: line %" PRIu64 ": found more than %d bytes, needs shorter "
                        "documents",
                        path_of(r), r->line + 1, JSONL_MOST_BYTES);
        if (eol || r->eof)
            return ST_OK;
    }
}

/* Goes to the next document that is not empty; r->document stays NULL at the end. */
static enum status next_line(struct corpus_reader *r)
{
    enum status st = ST_OK;

    while (st == ST_OK && !r->document) {
        size_t bytes = 0, all = 0;

        st = find_line(r, &bytes, &all);
        if (st != ST_OK || all == 0)
            return st;
        st = jsonl_text(path_of(r), ++r->line, r->buf + r->begin, bytes, r->corpus->field,
                        &r->document, &r->document_bytes);
        r->document_split = r->base + r->at < r->corpus->cut ? TRAIN : VAL;
        r->document_at = 0;
        pass(r, all);
    }
    return st;
}

static enum status open_file(struct corpus_reader *r)
{
    r->at = 0;
    r->line = 0;
    r->begin = r->end = 0;
    r->eof = false;
    return text_file_open(path_of(r), &r->text);
}

/* Sees to it that there is text: *more false at the end of all files. */
static enum status look(struct corpus_reader *r, bool *more)
{
    enum status st = ST_OK;

    for (; st == ST_OK && r->file < r->corpus->files.count; r->file++) {
        *more = true;
        if (!r->text)
            st = open_file(r);
        if (st == ST_OK)
            st = is_jsonl(path_of(r)) ? next_line(r) : fill(r, 1);
        if (st != ST_OK || (is_jsonl(path_of(r)) ? r->document != NULL : ahead(r) > 0))
            return st;
        text_file_close(r->text);
        r->text = NULL;
        r->base += r->corpus->bytes[r->file];
    }
    *more = false;
    return st;
}

static enum split next_split(const struct corpus_reader *r)
{
    return r->document                        ? r->document_split
           : r->base + r->at < r->corpus->cut ? TRAIN
                                              : VAL;
}

/* ---- parts ---- */

static enum status append(struct corpus_part *part, const char *text, size_t bytes,
                          struct corpus_segment s)
{
    if (part->n_segments == part->segment_capacity) {
        size_t capacity = 2 * part->segment_capacity + 4;
        struct corpus_segment *grown =
            realloc(part->segments, capacity * sizeof *part->segments);

        if (!grown)
            return fail(ST_NOMEM, "%s: no memory for %zu documents", s.path, capacity);
        part->segments = grown;
        part->segment_capacity = capacity;
    }
    if (part->bytes + bytes > part->capacity) {
        char *grown = realloc(part->text, part->bytes + bytes);

        if (!grown)
            return fail(ST_NOMEM, "%s: no memory for %zu bytes of text", s.path, bytes);
        part->text = grown;
        part->capacity = part->bytes + bytes;
    }
    memcpy(part->text + part->bytes, text, bytes);
    s.begin = part->bytes;
    s.bytes = bytes;
    part->segments[part->n_segments++] = s;
    part->bytes += bytes;
    return ST_OK;
}

static bool begin_document(struct corpus_reader *r, enum split split)
{
    bool follows = r->begun[split];

    r->documents++;
    return follows;
}

static enum status add_from_document(struct corpus_reader *r, size_t want,
                                     struct corpus_part *part)
{
    const char *text = r->document + r->document_at;
    size_t left = r->document_bytes - r->document_at;
    size_t bytes = tokenizer_cut(text, left, want);
    struct corpus_segment s = {.path = path_of(r), .at = r->line, .in_line = true};

    if (bytes > want && bytes - want > CORPUS_MOST_WORD)
        return fail(ST_FORMAT,
                    "%s: line %" PRIu64
                    ": found no white space in %zu bytes, needs words "
                    "of at most %d",
                    s.path, r->line, bytes - want, CORPUS_MOST_WORD);
    s.follows = r->document_at == 0 && begin_document(r, part->split);
    enum status st = append(part, text, bytes, s);
    r->document_at += bytes;
    if (r->document_at == r->document_bytes) {
        free(r->document);
        r->document = NULL;
    }
    return st;
}

static enum status add_from_file(struct corpus_reader *r, size_t want,
                                 struct corpus_part *part)
{
    struct corpus_segment s = {.path = path_of(r), .at = r->at};
    uint64_t here = r->base + r->at, cut = r->corpus->cut;
    size_t bytes = 0;
    enum status st = find_cut(r, want, &bytes);

    if (st != ST_OK)
        return st;
    if (here < cut && cut - here < bytes)
        bytes = tokenizer_cut(r->buf + r->begin, bytes, (size_t)(cut - here));
    s.follows = r->at == 0 && begin_document(r, part->split);
    st = append(part, r->buf + r->begin, bytes, s);
    pass(r, bytes);
    return st;
}

enum status corpus_reader_next(struct corpus_reader *r, size_t want,
                               struct corpus_part *part)
{
    bool more;
    enum status st = look(r, &more);

    part->bytes = part->n_segments = 0;
    part->split = next_split(r);
    while (st == ST_OK && more && next_split(r) == part->split &&
           part->n_segments < CORPUS_MOST_SEGMENTS &&
           (part->bytes == 0 || part->bytes + LEAST_PIECE < want)) {
        st = r->document ? add_from_document(r, want - part->bytes, part)
                         : add_from_file(r, want - part->bytes, part);
        r->begun[part->split] = true;
        if (st == ST_OK)
            st = look(r, &more);
    }
    return st;
}
