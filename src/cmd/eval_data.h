/* eval_data.h - the token streams that weft eval predicts: shards or texts.
 *
 * Every file is a stream of its own. All ranks hold the same.
 */
#ifndef WEFT_CMD_EVAL_DATA_H
#define WEFT_CMD_EVAL_DATA_H

#include "cmd/loaded.h"
#include "data/shards.h"

struct eval_data {
    struct shards *shards;  /* NULL: a text */
    struct token_list text; /* its ids */
    size_t streams;
};

/* `where` is what shards_open knows (of a folder the validation shards), or a text file,
 * which is tokenized with the model's tokenizer. Zeroed before; eval_data_release is due
 * on failure too. LOCAL. */
MUST_USE enum status eval_data_open(struct eval_data *d, const char *where,
                                    const struct loaded *model, const char *vocab);
void eval_data_release(struct eval_data *d);

uint64_t eval_data_tokens(const struct eval_data *d, size_t stream);
/* Copies tokens [begin, begin + n) of a stream, n >= 2, ids checked. */
MUST_USE enum status eval_data_read(const struct eval_data *d, size_t stream,
                                    uint64_t begin, size_t n, int32_t *out);

#endif
