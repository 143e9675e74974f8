/* SPDX-License-Identifier: MIT */
/* Checkpoints written while the training goes on.
 *
 * A save has two phases. In the first every rank writes a copy of what it owns; in the
 * second rank 0 adds the manifest, gives the folder its name and prunes. Each phase runs
 * on a thread of its own that touches nothing but the copy and files; the ranks meet
 * between the phases, when all of them know that all are through. */
#include "checkpoint/saver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/native.h"

enum { PIECE_ELEMS = 1 << 20 };

struct piece {
    size_t range; /* number in owned.ranges */
    size_t first; /* element of the range */
    size_t elems;
    size_t to; /* element of the section in the copy */
};

enum phase { IDLE, WRITING, PUBLISHING };

struct saver {
    struct comm *comm;
    struct saver_options options;
    struct owned own;
    struct piece *pieces; /* of one section */
    size_t n_pieces;
    float *memory;     /* for copies; NULL without `background` */
    float *copy;       /* sections one after another; NULL: this save does without */
    atomic_size_t bad; /* least number of a piece with a number that is not finite */

    struct run_state state; /* of the checkpoint being written */
    struct save_paths paths;
    struct file_sums mine, *sums;

    enum phase phase; /* the same on all ranks */
    bool threaded;    /* the thread is to be joined */
    pthread_t thread;
    atomic_bool done;
    enum status st; /* of the thread, with its text */
    char text[1024];
};

static size_t copy_bytes(const struct owned *own)
{
    return N_SECTIONS * own->elems * sizeof(float);
}

static enum status cut_pieces(struct saver *s)
{
    size_t at = 0, n = 0;
    enum status st;

    for (size_t i = 0; i < s->own.n; i++)
        n += ceil_div(s->own.ranges[i].elems, PIECE_ELEMS);
    st = memory_alloc(n, sizeof *s->pieces, "checkpoint pieces", &s->pieces);
    for (size_t i = 0; st == ST_OK && i < s->own.n; i++)
        for (size_t first = 0; first < s->own.ranges[i].elems; first += PIECE_ELEMS) {
            size_t elems = min_size(PIECE_ELEMS, s->own.ranges[i].elems - first);

            s->pieces[s->n_pieces++] = (struct piece){i, first, elems, at};
            at += elems;
        }
    return st;
}

static enum status build(struct saver *s)
{
    const struct checkpoint_view *view = &s->options.view;
    void *copy = NULL;
    enum status st =
        owned_init(&s->own, view->layout, view->plan, comm_rank(s->comm), OWNED);

    if (st == ST_OK)
        st = cut_pieces(s);
    if (st == ST_OK)
        st = memory_alloc((size_t)comm_size(s->comm), sizeof *s->sums, "checksums",
                          &s->sums);
    if (st == ST_OK && s->options.background)
        st = memory_map(copy_bytes(&s->own), "the copy for checkpoints", &copy);
    s->memory = copy;
    return st;
}

enum status saver_new(struct comm *c, const struct saver_options *options,
                      struct saver **out)
{
    struct saver *s = NULL;
    enum status st = memory_alloc(1, sizeof *s, "checkpoint writer", &s);

    *out = NULL;
    if (st == ST_OK) {
        s->comm = c;
        s->options = *options;
        atomic_init(&s->bad, SIZE_MAX);
        st = build(s);
    }
    st = comm_agree(c, st);
    if (st == ST_OK) {
        *out = s;
        s = NULL;
    }
    saver_free(s);
    return st;
}

void saver_free(struct saver *s)
{
    if (!s)
        return;
    require(s->phase == IDLE);
    memory_unmap(s->memory, copy_bytes(&s->own));
    owned_release(&s->own);
    free(s->pieces);
    free(s->sums);
    free(s);
}

void saver_prepare(struct saver *s, bool beside)
{
    require(s->phase == IDLE);
    s->copy = beside ? s->memory : NULL;
}

size_t saver_pieces(const struct saver *s)
{
    return N_SECTIONS * s->n_pieces;
}

/* Copies (with `to`) and looks for numbers that are not finite. */
static bool copy_finite(float *to, const float *from, size_t n)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t bad = 0;

    if (to)
        memcpy(to, from, n * sizeof *to);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, from + i, sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

void saver_copy(struct saver *s, size_t i)
{
    enum section section = (enum section)(i / s->n_pieces);
    const struct piece *p = &s->pieces[i % s->n_pieces];
    const float *from =
        state_at(&s->options.view, &s->own.ranges[p->range], section) + p->first;
    float *base = s->copy ? s->copy + section * s->own.elems + p->to : NULL;
    const size_t stretch = 4096; /* stays in the nearest cache between copy and look */
    bool good = true;

    for (size_t at = 0; at < p->elems; at += stretch)
        good &= copy_finite(base ? base + at : NULL, from + at,
                            min_size(stretch, p->elems - at));
    if (good)
        return;
    for (size_t bad = atomic_load(&s->bad); i < bad;)
        if (atomic_compare_exchange_weak(&s->bad, &bad, i))
            break;
}

