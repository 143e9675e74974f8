/* SPDX-License-Identifier: MIT */
/* Byte-pair encoding: the merge table, the split into pieces, the merging of a piece.
 * Invariants: an id is also its rank (256 + line of the table), and both parts of a merge
 * have smaller ids than the merge itself, so merging by ascending id never goes back. */
#define PCRE2_CODE_UNIT_WIDTH 8
#define XXH_INLINE_ALL
#include "data/tokenizer_private.h"

#include <limits.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/files.h"
#include "base/memory.h"

/* White space as OpenAI's tokenizer sees it: \s of PCRE2 is ASCII only without
 * PCRE2_UCP, and counts U+180E with it. */
#define SPACES                                                                           \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"      \
    "\\x{205F}\\x{3000}"

/* Letters and numbers that Unicode 15, 15.1 and 16 added. tiktoken knows them; PCRE2 does
 * or not, by its version, and ids must not depend on the machine. */
#define NEW_LETTERS                                                                      \
    "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}"                          \
    "\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}"                    \
    "\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}"                    \
    "\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}"            \
    "\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}"                               \
    "\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}"                               \
    "\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D40}-\\x{16D6C}"                    \
    "\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}"           \
    "\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}"                     \
    "\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define NEW_NUMBERS                                                                      \
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}"                    \
    "\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}"                    \
    "\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}"                    \
    "\\x{1E5F1}-\\x{1E5FA}"

/* The new ones come in a group of their own: \p{L}++ alone is what nearly all text needs,
 * and is faster than a class of ranges. */
static const char split_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d"
    "| ?(?:\\p{L}++|[" NEW_LETTERS "])++"
    "| ?(?:\\p{N}++|[" NEW_NUMBERS "])++"
    "| ?[^" SPACES "\\p{L}\\p{N}" NEW_LETTERS NEW_NUMBERS "]++"
    "|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]++";

enum { ALPHABET = 256, OTHERS = 68 };    /* OTHERS: bytes that are not printable */
static const uint32_t none = UINT32_MAX; /* no symbol, no merge, no token */

struct pair_slot {
    uint64_t key; /* left << 32 | right */
    uint32_t id;  /* what the pair merges into; none: free slot */
};

struct token_slot {
    uint32_t tag; /* high half of the hash */
    uint32_t id;  /* none: free slot */
};

struct bpe {
    pcre2_code *split;
    bool jit;
    uint32_t ids; /* 256 + merges, without end-of-text */
    uint32_t byte_id[256];
    uint32_t longest; /* bytes of the longest token */
    struct pair_slot *pairs;
    size_t pair_mask;
    struct token_slot *tokens; /* by bytes */
    size_t token_mask;
};

/* What one call needs beside the table. The long merge keeps the candidate merges in one
 * doubly linked list an id; a bit a list says which hold any. */
struct bpe_scratch {
    uint32_t *head;           /* [ids] first symbol whose merge gives this id */
    uint64_t *waiting;        /* [ids / 64 + 1] all zero between merges */
    size_t capacity;          /* of the arrays below, in symbols */
    uint32_t *prev, *next;    /* the symbols in text order */
    uint32_t *merge;          /* id that symbol and successor merge into, or none */
    uint32_t *before, *after; /* neighbours in the list of that id */
    uint32_t *ids;
};

/* Hash tables -------------------------------------------------------------------- */

static size_t table_size(size_t entries)
{
    size_t n = 64;

    while (n < 2 * entries + entries / 2)
        n *= 2;
    return n;
}

static size_t pair_start(const struct bpe *b, uint64_t key)
{
    return (size_t)(key * 0x9E3779B97F4A7C15u >> 20) & b->pair_mask;
}

static uint32_t pair_find(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    size_t i = pair_start(b, key);

    while (b->pairs[i].id != none && b->pairs[i].key != key)
        i = (i + 1) & b->pair_mask;
    return b->pairs[i].id;
}

