/* SPDX-License-Identifier: MIT */
/* Control operations, and that each rank sees the same. */
#include "comm/comm.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#undef fail /* this program's fail(), not cmocka's */

static struct comm *comm;

/* Runs comm_agree with stderr caught; returns what this rank printed. */
static const char *caught_agree(enum status mine, enum status *agreed)
{
    static char text[1024];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);

    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    *agreed = comm_agree(comm, mine);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static void the_worst_status_wins_and_one_rank_speaks(void **state)
{
    int size = comm_size(comm);
    enum status agreed;
    /* The last two ranks are worst; all but rank 0 have failed. */
    bool worst = comm_rank(comm) >= size - 2;
    enum status mine = worst ? fail(ST_NOMEM, "no memory on %d", comm_rank(comm))
                       : comm_rank(comm) > 0
                           ? fail(ST_IO, "no file on %d", comm_rank(comm))
                           : ST_OK;
    int speaker = size > 1 ? size - 2 : 0;
    const char *text = caught_agree(mine, &agreed);
    char needed[64];

    (void)state;
    snprintf(needed, sizeof needed, "error: no memory on %d\n", speaker);
    assert_int_equal(agreed, ST_NOMEM);
    if (comm_rank(comm) == speaker) {
        assert_non_null(strstr(text, needed));
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    } else {
        assert_string_equal(text, "");
    }
    assert_string_equal(caught_agree(ST_OK, &agreed), "");
    assert_int_equal(agreed, ST_OK);
}

static void sums_and_maxima_are_equal_everywhere(void **state)
{
    enum { N = 517 };
    double values[N], all[N], most[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        double sum = 0;

        for (int r = 0; r < comm_size(comm); r++)
            sum += 0.1 * (r + 1) + i;
        values[i] = 0.1 * (comm_rank(comm) + 1) + i;
        most[i] = (comm_rank(comm) * 7 + i) % comm_size(comm);
        all[i] = sum;
    }
    comm_sum(comm, values, N);
    comm_max(comm, most, N);
    assert_memory_equal(values, all, sizeof all);
    for (int i = 0; i < N; i++) {
        double needed = 0;

        for (int r = 0; r < comm_size(comm); r++)
            if ((r * 7 + i) % comm_size(comm) > needed)
                needed = (r * 7 + i) % comm_size(comm);
        assert_true(most[i] == needed);
    }
    comm_sum(comm, values, 0);
}

static void data_reach_every_rank(void **state)
{
    char text[5000];
    int *all = calloc((size_t)comm_size(comm) * 3, sizeof *all);
    int mine[3] = {comm_rank(comm), -1, comm_rank(comm) * comm_rank(comm)};

    (void)state;
    for (int root = 0; root < comm_size(comm); root++) {
        memset(text, comm_rank(comm) == root ? 'a' + root : 0, sizeof text);
        comm_broadcast(comm, text, sizeof text, root);
        for (size_t i = 0; i < sizeof text; i++)
            assert_int_equal(text[i], 'a' + root);
    }
    comm_gather_all(comm, mine, sizeof mine, all);
    for (int r = 0; r < comm_size(comm); r++) {
        assert_int_equal(all[3 * r], r);
        assert_int_equal(all[3 * r + 1], -1);
        assert_int_equal(all[3 * r + 2], r * r);
    }
    free(all);
}

static void differences_are_found_and_named(void **state)
{
    static char data[10007];

    (void)state;
    memset(data, 3, sizeof data);
    assert_int_equal(comm_same(comm, data, sizeof data, "weights"), ST_OK);
    assert_int_equal(comm_same(comm, data, 0, "weights"), ST_OK);
    if (comm_size(comm) == 1)
        return;
    if (comm_rank(comm) == 1)
        data[sizeof data - 1] = 4;
    assert_int_equal(comm_same(comm, data, sizeof data, "weights"), ST_BUG);
    assert_non_null(strstr(fail_text(), "weights"));
    assert_non_null(strstr(fail_text(), "rank 1"));
    size_t bytes = comm_rank(comm) == comm_size(comm) - 1 ? 5 : 6;

    assert_int_equal(comm_same(comm, data, bytes, "length"), ST_BUG);
}

static void the_library_computes_right(void **state)
{
    (void)state;
    assert_int_equal(comm_self_test(comm), ST_OK);
}

/* The programs that must fail; started by failures.sh. */
static void *abort_job(void *arg)
{
    (void)arg;
    comm_abort(comm, 3);
}

static void wait_for_all(void)
{
    double nothing = 0;

    comm_max(comm, &nothing, 1);
}

static int fail_on_purpose(const char *how)
{
    pthread_t thread;

    wait_for_all();
    if (comm_rank(comm) == comm_size(comm) - 1) {
        if (!strcmp(how, "bug"))
            require(comm_size(comm) == 0);
        if (!strcmp(how, "exit"))
            exit(5);
        pthread_create(&thread, NULL, abort_job, NULL);
        pthread_join(thread, NULL);
    }
    wait_for_all(); /* the others wait for a rank that never comes */
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_status_wins_and_one_rank_speaks),
        cmocka_unit_test(sums_and_maxima_are_equal_everywhere),
        cmocka_unit_test(data_reach_every_rank),
        cmocka_unit_test(differences_are_found_and_named),
        cmocka_unit_test(the_library_computes_right),
    };
    enum status st = comm_start(&comm);

    if (st != ST_OK) {
        fprintf(stderr, "refused: %s\n", fail_text());
        return status_exit_code(st);
    }
    if (argc > 1)
        return fail_on_purpose(argv[1]);
    if (cmocka_run_group_tests(tests, NULL, NULL) != 0)
        comm_abort(comm, 1);
    comm_stop(comm);
    return 0;
}
