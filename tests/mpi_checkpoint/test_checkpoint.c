/* SPDX-License-Identifier: MIT */
/* Checkpoints of a real job: written together, read by jobs of other sizes, and what
 * happens to all ranks when one cannot do its part. */
#include "base/log.h"
#include "fixture.h" /* before cmocka.h, which has a fail() of its own */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct comm *comm;
static int rank, size;
static char scratch[PATH_BYTES];

static const char *const specs[] = {"L=1,H=3,C=48,T=7,V=61", "L=2,H=2,C=10,T=5,V=129",
                                    "L=3,H=3,C=48,T=11,V=257"};

static void wait_for_all(void)
{
    double nothing = 0;

    comm_max(comm, &nothing, 1);
}

/* No rank may have failed; cmocka's asserts would leave the others waiting. */
static void all_right(bool mine, const char *what)
{
    double wrong = !mine;

    if (!mine)
        fprintf(stderr, "rank %d of %d: %s\n", rank, size, what);
    comm_sum(comm, &wrong, 1);
    assert_true(wrong == 0);
}

static struct holding job(const char *spec, enum layout_order order, size_t block_bytes)
{
    return (struct holding){
        .spec = spec, .order = order, .ranks = size, .block_bytes = block_bytes};
}

static bool loads(const char *path, const struct holding *h,
                  const struct run_state *state, uint64_t salt)
{
    struct run_state back = {0};
    struct fixture f;

    fixture_init(&f, h, rank);
    fixture_poison(&f);
    bool right = checkpoint_load(comm, path, true, &f.view, &back) == ST_OK &&
                 same_state(&back, state) && fixture_wrong_params(&f, salt) == 0 &&
                 fixture_wrong_moments(&f, salt) == 0;
    fixture_release(&f);
    return right;
}

static void saved_together_read_anyhow(void **arg)
{
    static const size_t blocks[] = {64, 1024, 16384, SIZE_MAX};
    const char *run = text("%s/together", scratch);

    (void)arg;
    for (uint64_t k = 0; k < 12; k++) {
        struct holding h = job(specs[k % 3], (enum layout_order)(k % 2), blocks[k % 4]);
        struct run_state state = fixture_state(k);
        char path[PATH_BYTES];
        struct fixture f;

        h.one_block = k == 11;
        h.strategy = (enum strategy)(k % 4 + 1);
        fixture_init(&f, &h, rank);
        fixture_fill(&f, k);
        enum status st = fixture_save(comm, run, &state, &f.view, "a = b\n", NULL, path);
        fixture_release(&f);
        all_right(st == ST_OK, "save");
        all_right(comm_same(comm, path, strlen(path), "path") == ST_OK, "path");

        h = job(specs[k % 3], (enum layout_order)((k + 1) % 2), blocks[(k + 1) % 4]);
        h.strategy = (enum strategy)(k / 4 % 4 + 1);
        all_right(loads(path, &h, &state, k), "load with another plan and layout");

        size_t wrong = 0;
        for (int ranks = 1; rank == 0 && ranks <= 9; ranks += 1 + (ranks > 2)) {
            h.ranks = ranks;
            wrong += simulate_load(path, &h, k);
        }
        all_right(wrong == 0, "load with other numbers of ranks");
    }
}

static void written_by_other_jobs(void **arg)
{
    static const int writers[] = {1, 2, 3, 4, 7, 16};

    (void)arg;
    for (uint64_t k = 0; k < sizeof writers / sizeof *writers; k++) {
        const char *folder = text("%s/other-%d", scratch, writers[k]);
        struct holding h = {.spec = specs[k % 3],
                            .order = (enum layout_order)(k % 2),
                            .ranks = writers[k],
                            .block_bytes = 2000};
        struct run_state state = fixture_state(k);

        if (rank == 0)
            simulate_save(folder, &h, &state, k);
        wait_for_all();
        h = job(specs[k % 3], LAYOUT_PRODUCTION, 700);
        all_right(loads(folder, &h, &state, k), "load");
    }
}

