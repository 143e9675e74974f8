/* SPDX-License-Identifier: MIT */
/* Native checkpoints: what any job wrote, any other job reads. */
#include "fixture.h" /* before cmocka.h, which has a fail() of its own */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm *comm;
static char scratch[PATH_BYTES];

/* Awkward on purpose: a C that is no multiple of 64 bytes' worth, an odd vocabulary, L of
 * 1, and a case where slices have gaps in memory behind them (C = 10). */
static const char *const specs[] = {"L=1,H=1,C=1,T=1,V=1", "L=1,H=3,C=48,T=7,V=61",
                                    "L=2,H=2,C=10,T=5,V=129", "L=3,H=3,C=48,T=11,V=257"};
enum { SPECS = sizeof specs / sizeof *specs };

static struct holding holding_of(const char *spec, int i)
{
    static const int ranks[] = {1, 2, 3, 5, 8, 17};
    static const size_t blocks[] = {64, 4096, 65536, SIZE_MAX, 1000};

    return (struct holding){.spec = spec,
                            .order = i % 2 ? LAYOUT_STORAGE : LAYOUT_PRODUCTION,
                            .ranks = ranks[i % 6],
                            .block_bytes = blocks[i % 5],
                            .one_block = i % 7 == 6,
                            .strategy = (enum strategy)(i / 2 % 4 + 1),
                            .roots = i % 8 == 3 ? ranks[i % 6] : 1};
}

static void any_ranks_to_any_ranks(void **arg)
{
    const char *folder = text("%s/any", scratch);
    struct run_state state = fixture_state(3);

    (void)arg;
    for (int k = 0; k < SPECS; k++)
        for (int i = k; i < 14; i += k == 3 ? 1 : 4) { /* saves cost fsyncs */
            struct holding writer = holding_of(specs[k], i);

            simulate_save(folder, &writer, &state, (uint64_t)i + 100);
            for (int j = 0; j < 14; j += 1 + (i + k) % 3) {
                struct holding reader = holding_of(specs[k], j);

                assert_int_equal(simulate_load(folder, &reader, (uint64_t)i + 100), 0);
            }
            assert_int_not_equal(simulate_load(folder, &writer, 1), 0);
            scratch_remove(folder);
        }
}

static void save_and_load(void **arg)
{
    const struct holding writer = {
        .spec = specs[3], .order = LAYOUT_PRODUCTION, .ranks = 1, .block_bytes = 4096};
    const struct holding reader = {
        .spec = specs[3], .order = LAYOUT_STORAGE, .ranks = 1, .block_bytes = 300};
    const char *run = text("%s/run", scratch);
    char path[PATH_BYTES], *latest;
    struct run_state state = fixture_state(12), back = {0};
    struct fixture f;
    size_t bytes;

    (void)arg;
    state.best_val_loss = 3.0 + 1.0 / 3.0;
    fixture_init(&f, &writer, 0);
    fixture_fill(&f, 5);
    assert_int_equal(file_write_all(text("%s/tokens.json", scratch), "{}", 2), ST_OK);
    assert_int_equal(fixture_save(comm, run, &state, &f.view, "out = caf\xe9\n",
                                  text("%s/tokens.json", scratch), path),
                     ST_OK);
    fixture_release(&f);
    assert_string_equal(path, text("%s/checkpoints/step-000012", run));
    assert_false(file_exists(text("%s.tmp", path)));
    assert_true(file_exists(text("%s/tokens.json", path)));
    assert_int_equal(file_read_all(text("%s/checkpoints/latest", run), &latest, &bytes),
                     ST_OK);
    assert_string_equal(latest, "step-000012\n");
    free(latest);

    fixture_init(&f, &reader, 0);
    fixture_poison(&f);
    assert_int_equal(checkpoint_load(comm, path, true, &f.view, &back), ST_OK);
    assert_true(same_state(&state, &back));
    assert_int_equal(fixture_wrong_params(&f, 5), 0);
    assert_int_equal(fixture_wrong_moments(&f, 5), 0);
    fixture_release(&f);
}

