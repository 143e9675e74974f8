/* nanogpt.h - nanoGPT's character table, meta.pkl written as JSON: vocab_size, and itos
 * ({"0": "\n", ...} or a list), stoi, or both. */
#ifndef WEFT_DATA_NANOGPT_H
#define WEFT_DATA_NANOGPT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "data/tokenizer.h"

/* Has it vocab_size and one of the tables? */
bool nanogpt_is_meta(const json_t *root);
/* The tokenizer of a table whose ids are the characters in ascending order, as
 * nanoGPT's prepare.py makes it. ST_FORMAT names file and entry. */
MUST_USE enum status nanogpt_load(const char *path, const json_t *root,
                                  struct tokenizer **out);

#endif
