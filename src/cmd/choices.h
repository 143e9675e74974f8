/* choices.h - multiple-choice questions: a context and several ways it may go on.
 *
 * Two formats, told apart by the first word: llm.c's evaluation files (magic 20240522,
 * tokens), and JSON lines as HellaSwag has them: {"ctx": TEXT, "endings": [TEXT, ...],
 * "label": N}, of which ctx and " " + each ending are tokenized.
 */
#ifndef WEFT_CMD_CHOICES_H
#define WEFT_CMD_CHOICES_H

#include "cmd/loaded.h"

enum { CHOICES_MOST = 16, CHOICES_MAGIC = 20240522 };

/* Ids at `begin` of the set's tokens. */
struct choice_text {
    size_t begin, n;
};

struct choice_example {
    struct choice_text context;
    struct choice_text endings[CHOICES_MOST];
    size_t n_endings; /* >= 2 */
    size_t label;     /* the right one */
};

struct choices {
    struct choice_example *examples;
    size_t count, capacity;
    struct token_list tokens; /* of all of them, checked against V */
};

/* Reads a file. Every text has a token at least. The struct is zeroed before;
 * choices_release is due on failure too. ST_FORMAT names file, example (of JSON the line)
 * and what is wrong.
 * LOCAL. */
MUST_USE enum status choices_read(struct choices *c, const char *path,
                                  const struct loaded *model, const char *vocab);
void choices_release(struct choices *c);

#endif
