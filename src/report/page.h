/* page.h - report.html: runs as curves, in one file that needs no network.
 *
 * The numbers stand in the page as JSON, thinned out so that the file stays below 2 MB;
 * page.js draws them, page.css has both colour schemes. Both are compiled in.
 */
#ifndef WEFT_REPORT_PAGE_H
#define WEFT_REPORT_PAGE_H

#include <stddef.h>

#include "report/run.h"

enum { PAGE_MOST_RUNS = 16, PAGE_MOST_BYTES = 2000000 };

/* Writes the page of 1 .. PAGE_MOST_RUNS runs. timeline: an object as timeline.h writes
 * it (trace/step.json), or NULL; borrowed. */
MUST_USE enum status page_write(const char *path, const struct run *runs, size_t n,
                                json_t *timeline);

#endif
