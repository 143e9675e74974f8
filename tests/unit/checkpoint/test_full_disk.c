/* SPDX-License-Identifier: MIT */
/* A save that cannot be finished leaves the earlier checkpoints and nothing else. */
#include "fixture.h" /* before cmocka.h, which has a fail() of its own */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct holding holding = {.spec = "L=2,H=2,C=64,T=32,V=300",
                                       .order = LAYOUT_PRODUCTION,
                                       .ranks = 1,
                                       .block_bytes = 4096};
static struct comm *comm;
static char scratch[PATH_BYTES];

static enum status save(const char *run, uint64_t step, const char *config)
{
    struct run_state state = fixture_state(step);
    char path[PATH_BYTES];
    struct fixture f;

    fixture_init(&f, &holding, 0);
    fixture_fill(&f, step);
    enum status st = fixture_save(comm, run, &state, &f.view, config, NULL, path);
    fixture_release(&f);
    return st;
}

/* Of checkpoint 5 of the run. */
static void still_loads(const char *run)
{
    char path[PATH_BYTES];
    struct run_state back;
    struct fixture f;
    bool found;

    assert_int_equal(checkpoint_latest(run, path, &found), ST_OK);
    assert_true(found);
    assert_string_equal(path, text("%s/checkpoints/step-000005", run));
    fixture_init(&f, &holding, 0);
    assert_int_equal(checkpoint_load(comm, path, true, &f.view, &back), ST_OK);
    assert_int_equal(back.step, 5);
    assert_int_equal(fixture_wrong_params(&f, 5), 0);
    assert_int_equal(fixture_wrong_moments(&f, 5), 0);
    fixture_release(&f);
}

static void check_failed_save(const char *run, uint64_t step, const char *config,
                              const char *reason)
{
    capture_begin();
    enum status st = save(run, step, config);
    const char *said = capture_end();

    assert_int_equal(st, ST_IO);
    if (!strstr(said, reason))
        fail_msg("'%s' lacks '%s'", said, reason);
    assert_non_null(strstr(said, text("step-%06d not written", (int)step)));
    assert_non_null(strstr(said, text("kept: %s/checkpoints/step-000005", run)));
    assert_false(file_exists(text("%s/checkpoints/step-%06d.tmp", run, (int)step)));
    assert_false(file_exists(text("%s/checkpoints/step-%06d.old", run, (int)step)));
    still_loads(run);
}

/* A folder that becomes a file system of `bytes`; false when we may not. */
static bool mount_small(const char *path, size_t bytes)
{
    assert_int_equal(folder_make(path), ST_OK);
    return mount("none", path, "tmpfs", 0, text("size=%zu", bytes)) == 0;
}

static void full_file_system(void **arg)
{
    const char *run = text("%s/small", scratch);
    struct checkpoint_info info;

    (void)arg;
    assert_int_equal(save(text("%s/probe", scratch), 5, ""), ST_OK);
    assert_int_equal(checkpoint_inspect(text("%s/probe/checkpoints/step-000005", scratch),
                                        false, &info),
                     ST_OK);
    if (!mount_small(run, (size_t)info.file_bytes * 3 / 2)) {
        print_message("skipped: cannot mount a tmpfs: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(save(run, 5, ""), ST_OK);
    check_failed_save(run, 10, "", "No space left");
    check_failed_save(run, 5, "", "No space left"); /* would replace the only one */
    assert_int_equal(umount(run), 0);
}

/* The state file fits, the manifest does not. */
static void full_at_the_manifest(void **arg)
{
    static char config[3 << 20];
    const char *run = text("%s/tail", scratch);

    (void)arg;
    memset(config, 'x', sizeof config - 1);
    assert_int_equal(save(text("%s/probe2", scratch), 5, ""), ST_OK);
    if (!mount_small(run, (size_t)5 << 20)) {
        print_message("skipped: cannot mount a tmpfs: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(save(run, 5, ""), ST_OK);
    check_failed_save(run, 10, config, "No space left");
    assert_int_equal(umount(run), 0);
}

static void file_size_limit(void **arg)
{
    const char *run = text("%s/limit", scratch);
    struct rlimit before, small;

    (void)arg;
    assert_int_equal(save(run, 5, ""), ST_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    capture_begin();
    enum status st = save(run, 10, "");
    const char *said = capture_end();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(st, ST_IO);
    assert_non_null(strstr(said, "File too large"));
    assert_false(file_exists(text("%s/checkpoints/step-000010.tmp", run)));
    still_loads(run);
}

static void no_permission(void **arg)
{
    const char *run = text("%s/closed", scratch);

    (void)arg;
    assert_int_equal(save(run, 5, ""), ST_OK);
    if (geteuid() == 0) {
        print_message("skipped: root may write anywhere\n");
        skip();
    }
    assert_int_equal(chmod(text("%s/checkpoints", run), 0555), 0);
    check_failed_save(run, 10, "", "Permission denied");
    assert_int_equal(chmod(text("%s/checkpoints", run), 0755), 0);
}

/* A plain file where the folder has to be. */
static void no_folder_there(void **arg)
{
    const char *run = text("%s/file", scratch);

    (void)arg;
    assert_int_equal(file_write_all(run, "x", 1), ST_OK);
    capture_begin();
    enum status st = save(run, 10, "");
    const char *said = capture_end();

    assert_int_equal(st, ST_IO);
    assert_non_null(strstr(said, run));
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
    /* After a failed test the mounts are still there; not there is fine too. */
    if (umount(text("%s/small", scratch)) != 0 && errno == EBUSY)
        return -1;
    if (umount(text("%s/tail", scratch)) != 0 && errno == EBUSY)
        return -1;
    scratch_remove(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_file_system), cmocka_unit_test(full_at_the_manifest),
        cmocka_unit_test(file_size_limit),  cmocka_unit_test(no_permission),
        cmocka_unit_test(no_folder_there),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