static void pair_add(struct bpe *b, uint32_t left, uint32_t right, uint32_t id)
{
    uint64_t key = (uint64_t)left << 32 | right;
    size_t i = pair_start(b, key);

    while (b->pairs[i].id != none)
        i = (i + 1) & b->pair_mask;
    b->pairs[i] = (struct pair_slot){.key = key, .id = id};
}

static uint32_t token_find(const struct tokenizer *t, const char *text, size_t bytes)
{
    const struct bpe *b = t->bpe;
    uint64_t hash = XXH3_64bits(text, bytes);
    uint32_t tag = (uint32_t)(hash >> 32);

    for (size_t i = hash & b->token_mask; b->tokens[i].id != none;
         i = (i + 1) & b->token_mask) {
        uint32_t id = b->tokens[i].id;

        if (b->tokens[i].tag == tag && t->begin[id + 1] - t->begin[id] == bytes &&
            !memcmp(t->text + t->begin[id], text, bytes))
            return id;
    }
    return none;
}

static void token_add(struct tokenizer *t, uint32_t id)
{
    struct bpe *b = t->bpe;
    uint64_t hash = XXH3_64bits(t->text + t->begin[id], t->begin[id + 1] - t->begin[id]);
    size_t i = hash & b->token_mask;

    while (b->tokens[i].id != none)
        i = (i + 1) & b->token_mask;
    b->tokens[i] = (struct token_slot){.tag = (uint32_t)(hash >> 32), .id = id};
}

static void token_clear(struct bpe *b)
{
    for (size_t i = 0; i <= b->token_mask; i++)
        b->tokens[i].id = none;
}

/* The merge table ---------------------------------------------------------------- */

/* The table writes a byte as one printable character: printable Latin-1 as itself, the
 * other 68 bytes in ascending order as U+0100, U+0101, ... Ids of single bytes follow the
 * order of these characters. */
static bool stands_for_itself(unsigned c)
{
    return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
}

static void make_alphabet(uint32_t byte_id[256], unsigned char byte_of[ALPHABET])
{
    uint32_t id = 0;

    for (int itself = 1; itself >= 0; itself--)
        for (unsigned c = 0; c < 256; c++)
            if (stands_for_itself(c) == (itself == 1)) {
                byte_of[id] = (unsigned char)c;
                byte_id[c] = id++;
            }
}

/* Reads symbols up to a space or the end of the line as bytes; false for what is not in
 * the alphabet. */
static bool read_symbols(const unsigned char **at, const unsigned char *end,
                         const unsigned char *byte_of, char *out, size_t *n)
{
    const unsigned char *p = *at;

    for (*n = 0; p < end && *p != ' '; (*n)++) {
        unsigned c = *p++;

        if (c >= 0xC2 && c <= 0xC5 && p < end && (*p & 0xC0) == 0x80)
            c = (c & 0x1F) << 6 | (*p++ & 0x3Fu);
        else if (c >= 0x80)
            return false;
        if (c >= 0x100 && c < 0x100 + OTHERS)
            out[*n] = (char)byte_of[ALPHABET - OTHERS + c - 0x100];
        else if (stands_for_itself(c))
            out[*n] = (char)c;
        else
            return false;
    }
    *at = p;
    return *n > 0;
}

struct table_reader {
    const char *path;
    struct tokenizer *t;
    unsigned char byte_of[ALPHABET];
    size_t line;
    uint32_t id;   /* of the next merge */
    char *symbols; /* room for the longest line */
};

