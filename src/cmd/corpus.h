/* corpus.h - the documents of a text, read in order as parts that tokenize by themselves.
 *
 * A file is a document; a file called *.jsonl (packed or not) has one in each line. The
 * first documents are for training, those after a cut for validation. Invariant: where
 * parts begin and end depends on the text alone, and is always where both sides tokenize
 * as the whole does (tokenizer_cut). Memory is bounded: a part, and the longest word or
 * line, which have limits.
 */
#ifndef WEFT_CMD_CORPUS_H
#define WEFT_CMD_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/files.h"
#include "base/status.h"
#include "cmd/text_file.h"

/* Text without white space that is longer is refused: it must be in memory as a whole. */
enum { CORPUS_MOST_WORD = 32 << 20, CORPUS_MOST_SEGMENTS = 4096 };

enum split { TRAIN, VAL, SPLITS };

struct corpus {
    struct path_list files; /* without the empty ones */
    uint64_t *bytes;        /* [files.count] of text, when decompressed */
    uint64_t total;
    struct path_list empty; /* files left out */
    const char *field;      /* of the lines of .jsonl files; borrowed */
    uint64_t cut; /* validation begins at the first place for it from this byte of all
                     text on */
};

/* Lists files and folders and sees that all can be read, that packed ones are whole, and
 * that none is a token shard. Zeroed before but for `field`; corpus_release is due on
 * failure too. No text at all is ST_FORMAT. show: a progress line. */
MUST_USE enum status corpus_open(struct corpus *c, char **inputs, int n, bool show);
/* Puts the cut so that the last `fraction` of all bytes is for validation. */
void corpus_split(struct corpus *c, double fraction);
void corpus_release(struct corpus *c);

/* A run of one document. */
struct corpus_segment {
    size_t begin, bytes; /* in the part's text */
    const char *path;    /* borrowed from the corpus */
    uint64_t at;         /* byte of the file's text, or number of the line */
    bool in_line;        /* `at` is a line */
    bool follows;        /* begins a document, and its split has text already */
};

struct corpus_part {
    char *text; /* owned; reused by the next reading into the same part */
    size_t bytes, capacity;
    struct corpus_segment *segments; /* owned */
    size_t n_segments, segment_capacity;
    enum split split;
};
void corpus_part_release(struct corpus_part *part);

struct corpus_reader {
    const struct corpus *corpus;
    size_t file;
    struct text_file *text; /* NULL before the file is opened */
    uint64_t base;          /* bytes of text in the files before */
    uint64_t at;            /* in the file's text: of buf[begin] */
    char *buf;              /* read and not yet given out: [begin, end) */
    size_t begin, end, capacity;
    bool eof;
    uint64_t line;  /* .jsonl: of the document */
    char *document; /* .jsonl: NULL when there is none */
    size_t document_bytes, document_at;
    enum split document_split;
    bool begun[SPLITS];
    uint64_t documents; /* begun so far */
};

void corpus_reader_init(struct corpus_reader *r, const struct corpus *c);
/* The next part: about `want` bytes, at least a word, of one split; none at the end,
 * bytes then 0. */
MUST_USE enum status corpus_reader_next(struct corpus_reader *r, size_t want,
                                        struct corpus_part *part);
void corpus_reader_release(struct corpus_reader *r);

#endif
