/* SPDX-License-Identifier: MIT */
/* Tiles cover everything once, whatever the sizes. */
#include "model/tiling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/memory.h"

static struct shape shape_of(size_t H, size_t C, size_t T, size_t V)
{
    return (struct shape){2, H, C, T, V, round_up(V, VOCAB_PAD)};
}

static const size_t batches[] = {1, 2, 3, 5, 8, 31, 32, 33, 64};
static const size_t lengths[] = {1, 2, 7, 31, 32, 33, 64, 100, 255, 257, 1024};

/* Calls check for many sizes of micro-batch and shape. */
static void each(void (*check)(const struct tiling *t, const struct shape *s))
{
    const struct shape shapes[] = {shape_of(1, 1, 1024, 1), shape_of(3, 48, 1024, 97),
                                   shape_of(7, 77, 1024, 5000),
                                   shape_of(12, 768, 1024, 50257)};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
                struct tiling t;

                tiling_init(&t, &shapes[i], batches[b], lengths[n]);
                check(&t, &shapes[i]);
            }
}

static void check_rows(const struct tiling *t, const struct shape *s)
{
    size_t at = 0;

    (void)s;
    assert_int_equal(t->N, t->B * t->T);
    assert_true(t->row_tiles <= tiling_max_row_tiles(t->N));
    for (size_t r = 0; r < t->row_tiles; r++) {
        struct span span = tiling_rows(t, r);

        assert_int_equal(span.begin, at);
        assert_true(span.size >= 1 && span.size <= t->row_tile);
        at += span.size;
    }
    assert_int_equal(at, t->N);
}

static void rows_are_covered(void **state)
{
    (void)state;
    each(check_rows);
}

/* A chunk is so many whole row tiles, and never more rows than buffers are made for. */
static void check_chunks(const struct tiling *t, const struct shape *s)
{
    size_t at = 0;
    size_t tile_at = 0;

    (void)s;
    assert_true(t->chunks <= tiling_max_chunks(t->N));
    for (size_t c = 0; c < t->chunks; c++) {
        struct span span = tiling_chunk_rows(t, c);
        struct span tiles = tiling_chunk_tiles(t, c);
        size_t rows = 0;

        assert_int_equal(span.begin, at);
        assert_int_equal(tiles.begin, tile_at);
        assert_true(tiles.size >= 1 && tiles.size <= t->chunk_tiles);
        for (size_t r = tiles.begin; r < tiles.begin + tiles.size; r++)
            rows += tiling_rows(t, r).size;
        assert_int_equal(rows, span.size);
        assert_true(span.size <= 256);
        at += span.size;
        tile_at += tiles.size;
    }
    assert_int_equal(at, t->N);
    assert_int_equal(tile_at, t->row_tiles);
}

static void chunks_are_covered(void **state)
{
    (void)state;
    each(check_chunks);
}

static void check_cut(const struct column_cut *cut, size_t columns)
{
    size_t at = 0;

    assert_int_equal(cut->columns, columns);
    for (size_t j = 0; j < cut->tiles; j++) {
        struct span span = tiling_columns(cut, j);

        assert_int_equal(span.begin, at);
        assert_true(span.size >= 1 && span.size <= cut->tile);
        at += span.size;
    }
    assert_int_equal(at, columns);
}

static const enum tensor_kind matrices[] = {QKVW, ATTPROJW, FCW, FCPROJW};

static void check_columns(const struct tiling *t, const struct shape *s)
{
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        size_t out, in;

        tensor_dims(s, matrices[i], &out, &in);
        check_cut(&t->forward[matrices[i]], out);
        check_cut(&t->backward[matrices[i]], in);
        check_cut(&t->weight[matrices[i]], in);
    }
}

static void columns_are_covered(void **state)
{
    (void)state;
    each(check_columns);
}

/* A large model gives many workers something to do, a small one no crumbs. */
static void tasks_are_many_and_large(void **state)
{
    const struct shape large = shape_of(12, 768, 1024, 50257);
    const struct shape small = shape_of(4, 64, 1024, 256);

    (void)state;
    for (size_t B = 1; B <= 16; B *= 2) {
        struct tiling t;

        tiling_init(&t, &large, B, 256);
        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
            const struct column_cut *cut = &t.forward[matrices[i]];

            assert_in_range(t.chunks * cut->tiles, 8, 64);
            assert_true(cut->tile >= 96 && cut->tile <= 768);
        }
        tiling_init(&t, &small, B, 256);
        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
            size_t out, in;

            tensor_dims(&small, matrices[i], &out, &in);
            const struct column_cut *cut = &t.forward[matrices[i]];

            assert_true(cut->tiles == 1 || 2 * cut->tile * in * 256 >= 32000000);
        }
    }
}

