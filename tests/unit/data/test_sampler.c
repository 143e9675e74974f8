/* SPDX-License-Identifier: MIT */
/* The sampler: every window once an epoch, the same for any number of ranks. */
#include "data/sampler.h"

#include <stdbool.h>

#include "data/shards.h"
#include "shard_file.h"

/* How P ranks make G windows a step. */
struct layout {
    int ranks;
    size_t B, accum;
};

static const struct sampler base = {.seed = 1337, .shuffled = true};

/* Windows of `step` in slot order. */
static void list_step(const struct sampler *s, uint64_t step, uint64_t *out)
{
    for (uint64_t slot = 0; slot < s->batch; slot++)
        out[slot] = sampler_window(s, step, slot);
}

/* Counts what an epoch takes: each window at most once, S * G in all. */
static void check_epoch(const struct sampler *s, uint64_t epoch)
{
    uint64_t steps = sampler_steps_per_epoch(s), taken = 0;
    unsigned char *seen = calloc(s->windows, 1);

    assert_non_null(seen);
    for (uint64_t k = 0; k < steps; k++)
        for (uint64_t slot = 0; slot < s->batch; slot++) {
            uint64_t w = sampler_window(s, epoch * steps + k, slot);

            assert_true(w < s->windows);
            assert_int_equal(seen[w], 0);
            seen[w] = 1;
            taken++;
        }
    assert_true(taken == steps * s->batch);
    assert_true(s->windows - taken < s->batch);
    free(seen);
}

static void takes_every_window_once_an_epoch(void **state)
{
    static const uint64_t windows[] = {1,  2,  3,  4,  5,   7,   8,   16,   17,   24,
                                       63, 64, 65, 97, 255, 256, 257, 1021, 4096, 4099};
    static const uint64_t batches[] = {1, 2, 3, 7, 8, 16, 31, 64, 97, 1024};

    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
        for (size_t j = 0; j < sizeof batches / sizeof batches[0]; j++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                struct sampler s = {windows[i], batches[j], seed, true};

                assert_true(sampler_steps_per_epoch(&s) == windows[i] / batches[j]);
                if (windows[i] < batches[j])
                    continue;
                for (uint64_t epoch = 0; epoch < 3; epoch++)
                    check_epoch(&s, epoch);
                s.shuffled = false;
                check_epoch(&s, seed);
            }
}

static void counts_up_when_sequential(void **state)
{
    struct sampler s = {.windows = 23, .batch = 5, .seed = 9};

    (void)state;
    for (uint64_t step = 0; step < 12; step++)
        for (uint64_t slot = 0; slot < 5; slot++)
            assert_true(sampler_window(&s, step, slot) == step % 4 * 5 + slot);
}

/* The order is an order: a shuffle neither repeats nor resembles another epoch's. */
static void shuffles_each_epoch_and_seed_differently(void **state)
{
    enum { N = 1009 };
    struct sampler s = base, other = base;
    uint64_t dropped[5];

    (void)state;
    s.windows = other.windows = N;
    s.batch = other.batch = 1;
    other.seed++;
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        size_t same_place = 0, same_epoch = 0, same_seed = 0, rising = 0;

        for (uint64_t i = 0; i < N; i++) {
            uint64_t w = sampler_window(&s, epoch * N + i, 0);

            same_place += w == i;
            same_epoch += w == sampler_window(&s, (epoch + 1) * N + i, 0);
            same_seed += w == sampler_window(&other, epoch * N + i, 0);
            rising += i > 0 && w > sampler_window(&s, epoch * N + i - 1, 0);
        }
        /* One fixed point is expected of a random order; ten has odds below 1e-6. */
        assert_true(same_place < 10);
        assert_true(same_epoch < 10);
        assert_true(same_seed < 10);
        assert_in_range(rising, N / 2 - 60, N / 2 + 60);
    }
    /* What is left over at the end of an epoch is not always the same window. */
    s.windows = 9;
    s.batch = 8;
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        uint64_t sum = 0;

        for (uint64_t slot = 0; slot < 8; slot++)
            sum += sampler_window(&s, epoch, slot);
        dropped[epoch] = 36 - sum;
    }
    assert_false(dropped[0] == dropped[1] && dropped[1] == dropped[2] &&
                 dropped[2] == dropped[3] && dropped[3] == dropped[4]);
}

