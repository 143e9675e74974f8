/* SPDX-License-Identifier: MIT */
/* weft tokenize: text files to token shards.
 *
 * The main thread reads the documents in order as jobs of about a megabyte, cut where
 * both parts tokenize as the whole does; worker threads encode them; the main thread
 * writes the results in the order of reading. Invariants: where jobs are cut depends on
 * the text alone, so shards are the same bytes for any number of threads, and a run that
 * was killed goes on behind the jobs whose tokens are durable; nothing has its final name
 * before all of it is on the disk. */
#include "cmd/cmd.h"
#include "cmd/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/progress.h"
#include "cmd/tokenize_progress.h"
#include "data/shards.h"
#include "data/tokenizer.h"
#include "data/vocabulary.h"

enum { JOB_BYTES = 1 << 20, MAX_THREADS = 1024 };
static const double save_every_s = 2; /* how much work a killed run loses */
static const char *const split_names[SPLITS] = {"train", "val"};

struct settings {
    const char *vocab, *out, *name, *field;
    bool chars, bytes, special, force, quiet, help;
    double val_fraction;
    size_t shard_tokens, threads;
};

/* A part of a document on its way from the reader through a worker to the shards. */
struct job {
    struct corpus_part part;
    struct token_list tokens;
    bool ready;
    enum status st;
    char error[PATH_MAX + 512];
};

/* Options and input -------------------------------------------------------------- */

static enum status check_settings(const struct settings *s, int n_inputs)
{
    int kinds = (s->vocab != NULL) + s->chars + s->bytes;

    if (n_inputs == 0)
        return fail(ST_USAGE, "tokenize: found no input, needs text files or folders");
    if (!s->out)
        return fail(ST_USAGE, "tokenize: needs --out DIR, the folder for the shards");
    if (kinds != 1)
        return fail(ST_USAGE,
                    "tokenize: found %d of --vocab PATH (a GPT-2 merge table; "
                    "scripts/get-vocab fetches it), --char and --bytes, needs one",
                    kinds);
    if (s->special && s->chars)
        return fail(ST_USAGE, "--allow-special: found --char, which has no end-of-text");
    if (!(s->val_fraction >= 0 && s->val_fraction < 1))
        return fail(ST_USAGE, "--val-fraction: found %g, needs 0 <= F < 1",
                    s->val_fraction);
    if (s->shard_tokens == 0 || s->shard_tokens > INT32_MAX)
        return fail(ST_USAGE, "--shard-tokens: found %zu, needs 1 to %d", s->shard_tokens,
                    INT32_MAX);
    if (s->threads > MAX_THREADS)
        return fail(ST_USAGE, "--threads: found %zu, needs at most %d", s->threads,
                    MAX_THREADS);
    if (!s->name[0] || s->name[0] == '.' || strchr(s->name, '/') ||
        strstr(s->name, "_train_") || strstr(s->name, "_val_") || strlen(s->name) > 200)
        return fail(
            ST_USAGE,
            "--name: found '%s', needs a plain file name without _train_ or _val_",
            s->name);
    return ST_OK;
}

/* "book.txt: byte 17", "docs.jsonl: line 3" for byte `at` of a part. */
static void say_where(const struct corpus_segment *s, size_t at, char *out,
                      size_t out_bytes)
{
    if (s->in_line)
        (void)snprintf(out, out_bytes, "%s: line %llu", s->path,
                       (unsigned long long)s->at);
    else
        (void)snprintf(out, out_bytes, "%s: byte %llu", s->path,
                       (unsigned long long)(s->at + at));
}

static enum status mark_chars(const struct corpus_part *part, bool *seen)
{
    for (size_t i = 0; i < part->n_segments; i++) {
        const struct corpus_segment *s = &part->segments[i];
        size_t good = tokenizer_mark_chars(part->text + s->begin, s->bytes, seen);
        char where[PATH_MAX];

        if (good == s->bytes)
            continue;
        say_where(s, good, where, sizeof where);
        return fail(ST_FORMAT, "%s: found 0x%02X, --char needs UTF-8 text", where,
                    (unsigned char)part->text[s->begin + good]);
    }
    return ST_OK;
}

