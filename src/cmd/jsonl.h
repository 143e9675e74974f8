/* jsonl.h - a line of a .jsonl file: an object with the document in one of its fields. */
#ifndef WEFT_CMD_JSONL_H
#define WEFT_CMD_JSONL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A document longer than this, as its line is written, is refused. */
enum { JSONL_MOST_BYTES = 64 << 20 };

/* The text in `field` of one line (without its line break).
 * In       path, line_number: for error texts, which name line, field and what was found
 * Out      *text: freed by the caller; NULL with *bytes 0 for an empty document and for a
 *          line of white space */
MUST_USE enum status jsonl_text(const char *path, uint64_t line_number, const char *line,
                                size_t line_bytes, const char *field, char **text,
                                size_t *bytes);

#endif
