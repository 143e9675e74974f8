/* prompts.h - the prompts of weft generate. */
#ifndef WEFT_CMD_PROMPTS_H
#define WEFT_CMD_PROMPTS_H

#include <stddef.h>

#include "base/status.h"

struct prompt {
    char *text; /* owned by the list; a 0 byte behind it */
    size_t bytes;
};

struct prompts {
    struct prompt *prompts;
    size_t count, capacity;
};

/* Zeroed before; prompts_release is due on failure too. */
MUST_USE enum status prompts_add(struct prompts *p, const char *text, size_t bytes);
/* The whole file as one prompt. */
MUST_USE enum status prompts_read_one(struct prompts *p, const char *path);
/* A prompt a line, without its end; empty lines are passed over. Lines of a file whose
 * name ends in .jsonl are JSON objects with a text "prompt". ST_FORMAT names file and
 * line of what is none, and the file when there is no prompt in it. */
MUST_USE enum status prompts_read_list(struct prompts *p, const char *path);
void prompts_release(struct prompts *p);

#endif