/* The character vocabulary of all documents, which must be UTF-8. */
static enum status make_char_tokenizer(const struct corpus *c, bool show,
                                       struct tokenizer **out)
{
    struct corpus_reader r;
    struct progress progress;
    struct corpus_part part = {0};
    bool *seen = NULL;
    uint32_t *code_points = NULL;
    double done = 0;
    size_t n = 0;
    enum status st = memory_alloc(CODE_POINTS, sizeof *seen, "characters", &seen);

    if (st == ST_OK)
        st = memory_alloc(CODE_POINTS, sizeof *code_points, "characters", &code_points);
    corpus_reader_init(&r, c);
    progress_begin(&progress, "characters", "MB", (double)c->total * 1e-6, show);
    while (st == ST_OK) {
        st = corpus_reader_next(&r, JOB_BYTES, &part);
        if (st != ST_OK || part.bytes == 0)
            break;
        st = mark_chars(&part, seen);
        done += (double)part.bytes;
        progress_update(&progress, done * 1e-6, NULL);
    }
    for (uint32_t i = 0; st == ST_OK && i < CODE_POINTS; i++)
        if (seen[i])
            code_points[n++] = i;
    if (st == ST_OK) {
        progress_end(&progress, done * 1e-6);
        st = tokenizer_new_char(code_points, n, out);
    }
    corpus_reader_release(&r);
    corpus_part_release(&part);
    free(code_points);
    free(seen);
    return st;
}

/* Workers ------------------------------------------------------------------------ */

/* A ring of jobs: written <= taken <= filled <= written + n_jobs. */
struct pool {
    const struct tokenizer *tokenizer;
    bool special; /* END_OF_TEXT_NAME in a text is the id */
    struct job *jobs;
    size_t n_jobs;
    uint64_t filled, taken, written;
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t *threads;
    size_t n_threads;
};

/* No part is cut within a name: there is no white space in it. */
static enum status encode_text(const struct pool *p, struct tokenizer_scratch *scratch,
                               const char *text, size_t bytes, struct token_list *out)
{
    const size_t name = sizeof END_OF_TEXT_NAME - 1;
    const char *end = text + bytes, *at = text, *found = NULL;
    enum status st = ST_OK;

    while (st == ST_OK && p->special &&
           (found = memmem(at, (size_t)(end - at), END_OF_TEXT_NAME, name))) {
        st = tokenizer_encode_with(p->tokenizer, scratch, at, (size_t)(found - at), out);
        if (st == ST_OK)
            st = token_list_add(out, (uint32_t)tokenizer_end_of_text(p->tokenizer));
        at = found + name;
    }
    if (st != ST_OK)
        return st;
    return tokenizer_encode_with(p->tokenizer, scratch, at, (size_t)(end - at), out);
}

static enum status encode_segments(const struct pool *p,
                                   struct tokenizer_scratch *scratch, struct job *job)
{
    int32_t end_of_text = tokenizer_end_of_text(p->tokenizer);
    enum status st = ST_OK;

    job->tokens.count = 0;
    for (size_t i = 0; st == ST_OK && i < job->part.n_segments; i++) {
        const struct corpus_segment *s = &job->part.segments[i];

        if (s->follows && end_of_text >= 0)
            st = token_list_add(&job->tokens, (uint32_t)end_of_text);
        if (st == ST_OK)
            st = encode_text(p, scratch, job->part.text + s->begin, s->bytes,
                             &job->tokens);
        if (st != ST_OK) {
            char where[PATH_MAX];

            say_where(s, 0, where, sizeof where);
            (void)snprintf(job->error, sizeof job->error,
                           "%s: in the part from there: %s", where, fail_text());
        }
    }
    return st;
}

static void *worker(void *arg)
{
    struct pool *p = arg;
    struct tokenizer_scratch *scratch = NULL;
    enum status made = tokenizer_scratch_new(p->tokenizer, &scratch);

    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->taken == p->filled && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->stop)
            break;
        struct job *job = &p->jobs[p->taken++ % p->n_jobs];

        pthread_mutex_unlock(&p->lock);
        job->st = made;
        if (made == ST_OK)
            job->st = encode_segments(p, scratch, job);
        else
            (void)snprintf(job->error, sizeof job->error, "no memory for a worker");
        pthread_mutex_lock(&p->lock);
        job->ready = true;
        pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    tokenizer_scratch_free(scratch);
    return NULL;
}

