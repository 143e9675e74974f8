/* SPDX-License-Identifier: MIT */
/* Preloaded: writes down in which order files are written, synced and renamed.
 *
 * Each process appends lines "NANOSECONDS OPERATION PATH [PATH]" to $SYNC_LOG.PID, for
 * paths that hold the word of $SYNC_ONLY. Operations: write (the last of a file is what
 * counts), sync, rename, remove. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);

    if (!f)
        abort();
    return f;
}

static void put(const char *operation, const char *path, const char *to)
{
    const char *only = getenv("SYNC_ONLY"), *log = getenv("SYNC_LOG");
    char name[PATH_MAX], line[2 * PATH_MAX + 64];
    struct timespec t;

    if (!log || (only && !strstr(path, only)))
        return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int n = snprintf(line, sizeof line, "%lld%09ld %s %s %s\n", (long long)t.tv_sec,
                     t.tv_nsec, operation, path, to);
    (void)snprintf(name, sizeof name, "%s.%d", log, (int)getpid());
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        abort();
    close(fd);
}

static void put_fd(const char *operation, int fd)
{
    char link[64], path[PATH_MAX];

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0)
        return;
    path[n] = 0;
    put(operation, path, "");
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    void *f = next("pwrite");

    memcpy(&real, &f, sizeof real);
    put_fd("write", fd);
    return real(fd, data, bytes, offset);
}

int fsync(int fd)
{
    int (*real)(int);
    void *f = next("fsync");

    memcpy(&real, &f, sizeof real);
    int rc = real(fd);
    put_fd("sync", fd);
    return rc;
}

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *);
    void *f = next("rename");

    memcpy(&real, &f, sizeof real);
    put("rename", from, to);
    return real(from, to);
}

int rmdir(const char *path)
{
    int (*real)(const char *);
    void *f = next("rmdir");

    memcpy(&real, &f, sizeof real);
    put("remove", path, "");
    return real(path);
}
