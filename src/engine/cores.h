/* cores.h - the cores that the workers of a rank may have. */
#ifndef WEFT_ENGINE_CORES_H
#define WEFT_ENGINE_CORES_H

#include <stddef.h>

#include "comm/comm.h"

enum { MOST_WORKERS = 4096 };

/* Worker threads for this rank: as asked, or with 0 the cores it may use divided by the
 * ranks that share them. Warns when workers share cores. COLLECTIVE; asked is at most
 * MOST_WORKERS, and the same everywhere. */
int cores_workers(struct comm *c, size_t asked);

#endif
