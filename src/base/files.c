/* SPDX-License-Identifier: MIT */
#include "base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static enum status fail_errno(const char *path, const char *doing)
{
    return fail(ST_IO, "%s: cannot %s: %s", path, doing, strerror(errno));
}

enum status fd_write_at(int fd, const char *path, const void *data, size_t bytes,
                        uint64_t offset)
{
    const char *p = data;

    while (bytes > 0) {
        ssize_t n = pwrite(fd, p, bytes > INT_MAX ? INT_MAX : bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(ST_IO, "%s: cannot write %zu bytes at offset %llu: %s", path,
                        bytes, (unsigned long long)offset, strerror(errno));
        p += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return ST_OK;
}

enum status fd_read_at(int fd, const char *path, void *data, size_t bytes,
                       uint64_t offset)
{
    char *p = data;

    while (bytes > 0) {
        ssize_t n = pread(fd, p, bytes > INT_MAX ? INT_MAX : bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno(path, "read");
        if (n == 0)
            return fail(ST_FORMAT, "%s: file ends at byte %llu, %zu more needed", path,
                        (unsigned long long)offset, bytes);
        p += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return ST_OK;
}

enum status file_read_all(const char *path, char **data, size_t *bytes)
{
    struct stat info;
    char *buf = NULL;
    enum status st = ST_OK;
    /* O_NONBLOCK: a pipe by that name is refused below and not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *data = NULL;
    *bytes = 0;
    if (fd < 0)
        return fail_errno(path, "open");
    if (fstat(fd, &info) != 0) {
        st = fail_errno(path, "stat");
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = fail(ST_IO, "%s: not a regular file", path);
        goto done;
    }
    size_t size = (size_t)info.st_size;

    buf = malloc(size + 1);
    if (!buf) {
        st = fail(ST_NOMEM, "%s: no memory for %zu bytes", path, size);
        goto done;
    }
    st = fd_read_at(fd, path, buf, size, 0);
    if (st != ST_OK)
        goto done;
    buf[size] = 0;
    *data = buf;
    *bytes = size;
    buf = NULL;
done:
    free(buf);
    close(fd);
    return st;
}

enum status file_check_regular(const char *path)
{
    struct stat info;

    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return fail(ST_IO, "%s: not a regular file", path);
    return ST_OK;
}

enum status file_write_all(const char *path, const void *data, size_t bytes)
{
    char tmp[PATH_MAX];
    char target[PATH_MAX];
    struct stat info;
    enum status st = file_check_regular(path);

    if (st != ST_OK)
        return st;
    /* A rename would leave the target as it was and take the link's place. */
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) {
        if (!realpath(path, target))
            return fail_errno(path, "follow");
        path = target;
    }
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return fail(ST_IO, "%s: path too long", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_errno(tmp, "create");
    st = fd_write_at(fd, tmp, data, bytes, 0);
    if (st == ST_OK && fsync(fd) != 0)
        st = fail_errno(tmp, "sync");
    if (close(fd) != 0 && st == ST_OK)
        st = fail_errno(tmp, "close");
    if (st == ST_OK && rename(tmp, path) != 0)
        st = fail_errno(path, "rename to");
    if (st != ST_OK)
        unlink(tmp);
    return st;
}

enum status file_size(const char *path, uint64_t *bytes)
{
    struct stat info;

    if (stat(path, &info) != 0)
        return fail_errno(path, "open");
    *bytes = (uint64_t)info.st_size;
    return ST_OK;
}

bool file_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0;
}

bool file_is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum status folder_check(const char *path)
{
    char part[PATH_MAX];
    char *slash = part;

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return fail(ST_IO, "'%s': not a usable folder name", path);
    while (slash && !file_exists(part)) {
        slash = strrchr(part, '/');
        if (slash)
            slash[slash == part] = 0; /* of "/a" the "/" stays */
    }
    const char *there = slash ? part : ".";

    if (!file_is_folder(there))
        return fail(ST_IO, "%s: cannot make folder: %s is no folder", path, there);
    if (access(there, W_OK | X_OK) != 0)
        return fail_errno(path, "make folder");
    return ST_OK;
}

enum status folder_make(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof part)
        return fail(ST_IO, "'%s': not a usable folder name", path);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0)
            continue;
        char kept = part[i];

        part[i] = 0;
        if (mkdir(part, 0777) != 0 && !(errno == EEXIST && file_is_folder(part)))
            return fail_errno(part, "make folder");
        part[i] = kept;
    }
    return ST_OK;
}

