/* loaded.h - a model in memory as it was read, for the commands that only use it. */
#ifndef WEFT_CMD_LOADED_H
#define WEFT_CMD_LOADED_H

#include "checkpoint/checkpoint.h"
#include "data/tokenizer.h"
#include "kernels/kernels.h"

struct loaded {
    struct model_file file;
    struct layout layout; /* its shape has Vp */
    const struct kernels *kernels;
    float *params;
};

/* Says what is at `path`; reads no weights. The struct is zeroed before; loaded_release
 * is due on failure too. LOCAL. */
MUST_USE enum status loaded_open(struct loaded *l, const char *path);
/* Reads the weights. LOCAL. */
MUST_USE enum status loaded_read(struct loaded *l);
void loaded_release(struct loaded *l);

/* The tokenizer the model was trained with: --vocab where given, or its tokens.json.
 * ST_USAGE where there is neither, or more ids than the model has. */
MUST_USE enum status loaded_tokenizer(const struct loaded *l, const char *vocab,
                                      struct tokenizer **out);

#endif
