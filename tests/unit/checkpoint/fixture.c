/* SPDX-License-Identifier: MIT */
#include "fixture.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/rng.h"

enum { GAP = -1 }; /* beside the sections */

static void must(enum status st)
{
    if (st != ST_OK)
        bug("%s", fail_text());
}

static float value(int section, size_t canonical, uint64_t salt)
{
    return (float)((double)(rng_bits(salt, (uint64_t)section, canonical) >> 40) + 1.0);
}

static void make_plan(struct fixture *f, const struct holding *h)
{
    struct plan_options o = {.strategy =
                                 h->strategy ? h->strategy : STRATEGY_REDUCE_BROADCAST,
                             .block_bytes = h->block_bytes,
                             .roots = h->roots,
                             .one_block = h->one_block};
    struct plan_slice *slices;
    struct grid grid;

    must(memory_alloc(f->layout.n_slices, sizeof *slices, "slices", &slices));
    for (size_t i = 0; i < f->layout.n_slices; i++)
        slices[i] = (struct plan_slice){.elems = f->layout.slices[i].span,
                                        .memory_offset = f->layout.slices[i].offset};
    must(grid_init(&grid, h->ranks, NULL, SCHEDULE_FLAT));
    o.grid = &grid;
    must(plan_init(&f->plan, slices, f->layout.n_slices, &o));
    grid_release(&grid);
    free(slices);
}

void fixture_init(struct fixture *f, const struct holding *h, int rank)
{
    struct shape shape;

    *f = (struct fixture){.rank = rank};
    must(shape_parse(h->spec, 0, &shape));
    must(layout_init(&f->layout, &shape, h->order));
    make_plan(f, h);
    f->moments = plan_updated_elems(&f->plan, rank);
    f->view = (struct checkpoint_view){.layout = &f->layout, .plan = &f->plan};
    must(memory_alloc(f->layout.elems, sizeof(float), "params", &f->view.params));
    must(memory_alloc(f->moments, sizeof(float), "m", &f->view.m));
    must(memory_alloc(f->moments, sizeof(float), "v", &f->view.v));
}

void fixture_release(struct fixture *f)
{
    free(f->view.params);
    free(f->view.m);
    free(f->view.v);
    plan_release(&f->plan);
    layout_release(&f->layout);
}

typedef size_t visitor(float *x, int section, size_t canonical, uint64_t salt);

/* The part of a block that holds its element i, counted from the start of the block. */
static const struct plan_part *part_of(const struct plan *plan,
                                       const struct plan_block *block, size_t i)
{
    const struct plan_part *part = &plan->parts[block->first_part];

    while (i >= part->at + part->elems)
        part++;
    return part;
}

/* The moments of one block that the rank keeps; the first is number *moment. */
static size_t each_moment(const struct fixture *f, const struct plan_block *block,
                          const long *canonical, size_t *moment, visitor *visit,
                          uint64_t salt)
{
    size_t sum = 0, in_block = 0;

    for (size_t i = 0; i < block->n_segments; i++) {
        const struct plan_segment *seg = &f->plan.segments[block->first_segment + i];

        for (size_t k = 0; k < seg->elems; k++, in_block++) {
            long at = canonical[seg->offset + k];

            if (!f->plan.replicated &&
                part_of(&f->plan, block, in_block)->owner != f->rank)
                continue;
            sum +=
                visit(&f->view.m[*moment], at == GAP ? GAP : MOMENT_M, (size_t)at, salt);
            sum +=
                visit(&f->view.v[*moment], at == GAP ? GAP : MOMENT_V, (size_t)at, salt);
            ++*moment;
        }
    }
    return sum;
}

