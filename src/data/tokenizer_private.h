/* tokenizer_private.h - what the tokenizer's own files and tests see.
 *
 * Every kind keeps the bytes of its ids in one block; the byte-pair part adds what splits
 * and merges. Nothing here changes after a tokenizer_new_* has returned.
 */
#ifndef WEFT_DATA_TOKENIZER_PRIVATE_H
#define WEFT_DATA_TOKENIZER_PRIVATE_H

#include <stdbool.h>

#include "data/tokenizer.h"

struct bpe;

struct tokenizer {
    enum tokenizer_kind kind;
    uint32_t vocab;
    int32_t end_of_text;
    char *text;        /* bytes of all ids, one after the other */
    uint32_t *begin;   /* [vocab + 1] where each id's bytes begin in text */
    uint32_t *char_id; /* [CODE_POINTS] id + 1, 0 for none; kind char only */
    struct bpe *bpe;   /* kind gpt2 only, as what follows */
    char *table;       /* text of the merge table */
    size_t table_bytes;
    uint64_t table_xxh3;
    char *table_path; /* NULL when the table came from no file of its own */
};

/* Room for `more` further ids. */
MUST_USE enum status token_list_reserve(struct token_list *l, size_t more);

/* How many bytes from the start are UTF-8 (no overlong forms, no surrogates). */
size_t utf8_run(const char *text, size_t bytes);

/* A byte-pair tokenizer from a merge table of any length: `merges` is the count needed,
 * or 0 for any. Ids: 256 bytes in the order of the table's alphabet, then one a merge,
 * then end-of-text. */
MUST_USE enum status tokenizer_new_merges(const char *path, size_t merges,
                                          struct tokenizer **out);
/* The same from the table's text, which is copied; `where` starts error texts. */
MUST_USE enum status tokenizer_new_table(const char *where, const char *text,
                                         size_t bytes, size_t merges,
                                         struct tokenizer **out);

/* The name of a token as merge tables write it. `out` has room for 2 n bytes.
 * Returns its length */
size_t symbols_put(const char *bytes, size_t n, char *out);
/* Back: false for what is no name. `out` has room for as many bytes as the name. */
bool symbols_read(const char *name, size_t bytes, char *out, size_t *n);

/* The character at p, or 0 where there is none; see utf8_run. `out` of utf8_write has
 * room for 4 bytes. Both return its length. */
size_t utf8_read(const unsigned char *p, size_t bytes, uint32_t *code_point);
size_t utf8_write(uint32_t code_point, char *out);

void bpe_free(struct bpe *b); /* NULL allowed */

MUST_USE enum status bpe_encode(const struct tokenizer *t, struct tokenizer_scratch *s,
                                const char *text, size_t bytes, struct token_list *out);

/* The two ways to merge one piece, which must agree: ids[0..n) are the ids of single
 * bytes, replaced by the merged ones; *n becomes their count. */
struct bpe_scratch;
MUST_USE enum status bpe_scratch_new(const struct bpe *b, struct bpe_scratch **out);
void bpe_scratch_free(struct bpe_scratch *s);
/* Quadratic, for n <= BPE_SHORT. */
enum { BPE_SHORT = 48 };
void bpe_merge_short(const struct bpe *b, uint32_t *ids, size_t *n);
/* Linear, for any n. */
MUST_USE enum status bpe_merge_long(const struct bpe *b, struct bpe_scratch *s,
                                    uint32_t *ids, size_t *n);
uint32_t bpe_byte_id(const struct bpe *b, unsigned char byte);

/* Makes the expression run without JIT, as on machines that have none. */
void bpe_disable_jit(struct bpe *b);

#endif
