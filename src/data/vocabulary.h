/* vocabulary.h - a tokenizer in the form Hugging Face and llama.cpp know: the names of
 * all ids and the merges of byte-pair encoding.
 *
 * A name writes each byte of a token as one printable character, as OpenAI's encoder.json
 * does; end-of-text is called <|endoftext|>. Bytes and characters fit the form too: a
 * byte is a symbol without merges, a character of several bytes is what its bytes merge
 * into. So every tokenizer of ours can be carried by other programs' files, and comes
 * back from them as what it was.
 */
#ifndef WEFT_DATA_VOCABULARY_H
#define WEFT_DATA_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/gguf.h"
#include "data/tokenizer.h"

#define END_OF_TEXT_NAME "<|endoftext|>"

struct vocabulary {
    struct gguf_strings names; /* by id; UTF-8 */
    char *merges;              /* lines "a b" under a line "#version: 0.2" */
    size_t merges_bytes;
    int32_t end_of_text; /* id, or -1 */
};

/* Each of these is followed by vocabulary_release, on failure too. */
MUST_USE enum status vocabulary_of(const struct tokenizer *t, struct vocabulary *out);
/* From vocab.json (encoder.json) and the merges.txt (vocab.bpe) beside it. */
MUST_USE enum status vocabulary_read_json(const char *vocab_json, struct vocabulary *out);
/* From the keys of a GGUF file. */
MUST_USE enum status vocabulary_read_gguf(const char *path, struct vocabulary *out);
void vocabulary_release(struct vocabulary *v);

/* The tokenizer of a vocabulary; `where` starts the error text. Names behind those of the
 * tokenizer (padding, added tokens) are ids that no text gives. ST_FORMAT when it is
 * neither of our three kinds. */
MUST_USE enum status vocabulary_tokenizer(const struct vocabulary *v, const char *where,
                                          struct tokenizer **out);

#endif