/* Calls visit for every element of params and of the rank's moments, gaps included. */
static size_t each_element(const struct fixture *f, bool moments, visitor *visit,
                           uint64_t salt)
{
    long *canonical;
    size_t sum = 0, moment = 0;

    must(memory_alloc(f->layout.elems, sizeof *canonical, "map", &canonical));
    for (size_t i = 0; i < f->layout.elems; i++)
        canonical[i] = GAP;
    for (size_t i = 0; i < f->layout.n_slices; i++) {
        const struct slice *s = &f->layout.slices[i];

        for (size_t k = 0; k < s->elems; k++)
            canonical[s->offset + k] = (long)(s->canonical_offset + k);
    }
    for (size_t i = 0; !moments && i < f->layout.elems; i++)
        sum += visit(&f->view.params[i], canonical[i] == GAP ? GAP : PARAMS,
                     (size_t)canonical[i], salt);
    for (size_t b = 0; moments && b < f->plan.n_blocks; b++)
        sum += each_moment(f, &f->plan.blocks[b], canonical, &moment, visit, salt);
    require(!moments || moment == f->moments);
    free(canonical);
    return sum;
}

static size_t set_value(float *x, int section, size_t canonical, uint64_t salt)
{
    *x = section == GAP ? 0.0F : value(section, canonical, salt);
    return 0;
}

static size_t is_wrong(float *x, int section, size_t canonical, uint64_t salt)
{
    float needed = section == GAP ? 0.0F : value(section, canonical, salt);

    return memcmp(x, &needed, sizeof needed) != 0;
}

void fixture_fill(struct fixture *f, uint64_t salt)
{
    (void)each_element(f, false, set_value, salt);
    (void)each_element(f, true, set_value, salt);
}

void fixture_poison(struct fixture *f)
{
    for (size_t i = 0; i < f->layout.elems; i++)
        f->view.params[i] = NAN;
    for (size_t i = 0; i < f->moments; i++)
        f->view.m[i] = f->view.v[i] = NAN;
}

size_t fixture_wrong_params(const struct fixture *f, uint64_t salt)
{
    return each_element(f, false, is_wrong, salt);
}

size_t fixture_wrong_moments(const struct fixture *f, uint64_t salt)
{
    return each_element(f, true, is_wrong, salt);
}

struct run_state fixture_state(uint64_t step)
{
    return (struct run_state){.step = step,
                              .tokens = 1000 * step + 7,
                              .seed = UINT64_MAX - step, /* beyond a signed 64-bit */
                              .batch_windows = 24,
                              .adam_step = step,
                              .best_val_loss = (double)INFINITY,
                              .wall_s = 0.1 * (double)step};
}

bool same_state(const struct run_state *a, const struct run_state *b)
{
    return a->step == b->step && a->tokens == b->tokens && a->seed == b->seed &&
           a->batch_windows == b->batch_windows && a->adam_step == b->adam_step &&
           memcmp(&a->best_val_loss, &b->best_val_loss, sizeof(double)) == 0 &&
           memcmp(&a->wall_s, &b->wall_s, sizeof(double)) == 0;
}

enum status fixture_save(struct comm *c, const char *run, const struct run_state *state,
                         const struct checkpoint_view *view, const char *config_text,
                         const char *tokens_json, char *path)
{
    static int turn;
    const struct saver_options options = {.run = run,
                                          .view = *view,
                                          .config_text = config_text,
                                          .tokens_json = tokens_json,
                                          .keep = SIZE_MAX,
                                          .background = turn++ % 2 == 0};
    struct saver_report report;
    struct saver *s;

    must(saver_new(c, &options, &s));
    saver_prepare(s, true);
    for (size_t i = 0; i < saver_pieces(s); i++)
        saver_copy(s, i);
    enum status st = saver_start(s, state);
    if (st == ST_OK)
        st = saver_wait(s);
    saver_last(s, &report);
    (void)snprintf(path, PATH_BYTES, "%s", report.path);
    saver_free(s);
    return st;
}

void simulate_save(const char *folder, const struct holding *h,
                   const struct run_state *state, uint64_t salt)
{
    struct file_sums *sums;

    must(folder_make(folder));
    must(memory_alloc((size_t)h->ranks, sizeof *sums, "sums", &sums));
    for (int r = 0; r < h->ranks; r++) {
        struct fixture f;

        fixture_init(&f, h, r);
        fixture_fill(&f, salt);
        must(native_write_state(folder, &f.view, r, &sums[r]));
        if (r == h->ranks - 1)
            must(native_write_manifest(folder, &f.view, state, "lr = 3e-4\n", sums));
        fixture_release(&f);
    }
    free(sums);
}

