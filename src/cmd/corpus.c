/* SPDX-License-Identifier: MIT */
#include "cmd/corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "data/shards.h"
#include "data/tokenizer.h"

enum { LOOK_BYTES = 1 << 12 }; /* read beyond a part in search of a place to cut */

/* Opens a document; *bytes is its size now. */
static enum status open_document(const char *path, int *fd, uint64_t *bytes)
{
    struct stat info;

    /* Not blocking: a pipe among the files must not stop us here. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(*fd, &info) == 0 && S_ISREG(info.st_mode)) {
        *bytes = (uint64_t)info.st_size;
        return ST_OK;
    }
    close(*fd);
    *fd = -1;
    return fail(ST_IO, "%s: not a regular file", path);
}

/* Sees to it before any work that all documents can be read and none is a shard. */
static enum status check_document(const char *path, uint64_t *bytes)
{
    int32_t magic = 0;
    int fd;
    enum status st = open_document(path, &fd, bytes);

    if (st != ST_OK)
        return st;
    if (*bytes >= sizeof magic)
        st = fd_read_at(fd, path, &magic, sizeof magic, 0);
    close(fd);
    if (st == ST_OK && (magic == SHARD_MAGIC_16 || magic == SHARD_MAGIC_32))
        st = fail(ST_FORMAT, "%s: found a token shard, needs text", path);
    return st;
}

static void drop_empty(struct corpus *c)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->files.count; i++) {
        if (c->bytes[i] == 0) {
            free(c->files.paths[i]);
            continue;
        }
        c->files.paths[kept] = c->files.paths[i];
        c->bytes[kept++] = c->bytes[i];
    }
    c->files.count = kept;
}

enum status corpus_open(struct corpus *c, char **inputs, int n)
{
    enum status st = ST_OK;

    for (int i = 0; i < n && st == ST_OK; i++)
        st = path_list_add_tree(&c->files, inputs[i]);
    if (st == ST_OK)
        st = memory_alloc(c->files.count, sizeof *c->bytes, "list of files", &c->bytes);
    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < c->files.count && st == ST_OK; i++) {
        st = check_document(c->files.paths[i], &c->bytes[i]);
        if (st == ST_OK && c->bytes[i] == 0)
            st = path_list_add(&c->empty, c->files.paths[i]);
        c->total += c->bytes[i];
    }
    if (st == ST_OK && c->total == 0)
        st = fail(ST_FORMAT, "%s%s: found no text in %zu file%s", inputs[0],
                  n > 1 ? " and the others" : "", c->files.count,
                  c->files.count == 1 ? "" : "s");
    if (st == ST_OK)
        drop_empty(c);
    return st;
}

/* Reads a part from byte `from` on, of about `want` bytes, cut before byte `end` if it
 * can be. Reads on until there is a place to cut: a part is at least one word. */
static enum status read_cut(int fd, const char *path, uint64_t from, uint64_t end,
                            size_t want, struct corpus_part *part)
{
    size_t have = 0;
    size_t need =
        (size_t)(end - from < want + LOOK_BYTES ? end - from : want + LOOK_BYTES);

    for (;;) {
        if (need > part->capacity) {
            char *text = realloc(part->text, need);

            if (!text)
                return fail(ST_NOMEM, "%s: no memory for a word of %zu bytes", path,
                            need);
            part->text = text;
            part->capacity = need;
        }
        enum status st =
            fd_read_at(fd, path, part->text + have, need - have, from + have);
        if (st != ST_OK)
            return st;
        /* What was searched before need not be searched again. */
        part->bytes = tokenizer_cut(part->text, need, max_size(want, have));
        have = need;
        if (part->bytes < have || from + have == end)
            return ST_OK;
        need = (size_t)(end - from < 2 * (uint64_t)have ? end - from : 2 * have);
    }
}

/* Finds where validation begins: the first place to cut in the last F of all bytes. */
enum status corpus_split(struct corpus *c, double fraction)
{
    uint64_t train = c->total - (uint64_t)(fraction * (double)c->total);
    struct corpus_part part = {0};
    size_t i = 0;
    int fd;

    for (; i < c->files.count && train >= c->bytes[i]; i++)
        train -= c->bytes[i];
    c->cut_file = i;
    c->cut_at = train;
    /* Between two documents, or no validation at all; but something must be left. */
    if (i == c->files.count || (train == 0 && i > 0))
        return ST_OK;
    enum status st = open_document(c->files.paths[i], &fd, &(uint64_t){0});
    if (st != ST_OK)
        return st;
    /* The character before the cut matters. */
    uint64_t from = train > 0 ? train - 1 : 0;
    st = read_cut(fd, c->files.paths[i], from, c->bytes[i], 1, &part);
    c->cut_at = from + part.bytes;
    if (c->cut_at == c->bytes[i]) {
        c->cut_file++;
        c->cut_at = 0;
    }
    close(fd);
    free(part.text);
    return st;
}

void corpus_release(struct corpus *c)
{
    path_list_release(&c->files);
    path_list_release(&c->empty);
    free(c->bytes);
}

void corpus_reader_init(struct corpus_reader *r, const struct corpus *c)
{
    *r = (struct corpus_reader){.corpus = c, .fd = -1};
}

bool corpus_reader_ended(const struct corpus_reader *r)
{
    return r->file == r->corpus->files.count;
}

enum status corpus_reader_next(struct corpus_reader *r, size_t want,
                               struct corpus_part *part)
{
    const struct corpus *c = r->corpus;
    bool before_cut =
        r->file < c->cut_file || (r->file == c->cut_file && r->at < c->cut_at);
    bool part_begins = r->at == 0 || (r->file == c->cut_file && r->at == c->cut_at);
    uint64_t end = before_cut && r->file == c->cut_file ? c->cut_at : c->bytes[r->file];
    enum status st = ST_OK;
    uint64_t now;

    if (r->fd < 0)
        st = open_document(c->files.paths[r->file], &r->fd, &now);
    part->path = c->files.paths[r->file];
    part->offset = r->at;
    part->split = before_cut ? TRAIN : VAL;
    part->follows = part_begins && r->begun[part->split];
    if (st == ST_OK)
        st = read_cut(r->fd, part->path, r->at, end, want, part);
    if (st != ST_OK)
        return st;
    r->begun[part->split] = true;
    r->at += part->bytes;
    if (r->at == c->bytes[r->file]) {
        close(r->fd);
        r->fd = -1;
        r->at = 0;
        r->file++;
    }
    return ST_OK;
}

void corpus_reader_release(struct corpus_reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
}