static void check_sequences(const struct tiling *t, const struct shape *s)
{
    (void)s;
    for (size_t b = 0; b < t->B; b++) {
        size_t first, last;

        tiling_chunks_of_sequence(t, b, &first, &last);
        assert_true(first < last && last <= t->chunks);
        for (size_t c = 0; c < t->chunks; c++) {
            struct span span = tiling_chunk_rows(t, c);
            bool shares =
                span.begin < (b + 1) * t->T && span.begin + span.size > b * t->T;

            assert_int_equal(shares, c >= first && c < last);
        }
    }
}

static void sequences_and_chunks_agree(void **state)
{
    (void)state;
    each(check_sequences);
}

static void check_heads(const struct tiling *t, const struct shape *s)
{
    size_t at = 0;

    assert_true(t->head_groups >= 1 && t->head_groups <= s->H);
    for (size_t g = 0; g < t->head_groups; g++) {
        size_t first, last;

        tiling_heads(t, s, g, &first, &last);
        assert_int_equal(first, at);
        assert_true(last > first);
        at = last;
    }
    assert_int_equal(at, s->H);
}

static void heads_are_covered(void **state)
{
    (void)state;
    each(check_heads);
}

static enum tensor_kind bias_of(enum tensor_kind kind)
{
    switch (kind) {
    case QKVW:
        return QKVB;
    case ATTPROJW:
        return ATTPROJB;
    case FCW:
        return FCB;
    case FCPROJW:
        return FCPROJB;
    default:
        return kind;
    }
}

static void check_gradients(const struct tiling *t, const struct shape *s)
{
    for (int k = 0; k < TENSOR_KINDS; k++) {
        enum tensor_kind kind = (enum tensor_kind)k;
        size_t tile = tiling_grad_tile_elems(t, s, kind);
        size_t tiles = tiling_grad_tiles(t, s, kind);
        size_t rows, cols;

        tensor_dims(s, kind, &rows, &cols);
        assert_true(tile >= 1 && tiles >= 1);
        assert_true(tile * tiles >= rows * cols);
        assert_true(tile * (tiles - 1) < rows * cols);
        if (rows > 1)
            assert_int_equal(tile % cols, 0);
        if (bias_of(kind) != kind) {
            /* One task writes a tile of the matrix and the same rows of its bias. */
            assert_int_equal(tile, tiling_weight_rows(s, kind) * cols);
            assert_int_equal(tiling_grad_tile_elems(t, s, bias_of(kind)), tile / cols);
            assert_int_equal(tiling_grad_tiles(t, s, bias_of(kind)), tiles);
        }
    }
}

static void gradients_are_covered(void **state)
{
    (void)state;
    each(check_gradients);
}

static void check_vocabulary(const struct tiling *t, const struct shape *s)
{
    assert_int_equal(t->vocab_tile % VOCAB_PAD, 0);
    assert_true(t->vocab_tile * t->vocab_tiles >= s->Vp);
    assert_true(t->vocab_tile * (t->vocab_tiles - 1) < s->Vp);
    assert_int_equal(tiling_grad_tiles(t, s, WTE), t->vocab_tiles);
    assert_true(t->head_lanes >= 1 && t->head_lanes <= t->vocab_tiles);
}

static void vocabulary_is_covered(void **state)
{
    (void)state;
    each(check_vocabulary);
}

/* Buffers are sized for the largest micro-batch; shorter ones must fit. */
static void shorter_batches_fit(void **state)
{
    struct shape s = shape_of(12, 768, 1024, 50257);

    (void)state;
    for (size_t B = 1; B <= 40; B += 3) {
        for (size_t T = 1; T <= 1024; T += 93) {
            size_t tiles = tiling_max_row_tiles(B * T);
            size_t chunks = tiling_max_chunks(B * T);

            for (size_t N = 1; N <= B * T; N += 1 + B * T / 97) {
                struct tiling t;

                tiling_init(&t, &s, N, 1);
                assert_true(t.row_tiles <= tiles && t.chunks <= chunks);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_covered),
        cmocka_unit_test(chunks_are_covered),
        cmocka_unit_test(columns_are_covered),
        cmocka_unit_test(tasks_are_many_and_large),
        cmocka_unit_test(sequences_and_chunks_agree),
        cmocka_unit_test(heads_are_covered),
        cmocka_unit_test(gradients_are_covered),
        cmocka_unit_test(vocabulary_is_covered),
        cmocka_unit_test(shorter_batches_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