/* After a resume from an older checkpoint the same step is saved again. */
static void save_again_replaces(void **arg)
{
    const struct holding h = {
        .spec = specs[1], .order = LAYOUT_PRODUCTION, .ranks = 1, .block_bytes = 4096};
    const char *run = text("%s/again", scratch);
    struct run_state state = fixture_state(4), back;
    char path[PATH_BYTES];
    struct fixture f;

    (void)arg;
    fixture_init(&f, &h, 0);
    for (uint64_t salt = 1; salt <= 3; salt++) {
        fixture_fill(&f, salt);
        if (salt == 2) /* left by a run that was killed */
            assert_int_equal(folder_make(text("%s/checkpoints/step-000004.tmp/x", run)),
                             ST_OK);
        if (salt == 3)
            assert_int_equal(folder_make(text("%s/checkpoints/step-000004.old/x", run)),
                             ST_OK);
        assert_int_equal(fixture_save(comm, run, &state, &f.view, NULL, NULL, path),
                         ST_OK);
        fixture_poison(&f);
        assert_int_equal(checkpoint_load(comm, path, true, &f.view, &back), ST_OK);
        assert_true(same_state(&state, &back)); /* best_val_loss: infinity */
        assert_int_equal(fixture_wrong_params(&f, salt), 0);
        assert_int_equal(fixture_wrong_moments(&f, salt), 0);
        assert_false(file_exists(text("%s.tmp", path)));
        assert_false(file_exists(text("%s.old", path)));
        assert_false(file_exists(text("%s/tokens.json", path)));
    }
    fixture_release(&f);
}

static void unreadable_tokens_json_only_warns(void **arg)
{
    const struct holding h = {
        .spec = specs[0], .order = LAYOUT_PRODUCTION, .ranks = 1, .block_bytes = 4096};
    struct run_state state = fixture_state(1);
    char path[PATH_BYTES];
    struct fixture f;

    (void)arg;
    fixture_init(&f, &h, 0);
    fixture_fill(&f, 1);
    capture_begin();
    enum status st = fixture_save(comm, text("%s/warn", scratch), &state, &f.view, "",
                                  text("%s/no-such-file", scratch), path);
    const char *said = capture_end();

    assert_int_equal(st, ST_OK);
    assert_non_null(strstr(said, "no-such-file"));
    assert_non_null(strstr(said, "has no tokens.json"));
    fixture_release(&f);
}

static void inspect_tells(void **arg)
{
    const struct holding h = {
        .spec = specs[1], .order = LAYOUT_PRODUCTION, .ranks = 3, .block_bytes = 4096};
    struct run_state state = fixture_state(9);
    const char *folder = text("%s/inspect", scratch);
    struct checkpoint_info info;

    (void)arg;
    simulate_save(folder, &h, &state, 1);
    assert_int_equal(checkpoint_inspect(folder, true, &info), ST_OK);
    assert_int_equal(info.ranks, 3);
    assert_true(same_state(&info.state, &state));
    assert_int_equal(info.shape.V, 61);
    assert_int_equal(info.elems, shape_parameters(&info.shape) + (128 - 61) * 48);
    assert_int_equal(info.file_bytes, 12 * info.elems);
}

static int setup(void **arg)
{
    (void)arg;
    scratch_make(scratch);
    return comm_start(&comm) == ST_OK ? 0 : -1;
}

static int teardown(void **arg)
{
    (void)arg;
    comm_stop(comm);
    scratch_remove(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_ranks_to_any_ranks),
        cmocka_unit_test(save_and_load),
        cmocka_unit_test(save_again_replaces),
        cmocka_unit_test(unreadable_tokens_json_only_warns),
        cmocka_unit_test(inspect_tells),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
