/* SPDX-License-Identifier: MIT */
#include "task/label_times.h"

#include <stdlib.h>
#include <string.h>

static struct task_label *row_of(struct label_times *t, const char *label)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].label == label)
            return &t->rows[i];
    if (t->n == LABEL_TIMES_MOST)
        return &t->rows[LABEL_TIMES_MOST - 1];
    struct task_label *row = &t->rows[t->n++];

    *row = (struct task_label){.label = t->n == LABEL_TIMES_MOST ? "other" : label};
    return row;
}

static void add(struct task_label *row, const struct task_label *more)
{
    row->count += more->count;
    row->busy_s += more->busy_s;
    row->cpu_s += more->cpu_s;
}

void label_times_add(struct label_times *t, const char *label, double busy_s,
                     double cpu_s)
{
    add(row_of(t, label),
        &(struct task_label){.count = 1, .busy_s = busy_s, .cpu_s = cpu_s});
}

static int by_busy_time(const void *a, const void *b)
{
    double x = ((const struct task_label *)a)->busy_s;
    double y = ((const struct task_label *)b)->busy_s;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Adds a row to the one with the same text, or behind the last; returns their number. */
static size_t join(struct task_label *all, size_t n, const struct task_label *row)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(all[i].label, row->label)) {
            add(&all[i], row);
            return n;
        }
    all[n] = *row;
    return n + 1;
}

size_t label_times_sum(const struct label_times *t, size_t tables, struct task_label *out,
                       size_t most)
{
    size_t capacity = 0, n = 0;
    struct task_label *all;

    for (size_t i = 0; i < tables; i++)
        capacity += t[i].n;
    if (capacity == 0)
        return 0;
    all = malloc(capacity * sizeof *all);
    if (!all)
        bug("tasks: no memory for %zu labels", capacity);
    for (size_t i = 0; i < tables; i++)
        for (size_t row = 0; row < t[i].n; row++)
            n = join(all, n, &t[i].rows[row]);
    qsort(all, n, sizeof *all, by_busy_time);
    memcpy(out, all, (n < most ? n : most) * sizeof *out);
    free(all);
    return n;
}
