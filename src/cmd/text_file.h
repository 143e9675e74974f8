/* text_file.h - a file of text read front to back; gzip and zstd are decompressed on the
 * way, told by their first bytes. */
#ifndef WEFT_CMD_TEXT_FILE_H
#define WEFT_CMD_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct text_file;

/* Opens a regular file; a file of tokens is ST_FORMAT. */
MUST_USE enum status text_file_open(const char *path, struct text_file **out);
void text_file_close(struct text_file *f); /* NULL allowed */

/* Bytes of text in the file. A compressed one is read to its end for it, which also finds
 * out whether it is whole; the file then stands at its beginning again. */
MUST_USE enum status text_file_size(struct text_file *f, uint64_t *bytes);

/* Reads up to `most` bytes of text; *got is 0 at the end only. */
MUST_USE enum status text_file_read(struct text_file *f, char *buf, size_t most,
                                    size_t *got);

#endif