static void gives_ranks_disjoint_slots_that_cover_a_step(void **state)
{
    static const struct layout layouts[] = {{1, 1, 1}, {1, 24, 1}, {24, 1, 1}, {4, 2, 3},
                                            {3, 8, 1}, {2, 3, 4},  {6, 1, 4},  {8, 3, 1}};
    struct sampler s = base;
    uint64_t by_slot[24];

    (void)state;
    s.windows = 101;
    s.batch = 24;
    list_step(&s, 6, by_slot);
    for (size_t i = 1; i < sizeof layouts / sizeof layouts[0]; i++) {
        const struct layout *l = &layouts[i];
        bool seen[24] = {false};

        assert_true((size_t)l->ranks * l->B * l->accum == 24);
        for (int rank = 0; rank < l->ranks; rank++)
            for (size_t a = 0; a < l->accum; a++)
                for (size_t b = 0; b < l->B; b++) {
                    uint64_t slot = sampler_slot(rank, l->ranks, l->B, a, b);

                    assert_true(slot < 24);
                    assert_false(seen[slot]);
                    seen[slot] = true;
                    assert_true(sampler_window(&s, 6, slot) == by_slot[slot]);
                }
    }
    assert_true(sampler_slot(0, 1, 1, 0, 0) == 0);
    assert_true(sampler_slot(2, 3, 5, 4, 1) == (4 * 3 + 2) * 5 + 1);
}

/* First tokens of all rows of steps [from, to) on all ranks, read through the shards. */
static size_t first_tokens(const struct shards *sh, const struct sampler *s,
                           const struct layout *l, size_t T, uint64_t from, uint64_t to,
                           int32_t *out)
{
    int32_t x[64], y[64];
    size_t n = 0;

    assert_true(T <= 64);
    for (uint64_t step = from; step < to; step++)
        for (int rank = 0; rank < l->ranks; rank++)
            for (size_t a = 0; a < l->accum; a++)
                for (size_t b = 0; b < l->B; b++) {
                    uint64_t slot = sampler_slot(rank, l->ranks, l->B, a, b);

                    assert_int_equal(
                        shards_window(sh, T, sampler_window(s, step, slot), x, y), ST_OK);
                    out[n++] = x[0];
                }
    return n;
}

static struct shards *open_counting(const char *name, size_t tokens, size_t divisor)
{
    struct shards *sh;

    assert_int_equal(shards_open(shard_make_count(name, tokens, divisor), NULL, 257, &sh),
                     ST_OK);
    return sh;
}

static void ranks_share_one_shuffle(void **state)
{
    const struct layout four = {4, 2, 1};
    struct shards *sh = open_counting("shuffle.bin", 193, 8);
    struct sampler s = base;
    int32_t epochs[2][24], again[24];

    (void)state;
    s.windows = shards_windows(sh, 8, NULL);
    s.batch = 8;
    assert_true(s.windows == 24);
    for (uint64_t e = 0; e < 2; e++) {
        unsigned seen = 0;

        assert_int_equal(first_tokens(sh, &s, &four, 8, 3 * e, 3 * e + 3, epochs[e]), 24);
        for (size_t i = 0; i < 24; i++)
            seen |= 1u << epochs[e][i];
        assert_int_equal(seen, 0xffffff);
    }
    assert_memory_not_equal(epochs[0], epochs[1], sizeof again);
    first_tokens(sh, &s, &four, 8, 0, 3, again);
    assert_memory_equal(epochs[0], again, sizeof again);
    shards_close(sh);
}

static void resumes_where_it_was(void **state)
{
    const struct layout four = {4, 2, 1};
    struct shards *sh = open_counting("shuffle.bin", 193, 8);
    int32_t whole[72], piece[24];

    (void)state;
    struct sampler s = base;
    s.windows = 24;
    s.batch = 8;
    assert_int_equal(first_tokens(sh, &s, &four, 8, 0, 9, whole), 72);
    for (uint64_t p = 0; p < 3; p++) {
        struct sampler fresh = base; /* as a new process makes it */

        fresh.windows = 24;
        fresh.batch = 8;
        first_tokens(sh, &fresh, &four, 8, 3 * p, 3 * p + 3, piece);
        assert_memory_equal(piece, whole + 24 * p, sizeof piece);
    }
    assert_memory_not_equal(whole, whole + 24, sizeof piece);
    assert_memory_not_equal(whole + 24, whole + 48, sizeof piece);
    assert_memory_not_equal(whole, whole + 48, sizeof piece);
    shards_close(sh);
}