enum status folder_sync(const char *path)
{
    enum status st = ST_OK;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return fail_errno(path, "open folder");
    /* Some file systems refuse fsync on a folder; they have nothing to sync then. */
    if (fsync(fd) != 0 && errno != EINVAL)
        st = fail_errno(path, "sync folder");
    close(fd);
    return st;
}

static enum status join(char *out, size_t out_bytes, const char *folder, const char *name)
{
    const char *slash = !strcmp(folder, "/") ? "" : "/";

    if (snprintf(out, out_bytes, "%s%s%s", folder, slash, name) >= (int)out_bytes)
        return fail(ST_IO, "%s/%s: path too long", folder, name);
    return ST_OK;
}

enum status folder_remove(const char *path)
{
    enum status st = ST_OK;
    struct dirent *entry;
    DIR *dir = opendir(path);

    if (!dir)
        return errno == ENOENT ? ST_OK : fail_errno(path, "open folder");
    while (st == ST_OK && (entry = readdir(dir))) {
        char full[PATH_MAX];
        struct stat info;

        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        st = join(full, sizeof full, path, entry->d_name);
        if (st != ST_OK)
            break;
        if (lstat(full, &info) == 0 && S_ISDIR(info.st_mode))
            st = folder_remove(full);
        else if (unlink(full) != 0)
            st = fail_errno(full, "remove");
    }
    closedir(dir);
    if (st == ST_OK && rmdir(path) != 0)
        st = fail_errno(path, "remove");
    return st;
}

enum status path_list_add(struct path_list *l, const char *path)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 16;
        char **paths = realloc(l->paths, capacity * sizeof *paths);

        if (!paths)
            return fail(ST_NOMEM, "no memory for a list of %zu files", capacity);
        l->paths = paths;
        l->capacity = capacity;
    }
    char *copy = strdup(path);
    if (!copy)
        return fail(ST_NOMEM, "no memory for a file name");
    l->paths[l->count++] = copy;
    return ST_OK;
}

void path_list_release(struct path_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->paths[i]);
    free(l->paths);
    *l = (struct path_list){0};
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum status add_folder(struct path_list *l, const char *path);

/* What a folder holds: a link in it may lead to a file, but neither round in a circle
 * nor to a tree of its own. */
static enum status add_entry(struct path_list *l, const char *path)
{
    struct stat info;

    if (lstat(path, &info) != 0)
        return fail_errno(path, "open");
    if (S_ISDIR(info.st_mode))
        return add_folder(l, path);
    if (!S_ISLNK(info.st_mode))
        return path_list_add(l, path);
    if (stat(path, &info) != 0) {
        log_warn("%s: left out, a link that leads nowhere: %s", path, strerror(errno));
        return ST_OK;
    }
    if (S_ISDIR(info.st_mode)) {
        log_warn("%s: left out, a link to a folder", path);
        return ST_OK;
    }
    return path_list_add(l, path);
}

static enum status add_folder(struct path_list *l, const char *path)
{
    enum status st = ST_OK;
    struct dirent *entry;
    DIR *dir = opendir(path);

    if (!dir)
        return fail_errno(path, "open folder");
    while (st == ST_OK && (entry = readdir(dir))) {
        char full[PATH_MAX];

        if (entry->d_name[0] == '.')
            continue;
        st = join(full, sizeof full, path, entry->d_name);
        if (st == ST_OK)
            st = add_entry(l, full);
    }
    closedir(dir);
    return st;
}

enum status path_list_add_tree(struct path_list *l, const char *path)
{
    size_t first = l->count;
    struct stat info;
    char folder[PATH_MAX];
    enum status st;

    if (stat(path, &info) != 0)
        return fail_errno(path, "open");
    if (!S_ISDIR(info.st_mode))
        return path_list_add(l, path);
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return fail(ST_IO, "%s: path too long", path);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = 0;
    st = add_folder(l, folder);
    if (l->count > first)
        qsort(l->paths + first, l->count - first, sizeof *l->paths, by_bytes);
    return st;
}

enum status path_list_add_glob(struct path_list *l, const char *pattern)
{
    enum status st = ST_OK;
    glob_t found;
    int rc = glob(pattern, 0, NULL, &found);

    if (rc == GLOB_NOMATCH)
        return fail(ST_IO, "%s: no such file", pattern);
    if (rc != 0)
        return fail(ST_IO, "%s: cannot list: %s", pattern,
                    rc == GLOB_NOSPACE ? "no memory" : "read error");
    for (size_t i = 0; st == ST_OK && i < found.gl_pathc; i++)
        st = path_list_add(l, found.gl_pathv[i]);
    globfree(&found);
    return st;
}