static enum status read_merge(struct table_reader *r, const unsigned char *p,
                              const unsigned char *end)
{
    struct tokenizer *t = r->t;
    uint32_t part[2];
    size_t used = 0;

    for (int k = 0; k < 2; k++) {
        size_t n;

        if (!read_symbols(&p, end, r->byte_of, r->symbols + used, &n) ||
            (k == 0 ? p == end || *p++ != ' ' : p != end))
            return fail(ST_FORMAT, "%s:%zu: needs two tokens with one space between",
                        r->path, r->line);
        part[k] = token_find(t, r->symbols + used, n);
        if (part[k] == none)
            return fail(ST_FORMAT, "%s:%zu: the %s token is made by no earlier line",
                        r->path, r->line, k == 0 ? "left" : "right");
        used += n;
    }
    if (token_find(t, r->symbols, used) != none)
        return fail(ST_FORMAT, "%s:%zu: makes a token that an earlier line makes",
                    r->path, r->line);
    memcpy(t->text + t->begin[r->id], r->symbols, used);
    t->begin[r->id + 1] = t->begin[r->id] + (uint32_t)used;
    t->bpe->longest = (uint32_t)max_size(t->bpe->longest, used);
    pair_add(t->bpe, part[0], part[1], r->id);
    token_add(t, r->id);
    r->id++;
    return ST_OK;
}

static enum status read_table(struct table_reader *r, const char *text, size_t bytes)
{
    const char *end = text + bytes;
    enum status st = ST_OK;

    while (end > text && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    for (const char *p = text; p < end && st == ST_OK; r->line++) {
        const char *eol = memchr(p, '\n', (size_t)(end - p));
        const char *stop = eol ? eol : end;
        const char *after = eol ? eol + 1 : end;

        if (stop > p && stop[-1] == '\r')
            stop--;
        bool heading = r->line == 1 && stop - p >= 8 && !memcmp(p, "#version", 8);
        if (!heading)
            st = read_merge(r, (const unsigned char *)p, (const unsigned char *)stop);
        p = after;
    }
    return st;
}

static enum status alloc_tables(struct tokenizer *t, const char *path, size_t lines,
                                size_t bytes)
{
    size_t ids = ALPHABET + lines;
    struct bpe *b = calloc(1, sizeof *b);

    t->bpe = b;
    /* A token's bytes are the symbols of its line: the file's size is room enough. */
    t->text = malloc(ALPHABET + bytes);
    t->begin = calloc(ids + 2, sizeof *t->begin);
    if (!b || !t->text || !t->begin)
        return fail(ST_NOMEM, "%s: no memory for the merge table", path);
    b->pair_mask = table_size(lines) - 1;
    b->token_mask = table_size(ids) - 1;
    b->pairs = malloc((b->pair_mask + 1) * sizeof *b->pairs);
    b->tokens = malloc((b->token_mask + 1) * sizeof *b->tokens);
    if (!b->pairs || !b->tokens)
        return fail(ST_NOMEM, "%s: no memory for the merge table", path);
    for (size_t i = 0; i <= b->pair_mask; i++)
        b->pairs[i].id = none;
    token_clear(b);
    return ST_OK;
}

/* Leaves in the table by bytes only the tokens that merging gives back whole: a piece
 * found there needs no merging. In GPT-2's table these are all. */
static enum status keep_reachable(struct tokenizer *t)
{
    struct bpe_scratch *s = NULL;
    uint32_t *ids = malloc((size_t)t->bpe->longest * sizeof *ids);
    enum status st = ids ? bpe_scratch_new(t->bpe, &s) : fail(ST_NOMEM, "no memory");

    if (st == ST_OK)
        token_clear(t->bpe);
    for (uint32_t id = 0; st == ST_OK && id < t->bpe->ids; id++) {
        size_t n = t->begin[id + 1] - t->begin[id];

        for (size_t i = 0; i < n; i++)
            ids[i] = t->bpe->byte_id[(unsigned char)t->text[t->begin[id] + i]];
        if (n <= BPE_SHORT)
            bpe_merge_short(t->bpe, ids, &n);
        else
            st = bpe_merge_long(t->bpe, s, ids, &n);
        if (st == ST_OK && n == 1 && ids[0] == id)
            token_add(t, id);
    }
    bpe_scratch_free(s);
    free(ids);
    return st;
}

static enum status compile_split(struct bpe *b)
{
    PCRE2_UCHAR text[128];
    PCRE2_SIZE where;
    int error;

