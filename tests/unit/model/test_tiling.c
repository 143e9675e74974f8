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
    size_t chunk_at = 0;

    (void)s;
    assert_int_equal(t->N, t->B * t->T);
    assert_true(t->row_tiles <= tiling_max_row_tiles(t->N));
    for (size_t r = 0; r < t->row_tiles; r++) {
        struct row_span span = tiling_rows(t, r);

        assert_int_equal(span.begin, at);
        assert_true(span.rows >= 1 && span.rows <= t->row_tile);
        at += span.rows;
    }
    assert_int_equal(at, t->N);
    for (size_t c = 0; c < t->chunks; c++) {
        struct row_span span = tiling_chunk_rows(t, c);

        assert_int_equal(span.begin, chunk_at);
        assert_int_equal(span.begin, tiling_rows(t, c * t->chunk_tiles).begin);
        assert_true(span.rows >= 1 && span.rows <= t->chunk_tiles * t->row_tile);
        chunk_at += span.rows;
    }
    assert_int_equal(chunk_at, t->N);
}

static void rows_are_covered(void **state)
{
    (void)state;
    each(check_rows);
}

static void check_sequences(const struct tiling *t, const struct shape *s)
{
    (void)s;
    for (size_t b = 0; b < t->B; b++) {
        size_t first, last;

        tiling_tiles_of_sequence(t, b, &first, &last);
        assert_true(first < last && last <= t->row_tiles);
        for (size_t r = 0; r < t->row_tiles; r++) {
            struct row_span span = tiling_rows(t, r);
            size_t sequence0, sequence1;
            bool shares =
                span.begin < (b + 1) * t->T && span.begin + span.rows > b * t->T;

            assert_int_equal(shares, r >= first && r < last);
            tiling_sequences_of_tile(t, r, &sequence0, &sequence1);
            assert_true(sequence1 <= t->B);
            assert_int_equal(shares, b >= sequence0 && b < sequence1);
        }
    }
}

static void sequences_and_tiles_agree(void **state)
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
            size_t most = tiling_max_row_tiles(B * T);

            for (size_t N = 1; N <= B * T; N += 1 + B * T / 97) {
                struct tiling t;

                tiling_init(&t, &s, 1, min_size(N, s.T));
                assert_true(t.row_tiles <= most);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_covered),
        cmocka_unit_test(sequences_and_tiles_agree),
        cmocka_unit_test(heads_are_covered),
        cmocka_unit_test(gradients_are_covered),
        cmocka_unit_test(vocabulary_is_covered),
        cmocka_unit_test(shorter_batches_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