static int by_value(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void steps_do_not_depend_on_the_layout(void **state)
{
    static const struct layout layouts[] = {{1, 12, 1}, {1, 1, 12}, {12, 1, 1}, {3, 2, 2},
                                            {2, 3, 2},  {4, 3, 1},  {6, 1, 2}};
    struct shards *sh = open_counting("layout.bin", 1000, 5);
    struct sampler s = base;

    (void)state;
    s.windows = shards_windows(sh, 5, NULL);
    s.batch = 12;
    for (uint64_t step = 0; step < 40; step++) { /* more than two epochs */
        int32_t first[12], other[12];

        first_tokens(sh, &s, &layouts[0], 5, step, step + 1, first);
        qsort(first, 12, sizeof *first, by_value);
        for (size_t i = 1; i < sizeof layouts / sizeof layouts[0]; i++) {
            assert_int_equal(first_tokens(sh, &s, &layouts[i], 5, step, step + 1, other),
                             12);
            qsort(other, 12, sizeof *other, by_value);
            assert_memory_equal(first, other, sizeof first);
        }
    }
    shards_close(sh);
}

static void counts_steps_at_the_end_of_files(void **state)
{
    static const struct {
        size_t tokens;
        uint64_t steps;
    } rows[] = {{100, 1}, {65, 1}, {64, 0}, {129, 2}, {128, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct shards *sh = open_counting("tail.bin", rows[i].tokens, 1);
        struct sampler s = {shards_windows(sh, 8, NULL), 8, 1, true};

        assert_true(sampler_steps_per_epoch(&s) == rows[i].steps);
        assert_int_equal(sampler_check(&s, "tail.bin", rows[i].tokens, 8),
                         rows[i].steps ? ST_OK : ST_FORMAT);
        shards_close(sh);
    }
    assert_int_equal(folder_make(scratch_path("tails")), ST_OK);
    shard_make_count("tails/a.bin", 100, 1);
    shard_make_count("tails/b.bin", 65, 1);
    struct shards *sh;
    assert_int_equal(shards_open(scratch_path("tails"), NULL, 257, &sh), ST_OK);
    struct sampler s = {shards_windows(sh, 8, NULL), 8, 1, true};
    assert_true(sampler_steps_per_epoch(&s) == 2); /* 12 + 8 windows, 4 left over */
    shards_close(sh);
}

/* One step an epoch, ten steps: the run goes on, each epoch in an order of its own. */
static void goes_on_into_later_epochs(void **state)
{
    const struct layout four = {4, 2, 1};
    struct shards *sh = open_counting("tail65.bin", 65, 1);
    struct sampler s = base;
    int32_t steps[10][8];
    size_t different = 0;

    (void)state;
    s.windows = shards_windows(sh, 8, NULL);
    s.batch = 8;
    assert_true(sampler_steps_per_epoch(&s) == 1);
    for (uint64_t k = 0; k < 10; k++) {
        unsigned seen = 0;

        first_tokens(sh, &s, &four, 8, k, k + 1, steps[k]);
        for (size_t i = 0; i < 8; i++)
            seen |= 1u << steps[k][i] / 8;
        assert_int_equal(seen, 0xff);
        different += k > 0 && memcmp(steps[k], steps[k - 1], sizeof steps[k]) != 0;
    }
    assert_int_equal(different, 9);
    shards_close(sh);
}

static void names_a_set_that_is_too_small(void **state)
{
    struct sampler s = {.windows = 0, .batch = 8};

    (void)state;
    assert_int_equal(sampler_check(&s, "tiny50.bin", 50, 64), ST_FORMAT);
    assert_fail_text("tiny50.bin: ", "has 50 tokens", "needs 513 ", "--batch", "--seq",
                     "--accum", "ranks", NULL);
    assert_null(strchr(fail_text(), '\n'));

    /* Enough tokens in all, but a few are left over at the end of each file. */
    s.windows = 7;
    assert_int_equal(sampler_check(&s, "parts/*.bin", 600, 64), ST_FORMAT);
    assert_fail_text("parts/*.bin: ", "600 tokens", "7 whole windows of 64",
                     "needs 8 windows", "--batch", NULL);
    s.windows = 8;
    assert_int_equal(sampler_check(&s, "parts/*.bin", 600, 64), ST_OK);

    /* No overflow where the product does not fit. */
    s.batch = UINT64_MAX / 2;
    assert_int_equal(sampler_check(&s, "x", 600, 64), ST_FORMAT);
    assert_fail_text("needs 18446744073709551615 ", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_window_once_an_epoch),
        cmocka_unit_test(counts_up_when_sequential),
        cmocka_unit_test(shuffles_each_epoch_and_seed_differently),
        cmocka_unit_test(gives_ranks_disjoint_slots_that_cover_a_step),
        cmocka_unit_test(ranks_share_one_shuffle),
        cmocka_unit_test(resumes_where_it_was),
        cmocka_unit_test(steps_do_not_depend_on_the_layout),
        cmocka_unit_test(counts_steps_at_the_end_of_files),
        cmocka_unit_test(goes_on_into_later_epochs),
        cmocka_unit_test(names_a_set_that_is_too_small),
    };

    return cmocka_run_group_tests_name("sampler", tests, scratch_make, scratch_remove);
}