/* The last rank may not write much: all ranks are told, nothing is left behind. */
static void one_rank_cannot_write(void **arg)
{
    const char *run = text("%s/limit", scratch);
    const struct holding h = job("L=2,H=2,C=64,T=32,V=300", LAYOUT_PRODUCTION, 4096);
    struct run_state state = fixture_state(5);
    struct rlimit before, small;
    char path[PATH_BYTES];
    struct fixture f;

    (void)arg;
    fixture_init(&f, &h, rank);
    fixture_fill(&f, 5);
    enum status st = fixture_save(comm, run, &state, &f.view, "", NULL, path);
    all_right(st == ST_OK, "first save");

    all_right(getrlimit(RLIMIT_FSIZE, &before) == 0, "getrlimit");
    small = before;
    small.rlim_cur = 50000;
    (void)signal(SIGXFSZ, SIG_IGN);
    for (uint64_t step = 5; step <= 6; step++) { /* one replaces, one is new */
        if (rank == size - 1 && setrlimit(RLIMIT_FSIZE, &small) != 0)
            bug("cannot set a limit");
        state.step = step;
        if (rank == 0)
            capture_begin();
        st = fixture_save(comm, run, &state, &f.view, "", NULL, path);
        const char *said = rank == 0 ? capture_end() : "step-";
        if (setrlimit(RLIMIT_FSIZE, &before) != 0)
            bug("cannot lift a limit");
        all_right(st == ST_IO, "status of the failed save");
        all_right(strstr(said, "step-") != NULL, "warning of rank 0");
        all_right(!file_exists(text("%s/checkpoints/step-%06d.tmp", run, (int)step)),
                  "leftover");
    }
    state.step = 5;
    all_right(!file_exists(text("%s/checkpoints/step-000006", run)), "half checkpoint");
    all_right(loads(text("%s/checkpoints/step-000005", run), &h, &state, 5),
              "the earlier one");
    fixture_release(&f);
}

/* A file that one rank alone sums is damaged: all ranks refuse. */
static void damage_is_refused_by_all(void **arg)
{
    const char *folder = text("%s/damaged", scratch);
    struct holding writer = {
        .spec = specs[0], .order = LAYOUT_PRODUCTION, .ranks = 5, .block_bytes = 2000};
    const struct holding h = job(specs[0], LAYOUT_PRODUCTION, 700);
    struct run_state state = fixture_state(1), back = {.step = 77};
    struct fixture f;

    (void)arg;
    if (rank == 0)
        simulate_save(folder, &writer, &state, 1);
    wait_for_all();
    fixture_init(&f, &h, rank);
    for (int r = 0; r < 5; r++) {
        const char *file = text("%s/state-%05d-of-00005.bin", folder, r);

        if (rank == 0)
            file_flip_byte(file, 40);
        wait_for_all();
        enum status st = checkpoint_load(comm, folder, true, &f.view, &back);
        all_right(st == ST_FORMAT && back.step == 77, "damaged file");
        if (rank == 0)
            file_flip_byte(file, 40);
        wait_for_all();
    }
    if (rank == 0 && unlink(text("%s/state-00004-of-00005.bin", folder)) != 0)
        bug("cannot remove");
    wait_for_all();
    all_right(checkpoint_load(comm, folder, true, &f.view, &back) == ST_IO,
              "missing file");
    all_right(checkpoint_load(comm, rank ? folder : "/none", true, &f.view, &back) ==
                  ST_IO,
              "one rank sees no folder");
    fixture_release(&f);
}

static void prune_after_saves(void **arg)
{
    const char *run = text("%s/prune", scratch);
    const struct holding h = job(specs[1], LAYOUT_PRODUCTION, 700);
    char path[PATH_BYTES];
    struct fixture f;
    bool found;

    (void)arg;
    fixture_init(&f, &h, rank);
    fixture_fill(&f, 5);
    for (uint64_t step = 8; step <= 11; step++) {
        struct run_state state = fixture_state(step);

        enum status st = fixture_save(comm, run, &state, &f.view, "", NULL, path);
        all_right(st == ST_OK, "save");
        all_right(rank != 0 || checkpoint_prune(run, 2) == ST_OK, "prune");
        wait_for_all();
    }
    all_right(!file_exists(text("%s/checkpoints/step-000009", run)), "step 9 is gone");
    all_right(file_exists(text("%s/checkpoints/step-000010", run)), "step 10 is kept");
    all_right(checkpoint_latest(run, path, &found) == ST_OK && found &&
                  strstr(path, "step-000011"),
              "step 11 is the newest");
    fixture_release(&f);
}

static int setup(void **arg)
{
    (void)arg;
    if (rank == 0)
        scratch_make(scratch);
    comm_broadcast(comm, scratch, sizeof scratch, 0);
    return 0;
}

static int teardown(void **arg)
{
    (void)arg;
    wait_for_all();
    if (rank == 0)
        scratch_remove(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_together_read_anyhow),
        cmocka_unit_test(written_by_other_jobs),
        cmocka_unit_test(one_rank_cannot_write),
        cmocka_unit_test(damage_is_refused_by_all),
        cmocka_unit_test(prune_after_saves),
    };

    if (comm_start(&comm) != ST_OK) {
        log_error("%s", fail_text());
        return 1;
    }
    rank = comm_rank(comm);
    size = comm_size(comm);
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    comm_stop(comm);
    return failed;
}
