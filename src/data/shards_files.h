/* shards_files.h - which files a shard set is made of. Private to src/data. */
#ifndef WEFT_DATA_SHARDS_FILES_H
#define WEFT_DATA_SHARDS_FILES_H

#include <stdbool.h>

#include "base/files.h"
#include "base/status.h"

/* Adds the files that `where` (folder, file or glob pattern; split as in shards_open)
 * means, in byte order of their names whatever the locale. Never adds none: that is
 * ST_IO naming what was looked for. A `where` that is neither a folder nor a pattern is
 * added as it is, existing or not. */
MUST_USE enum status shards_find(const char *where, const char *split,
                                 struct path_list *out);

/* True when `where` is no existing name and has wildcards in it. */
bool shards_is_pattern(const char *where);

#endif
