/* scratch.h - a fresh folder for one test program. */
#ifndef WEFT_TESTS_BASE_SCRATCH_H
#define WEFT_TESTS_BASE_SCRATCH_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Path of `name` in this process's own folder; valid until four more calls. */
static inline const char *scratch(const char *name)
{
    static char folder[] = "/tmp/weft-test-XXXXXX";
    static char paths[4][PATH_MAX];
    static unsigned next;
    static bool made; /* a made name may end in an X of its own */
    char *path = paths[next++ % 4];

    if (!made && !mkdtemp(folder))
        abort();
    made = true;
    (void)snprintf(path, PATH_MAX, "%s%s%s", folder, name[0] ? "/" : "", name);
    return path;
}

#endif
