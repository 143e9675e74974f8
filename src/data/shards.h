/* shards.h - token shards on disk, read by mmap.
 *
 * A shard is an llm.c token file: 256 little-endian int32 words (magic, version, count),
 * then the ids: version 1 (magic 20240520) as uint16, version 7 (magic 20240801) as
 * uint32. A file called train.bin or val.bin that begins with neither magic is nanoGPT's:
 * uint16 ids from its first byte on. A shard set is a sorted list of such files, all of
 * one version. The training windows of a set with sequence length T are floor((count - 1)
 * / T) consecutive windows in each shard; window w of shard s starts at token w*T and
 * needs T + 1 tokens.
 *
 * Needs base only. All offsets are 64-bit.
 */
#ifndef WEFT_DATA_SHARDS_H
#define WEFT_DATA_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    SHARD_HEADER_WORDS = 256,
    SHARD_MAGIC_16 = 20240520,
    SHARD_VERSION_16 = 1,
    SHARD_MAGIC_32 = 20240801,
    SHARD_VERSION_32 = 7
};

struct shards;

/* Opens a shard set.
 * In       where: a folder (its *_<split>_*.bin files, with none of those <split>.bin;
 *          all *.bin when split is NULL), a file, or a glob pattern; split "train", "val"
 * or NULL; vocab: ids must be < vocab Returns  ST_IO, or ST_FORMAT naming file, found and
 * needed (magic, version, size against count, too short for a window is *not* an error
 * here) */
MUST_USE enum status shards_open(const char *where, const char *split, uint32_t vocab,
                                 struct shards **out);
void shards_close(struct shards *s); /* NULL allowed */

/* Is it called train.bin or val.bin, as nanoGPT's files without a header are? */
bool shards_is_nanogpt(const char *path);

size_t shards_files(const struct shards *s);
uint64_t shards_tokens(const struct shards *s);
const char *shards_path(const struct shards *s, size_t file);
uint64_t shards_file_tokens(const struct shards *s, size_t file);

/* Windows of T tokens in the whole set. Files too short for one are counted in
 * *n_skipped (may be NULL). */
uint64_t shards_windows(const struct shards *s, size_t T, size_t *n_skipped);

/* Copies window w: x[i] = token i, y[i] = token i + 1, i = 0..T-1, ids checked.
 * Returns  ST_IO naming the file when it has been cut since it was opened; ST_FORMAT
 *          naming file, token index in the file, the id and the vocabulary size
 *          when an id is not below vocab; x and y are then unspecified */
MUST_USE enum status shards_window(const struct shards *s, size_t T, uint64_t w,
                                   int32_t *x, int32_t *y);

/* XXH3-64 over the token payload of all files in order. */
MUST_USE enum status shards_hash(const struct shards *s, uint64_t *hash);

/* XXH3-64 over the sizes of all files and a few pages of each, in order: the same data
 * has the same, and it takes no time. Not for proof. */
MUST_USE enum status shards_sample_hash(const struct shards *s, uint64_t *hash);

/* What the JSON beside the shards ("<folder>/tokens.json", or nanoGPT's table as
 * "<folder>/meta.json") says of the vocabulary. */
struct shards_meta {
    uint32_t vocab;  /* number of ids, 0 when there is neither */
    char kind[8];    /* "gpt2", "char" or "bytes"; "" when unknown */
    char path[4096]; /* the file read, "" when there is none */
};
/* Reads the file beside `where` (a folder, file or pattern) when there is one. */
MUST_USE enum status shards_read_meta(const char *where, struct shards_meta *out);
/* Two files tokens.json speak of different tokenizers; false when one cannot be read or
 * is of another kind. */
bool tokens_json_differ(const char *one, const char *other);

/* Writes shards of at most shard_tokens ids named <folder>/<stem>_<split>_%06d.bin,
 * numbered as llm.c's are: "val" from 0, any other split from 1. Ids come in any number
 * of writes. 16-bit files while vocab <= 65536, else 32-bit ones. An id >= vocab is
 * ST_BUG. All files carry .tmp behind their names until the close, which renames them:
 * a set is there whole or not at all. */
struct shard_writer;
MUST_USE enum status shard_writer_new(const char *folder, const char *stem,
                                      const char *split, uint32_t vocab,
                                      uint64_t shard_tokens, struct shard_writer **out);
MUST_USE enum status shard_writer_add(struct shard_writer *w, const uint32_t *ids,
                                      size_t n);
/* Where a writer is: what a program that was killed needs to go on. */
struct shard_writer_place {
    uint64_t files;  /* finished */
    uint64_t tokens; /* of the file after them; 0: not begun */
};
/* Makes what was added so far durable, still as .tmp, and tells the place. */
MUST_USE enum status shard_writer_sync(struct shard_writer *w,
                                       struct shard_writer_place *out);
/* Goes on from a place of an earlier writer with the same arguments; due before anything
 * is added. ST_FORMAT when its files are not there as they should be. */
MUST_USE enum status shard_writer_resume(struct shard_writer *w,
                                         const struct shard_writer_place *from);
/* Finishes the last file and makes all of them durable, still as .tmp: after it the close
 * only renames. Optional; nothing may be added after it. */
MUST_USE enum status shard_writer_finish(struct shard_writer *w);
/* Finishes, gives the files their names and frees the writer, on failure too (what has
 * not got its name is then removed). *files and *last_tokens tell what was written. */
MUST_USE enum status shard_writer_close(struct shard_writer *w, size_t *files,
                                        uint64_t *last_tokens);
/* The name of the file-th shard of a set. */
void shard_writer_name(const char *folder, const char *stem, const char *split,
                       size_t file, char *buf, size_t buf_bytes);
/* Throws away what is unfinished and removes .tmp files; NULL allowed. */
void shard_writer_discard(struct shard_writer *w);

#endif