static void pool_stop(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    for (size_t i = 0; p->jobs && i < p->n_jobs; i++) {
        corpus_part_release(&p->jobs[i].part);
        token_list_release(&p->jobs[i].tokens);
    }
    free(p->jobs);
    free(p->threads);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
}

/* pool_stop is due after it, whatever it returns. */
static enum status pool_start(struct pool *p, const struct tokenizer *t,
                              const struct settings *s)
{
    size_t threads = s->threads;

    *p = (struct pool){.tokenizer = t, .special = s->special, .n_jobs = threads + 2};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    enum status st = memory_alloc(p->n_jobs, sizeof *p->jobs, "jobs", &p->jobs);
    if (st == ST_OK)
        st = memory_alloc(threads, sizeof *p->threads, "threads", &p->threads);
    while (st == ST_OK && p->n_threads < threads) {
        int rc = pthread_create(&p->threads[p->n_threads], NULL, worker, p);

        if (rc != 0)
            st = fail(ST_NOMEM, "cannot start thread %zu of %zu: %s", p->n_threads + 1,
                      threads, strerror(rc));
        else
            p->n_threads++;
    }
    return st;
}

static void pool_submit(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->jobs[p->filled++ % p->n_jobs].ready = false;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

/* The oldest job, when it is encoded. */
static struct job *pool_collect(struct pool *p)
{
    struct job *job = &p->jobs[p->written % p->n_jobs];

    pthread_mutex_lock(&p->lock);
    while (!job->ready)
        pthread_cond_wait(&p->done, &p->lock);
    p->written++;
    pthread_mutex_unlock(&p->lock);
    return job;
}

/* Output ------------------------------------------------------------------------- */

struct output {
    struct shard_writer *writers[SPLITS];
    uint64_t tokens[SPLITS];
    size_t files[SPLITS];
    uint64_t last[SPLITS];
    XXH3_state_t *hash;
    uint64_t documents, text_bytes;
    char progress_path[PATH_MAX];
    uint64_t fingerprint;
    uint64_t parts; /* written, those of an earlier run included */
    double saved_s;
};

static enum status write_job(struct output *o, const struct job *job)
{
    if (job->st != ST_OK)
        return fail(job->st, "%s", job->error);
    o->tokens[job->part.split] += job->tokens.count;
    return shard_writer_add(o->writers[job->part.split], job->tokens.ids,
                            job->tokens.count);
}

/* From time to time makes durable what is written. */
static enum status save_progress(struct output *o)
{
    struct tokenize_progress p = {.parts = ++o->parts};
    enum status st = ST_OK;

    if (clock_s() - o->saved_s < save_every_s)
        return ST_OK;
    for (int k = 0; st == ST_OK && k < SPLITS; k++) {
        p.tokens[k] = o->tokens[k];
        st = shard_writer_sync(o->writers[k], &p.places[k]);
    }
    if (st == ST_OK)
        st = tokenize_progress_save(o->progress_path, o->fingerprint, &p);
    o->saved_s = clock_s();
    return st;
}

/* Reads the next part and counts it. */
static enum status read_part(struct corpus_reader *r, struct output *o,
                             struct corpus_part *part)
{
    enum status st = corpus_reader_next(r, JOB_BYTES, part);

    if (st != ST_OK || part->bytes == 0)
        return st;
    XXH3_64bits_update(o->hash, part->text, part->bytes);
    o->text_bytes += part->bytes;
    return ST_OK;
}

/* Reads past what an earlier run has written. */
static enum status skip_parts(struct corpus_reader *r, struct output *o)
{
    struct corpus_part part = {0};
    enum status st = ST_OK;

    for (uint64_t i = 0; st == ST_OK && i < o->parts; i++) {
        st = read_part(r, o, &part);
        if (st == ST_OK && part.bytes == 0)
            st = fail(ST_FORMAT, "%s: found %llu parts, needs at most %llu",
                      o->progress_path, (unsigned long long)o->parts,
                      (unsigned long long)i);
    }
    corpus_part_release(&part);
    return st;
}

static enum status encode_all(const struct corpus *c, const struct tokenizer *t,
                              const struct settings *s, struct output *o)
{
    struct corpus_reader r;
    struct progress progress;
    struct pool pool;
    double done = 0;
    bool more = true;
    enum status st = pool_start(&pool, t, s);

    corpus_reader_init(&r, c);
    if (st == ST_OK)
        st = skip_parts(&r, o);
    done = (double)o->text_bytes;
    o->saved_s = clock_s();
    progress_begin(&progress, "tokenize", "MB", (double)c->total * 1e-6, !s->quiet);
    progress.first = done * 1e-6;
    while (st == ST_OK && (more || pool.written < pool.filled)) {
        if (more && pool.filled - pool.written < pool.n_jobs) {
            struct job *job = &pool.jobs[pool.filled % pool.n_jobs];

            st = read_part(&r, o, &job->part);
            more = st == ST_OK && job->part.bytes > 0;
            if (more)
                pool_submit(&pool);
            continue;
        }
        const struct job *job = pool_collect(&pool);

        st = write_job(o, job);
        if (st == ST_OK)
            st = save_progress(o);
        done += (double)job->part.bytes;
        progress_update(&progress, done * 1e-6, NULL);
    }
    if (st == ST_OK)
        progress_end(&progress, done * 1e-6);
    o->documents = r.documents;
    pool_stop(&pool);
    corpus_reader_release(&r);
    return st;
}

/* The output folder, held so that two programs never mix their shards in it. */
struct hold {
    const char *folder;
    char path[PATH_MAX]; /* the hidden file that is locked */
    int fd;              /* -1: not held */
    bool made;           /* the folder is ours */
};

/* Removes what hold_folder made; a folder with something in it stays. */
static void let_go(struct hold *h)
{
    /* The name goes while the lock is held: nobody can hold a nameless file for long. */
    if (h->fd >= 0 && unlink(h->path) == 0 && h->made)
        (void)rmdir(h->folder);
    if (h->fd >= 0)
        close(h->fd);
    h->fd = -1;
}

/* Makes the folder and locks it. A lock that a killed program left is free again; where
 * the file system knows no locks there is none. */
static enum status hold_folder(struct hold *h, const char *folder)
{
    struct stat held, named;

    *h = (struct hold){.folder = folder, .fd = -1, .made = !file_exists(folder)};
    if (snprintf(h->path, sizeof h->path, "%s/.lock", folder) >= (int)sizeof h->path)
        return fail(ST_USAGE, "%s: path too long", folder);
    for (;;) {
        enum status st = folder_make(folder);

        if (st != ST_OK)
            return st;
        h->fd = open(h->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (h->fd < 0 && errno == ENOENT)
            continue; /* the one before us has just removed its empty folder */
        if (h->fd < 0)
            return fail(ST_IO, "%s: cannot create: %s", h->path, strerror(errno));
        if (flock(h->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(h->fd);
            h->fd = -1;
            return fail(ST_USAGE, "%s: another weft tokenize is writing here", folder);
        }
        /* The one before us may have removed the name between our open and our lock. */
        if (fstat(h->fd, &held) == 0 && stat(h->path, &named) == 0 &&
            held.st_ino == named.st_ino)
            return ST_OK;
        close(h->fd);
    }
}

/* A shard of any text, or of the one called stem. */
static bool is_shard(const char *name, const char *stem)
{
    char prefix[NAME_MAX + 1];

    for (int k = 0; k < SPLITS; k++) {
        int n =
            snprintf(prefix, sizeof prefix, "%s_%s_", stem ? stem : "*", split_names[k]);

        if (n < 0 || (size_t)n > sizeof prefix - 16)
            continue; /* no file can have that name */
        if (stem && !strncmp(name, prefix, (size_t)n) &&
            fnmatch("[0-9]*.bin", name + n, 0) == 0)
            return true;
        (void)strcat(prefix, "[0-9]*.bin");
        if (!stem && fnmatch(prefix, name, 0) == 0)
            return true;
    }
    return false;
}

/* Goes through the output folder: with `replace` removes the shards named `stem`, else
 * says what is in the way. A folder holds one text only, since all its shards are read
 * as one set and tokens.json speaks of it. */
static enum status visit_folder(const char *folder, const char *stem, bool force,
                                bool replace)
{
    enum status st = ST_OK;
    const struct dirent *entry;
    DIR *dir = opendir(folder);

    if (!dir)
        return errno == ENOENT
                   ? ST_OK
                   : fail(ST_IO, "%s: cannot open folder: %s", folder, strerror(errno));
    while (st == ST_OK && (entry = readdir(dir))) {
        const char *name = entry->d_name;
        bool ours = is_shard(name, stem) || !strcmp(name, "tokens.json");

        if (replace && ours && unlinkat(dirfd(dir), name, 0) != 0)
            st = fail(ST_IO, "%s/%s: cannot remove: %s", folder, name, strerror(errno));
        else if (!replace && ours && !force)
            st = fail(ST_USAGE, "%s/%s: is there already; --force replaces it", folder,
                      name);
        else if (!replace && !ours && is_shard(name, NULL))
            st = fail(ST_USAGE,
                      "%s/%s: belongs to another text; one folder holds one text, choose "
                      "another --out",
                      folder, name);
    }
    closedir(dir);
    return st;
}

/* All is written and durable before anything gets its name, tokens.json last. */
static enum status commit(const struct settings *s, const struct tokenizer *t,
                          const struct tokens_note *note, struct output *o)
{
    char fresh[PATH_MAX];
    char final[PATH_MAX];
    enum status st = ST_OK;

    if (snprintf(final, sizeof final, "%s/tokens.json", s->out) >= (int)sizeof final ||
        snprintf(fresh, sizeof fresh, "%s.new", final) >= (int)sizeof fresh)
        return fail(ST_USAGE, "%s: path too long", s->out);
    for (int k = 0; k < SPLITS && st == ST_OK; k++)
        st = shard_writer_finish(o->writers[k]);
    if (st == ST_OK)
        st = fault_status("tokenize", final);
    if (st == ST_OK)
        st = tokenizer_save(t, note, fresh);
    if (st != ST_OK)
        return st;
    if (s->force)
        st = visit_folder(s->out, s->name, true, true);
    for (int k = SPLITS - 1; k >= 0 && st == ST_OK; k--) {
        st = shard_writer_close(o->writers[k], &o->files[k], &o->last[k]);
        o->writers[k] = NULL;
    }
    if (st == ST_OK && rename(fresh, final) != 0)
        st = fail(ST_IO, "%s: cannot rename to %s: %s", fresh, final, strerror(errno));
    if (st == ST_OK)
        st = folder_sync(s->out);
    if (st != ST_OK)
        unlink(fresh);
    return st;
}

/* The command -------------------------------------------------------------------- */

/* 1234567 as "1,234,567". */
static const char *with_commas(uint64_t v, char buf[32])
{
    char digits[24];
    size_t n = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)v);
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = 0;
    return buf;
}

static void report(const struct output *o, double seconds)
{
    char a[32];
    char b[32];
    char d[32];
    char val[128] = "";

    if (o->files[VAL] > 0)
        (void)snprintf(val, sizeof val, "; validation %zu shard%s of %s tokens",
                       o->files[VAL], o->files[VAL] == 1 ? "" : "s",
                       with_commas(o->tokens[VAL], a));
    log_info("done: %zu shard%s, last one %s tokens%s; %s tokens from %s bytes in all, "
             "%.1f MB/s",
             o->files[TRAIN], o->files[TRAIN] == 1 ? "" : "s",
             with_commas(o->last[TRAIN], a), val,
             with_commas(o->tokens[TRAIN] + o->tokens[VAL], b),
             with_commas(o->text_bytes, d),
             seconds > 0 ? (double)o->text_bytes * 1e-6 / seconds : 0);
}

static size_t allowed_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return (size_t)CPU_COUNT(&set);
}

