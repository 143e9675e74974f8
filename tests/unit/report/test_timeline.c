/* SPDX-License-Identifier: MIT */
/* Rings of events, and the two ends of messages found again. */
#include "report/timeline.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void add_tasks(size_t n, double from_s)
{
    for (size_t i = 0; i < n; i++)
        trace_add("a label that is longer than its room",
                  &(struct trace_event){.kind = TRACE_TASK,
                                        .begin_s = from_s + (double)i,
                                        .end_s = from_s + (double)i + 0.5});
}

static void *other_thread(void *arg)
{
    (void)arg;
    trace_set_lane(TRACE_WORKER + 3);
    add_tasks(3, 100.25);
    return NULL;
}

static void rings_keep_the_newest(void **state)
{
    struct trace_event *events;
    double whole_from_s;
    pthread_t thread;
    size_t n;

    (void)state;
    assert_false(trace_is_on());
    trace_start(8);
    assert_true(trace_is_on());
    trace_set_lane(TRACE_WORKER);
    add_tasks(20, 90);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    pthread_join(thread, NULL);
    trace_stop();
    assert_int_equal(trace_take(&events, &n, &whole_from_s), ST_OK);
    assert_int_equal(n, 8 + 3);
    for (size_t i = 1; i < n; i++)
        assert_true(events[i - 1].begin_s <= events[i].begin_s);
    /* The oldest kept is the thirteenth. */
    assert_true(fabs(events[n - 1].begin_s - 109) < 1e-9);
    assert_true(fabs(whole_from_s - 102.5) < 1e-9);
    assert_int_equal(strlen(events[0].label), sizeof events[0].label - 1);
    assert_int_equal(events[0].lane, TRACE_WORKER + 3);
    free(events);
    /* Once more, from the start. */
    trace_start(4);
    add_tasks(2, 1);
    trace_stop();
    assert_int_equal(trace_take(&events, &n, &whole_from_s), ST_OK);
    assert_int_equal(n, 2);
    assert_true(whole_from_s < 0);
    free(events);
}

static struct trace_event message(enum trace_kind kind, int peer, unsigned turn,
                                  unsigned block, uint64_t place)
{
    return (struct trace_event){.label = "reduce",
                                .kind = (uint8_t)kind,
                                .begin_s = 1,
                                .end_s = 2,
                                .peer = peer,
                                .turn = turn,
                                .block = block,
                                .place = place};
}

static void ends_are_paired(void **state)
{
    /* Rank 0 sends four and receives one; the end of one is missing on each side. */
    const struct trace_event zero[] = {
        message(TRACE_SEND, 1, 1, 0, 0), message(TRACE_SEND, 1, 1, 0, 64),
        message(TRACE_SEND, 1, 2, 0, 0), message(TRACE_SEND, 1, 3, 0, 0),
        message(TRACE_RECEIVE, 1, 1, 5, 0)};
    const struct trace_event one[] = {
        message(TRACE_RECEIVE, 0, 2, 0, 0), message(TRACE_RECEIVE, 0, 1, 0, 64),
        message(TRACE_SEND, 0, 1, 5, 0), message(TRACE_RECEIVE, 0, 1, 0, 0),
        message(TRACE_RECEIVE, 0, 4, 0, 0)};
    const struct timeline_rank ranks[] = {{zero, 5, 0}, {one, 5, 0}};
    const struct timeline t = {ranks, 2, 1};
    struct timeline_message *pairs;
    size_t n;

    (void)state;
    assert_int_equal(timeline_match(&t, &pairs, &n), ST_OK);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(pairs[i].send->turn, pairs[i].receive->turn);
        assert_int_equal(pairs[i].send->block, pairs[i].receive->block);
        assert_int_equal(pairs[i].send->place, pairs[i].receive->place);
        assert_int_equal(pairs[i].from, pairs[i].send->block == 5 ? 1 : 0);
        assert_int_not_equal(pairs[i].from, pairs[i].to);
    }
    free(pairs);
}

static void lines_in_order(void **state)
{
    struct timeline_lines l = {0};

    (void)state;
    for (int i = 0; i < 10000; i++)
        timeline_add_line(&l, i * 7919 % 1009, "%d", i);
    timeline_sort(&l);
    assert_int_equal(l.n, 10000);
    assert_false(l.no_memory);
    for (size_t i = 1; i < l.n; i++) {
        assert_true(l.lines[i - 1].ns <= l.lines[i].ns);
        if (l.lines[i - 1].ns == l.lines[i].ns)
            assert_true(atoi(l.text + l.lines[i - 1].at) < atoi(l.text + l.lines[i].at));
    }
    timeline_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_keep_the_newest),
        cmocka_unit_test(ends_are_paired),
        cmocka_unit_test(lines_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
