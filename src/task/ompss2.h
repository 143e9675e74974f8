/* ompss2.h - private to task: the back end for OmpSs-2 and who makes the runtime's tasks
 * for it, one of two files. ompss2_pragmas.c says `#pragma oss task` to a compiler that
 * knows it; ompss2_calls.c makes the calls to NODES that such a compiler would emit.
 *
 * In C99, and without atomics: the translator Mercurium reads this, too.
 */
#ifndef WEFT_TASK_OMPSS2_H
#define WEFT_TASK_OMPSS2_H

#include "task/task.h"

struct record;

/* By the creator: a task of the runtime that waits for what *t names, which is read here
 * and not kept, and then runs ompss2_run(). Higher priorities run earlier. */
void ompss2_spawn(struct record *r, const struct task *t, const char *label,
                  int priority);

/* By the creator: waits until all of them have finished. */
void ompss2_wait(void);

/* What a task does. */
void ompss2_run(struct record *r, bool has_event);

/* For task_backend(). */
extern const char ompss2_name[];

#endif