    b->split = pcre2_compile((PCRE2_SPTR)split_pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                             &error, &where, NULL);
    if (!b->split) {
        pcre2_get_error_message(error, text, sizeof text);
        return fail(ST_NOMEM, "cannot compile the splitting expression: %s",
                    (char *)text);
    }
    /* Some systems forbid executable memory: then the expression is interpreted. */
    b->jit = pcre2_jit_compile(b->split, PCRE2_JIT_COMPLETE) == 0;
    return ST_OK;
}

/* Makes the tokenizer of a table's text; `path` is for error texts. */
static enum status read_whole(struct tokenizer *t, const char *path, const char *text,
                              size_t bytes, size_t merges)
{
    struct table_reader r = {.path = path, .t = t, .line = 1, .id = ALPHABET};
    size_t lines = 1;
    enum status st;

    if (bytes > INT32_MAX / 4)
        return fail(ST_FORMAT, "%s: %zu bytes are too many for a merge table", path,
                    bytes);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    st = memory_alloc(bytes + 1, 1, "merge table", &r.symbols);
    if (st == ST_OK)
        st = alloc_tables(t, path, lines, bytes);
    if (st != ST_OK)
        goto done;
    make_alphabet(t->bpe->byte_id, r.byte_of);
    t->bpe->longest = 1;
    for (uint32_t i = 0; i < ALPHABET; i++) {
        t->text[i] = (char)r.byte_of[i];
        t->begin[i + 1] = i + 1;
        token_add(t, i);
    }
    st = read_table(&r, text, bytes);
    if (st == ST_OK && merges && r.id - ALPHABET != merges)
        st = fail(ST_FORMAT, "%s: found %u merges, needs %zu", path, r.id - ALPHABET,
                  merges);
    if (st != ST_OK)
        goto done;
    t->bpe->ids = r.id;
    t->begin[r.id + 1] = t->begin[r.id]; /* end-of-text has no bytes */
    t->end_of_text = (int32_t)r.id;
    t->vocab = r.id + 1;
    t->table_xxh3 = XXH3_64bits(text, bytes);
    st = keep_reachable(t);
    if (st == ST_OK)
        st = compile_split(t->bpe);
done:
    free(r.symbols);
    return st;
}

enum status tokenizer_new_table(const char *where, const char *text, size_t bytes,
                                size_t merges, struct tokenizer **out)
{
    struct tokenizer *t;
    enum status st = memory_alloc(1, sizeof *t, "tokenizer", &t);

    *out = NULL;
    if (st != ST_OK)
        return st;
    t->kind = TOKENIZER_GPT2;
    st = memory_alloc(bytes + 1, 1, "merge table", &t->table);
    if (st == ST_OK) {
        memcpy(t->table, text, bytes);
        t->table_bytes = bytes;
        st = read_whole(t, where, text, bytes, merges);
    }
    if (st == ST_OK)
        *out = t;
    else
        tokenizer_free(t);
    return st;
}

enum status tokenizer_new_merges(const char *path, size_t merges, struct tokenizer **out)
{
    char *text;
    size_t bytes;
    enum status st = file_read_all(path, &text, &bytes);

