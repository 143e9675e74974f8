/* SPDX-License-Identifier: MIT */
/* The block plan: coverage, balance and pieces, for the real models and for small vectors
 * against a plan built one element at a time. */
#include "comm/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "plans.h"

enum { MAX_SLICES = 12 * 48 + 4, KINDS = 12 };

struct model {
    size_t layers, channels;
    size_t parameters; /* published counts */
};

static const struct model models[] = {{12, 768, 124439808},
                                      {24, 1024, 354823168},
                                      {36, 1280, 774030080},
                                      {48, 1600, 1557611200}};
enum { VOCABULARY = 50257, CONTEXT = 1024 };

/* Sizes of a layer's tensors in the order in which backward finishes them, and the place
 * of each kind in storage order (ln1w ln1b qkvw qkvb attprojw attprojb ln2w ...). */
static void layer_sizes(size_t c, size_t sizes[KINDS])
{
    const size_t list[KINDS] = {c, 4 * c * c, 4 * c, 4 * c * c, c, c,
                                c, c * c,     3 * c, 3 * c * c, c, c};
    memcpy(sizes, list, sizeof list);
}

static const int storage_place[KINDS] = {11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};

static size_t padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* Fills slices in production order with offsets of one of the two layouts. */
static size_t model_slices(const struct model *m, bool production, struct plan_slice *s)
{
    size_t sizes[KINDS];
    size_t n = 0;
    size_t base[KINDS];
    size_t offset = padded(VOCABULARY * m->channels) + padded(CONTEXT * m->channels);

    layer_sizes(m->channels, sizes);
    for (int place = 0; place < KINDS; place++)
        for (int k = 0; k < KINDS; k++)
            if (storage_place[k] == place) {
                base[k] = offset;
                offset += m->layers * padded(sizes[k]);
            }
    s[n++] =
        (struct plan_slice){padded(m->channels), offset + padded(m->channels)}; /* lnfb */
    s[n++] = (struct plan_slice){padded(m->channels), offset};                  /* lnfw */
    for (size_t l = m->layers; l-- > 0;)
        for (int k = 0; k < KINDS; k++)
            s[n++] =
                (struct plan_slice){padded(sizes[k]), base[k] + l * padded(sizes[k])};
    s[n++] = (struct plan_slice){padded(CONTEXT * m->channels),
                                 padded(VOCABULARY * m->channels)};
    s[n++] = (struct plan_slice){padded(VOCABULARY * m->channels), 0};
    if (production) {
        size_t at = 0;

        for (size_t i = 0; i < n; at += s[i++].elems)
            s[i].memory_offset = at;
    }
    return n;
}

static bool aligned(size_t x)
{
    return x % PLAN_ALIGN_ELEMS == 0;
}

/* Everything the header promises. */
static void check_plan(const struct plan *p, const struct plan_slice *slices,
                       size_t n_slices, int ranks)
{
    size_t at = 0;
    size_t slice = 0;
    size_t used = 0;
    size_t segment = 0;
    size_t piece = 0;
    size_t shortest = SIZE_MAX;
    size_t longest = 0;

    assert_int_equal(p->ranks, ranks);
    for (size_t b = 0; b < p->n_blocks; b++) {
        const struct plan_block *k = &p->blocks[b];
        size_t in_piece = 0;
        size_t total = 0;

        assert_int_equal(k->begin, at);
        assert_true(k->elems > 0 && aligned(k->begin));
        assert_int_equal(k->n_parts, 1);
        assert_int_equal(p->parts[k->first_part].owner, (int)(b % (size_t)ranks));
        assert_int_equal(k->first_segment, segment);
        assert_int_equal(k->first_piece, piece);
        assert_true(k->n_segments > 0 && k->n_pieces > 0);
        for (size_t i = 0; i < k->n_segments; i++, segment++) {
            const struct plan_segment *s = &p->segments[segment];
            const struct plan_piece *q = &p->pieces[piece];

            while (slices[slice].elems == used) {
                slice++;
                used = 0;
            }
            assert_int_equal(s->slice, slice);
            assert_int_equal(s->offset, slices[slice].memory_offset + used);
            assert_true(s->elems > 0 && aligned(s->elems) && aligned(s->offset));
            assert_int_equal(s->offset, q->offset + in_piece);
            used += s->elems;
            in_piece += s->elems;
            total += s->elems;
            assert_true(used <= slices[slice].elems && in_piece <= q->elems);
            if (in_piece == q->elems) {
                /* A piece ends only where the next segment does not adjoin. */
                if (i + 1 < k->n_segments)
                    assert_true(p->segments[segment + 1].offset != s->offset + s->elems);
                piece++;
                in_piece = 0;
            }
        }
        assert_int_equal(in_piece, 0);
        assert_int_equal(total, k->elems);
        assert_int_equal(piece, k->first_piece + k->n_pieces);
        at += k->elems;
        shortest = k->elems < shortest ? k->elems : shortest;
        longest = k->elems > longest ? k->elems : longest;
    }
    assert_int_equal(at, p->elems);
    assert_int_equal(segment, p->n_segments);
    assert_int_equal(piece, p->n_pieces);
    assert_true(p->n_blocks == 0 || longest - shortest <= PLAN_ALIGN_ELEMS);
    while (slice < n_slices && slices[slice].elems == used) {
        slice++;
        used = 0;
    }
    assert_int_equal(slice, n_slices);
}

