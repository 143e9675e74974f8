/* cores.h - the cores that the workers of a rank may have. */
#ifndef WEFT_ENGINE_CORES_H
#define WEFT_ENGINE_CORES_H

#include <stddef.h>

#include "comm/comm.h"

enum { MOST_WORKERS = 4096 };

/* Where a rank stands. */
struct cores {
    int own;     /* it may use */
    int sharers; /* ranks that may use the very same ones, itself included */
    int on_host; /* ranks of its host */
    int host_cores;
};

/* Worker threads for this rank: as asked, or with 0 the cores it may use divided by the
 * ranks that share them. Warns, with the remedy, when workers share cores or the launcher
 * leaves cores unused. COLLECTIVE; asked is at most MOST_WORKERS, and the same
 * everywhere. Out      *cores, unless NULL */
int cores_workers(struct comm *c, size_t asked, struct cores *cores);

#endif