/* Names the tensor in which a number is not finite. */
static enum status check_finite(struct saver *s, uint64_t step)
{
    static const char *const what[] = {"weight", "first moment", "second moment"};
    size_t bad = atomic_exchange(&s->bad, SIZE_MAX);

    if (bad == SIZE_MAX)
        return ST_OK;
    const struct piece *p = &s->pieces[bad % s->n_pieces];
    const struct owned_range *r = &s->own.ranges[p->range];
    enum section section = (enum section)(bad / s->n_pieces);
    const float *x = state_at(&s->options.view, r, section) + p->first;
    size_t at = r->memory + p->first;
    char name[40];

    while (copy_finite(NULL, x++, 1))
        at++;
    return fail(
        ST_NUMERIC,
        "step %llu: found a %s of %s that is not a finite number on rank %d; no "
        "checkpoint is written. Lower --lr, or lengthen --warmup",
        (unsigned long long)step, what[section],
        slice_name(layout_slice_at(s->options.view.layout, at), name, sizeof name),
        comm_rank(s->comm));
}

/* ---- the thread ---- */

static enum status run_phase(struct saver *s)
{
    const struct saver_options *o = &s->options;
    const struct state_source from = {&o->view, s->copy};
    enum status st;

    if (s->phase == WRITING)
        return save_state(s->paths.tmp, comm_rank(s->comm), comm_size(s->comm), &s->own,
                          &from, &s->mine);
    if (comm_rank(s->comm) != 0)
        return ST_OK;
    st = save_publish(&s->paths, &o->view, &s->state, o->config_text, o->tokens_json,
                      s->sums);
    if (st == ST_OK && checkpoint_prune(o->run, o->keep) != ST_OK)
        log_warn("older checkpoints are not removed: %s", fail_text());
    return st;
}

static void *thread_main(void *arg)
{
    struct saver *s = arg;

    s->st = run_phase(s);
    (void)snprintf(s->text, sizeof s->text, "%s", s->st == ST_OK ? "" : fail_text());
    atomic_store(&s->done, true);
    return NULL;
}

/* Without a thread, and where there is nothing to do, the phase runs here. */
static void begin_phase(struct saver *s, enum phase phase)
{
    bool idle = phase == PUBLISHING && comm_rank(s->comm) != 0;

    s->phase = phase;
    atomic_store(&s->done, false);
    s->threaded =
        s->copy && !idle && pthread_create(&s->thread, NULL, thread_main, s) == 0;
    if (!s->threaded)
        (void)thread_main(s);
}

/* Waits for this rank's part of the phase. */
static enum status end_phase(struct saver *s)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
    return s->st == ST_OK ? ST_OK : fail(s->st, "%s", s->text);
}

/* ---- what the training loop calls ---- */

enum status saver_start(struct saver *s, const struct run_state *state)
{
    bool first = comm_rank(s->comm) == 0;
    enum status st;

    require(s->phase == IDLE);
    s->state = *state;
    st = check_finite(s, state->step);
    if (st == ST_OK)
        st = save_folder(&s->paths, s->options.run, state->step, first);
    fault_at("save-copy");
    st = comm_agree(s->comm, st);
    if (st == ST_OK)
        begin_phase(s, WRITING);
    else if (first && st != ST_NUMERIC)
        save_give_up(&s->paths);
    else if (first && folder_remove(s->paths.tmp) != ST_OK)
        log_warn("%s", fail_text());
    return st;
}

bool saver_busy(const struct saver *s)
{
    return s->phase != IDLE;
}

bool saver_part_done(const struct saver *s)
{
    return s->phase != IDLE && atomic_load(&s->done);
}

enum status saver_advance(struct saver *s)
{
    enum status st = comm_agree(s->comm, end_phase(s));

    require(s->phase != IDLE);
    if (st != ST_OK) {
        s->phase = IDLE;
        if (comm_rank(s->comm) == 0)
            save_give_up(&s->paths);
    } else if (s->phase == WRITING) {
        comm_gather_all(s->comm, &s->mine, sizeof s->mine, s->sums);
        begin_phase(s, PUBLISHING);
    } else {
        s->phase = IDLE;
    }
    return st;
}

enum status saver_wait(struct saver *s)
{
    enum status st = ST_OK;

    while (st == ST_OK && s->phase != IDLE)
        st = saver_advance(s);
    return st;
}

void saver_last(const struct saver *s, struct saver_report *out)
{
    *out = (struct saver_report){.path = s->paths.final, .step = s->state.step};
    for (int r = 0; r < comm_size(s->comm); r++)
        out->bytes += s->sums[r].bytes;
}
