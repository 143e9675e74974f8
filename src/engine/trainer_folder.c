/* SPDX-License-Identifier: MIT */
/* The run folder: made, locked against other runs, seen by all ranks; and looked at again
 * before each save, because it may have been moved away since. */
#include "engine/trainer_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"

static enum status path_of(const struct trainer *t, const char *name, char *out)
{
    if (snprintf(out, PATH_MAX, "%s/%s", t->options->out, name) >= PATH_MAX)
        return fail(ST_IO, "%s: path too long", t->options->out);
    return ST_OK;
}

static enum status write_config(struct trainer *t)
{
    const char *const skip[] = {"config",
                                "help",
                                "resume",
                                "dry-run",
                                "quiet",
                                "epochs",
                                t->options->total_batch_tokens ? "accum"
                                                               : "total-batch-tokens",
                                NULL};
    char path[PATH_MAX];
    size_t bytes;
    enum status st = path_of(t, "config.ini", path);

    if (st != ST_OK)
        return st;
    st = options_write_file(t->options->table, path, skip);
    return st == ST_OK ? file_read_all(path, &t->config_text, &bytes) : st;
}

static void warn_disk_space(const struct trainer *t)
{
    struct statvfs fs;
    double needed = 12.0 * (double)shape_parameters(&t->eo.shape);

    if (statvfs(t->options->out, &fs) != 0)
        return;
    double available = (double)fs.f_bavail * (double)fs.f_frsize;

    /* The new checkpoint stands beside those that are kept. */
    needed *= (double)t->options->keep + 1;
    if (available < needed)
        log_warn("%s: found %.2f GB free, %zu checkpoints and the one being written need "
                 "%.2f GB",
                 t->options->out, available * 1e-9, t->options->keep, needed * 1e-9);
}

/* What the lock file says: who holds it. All ranks must see the same one. */
static enum status write_lock(struct trainer *t, const char *path)
{
    int n = snprintf(t->lock_text, sizeof t->lock_text, "host %.64s, pid %d, %.9f\n",
                     comm_host(t->comm), (int)getpid(), clock_s());

    if (ftruncate(t->lock_fd, 0) != 0)
        return fail(ST_IO, "%s: cannot write: %s", path, strerror(errno));
    return fd_write_at(t->lock_fd, path, t->lock_text, (size_t)n, 0);
}

/* Two runs in one folder would prune each other's checkpoints. The lock goes with the
 * process, however it ends; the file stays. */
static enum status lock_run(struct trainer *t, const char *path)
{
    char holder[sizeof t->lock_text];
    ssize_t n;

    t->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (t->lock_fd < 0)
        return fail(ST_IO, "%s: cannot create: %s", path, strerror(errno));
    /* Some file systems have no locks: better no lock than no run. */
    if (flock(t->lock_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return write_lock(t, path);
    n = pread(t->lock_fd, holder, sizeof holder - 1, 0);
    holder[n > 0 ? n : 0] = 0;
    holder[strcspn(holder, "\n")] = 0;
    return fail(ST_USAGE,
                "%s: another run is training in this folder%s%s%s; needs another --out",
                t->options->out, holder[0] ? " (" : "", holder, holder[0] ? ")" : "");
}

/* Every rank writes its part of a checkpoint: it must see the folder of rank 0, which a
 * network file system may show a moment later. */
static enum status check_folder(const struct trainer *t, const char *path)
{
    enum { TRIES = 30 };
    const char *out = t->options->out;
    char folder[PATH_MAX];
    bool same = false;

    for (int i = 0; i < TRIES && !same; i++) {
        char *text = NULL;
        size_t bytes;

        if (i > 0)
            clock_nap_us(100000);
        same = file_read_all(path, &text, &bytes) == ST_OK && !strcmp(text, t->lock_text);
        free(text);
    }
    if (!same)
        return fail(ST_IO,
                    "--out %s: found on host %s another folder than rank 0's; needs one "
                    "that all hosts share",
                    out, comm_host(t->comm));
    enum status st = path_of(t, "checkpoints", folder);

    if (st != ST_OK)
        return st;
    if (access(folder, W_OK | X_OK) != 0)
        return fail(ST_IO, "%s: cannot be written to on host %s: %s", folder,
                    comm_host(t->comm), strerror(errno));
    return ST_OK;
}

static enum status make_run(struct trainer *t, const char *path)
{
    char folder[PATH_MAX];
    enum status st = folder_make(t->options->out);

    if (st == ST_OK)
        st = lock_run(t, path);
    if (st == ST_OK)
        st = path_of(t, "checkpoints", folder);
    return st == ST_OK ? folder_make(folder) : st;
}

enum status trainer_lock_run(struct trainer *t)
{
    char path[PATH_MAX];
    enum status st = path_of(t, "lock", path);

    if (st == ST_OK && comm_rank(t->comm) == 0)
        st = make_run(t, path);
    st = comm_agree(t->comm, st);
    if (st != ST_OK)
        return st;
    comm_broadcast(t->comm, t->lock_text, sizeof t->lock_text, 0);
    return comm_agree(t->comm, check_folder(t, path));
}

enum status trainer_open_run(struct trainer *t)
{
    enum status st = ST_OK;

    if (comm_rank(t->comm) == 0) {
        st = write_config(t);
        if (st == ST_OK && t->resumed)
            st = checkpoint_set_aside(t->options->out, t->start.state.step);
        if (st == ST_OK)
            st = metrics_open(
                &(struct metrics_options){.run = t->options->out,
                                          .first_step =
                                              t->resumed ? t->start.state.step : 0,
                                          .tensorboard = t->options->tensorboard,
                                          .prometheus = t->options->prometheus},
                &t->metrics);
        if (st == ST_OK)
            st = trainer_note_start(t, t->resumed ? t->start.state.step : 0);
        if (st == ST_OK)
            warn_disk_space(t);
    }
    return comm_agree(t->comm, st);
}

/* ---- later ---- */

/* A folder that took the name of this run's is somebody else's. */
static enum status check_lock(const struct trainer *t, const char *path)
{
    char *text = NULL;
    size_t bytes;
    bool other =
        file_read_all(path, &text, &bytes) == ST_OK && strcmp(text, t->lock_text) != 0;

    free(text);
    if (!other)
        return ST_OK;
    return fail(ST_IO,
                "%s: found another folder than the one this run began in (its lock is "
                "another); needs that one back under its name",
                t->options->out);
}

/* What was written so far is where the folder was moved to. Here begins one that is as
 * good: with a lock, the options, a start among the events. */
static enum status make_run_again(struct trainer *t, const char *path)
{
    int before = t->lock_fd;
    char config[PATH_MAX];
    enum status st = path_of(t, "config.ini", config);

    if (st != ST_OK)
        return st;
    log_warn(
        "%s: the run folder was moved or removed; it is made anew, from step %" PRIu64,
        t->options->out, t->state.step);
    st = make_run(t, path);
    if (before > 0)
        close(before);
    if (st != ST_OK || file_exists(config)) /* only the lock was gone */
        return st;
    st = file_write_all(config, t->config_text, strlen(t->config_text));
    return st == ST_OK ? trainer_note_start(t, t->state.step) : st;
}

enum status trainer_keep_run(struct trainer *t)
{
    char path[PATH_MAX];
    enum status st = ST_OK;

    if (comm_rank(t->comm) == 0) {
        st = path_of(t, "lock", path);
        if (st == ST_OK)
            st = file_exists(path) ? check_lock(t, path) : make_run_again(t, path);
    }
    return comm_agree(t->comm, st);
}