static enum status make_tokenizer(const struct settings *s, const struct corpus *c,
                                  struct tokenizer **out)
{
    if (s->chars)
        return make_char_tokenizer(c, !s->quiet, out);
    if (s->bytes)
        return tokenizer_new_bytes(out);
    return tokenizer_new_gpt2(s->vocab, out);
}

/* Removes the unfinished shards of a run that was killed and is not gone on with. */
static enum status remove_unfinished(const char *folder, const char *stem)
{
    enum status st = ST_OK;
    const struct dirent *entry;
    DIR *dir = opendir(folder);

    while (dir && st == ST_OK && (entry = readdir(dir))) {
        char name[NAME_MAX + 1];
        size_t n = strlen(entry->d_name);

        if (n < 5 || strcmp(entry->d_name + n - 4, ".tmp") != 0)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)(n - 4), entry->d_name);
        if (is_shard(name, stem) && unlinkat(dirfd(dir), entry->d_name, 0) != 0)
            st = fail(ST_IO, "%s/%s: cannot remove: %s", folder, entry->d_name,
                      strerror(errno));
    }
    if (dir)
        closedir(dir);
    return st;
}

/* Finds out whether the same work was begun and not finished, and goes on with it. */
static enum status resume(const struct settings *s, const struct corpus *c,
                          const struct tokenizer *t, struct output *o)
{
    struct tokenize_progress p;
    char options[512];
    bool found;
    enum status st = ST_OK;

    (void)snprintf(options, sizeof options, "weft %s %s %.17g %zu %s %d", WEFT_VERSION,
                   s->name, s->val_fraction, s->shard_tokens, s->field, s->special);
    if (snprintf(o->progress_path, PATH_MAX, "%s/.%s.progress", s->out, s->name) >=
        PATH_MAX)
        return fail(ST_USAGE, "%s: path too long", s->out);
    st = tokenize_fingerprint(t, options, c, &o->fingerprint);
    if (st != ST_OK)
        return st;
    tokenize_progress_load(o->progress_path, o->fingerprint, &p, &found);
    if (!found)
        return remove_unfinished(s->out, s->name);
    for (int k = 0; st == ST_OK && k < SPLITS; k++) {
        o->tokens[k] = p.tokens[k];
        st = shard_writer_resume(o->writers[k], &p.places[k]);
    }
    o->parts = p.parts;
    if (st == ST_OK)
        log_info("%s: goes on behind the %llu tokens of a run that was not finished",
                 s->out, (unsigned long long)(p.tokens[TRAIN] + p.tokens[VAL]));
    return st;
}

