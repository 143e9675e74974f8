/* tensorboard.h - scalars as TensorBoard reads them: event files of records, each a
 * protocol buffer between checksums. A new file for each process of a run; older ones of
 * the folder stay. */
#ifndef WEFT_REPORT_TENSORBOARD_H
#define WEFT_REPORT_TENSORBOARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tensorboard;

struct tensorboard_scalar {
    const char *tag; /* "train/loss" */
    double value;
};
enum { TENSORBOARD_MOST_SCALARS = 16 };

/* Opens a new event file in the folder, which is made. */
MUST_USE enum status tensorboard_open(const char *folder, struct tensorboard **out);
/* n <= TENSORBOARD_MOST_SCALARS of one step, in one write. */
MUST_USE enum status tensorboard_write(struct tensorboard *t, uint64_t step,
                                       const struct tensorboard_scalar *s, size_t n);
void tensorboard_close(struct tensorboard *t); /* NULL allowed */

#endif