    *out = NULL;
    if (st == ST_OK)
        st = tokenizer_new_table(path, text, bytes, merges, out);
    free(text);
    if (st != ST_OK)
        return st;
    (*out)->table_path = realpath(path, NULL);
    if ((*out)->table_path)
        return ST_OK;
    tokenizer_free(*out);
    *out = NULL;
    return fail(ST_IO, "%s: has gone while it was read", path);
}

void bpe_free(struct bpe *b)
{
    if (!b)
        return;
    pcre2_code_free(b->split);
    free(b->pairs);
    free(b->tokens);
    free(b);
}

void bpe_disable_jit(struct bpe *b)
{
    b->jit = false;
}

uint32_t bpe_byte_id(const struct bpe *b, unsigned char byte)
{
    return b->byte_id[byte];
}

/* Names -------------------------------------------------------------------------- */

size_t symbols_put(const char *bytes, size_t n, char *out)
{
    uint32_t byte_id[256];
    unsigned char byte_of[ALPHABET];
    size_t used = 0;

    make_alphabet(byte_id, byte_of);
    for (size_t i = 0; i < n; i++) {
        uint32_t id = byte_id[(unsigned char)bytes[i]];
        uint32_t c = id < ALPHABET - OTHERS ? (unsigned char)bytes[i]
                                            : 0x100 + id - (ALPHABET - OTHERS);

        used += utf8_write(c, out + used);
    }
    return used;
}

bool symbols_read(const char *name, size_t bytes, char *out, size_t *n)
{
    const unsigned char *at = (const unsigned char *)name;
    uint32_t byte_id[256];
    unsigned char byte_of[ALPHABET];

    make_alphabet(byte_id, byte_of);
    return read_symbols(&at, at + bytes, byte_of, out, n) &&
           at == (const unsigned char *)name + bytes;
}

/* Merging ------------------------------------------------------------------------ */

void bpe_merge_short(const struct bpe *b, uint32_t *ids, size_t *n)
{
    uint32_t merge[BPE_SHORT]; /* what symbol i and its successor give */
    size_t m = *n;

    require(m >= 1 && m <= BPE_SHORT);
    for (size_t i = 0; i + 1 < m; i++)
        merge[i] = pair_find(b, ids[i], ids[i + 1]);
    merge[m - 1] = none;
    for (;;) {
        size_t best = 0;

        for (size_t i = 1; i + 1 < m; i++)
            if (merge[i] < merge[best])
                best = i;
        if (merge[best] == none)
            break;
        ids[best] = merge[best];
        m--;
        memmove(ids + best + 1, ids + best + 2, (m - best - 1) * sizeof *ids);
        memmove(merge + best, merge + best + 1, (m - best) * sizeof *merge);
        if (best > 0)
            merge[best - 1] = pair_find(b, ids[best - 1], ids[best]);
        if (best + 1 < m)
            merge[best] = pair_find(b, ids[best], ids[best + 1]);
    }
    *n = m;
}

enum status bpe_scratch_new(const struct bpe *b, struct bpe_scratch **out)
{
    struct bpe_scratch *s = calloc(1, sizeof *s);

    *out = NULL;
    if (s) {
        s->head = malloc(b->ids * sizeof *s->head);
        s->waiting = calloc(b->ids / 64 + 1, sizeof *s->waiting);
    }
    if (!s || !s->head || !s->waiting) {
        bpe_scratch_free(s);
        return fail(ST_NOMEM, "no memory to merge tokens");
    }
    *out = s;
    return ST_OK;
}

void bpe_scratch_free(struct bpe_scratch *s)
{
    if (!s)
        return;
    free(s->head);
    free(s->waiting);
    free(s->prev); /* the other arrays lie behind it */
    free(s);
}

static enum status scratch_reserve(struct bpe_scratch *s, size_t symbols)
{
    if (symbols <= s->capacity)
        return ST_OK;
    if (symbols >= none)
        return fail(ST_FORMAT, "a word of %zu bytes: the limit is %u", symbols, none - 1);
    size_t capacity = min_size(max_size(2 * s->capacity, symbols + 256), none);
    uint32_t *block;
    enum status st = memory_alloc(6 * capacity, sizeof *block, "a long word", &block);

