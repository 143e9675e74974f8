/* SPDX-License-Identifier: MIT */
/* Which checkpoint is the newest, and which may go. */
#include "fixture.h" /* before cmocka.h, which has a fail() of its own */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct holding holding = {.spec = "L=1,H=1,C=2,T=3,V=5",
                                       .order = LAYOUT_PRODUCTION,
                                       .ranks = 2,
                                       .block_bytes = 256};
static const uint64_t steps[] = {8, 9, 10, 11, 99, 100, 101, 999, 1000, 1001};
enum { STEPS = sizeof steps / sizeof *steps };

static struct comm *comm;
static char run[PATH_BYTES];

static int make_run(void **arg)
{
    (void)arg;
    scratch_make(run);
    return 0;
}

static int remove_run(void **arg)
{
    (void)arg;
    scratch_remove(run);
    return 0;
}

static const char *at_step(uint64_t step, const char *suffix)
{
    return text("%s/checkpoints/step-%06llu%s", run, (unsigned long long)step, suffix);
}

static void write_step(uint64_t step, const char *suffix, double best)
{
    struct run_state state = fixture_state(step);

    state.best_val_loss = best;
    simulate_save(at_step(step, suffix), &holding, &state, step);
}

static bool there(uint64_t step, const char *suffix)
{
    return file_exists(at_step(step, suffix));
}

static void newest_is(uint64_t step, const char *suffix)
{
    char path[PATH_BYTES];
    bool found;

    assert_int_equal(checkpoint_latest(run, path, &found), ST_OK);
    assert_true(found);
    assert_string_equal(path, at_step(step, suffix));
}

static void none_is_none(void **arg)
{
    struct path_list list = {0};
    char path[PATH_BYTES];
    bool found = true;

    (void)arg;
    assert_int_equal(checkpoint_latest(run, path, &found), ST_OK);
    assert_false(found);
    assert_int_equal(checkpoint_latest("/no/such/run", path, &found), ST_OK);
    assert_false(found);
    assert_int_equal(checkpoint_prune(run, 1), ST_OK);
    assert_int_equal(checkpoint_list(run, &list), ST_OK);
    assert_int_equal(list.count, 0);
}

static void order_is_numeric(void **arg)
{
    struct path_list list = {0};

    (void)arg;
    for (int i = 0; i < STEPS; i++) {
        write_step(steps[i], "", (double)INFINITY);
        newest_is(steps[i], "");
    }
    write_step(1234567, "", (double)INFINITY); /* seven digits: text order differs */
    newest_is(1234567, "");
    write_step(2000000, ".tmp", (double)INFINITY); /* no name yet: nothing */
    assert_int_equal(folder_make(text("%s/checkpoints/step-3000000-mine", run)), ST_OK);
    assert_int_equal(folder_make(text("%s/checkpoints/step-", run)), ST_OK);
    newest_is(1234567, "");
    assert_int_equal(checkpoint_list(run, &list), ST_OK);
    assert_int_equal(list.count, STEPS + 1);
    for (int i = 0; i < STEPS; i++)
        assert_string_equal(list.paths[i], at_step(steps[i], ""));
    path_list_release(&list);
}

static void damaged_ones_are_passed_over_by_name(void **arg)
{
    (void)arg;
    for (uint64_t step = 1; step <= 4; step++)
        write_step(step, "", (double)INFINITY);
    file_resize(text("%s/state-00001-of-00002.bin", at_step(4, "")), -1);
    file_replace(text("%s/manifest.json", at_step(3, "")), "\"version\": 2",
                 "\"version\": 9");
    capture_begin();
    newest_is(2, "");
    const char *said = capture_end();

    assert_non_null(strstr(said, "step-000004 passed over"));
    assert_non_null(strstr(said, "state-00001-of-00002.bin: found"));
    assert_non_null(strstr(said, "step-000003 passed over"));
    assert_non_null(strstr(said, "found format version 9, needs 1 or 2"));
}

static bool found_is(uint64_t step)
{
    char path[PATH_BYTES];
    bool found;

    assert_int_equal(checkpoint_find(comm, run, path, &found), ST_OK);
    return found && !strcmp(path, at_step(step, ""));
}

/* Whatever is cut by one byte or has one bit flipped, the one before is used. */
static void find_verifies_every_file(void **arg)
{
    static const char *const names[] = {"manifest.json", "state-00000-of-00002.bin",
                                        "state-00001-of-00002.bin"};

    (void)arg;
    write_step(1, "", (double)INFINITY);
    write_step(2, "", (double)INFINITY);
    assert_true(found_is(2));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = text("%s/%s", at_step(2, ""), names[i]);
        uint64_t bytes;

        assert_int_equal(file_size(path, &bytes), ST_OK);
        for (uint64_t k = 0; k < 20; k++) {
            long at = (long)(k == 19 ? bytes - 1 : bytes / 19 * k);

            file_flip_byte(path, at);
            capture_begin();
            bool fell_back = found_is(1);
            const char *said = capture_end();

            if (!fell_back || !strstr(said, "step-000002 passed over"))
                fail_msg("%s: a flipped bit at byte %ld was not noticed", path, at);
            file_flip_byte(path, at);
        }
    }
    assert_true(found_is(2));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_step(2, "", (double)INFINITY);
        file_resize(text("%s/%s", at_step(2, ""), names[i]), -1);
        capture_begin();
        assert_true(found_is(1));
        (void)capture_end();
    }
}