static enum status tokenize(const struct settings *s, const struct corpus *c)
{
    struct tokenizer *t = NULL;
    struct output o = {0};
    double start_s = clock_s();
    enum status st = make_tokenizer(s, c, &t);

    for (int k = 0; k < SPLITS && st == ST_OK; k++)
        st = shard_writer_new(s->out, s->name, split_names[k], tokenizer_vocab(t),
                              s->shard_tokens, &o.writers[k]);
    o.hash = XXH3_createState();
    if (st == ST_OK && !o.hash)
        st = fail(ST_NOMEM, "no memory for a checksum");
    if (st == ST_OK) {
        XXH3_64bits_reset(o.hash);
        st = resume(s, c, t, &o);
    }
    if (st == ST_OK)
        st = encode_all(c, t, s, &o);
    if (st == ST_OK) {
        struct tokens_note note = {.train_tokens = o.tokens[TRAIN],
                                   .val_tokens = o.tokens[VAL],
                                   .documents = o.documents,
                                   .text_bytes = o.text_bytes,
                                   .text_xxh3 = XXH3_64bits_digest(o.hash)};

        st = commit(s, t, &note, &o);
    }
    if (st == ST_OK && s->val_fraction > 0 && o.files[VAL] == 0)
        log_warn("no validation shard: the text has no white space in its last %g %%",
                 100 * s->val_fraction);
    if (st == ST_OK)
        report(&o, clock_s() - start_s);
    for (int k = 0; k < SPLITS; k++)
        shard_writer_discard(o.writers[k]);
    /* Whole or failed: in both cases there is nothing to go on with. */
    (void)unlink(o.progress_path);
    XXH3_freeState(o.hash);
    tokenizer_free(t);
    return st;
}

