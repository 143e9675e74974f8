/* SPDX-License-Identifier: MIT */
/* Finding the files of a shard set. The list is the same on every rank that sees the same
 * folder: it is sorted by bytes here, since glob() sorts as the locale says. */
#include "data/shards_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/shards.h"

/* Appends text to buf, with a backslash before what glob() would take as a wildcard. */
static bool append(char *buf, size_t buf_bytes, const char *text, bool escape)
{
    size_t used = strlen(buf);

    for (; *text; text++) {
        if (used + 3 > buf_bytes)
            return false;
        if (escape && strchr("*?[]\\", *text))
            buf[used++] = '\\';
        buf[used++] = *text;
        buf[used] = 0;
    }
    return true;
}

/* The pattern for the shards of `split` (all *.bin for NULL) in a folder. */
static enum status folder_pattern(char *buf, size_t buf_bytes, const char *folder,
                                  const char *split)
{
    bool fits;

    buf[0] = 0;
    fits = append(buf, buf_bytes, folder, true);
    if (fits && folder[strlen(folder) - 1] != '/')
        fits = append(buf, buf_bytes, "/", false);
    if (split)
        fits = fits && append(buf, buf_bytes, "*_", false) &&
               append(buf, buf_bytes, split, true) &&
               append(buf, buf_bytes, "_*.bin", false);
    else
        fits = fits && append(buf, buf_bytes, "*.bin", false);
    return fits ? ST_OK : fail(ST_IO, "%s: path too long", folder);
}

static enum status fail_none(const char *folder, const char *split)
{
    struct path_list others = {0};
    char pattern[PATH_MAX];
    size_t found = 0;

    if (!split)
        return fail(ST_IO, "%s: no token shards found, needs files named *.bin", folder);
    if (folder_pattern(pattern, sizeof pattern, folder, NULL) == ST_OK &&
        path_list_add_glob(&others, pattern) == ST_OK)
        found = others.count;
    path_list_release(&others);
    return fail(ST_IO,
                "%s: no %s shards found among %zu *.bin files, needs files named "
                "*_%s_*.bin or %s.bin",
                folder, split, found, split, split);
}

bool shards_is_nanogpt(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    return !strcmp(name, "train.bin") || !strcmp(name, "val.bin");
}

/* <folder>/<split>.bin, when it is there. */
static enum status find_nanogpt(const char *folder, const char *split,
                                struct path_list *out)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s%s%s.bin", folder,
                 folder[strlen(folder) - 1] == '/' ? "" : "/",
                 split) >= (int)sizeof path ||
        !shards_is_nanogpt(path) || !file_exists(path))
        return fail_none(folder, split);
    return path_list_add(out, path);
}

static enum status find_in_folder(const char *folder, const char *split,
                                  struct path_list *out)
{
    char pattern[PATH_MAX];
    enum status st;
    size_t before = out->count;
    /* glob() would call a folder that may not be read an empty one. */
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return fail(ST_IO, "%s: cannot open folder: %s", folder, strerror(errno));
    close(fd);
    st = folder_pattern(pattern, sizeof pattern, folder, split);
    if (st != ST_OK)
        return st;
    st = path_list_add_glob(out, pattern);
    if (st == ST_IO && out->count == before)
        return split ? find_nanogpt(folder, split, out) : fail_none(folder, split);
    return st;
}

bool shards_is_pattern(const char *where)
{
    return !file_exists(where) && strpbrk(where, "*?[");
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum status shards_find(const char *where, const char *split, struct path_list *out)
{
    size_t before = out->count;
    enum status st;

    if (file_is_folder(where))
        st = find_in_folder(where, split, out);
    else if (shards_is_pattern(where))
        st = path_list_add_glob(out, where);
    else
        st = path_list_add(out, where);
    if (st == ST_OK)
        qsort(out->paths + before, out->count - before, sizeof *out->paths, by_bytes);
    return st;
}
