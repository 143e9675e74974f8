/* label_times.h - private to task: how much of the workers' time each label took.
 *
 * One table a thread, written by that thread only; the creator adds them up when no task
 * is unfinished. A label is first looked for by its address, which is cheap; the same
 * text at two addresses is joined when the tables are added up.
 */
#ifndef WEFT_TASK_LABEL_TIMES_H
#define WEFT_TASK_LABEL_TIMES_H

#include <stddef.h>

#include "task/task.h"

/* Labels a table has rows for; what comes later is counted in the last row, as "other".
 */
enum { LABEL_TIMES_MOST = 64 };

struct label_times {
    _Alignas(64) size_t n;
    struct task_label rows[LABEL_TIMES_MOST];
};

/* One body of that label; both times in seconds. */
void label_times_add(struct label_times *t, const char *label, double busy_s,
                     double cpu_s);

/* Sums of `tables` tables by descending busy_s: writes at most `most` rows and returns
 * how many there are. */
size_t label_times_sum(const struct label_times *t, size_t tables, struct task_label *out,
                       size_t most);

#endif