/* Up to three names, and how many more there are. */
static void tell_empty(const struct path_list *empty)
{
    char **p = empty->paths;
    size_t n = empty->count;
    char more[48] = "";

    if (n == 0)
        return;
    if (n > 3)
        (void)snprintf(more, sizeof more, " and %zu more", n - 3);
    log_warn("%zu empty file%s left out: %s%s%s%s%s%s", n, n == 1 ? "" : "s", p[0],
             n > 1 ? ", " : "", n > 1 ? p[1] : "", n > 2 ? ", " : "", n > 2 ? p[2] : "",
             more);
}

static void print_help(const struct option_row *table)
{
    printf(
        "usage: weft tokenize --vocab PATH|--char|--bytes --out DIR FILE|DIR...\n\n"
        "Turns text files into token shards. Each file is a document, and each line of a "
        ".jsonl\nfile; gzip and zstd files are decompressed. Folders are read whole, in "
        "the order of the\nnames, without hidden files. Documents are separated by one "
        "end-of-text id; --char has\nnone. The last F of the text, in the order of the "
        "files, is for validation.\n\nThe same command goes on after it was killed.\n\n"
        "example: weft tokenize --vocab vocab/vocab.bpe --out tokens books/\n\n"
        "options:\n");
    options_print_help(table);
}