size_t simulate_load(const char *folder, const struct holding *h, uint64_t salt)
{
    struct manifest m;
    size_t wrong = 0;

    must(native_inspect(folder, &m));
    for (int i = 0; i < m.ranks; i++) {
        must(native_verify(&m, folder, i, false));
        must(native_verify(&m, folder, i, true));
    }
    for (int r = 0; r < h->ranks; r++) {
        struct fixture f;

        fixture_init(&f, h, r);
        fixture_poison(&f);
        if (r == 0) {
            must(native_read_params(&m, folder, &f.layout, f.view.params));
            wrong += fixture_wrong_params(&f, salt);
        }
        must(native_read_moments(&m, folder, &f.view, r));
        wrong += fixture_wrong_moments(&f, salt);
        fixture_release(&f);
    }
    manifest_release(&m);
    return wrong;
}

void scratch_make(char *out)
{
    const char *base = getenv("TMPDIR");

    (void)snprintf(out, PATH_BYTES, "%s/weft-checkpoint-XXXXXX",
                   base && base[0] ? base : "/tmp");
    if (!mkdtemp(out))
        bug("%s: cannot make a scratch folder", out);
}

void scratch_remove(const char *path)
{
    must(folder_remove(path));
}

/* Kept until the program ends: a test may hold a path for as long as it likes. */
const char *text(const char *fmt, ...)
{
    static struct path_list kept;
    char buf[2 * PATH_BYTES];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    must(path_list_add(&kept, buf));
    return kept.paths[kept.count - 1];
}

static FILE *captured;
static int kept_stderr = -1;

void capture_begin(void)
{
    fflush(stderr);
    captured = tmpfile();
    kept_stderr = dup(2);
    if (!captured || kept_stderr < 0 || dup2(fileno(captured), 2) < 0)
        bug("cannot redirect stderr");
}

const char *capture_end(void)
{
    static char buf[1 << 16];

    fflush(stderr);
    if (dup2(kept_stderr, 2) < 0)
        bug("cannot restore stderr");
    close(kept_stderr);
    rewind(captured);
    size_t n = fread(buf, 1, sizeof buf - 1, captured);
    buf[n] = 0;
    fclose(captured);
    return buf;
}

void file_flip_byte(const char *path, long offset)
{
    FILE *f = fopen(path, "r+b");

    if (!f || fseek(f, offset, SEEK_SET) != 0)
        bug("%s: cannot open", path);
    int c = fgetc(f);
    if (c == EOF || fseek(f, offset, SEEK_SET) != 0 || fputc(c ^ 1, f) == EOF ||
        fclose(f) != 0)
        bug("%s: cannot change", path);
}

void file_resize(const char *path, long change)
{
    uint64_t bytes;

    must(file_size(path, &bytes));
    if (truncate(path, (long)bytes + change) != 0)
        bug("%s: cannot resize", path);
}

void file_replace(const char *path, const char *from, const char *to)
{
    char *data;
    size_t bytes;

    must(file_read_all(path, &data, &bytes));
    char *at = strstr(data, from);
    if (!at)
        bug("%s: has no '%s'", path, from);
    size_t before = (size_t)(at - data), after = bytes - before - strlen(from);
    size_t n = before + strlen(to) + after;
    char *changed = malloc(n + 1);

    require(changed);
    memcpy(changed, data, before);
    memcpy(changed + before, to, strlen(to));
    memcpy(changed + before + strlen(to), at + strlen(from), after);
    must(file_write_all(path, changed, n));
    free(changed);
    free(data);
}

void manifest_sign(const char *path)
{
    const char *key = ",\n  \"manifest_xxh3\": \"";
    char *data, *seal;
    char sum[17];
    size_t bytes;

    must(file_read_all(path, &data, &bytes));
    seal = strstr(data, key);
    if (!seal)
        bug("%s: has no checksum", path);
    (void)snprintf(sum, sizeof sum, "%016llx",
                   (unsigned long long)XXH3_64bits(data, (size_t)(seal - data)));
    memcpy(seal + strlen(key), sum, 16);
    must(file_write_all(path, data, bytes));
    free(data);
}
