/* records.h - what the back end remembers of a task, with the copy of its arguments.
 *
 * Records come from chunks owned by the creator and are given back all at once when no
 * task is unfinished. The last thing that anyone does with a record is to take away its
 * last part, so none is in use then.
 */
#ifndef WEFT_TASK_RECORDS_H
#define WEFT_TASK_RECORDS_H

#include <stdatomic.h>
#include <stddef.h>

#include "task/task.h"

struct record {
    task_body body;
    const char *label;
    struct record *next; /* in the list of completed events */
    uintptr_t handle;    /* of the event, once completed */
    atomic_int parts;    /* body, event: who takes the last one finishes the task */
    atomic_bool completed;
    unsigned delay_us; /* shuffling: nap before the body */
    _Alignas(16) unsigned char args[];
};

struct record_chunk;

struct records {
    struct record_chunk *first; /* all chunks, in the order they are filled */
    struct record_chunk *fill;  /* the one being filled */
};

/* Copies body, label and arguments of *t. Running out of memory ends the program. */
struct record *records_take(struct records *all, const struct task *t);
void records_reset(struct records *all);   /* forgets the records, keeps the memory */
void records_release(struct records *all); /* leaves it empty and reusable */

#endif
