/* SPDX-License-Identifier: MIT */
/* The block plan: coverage, pieces and parts, for the real models and for small vectors
 * against a plan built one element at a time. Who owns what: test_strategy.c. */
#include "base/rng.h"
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

/* Parts cover their block and are of one length but for the rounding. */
static void check_parts(const struct plan *p)
{
    size_t part = 0;

    for (size_t b = 0; b < p->n_blocks; b++) {
        const struct plan_block *block = &p->blocks[b];
        size_t shortest = SIZE_MAX, longest = 0, at = 0;

        assert_int_equal(block->first_part, part);
        assert_true(block->n_parts > 0);
        for (size_t i = 0; i < block->n_parts; i++, part++) {
            const struct plan_part *x = &p->parts[part];

            assert_int_equal(x->at, at);
            assert_true(x->elems > 0 && aligned(x->at));
            assert_true(x->owner >= 0 && x->owner < p->ranks);
            at += x->elems;
            shortest = x->elems < shortest ? x->elems : shortest;
            longest = x->elems > longest ? x->elems : longest;
        }
        assert_int_equal(at, block->elems);
        assert_true(longest - shortest <= PLAN_ALIGN_ELEMS);
    }
    assert_int_equal(part, p->n_parts);
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
    check_parts(p);
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

/* The definition of the count, in exact arithmetic on small numbers: whole turns. */
static size_t nearest_count(size_t n, size_t turn, size_t block_bytes)
{
    size_t units = n / PLAN_ALIGN_ELEMS;
    size_t best = turn;

    if (units < turn)
        return units;
    for (size_t k = turn; k <= units; k += turn) {
        double wish = (double)n * 4 / (double)block_bytes;

        if (wish - (double)best >= (double)k - wish)
            best = k;
    }
    return best;
}

/* The last option: two roots take turns of half as many blocks when ranks are even. */
static void check_small(const struct plan_slice *slices, size_t n, int ranks,
                        size_t bytes, int option)
{
    static const enum strategy strategies[] = {STRATEGY_CENTRAL, STRATEGY_REDUCE_SCATTER,
                                               STRATEGY_REDUCE_BROADCAST,
                                               STRATEGY_REDUCE_BROADCAST};
    size_t turn = option < 2 ? 1 : (size_t)ranks;
    struct plan_options o = {.strategy = strategies[option], .block_bytes = bytes};

    if (option == 3 && ranks % 2 == 0) {
        o.roots = 2;
        turn /= 2;
    }
    struct plan p = plan_of(slices, 4, ranks, o);

    assert_int_equal(p.n_blocks, nearest_count(n, turn, bytes));
    for (size_t b = 0; b < p.n_blocks; b++)
        assert_int_equal(p.blocks[b].begin, b * (n / 16) / p.n_blocks * 16);
    check_plan(&p, slices, 4, ranks);
    plan_release(&p);
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
            for (size_t bytes = 64; bytes < 40000; bytes = bytes * 3 / 2 + 1)
                for (int o = 0; o < 4; o++)
                    check_small(slices, n, ranks, bytes, o);
    }
}

static void positions(const struct plan *p, size_t *offset)
{
    for (size_t b = 0, at = 0; b < p->n_blocks; b++)
        for (size_t i = 0; i < p->blocks[b].n_segments; i++) {
            const struct plan_segment *s = &p->segments[p->blocks[b].first_segment + i];

            for (size_t k = 0; k < s->elems; k++)
                offset[at++] = s->offset + k;
        }
}

/* Any extent of a block is walked once, in order, in the places that segments have. */
static void a_walk_covers_the_extent(void **state)
{
    enum { N = 16 * 67 };
    const struct plan_slice slices[] = {
        {16 * 11, 16 * 57}, {16, 0}, {16 * 30, 16 * 2}, {0, 0}, {16 * 25, 16 * 32}};
    size_t offset[N];

    (void)state;
    for (size_t bytes = 64; bytes <= 4096; bytes *= 4) {
        struct plan p = plan_of(slices, 5, 3,
                                (struct plan_options){.strategy = STRATEGY_REDUCE_SCATTER,
                                                      .block_bytes = bytes});

        assert_int_equal(p.elems, N);
        positions(&p, offset);
        for (uint64_t try = 0; try < 2000; try++) {
            size_t b = rng_bits(1, bytes, try) % p.n_blocks;
            size_t at = rng_bits(2, bytes, try) % p.blocks[b].elems;
            size_t elems = rng_bits(3, bytes, try) % (p.blocks[b].elems - at + 1);
            struct plan_cursor c = plan_walk(&p, b, at, elems);
            size_t seen = 0;

            for (struct plan_segment run; plan_next(&c, &run); seen += run.elems) {
                assert_true(run.elems > 0 && run.slice < 5);
                assert_int_equal(run.at, at + seen);
                for (size_t k = 0; k < run.elems; k++)
                    assert_int_equal(offset[p.blocks[b].begin + run.at + k],
                                     run.offset + k);
            }
            assert_int_equal(seen, elems);
        }
        plan_release(&p);
    }
}

/* Descending; what is produced and needed first comes before all others. */
static void blocks_return_in_the_order_of_need(void **state)
{
    const struct plan_slice slice = {16 * 23, 0};

    (void)state;
    for (size_t first = 0; first <= 16 * 24; first += 8) {
        struct plan p = plan_of(&slice, 1, 2,
                                (struct plan_options){.strategy = STRATEGY_REDUCE_SCATTER,
                                                      .block_bytes = 128,
                                                      .return_first = first});
        size_t n_first = 0;

        while (n_first < p.n_blocks && p.blocks[n_first].begin < first)
            n_first++;
        for (size_t i = 0; i < p.n_blocks; i++)
            assert_int_equal(plan_return_order(&p, i),
                             i < n_first ? n_first - 1 - i
                                         : p.n_blocks - 1 - (i - n_first));
        plan_release(&p);
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
    o.block_bytes = 64;
    for (o.roots = -1; o.roots <= 3; o.roots += 4) {
        assert_int_equal(plan_init(&p, &slice, 1, &o), ST_USAGE);
        assert_non_null(strstr(fail_text(), o.roots < 0 ? "-1" : "3"));
    }
    o.roots = 0;
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
        cmocka_unit_test(a_walk_covers_the_extent),
        cmocka_unit_test(blocks_return_in_the_order_of_need),
        cmocka_unit_test(odd_inputs_are_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