    if (st != ST_OK)
        return st;
    free(s->prev);
    s->capacity = capacity;
    s->prev = block;
    s->next = block + capacity;
    s->merge = block + 2 * capacity;
    s->before = block + 3 * capacity;
    s->after = block + 4 * capacity;
    s->ids = block + 5 * capacity;
    return ST_OK;
}

/* Files symbol i under the merge with its successor. */
static void candidate_add(const struct bpe *b, struct bpe_scratch *s, const uint32_t *ids,
                          uint32_t i)
{
    uint32_t m = s->next[i] == none ? none : pair_find(b, ids[i], ids[s->next[i]]);

    s->merge[i] = m;
    if (m == none)
        return;
    uint64_t bit = (uint64_t)1 << m % 64;
    uint32_t first = s->waiting[m / 64] & bit ? s->head[m] : none;

    s->before[i] = none;
    s->after[i] = first;
    if (first != none)
        s->before[first] = i;
    s->head[m] = i;
    s->waiting[m / 64] |= bit;
}

static void candidate_remove(struct bpe_scratch *s, uint32_t i)
{
    uint32_t m = s->merge[i];
    uint32_t before = s->before[i];
    uint32_t after = s->after[i];

    if (m == none)
        return;
    if (after != none)
        s->before[after] = before;
    if (before != none)
        s->after[before] = after;
    else if (after != none)
        s->head[m] = after;
    else
        s->waiting[m / 64] &= ~((uint64_t)1 << m % 64);
    s->merge[i] = none;
}

static void merge_at(const struct bpe *b, struct bpe_scratch *s, uint32_t *ids,
                     uint32_t i)
{
    uint32_t id = s->merge[i];
    uint32_t left = s->prev[i];
    uint32_t gone = s->next[i];

    candidate_remove(s, i);
    candidate_remove(s, gone);
    if (left != none)
        candidate_remove(s, left);
    ids[i] = id;
    s->next[i] = s->next[gone];
    if (s->next[i] != none)
        s->prev[s->next[i]] = i;
    if (left != none)
        candidate_add(b, s, ids, left);
    candidate_add(b, s, ids, i);
}

/* All merges that give id m. New candidates have larger ids. Order matters only where
 * they overlap, in a run of equal symbols: that is taken from its left end. */
static void merge_all(const struct bpe *b, struct bpe_scratch *s, uint32_t *ids,
                      uint32_t m)
{
    while (s->waiting[m / 64] >> m % 64 & 1) {
        uint32_t i = s->head[m];

        if (ids[i] == ids[s->next[i]])
            while (s->prev[i] != none && ids[s->prev[i]] == ids[i])
                i = s->prev[i];
        do {
            merge_at(b, s, ids, i);
            i = s->next[i];
        } while (i != none && s->merge[i] == m);
    }
}

enum status bpe_merge_long(const struct bpe *b, struct bpe_scratch *s, uint32_t *ids,
                           size_t *n)
{
    enum status st = scratch_reserve(s, *n);
    size_t kept = 0;

    if (st != ST_OK || *n == 0)
        return st;
    for (uint32_t i = 0; i < *n; i++) {
        s->prev[i] = i - 1; /* none for the first */
        s->next[i] = i + 1 < *n ? i + 1 : none;
    }
    /* From the right, so that every list runs from left to right. */
    for (uint32_t i = (uint32_t)*n; i-- > 0;)
        candidate_add(b, s, ids, i);
    for (size_t word = 0; word <= b->ids / 64; word++)
        while (s->waiting[word])
            merge_all(b, s, ids,
                      (uint32_t)(64 * word) +
                          (uint32_t)__builtin_ctzll(s->waiting[word]));
    for (uint32_t i = 0; i != none; i = s->next[i])
        ids[kept++] = ids[i];
    *n = kept;
    return ST_OK;
}

/* Encoding ----------------------------------------------------------------------- */

static enum status encode_piece(const struct tokenizer *t, struct bpe_scratch *s,
                                const char *text, size_t bytes, struct token_list *out)
{
    const struct bpe *b = t->bpe;
    uint32_t id = bytes <= b->longest ? token_find(t, text, bytes) : none;
    size_t n = bytes;
    enum status st = token_list_reserve(out, bytes);

    if (st != ST_OK)
        return st;
    /* Merged where they will stay: the list has room for all the bytes. */
    uint32_t *ids = out->ids + out->count;

    if (id != none) {
        ids[0] = id;
        n = 1;
    } else {
        for (size_t i = 0; i < bytes; i++)
            ids[i] = b->byte_id[(unsigned char)text[i]];
        if (n <= BPE_SHORT)
            bpe_merge_short(b, ids, &n);
        else
            st = bpe_merge_long(b, s, ids, &n);
    }
    out->count += n;
    return st;
}

struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

struct tokenizer_scratch {
    struct matcher matcher;
    struct bpe_scratch *merge;
};

static enum status matcher_init(struct matcher *m)
{
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(32 * 1024, 1024 * 1024, NULL);
    if (!m->data || !m->context || !m->stack)
        return fail(ST_NOMEM, "no memory to split text");
    pcre2_set_match_limit(m->context, UINT32_MAX);
    pcre2_set_depth_limit(m->context, UINT32_MAX);
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return ST_OK;
}

enum status tokenizer_scratch_new(const struct tokenizer *t,
                                  struct tokenizer_scratch **out)
{
    struct tokenizer_scratch *s;
    enum status st = memory_alloc(1, sizeof *s, "scratch of a tokenizer", &s);