static void set_aside_is_neither_found_nor_kept(void **arg)
{
    (void)arg;
    for (uint64_t step = 1; step <= 4; step++)
        write_step(step, "", (double)INFINITY);
    assert_int_equal(checkpoint_set_aside(run, 2), ST_OK);
    assert_true(there(2, "") && there(3, ".damaged") && there(4, ".damaged"));
    newest_is(2, "");
    assert_int_equal(checkpoint_prune(run, 1), ST_OK);
    assert_true(there(2, "") && there(3, ".damaged") && !there(1, ""));
    write_step(3, "", (double)INFINITY);
    write_step(5, "", (double)INFINITY);
    assert_int_equal(checkpoint_prune(run, 1), ST_OK);
    assert_true(there(5, "") && !there(3, ".damaged") && !there(4, ".damaged"));
}

/* Killed between the two renames of a replacement: the old one still counts. */
static void half_replaced_is_found(void **arg)
{
    (void)arg;
    write_step(1, "", (double)INFINITY);
    write_step(2, ".old", (double)INFINITY);
    newest_is(2, ".old");
    assert_int_equal(checkpoint_prune(run, 1), ST_OK);
    assert_true(there(2, ".old"));
    write_step(2, "", (double)INFINITY);
    newest_is(2, "");
    assert_int_equal(checkpoint_prune(run, 1), ST_OK);
    assert_false(there(2, ".old"));
}

static void prune_keeps_newest_and_best(void **arg)
{
    (void)arg;
    for (int i = 0; i < STEPS; i++)
        write_step(steps[i], "", steps[i] < 9 ? 5.0 : 3.25); /* best at step 9 */
    write_step(7, ".tmp", 9);
    write_step(1002, ".tmp", 9);
    assert_int_equal(checkpoint_prune(run, 2), ST_OK);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(there(steps[i], ""),
                         steps[i] == 9 || steps[i] == 1000 || steps[i] == 1001);
    assert_false(there(7, ".tmp"));
    assert_true(there(1002, ".tmp"));
    assert_int_equal(checkpoint_prune(run, 2), ST_OK);
    assert_true(there(9, "") && there(1000, "") && there(1001, ""));
}

static void prune_without_evaluation(void **arg)
{
    (void)arg;
    for (int i = 0; i < STEPS; i++)
        write_step(steps[i], "", (double)INFINITY);
    assert_int_equal(checkpoint_prune(run, 100), ST_OK);
    for (int i = 0; i < STEPS; i++)
        assert_true(there(steps[i], ""));
    assert_int_equal(checkpoint_prune(run, 1), ST_OK);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(there(steps[i], ""), steps[i] == 1001);
}

/* Damaged ones do not count as kept, and go only when older than all kept. */
static void prune_and_damage(void **arg)
{
    (void)arg;
    for (uint64_t step = 1; step <= 5; step++) {
        write_step(step, "", (double)INFINITY);
        if (step != 2 && step != 4)
            file_resize(text("%s/state-00000-of-00002.bin", at_step(step, "")), -4);
    }
    assert_int_equal(checkpoint_prune(run, 2), ST_OK);
    assert_false(there(1, ""));
    assert_true(there(2, "") && there(3, "") && there(4, "") && there(5, ""));
    assert_int_equal(checkpoint_prune(run, 1), ST_OK);
    assert_false(there(2, "") || there(3, ""));
    assert_true(there(4, "") && there(5, ""));
    file_resize(text("%s/state-00000-of-00002.bin", at_step(4, "")), -4);
    assert_int_equal(checkpoint_prune(run, 1), ST_OK); /* none complete */
    assert_true(there(4, "") && there(5, ""));
}

static int setup(void **arg)
{
    (void)arg;
    return comm_start(&comm) == ST_OK ? 0 : -1;
}

static int teardown(void **arg)
{
    (void)arg;
    comm_stop(comm);
    return 0;
}

#define IN_A_RUN(test) cmocka_unit_test_setup_teardown(test, make_run, remove_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_RUN(none_is_none),
        IN_A_RUN(order_is_numeric),
        IN_A_RUN(damaged_ones_are_passed_over_by_name),
        IN_A_RUN(find_verifies_every_file),
        IN_A_RUN(set_aside_is_neither_found_nor_kept),
        IN_A_RUN(half_replaced_is_found),
        IN_A_RUN(prune_keeps_newest_and_best),
        IN_A_RUN(prune_without_evaluation),
        IN_A_RUN(prune_and_damage),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