static void check_model(const struct model *m, int ranks, size_t block_bytes,
                        bool one_block)
{
    static struct plan_slice slices[MAX_SLICES];

    for (int production = 0; production < 2; production++) {
        size_t n = model_slices(m, production, slices);
        struct plan p =
            plan_of(slices, n, ranks,
                    (struct plan_options){.strategy = STRATEGY_REDUCE_BROADCAST,
                                          .block_bytes = block_bytes,
                                          .one_block = one_block});
        size_t sum = 0;

        assert_int_equal(p.elems, m->parameters);
        check_plan(&p, slices, n, ranks);
        if (production)
            assert_int_equal(p.n_pieces, p.n_blocks);
        if (one_block) {
            assert_int_equal(p.n_blocks, 1);
        } else {
            assert_int_equal(p.n_blocks % (size_t)ranks, 0);
            for (int r = 0; r < ranks; r++)
                sum += plan_owned_elems(&p, r);
            assert_int_equal(sum, p.elems);
            if (p.blocks[0].elems * sizeof(float) >= 65536)
                assert_true(plan_imbalance(&p) <= 1.01);
        }
        plan_release(&p);
    }
}

static void models_are_covered_for_all_rank_counts(void **state)
{
    static const size_t blocks[] = {(size_t)1 << 20, (size_t)32 << 20, 7654321, SIZE_MAX};

    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        for (int ranks = 1; ranks <= 64; ranks++)
            check_model(&models[m], ranks, blocks[(size_t)ranks % 4], false);
        for (size_t b = 0; b < 4; b++) {
            check_model(&models[m], 100, blocks[b], false);
            check_model(&models[m], 256, blocks[b], false);
            check_model(&models[m], 1000, blocks[b], false);
            check_model(&models[m], 1024, blocks[b], false);
        }
        check_model(&models[m], 8, SIZE_MAX, true);
    }
}

static void models_are_covered_for_all_block_sizes(void **state)
{
    (void)state;
    for (size_t bytes = 4096; bytes <= (size_t)32 << 20; bytes *= 2) {
        check_model(&models[0], 1, bytes, false);
        check_model(&models[0], 3, bytes, false);
        check_model(&models[0], 16, bytes + 4, false);
    }
    check_model(&models[3], 5, 65536, false);
}

/* The definition of the count, in exact arithmetic on small numbers. */
static size_t nearest_count(size_t n, size_t ranks, size_t block_bytes)
{
    size_t units = n / PLAN_ALIGN_ELEMS;
    size_t best = ranks;

    if (units < ranks)
        return units;
    for (size_t k = ranks; k <= units; k += ranks) {
        double wish = (double)n * 4 / (double)block_bytes;

        if (wish - (double)best >= (double)k - wish)
            best = k;
    }
    return best;
}

static void small_vectors_match_the_definition(void **state)
{
    static const size_t sizes[][4] = {{16, 0, 0, 0},     {16, 32, 16, 0},
                                      {48, 0, 16, 160},  {0, 16, 0, 1616},
                                      {336, 16, 80, 16}, {4096, 16, 16, 48}};
    static const int place[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 1, 3}};

    (void)state;
    for (size_t c = 0; c < sizeof sizes / sizeof sizes[0] * 3; c++) {
        const size_t *elems = sizes[c / 3];
        struct plan_slice slices[4];
        size_t n = 0;

        for (int i = 0; i < 4; i++) {
            slices[i] = (struct plan_slice){elems[i], 0};
            for (int j = 0; j < 4; j++)
                if (place[c % 3][j] < place[c % 3][i])
                    slices[i].memory_offset += elems[j];
            n += elems[i];
        }
        for (int ranks = 1; ranks <= 67; ranks += ranks < 9 ? 1 : 29)
            for (size_t bytes = 64; bytes < 40000; bytes = bytes * 3 / 2 + 1) {
                struct plan p =
                    plan_of(slices, 4, ranks,
                            (struct plan_options){.strategy = STRATEGY_REDUCE_BROADCAST,
                                                  .block_bytes = bytes});

                assert_int_equal(p.n_blocks, nearest_count(n, (size_t)ranks, bytes));
                for (size_t b = 0; b < p.n_blocks; b++)
                    assert_int_equal(p.blocks[b].begin, b * (n / 16) / p.n_blocks * 16);
                check_plan(&p, slices, 4, ranks);
                plan_release(&p);
            }
    }
}

static void odd_inputs_are_answered(void **state)
{
    struct plan_slice slice = {16 * 5, 32};
    struct plan_options o = {.strategy = STRATEGY_REDUCE_BROADCAST, .block_bytes = 63};
    struct grid grid;
    struct plan p;

    (void)state;
    assert_int_equal(grid_init(&grid, 2, NULL, SCHEDULE_FLAT), ST_OK);
    o.grid = &grid;
    assert_int_equal(plan_init(&p, &slice, 1, &o), ST_USAGE);
    assert_non_null(strstr(fail_text(), "63"));
    assert_null(p.blocks);
    grid_release(&grid);
    o.block_bytes = 64;
    p = plan_of(&slice, 1, 7, o);
    assert_int_equal(p.n_blocks,
                     5); /* fewer units than ranks: the last two own nothing */
    assert_int_equal(plan_owned_elems(&p, 4), 16);
    assert_int_equal(plan_owned_elems(&p, 6), 0);
    assert_true(plan_imbalance(&p) > 1.39 && plan_imbalance(&p) < 1.41);
    plan_release(&p);
    p = plan_of(NULL, 0, 4, o);
    assert_int_equal(p.n_blocks, 0);
    assert_true(plan_imbalance(&p) == 1.0);
    plan_release(&p);
    o.block_bytes = 0;
    o.one_block = true;
    p = plan_of(NULL, 0, 4, o);
    plan_release(&p);
    plan_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_covered_for_all_rank_counts),
        cmocka_unit_test(models_are_covered_for_all_block_sizes),
        cmocka_unit_test(small_vectors_match_the_definition),
        cmocka_unit_test(odd_inputs_are_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
