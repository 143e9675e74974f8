/* SPDX-License-Identifier: MIT */
/* Times by label: what is counted, when, and how equal texts and too many labels end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "task/label_times.h"
#include "task/task.h"

#include <cmocka.h> /* last: it has a macro named fail */

enum { MOST = 8 };

static void nap_body(void *args, struct task_event event)
{
    (void)args;
    (void)event;
    clock_nap_us(2000);
}

static void spin_body(void *args, struct task_event event)
{
    double end_s = clock_thread_cpu_s() + 0.004;

    (void)args;
    (void)event;
    while (clock_thread_cpu_s() < end_s)
        ;
}

static void spawn(const char *label, task_body body, int times)
{
    for (int i = 0; i < times; i++)
        task_spawn(&(struct task){.label = label, .body = body});
}

/* What an engine_run would find in between; asserted on afterwards. */
struct looks {
    size_t before, after, restarted;
    struct task_label rows[MOST], again[MOST];
};

static void create(void *arg)
{
    /* One text at two addresses. */
    static const char nap[] = "nap", other_nap[] = "nap";
    struct looks *l = arg;

    spawn("early", nap_body, 3);
    task_wait_all();
    l->before = task_profile_get(l->rows, MOST);
    task_profile_start();
    spawn(nap, nap_body, 3);
    spawn(other_nap, nap_body, 4);
    spawn("spin", spin_body, 10);
    spawn("join", NULL, 2);
    task_wait_all();
    task_profile_stop();
    spawn("late", nap_body, 3);
    task_wait_all();
    l->after = task_profile_get(l->rows, MOST);
    task_profile_start();
    spawn("join", NULL, 5);
    task_wait_all();
    l->restarted = task_profile_get(l->again, MOST);
}

static void labels_are_counted(void **state)
{
    struct looks l;

    (void)state;
    task_run(2, create, &l);
    assert_int_equal(l.before, 0);
    assert_int_equal(l.after, 3);
    assert_string_equal(l.rows[2].label, "join");
    assert_int_equal(l.rows[2].count, 2);
    size_t nap = strcmp(l.rows[0].label, "nap") ? 1 : 0, spin = 1 - nap;

    assert_string_equal(l.rows[nap].label, "nap");
    assert_string_equal(l.rows[spin].label, "spin");
    assert_int_equal(l.rows[nap].count, 7);
    assert_int_equal(l.rows[spin].count, 10);
    assert_true(l.rows[0].busy_s >= l.rows[1].busy_s);
    assert_true(l.rows[nap].busy_s >= 7 * 0.002);
    assert_true(l.rows[nap].cpu_s < 0.5 * l.rows[nap].busy_s);
    assert_true(l.rows[spin].cpu_s >= 10 * 0.004);
    /* The CPU clock is read just outside the wall clock. */
    assert_true(l.rows[spin].cpu_s <= l.rows[spin].busy_s + 10 * 0.001);
    assert_int_equal(l.restarted, 1);
    assert_int_equal(l.again[0].count, 5);
}

static void only_asked(void *arg)
{
    size_t *labels = arg;
    struct task_label row = {.label = "untouched"};

    spawn("a", nap_body, 2);
    task_wait_all();
    labels[0] = task_profile_get(&row, 1);
    task_profile_start();
    spawn("a", nap_body, 2);
    spawn("b", NULL, 1);
    task_wait_all();
    labels[1] = task_profile_get(&row, 0);
    labels[2] = !strcmp(row.label, "untouched");
    labels[3] = task_profile_get(&row, 1);
    labels[4] = !strcmp(row.label, "a");
}

/* A team does not inherit the profile of the one before, and no more rows are written
 * than there is room for. */
static void off_unless_asked(void **state)
{
    size_t labels[5];

    (void)state;
    for (int i = 0; i < 2; i++) {
        task_run(1, only_asked, labels);
        assert_int_equal(labels[0], 0);
        assert_int_equal(labels[1], 2);
        assert_true(labels[2]);
        assert_int_equal(labels[3], 2);
        assert_true(labels[4]);
    }
}

static void too_many_labels(void **state)
{
    enum { LABELS = LABEL_TIMES_MOST + 6 };
    static char names[LABELS][8];
    struct label_times *t = aligned_alloc(64, sizeof *t);
    struct task_label rows[LABELS];

    (void)state;
    assert_non_null(t);
    t->n = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < LABELS; i++) {
            (void)snprintf(names[i], sizeof names[i], "n%d", i);
            label_times_add(t, names[i], 1.0 / (i + 1), 0.5);
        }
    assert_int_equal(label_times_sum(t, 1, rows, LABELS), LABEL_TIMES_MOST);
    assert_string_equal(rows[0].label, "n0");
    assert_int_equal(rows[0].count, 2);
    for (size_t i = 0; i < LABEL_TIMES_MOST; i++)
        if (!strcmp(rows[i].label, "other"))
            assert_int_equal(rows[i].count, 2 * (LABELS - LABEL_TIMES_MOST + 1));
        else
            assert_int_equal(rows[i].count, 2);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_counted),
        cmocka_unit_test(off_unless_asked),
        cmocka_unit_test(too_many_labels),
    };

    task_configure_runtime();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