    *out = NULL;
    if (st != ST_OK)
        return st;
    if (t->bpe) {
        st = matcher_init(&s->matcher);
        if (st == ST_OK)
            st = bpe_scratch_new(t->bpe, &s->merge);
    }
    if (st == ST_OK)
        *out = s;
    else
        tokenizer_scratch_free(s);
    return st;
}

void tokenizer_scratch_free(struct tokenizer_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->matcher.data);
    pcre2_match_context_free(s->matcher.context);
    pcre2_jit_stack_free(s->matcher.stack);
    bpe_scratch_free(s->merge);
    free(s);
}

/* Splits and merges text that is UTF-8 from end to end. */
static enum status encode_run(const struct tokenizer *t, const struct matcher *m,
                              struct bpe_scratch *s, const char *text, size_t bytes,
                              struct token_list *out)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(m->data);
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    const pcre2_code *split = t->bpe->split;
    enum status st = ST_OK;

    for (size_t at = 0; at < bytes && st == ST_OK; at = found[1]) {
        int rc = t->bpe->jit
                     ? pcre2_jit_match(split, subject, bytes, at, 0, m->data, m->context)
                     : pcre2_match(split, subject, bytes, at, PCRE2_NO_UTF_CHECK, m->data,
                                   m->context);

        if (rc < 0) {
            PCRE2_UCHAR why[128];

            pcre2_get_error_message(rc, why, sizeof why);
            return fail(ST_NOMEM, "cannot split text: %s", (char *)why);
        }
        /* The alternatives leave no character out. */
        require(found[0] == at && found[1] > at);
        st = encode_piece(t, s, text + at, found[1] - at, out);
    }
    return st;
}

enum status bpe_encode(const struct tokenizer *t, struct tokenizer_scratch *s,
                       const char *text, size_t bytes, struct token_list *out)
{
    enum status st = ST_OK;

    for (size_t at = 0; at < bytes && st == ST_OK;) {
        size_t run = utf8_run(text + at, bytes - at);

        if (run > 0) {
            st = encode_run(t, &s->matcher, s->merge, text + at, run, out);
            at += run;
            continue;
        }
        /* Not UTF-8: the byte stays what it is, and no piece reaches over it. */
        st = token_list_reserve(out, 1);
        if (st == ST_OK)
            out->ids[out->count++] = t->bpe->byte_id[(unsigned char)text[at++]];
    }
    return st;
}
