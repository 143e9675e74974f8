/* corpus.h - the documents of a text, read in order as parts that tokenize by themselves.
 *
 * The first parts are for training, those after a cut for validation. Invariant: where
 * parts are cut depends on the text alone, and always where both sides tokenize as the
 * whole does (tokenizer_cut).
 */
#ifndef WEFT_CMD_CORPUS_H
#define WEFT_CMD_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/files.h"
#include "base/status.h"

enum split { TRAIN, VAL, SPLITS };

/* Validation begins with byte cut_at of document cut_file. */
struct corpus {
    struct path_list files; /* without the empty ones */
    uint64_t *bytes;        /* [files.count] */
    uint64_t total;
    struct path_list empty; /* files left out */
    size_t cut_file;
    uint64_t cut_at;
};

/* Lists files and folders and sees that all can be read and none is a token shard. Zeroed
 * before; corpus_release is due on failure too. No text at all is ST_FORMAT. */
MUST_USE enum status corpus_open(struct corpus *c, char **inputs, int n);
/* Puts the cut at the first good place in the last `fraction` of all bytes. */
MUST_USE enum status corpus_split(struct corpus *c, double fraction);
void corpus_release(struct corpus *c);

struct corpus_part {
    char *text; /* owned; reused by the next reading into the same part */
    size_t bytes, capacity;
    const char *path; /* borrowed from the corpus */
    uint64_t offset;  /* in the document */
    enum split split;
    bool follows; /* begins a document, and its split has text already */
};

struct corpus_reader {
    const struct corpus *corpus;
    size_t file;
    uint64_t at;
    int fd;
    bool begun[SPLITS];
};

void corpus_reader_init(struct corpus_reader *r, const struct corpus *c);
bool corpus_reader_ended(const struct corpus_reader *r);
/* The next part: about `want` bytes, and at least a word. */
MUST_USE enum status corpus_reader_next(struct corpus_reader *r, size_t want,
                                        struct corpus_part *part);
void corpus_reader_release(struct corpus_reader *r);

#endif
