/* SPDX-License-Identifier: MIT */
#include "report/prometheus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/files.h"

/* In quotes; three characters are escaped there. */
static void put_label(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", f);
        else
            fprintf(f, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('"', f);
}

enum status prometheus_write(const char *path, const char *run,
                             const struct prometheus_value *v, size_t n)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    enum status st;

    if (!f)
        return fail(ST_NOMEM, "%s: no memory for the figures", path);
    for (size_t i = 0; i < n; i++) {
        if (isnan(v[i].value))
            continue;
        fprintf(f, "# HELP %s %s\n# TYPE %s %s\n%s{run=", v[i].name, v[i].help, v[i].name,
                v[i].counter ? "counter" : "gauge", v[i].name);
        put_label(f, run);
        fprintf(f, "} %.9g\n", v[i].value);
    }
    st = fclose(f) == 0 ? file_write_all(path, text, bytes)
                        : fail(ST_NOMEM, "%s: no memory for the figures", path);
    free(text);
    return st;
}
