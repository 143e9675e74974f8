/* tokenizer.h - text to token ids and back: GPT-2's byte-pair encoding, characters,
 * bytes.
 *
 * GPT-2: the text is split by its pre-tokenizer expression (PCRE2 with JIT, the explicit
 * white-space class that agrees with OpenAI's on every code point), each piece is merged
 * by rank (Sennrich, Haddow, Birch, 2016). Invalid UTF-8 is kept as single byte tokens,
 * so decoding gives back the very bytes. Linear on pathological text too: a piece of n
 * symbols costs O(n), however long.
 *
 * A tokenizer is immutable after it is made: any number of threads may use one at the
 * same time, each with a scratch of its own.
 */
#ifndef WEFT_DATA_TOKENIZER_H
#define WEFT_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum tokenizer_kind { TOKENIZER_GPT2, TOKENIZER_CHAR, TOKENIZER_BYTES };
enum { GPT2_END_OF_TEXT = 50256, BYTES_END_OF_TEXT = 256 };

struct tokenizer;

/* From OpenAI's vocab.bpe or a Hugging Face merges.txt (same content). Checks the line
 * count (50,000 merges) and that every merge is possible; ST_FORMAT names file and line.
 */
MUST_USE enum status tokenizer_new_gpt2(const char *path, struct tokenizer **out);
/* 256 bytes plus end-of-text = 257 ids. */
MUST_USE enum status tokenizer_new_bytes(struct tokenizer **out);
/* One id a distinct code point of the text(s), ascending; no end-of-text. The caller
 * feeds every text before use. */
MUST_USE enum status tokenizer_new_char(const uint32_t *code_points, size_t n,
                                        struct tokenizer **out);
/* From a file that holds a vocabulary, told by its content:
 *   tokens.json    kind, and for "char" its code points; for "gpt2" the table file's path
 *                  and checksum (a table that is not there is looked for as vocab.bpe
 *                  beside tokens.json)
 *   vocab.json     of a Hugging Face folder, with the merges.txt beside it
 *   meta.json      nanoGPT's character table
 *   a GGUF file    the tokenizer inside */
MUST_USE enum status tokenizer_load(const char *path, struct tokenizer **out);

/* What tokens.json says beside the vocabulary. */
struct tokens_note {
    uint64_t train_tokens, val_tokens;
    uint64_t documents, text_bytes;
    uint64_t text_xxh3; /* XXH3-64 of all documents, one after the other */
};
/* Writes the file tokenizer_load reads, atomically. */
MUST_USE enum status tokenizer_save(const struct tokenizer *t,
                                    const struct tokens_note *note,
                                    const char *tokens_json);

void tokenizer_free(struct tokenizer *t); /* NULL allowed */

/* Sets seen[c] for every code point c of the text; seen has CODE_POINTS entries.
 * Returns  how many bytes are UTF-8: `bytes`, or the offset of the first bad byte */
enum { CODE_POINTS = 0x110000 };
size_t tokenizer_mark_chars(const char *text, size_t bytes, bool *seen);

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *t);
uint32_t tokenizer_vocab(const struct tokenizer *t);
/* End-of-text id, or -1 when the tokenizer has none (char). */
int32_t tokenizer_end_of_text(const struct tokenizer *t);

/* Growing array of ids. */
struct token_list {
    uint32_t *ids;
    size_t count, capacity;
};
void token_list_release(struct token_list *l);
MUST_USE enum status token_list_add(struct token_list *l, uint32_t id);

/* What encoding needs beside the tokenizer; one a thread. */
struct tokenizer_scratch;
MUST_USE enum status tokenizer_scratch_new(const struct tokenizer *t,
                                           struct tokenizer_scratch **out);
void tokenizer_scratch_free(struct tokenizer_scratch *s); /* NULL allowed */

/* Appends the ids of text[0..bytes). Special tokens are plain text (encode_ordinary). A
 * character outside a char vocabulary is ST_FORMAT with its offset. */
MUST_USE enum status tokenizer_encode(const struct tokenizer *t, const char *text,
                                      size_t bytes, struct token_list *out);
/* The same with a scratch made before: for many short texts. */
MUST_USE enum status tokenizer_encode_with(const struct tokenizer *t,
                                           struct tokenizer_scratch *s, const char *text,
                                           size_t bytes, struct token_list *out);

/* Bytes of one id: pointer valid as long as the tokenizer; *bytes 0 for end-of-text. */
const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *bytes);

/* Where `text` may be cut so that both parts tokenize as the whole does: the first
 * position >= at of an ASCII white-space character that follows an ASCII non-space, or
 * `bytes`. */
size_t tokenizer_cut(const char *text, size_t bytes, size_t at);

#endif