static enum status tokenize_into(const struct settings *s, char **inputs, int n)
{
    struct corpus c = {.field = s->field};
    struct hold hold;
    enum status st = hold_folder(&hold, s->out);

    if (st == ST_OK)
        st = visit_folder(s->out, s->name, s->force, false);
    if (st == ST_OK)
        st = corpus_open(&c, inputs, n, !s->quiet);
    if (st == ST_OK)
        tell_empty(&c.empty);
    corpus_split(&c, s->val_fraction);
    if (st == ST_OK)
        st = tokenize(s, &c);
    let_go(&hold);
    corpus_release(&c);
    return st;
}

enum status cmd_tokenize(int argc, char **argv, int *exit_code)
{
    struct settings s = {
        .name = "text", .field = "text", .val_fraction = 0.1, .shard_tokens = 100000000};
    struct option_row table[] = {
        {.name = "out",
         .kind = OPTION_TEXT,
         .value = &s.out,
         .meta = "DIR",
         .help = "folder for the shards and tokens.json"},
        {.name = "vocab",
         .kind = OPTION_TEXT,
         .value = &s.vocab,
         .meta = "PATH",
         .help = "GPT-2's ids, from this merge table (vocab.bpe or merges.txt)"},
        {.name = "char",
         .kind = OPTION_SWITCH,
         .value = &s.chars,
         .help = "an id a character of the text, which must be UTF-8"},
        {.name = "bytes",
         .kind = OPTION_SWITCH,
         .value = &s.bytes,
         .help = "an id a byte, and 256 for end-of-text"},
        {.name = "field",
         .kind = OPTION_TEXT,
         .value = &s.field,
         .meta = "NAME",
         .help = "field of the lines of .jsonl files that holds the document"},
        {.name = "allow-special",
         .kind = OPTION_SWITCH,
         .value = &s.special,
         .help = "<|endoftext|> in a text is end-of-text, else plain text"},
        {.name = "val-fraction",
         .kind = OPTION_NUMBER,
         .value = &s.val_fraction,
         .meta = "F",
         .help = "the last F of the text, in the order of the files, is for validation"},
        {.name = "shard-tokens",
         .kind = OPTION_SIZE,
         .value = &s.shard_tokens,
         .meta = "N",
         .help = "tokens a shard"},
        {.name = "threads",
         .kind = OPTION_SIZE,
         .value = &s.threads,
         .meta = "N",
         .help = "worker threads; 0: one a core"},
        {.name = "name",
         .kind = OPTION_TEXT,
         .value = &s.name,
         .meta = "STEM",
         .help = "shards are called STEM_train_000001.bin, STEM_val_000000.bin"},
        {.name = "force",
         .kind = OPTION_SWITCH,
         .value = &s.force,
         .help = "replace the shards that are there"},
        {.name = "quiet",
         .kind = OPTION_SWITCH,
         .value = &s.quiet,
         .help = "warnings and errors only"},
        {.name = "help", .kind = OPTION_SWITCH, .value = &s.help, .help = "this text"},
        {0},
    };
    char **inputs;
    int n;
    enum status st = options_parse(table, argc, argv, &inputs, &n);

    *exit_code = 0;
    if (st == ST_OK && s.help) {
        print_help(table);
        return ST_OK;
    }
    if (st == ST_OK)
        st = check_settings(&s, n);
    log_set_quiet(s.quiet);
    if (st == ST_OK && s.threads == 0)
        s.threads = min_size(allowed_cores(), MAX_THREADS);
    return st == ST_OK ? tokenize_into(&s, inputs, n) : st;
}
