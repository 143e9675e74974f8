/* prometheus.h - gauges of a run in Prometheus' text format, for the textfile collector
 * of its node exporter. */
#ifndef WEFT_REPORT_PROMETHEUS_H
#define WEFT_REPORT_PROMETHEUS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct prometheus_value {
    const char *name, *help; /* "weft_loss" */
    double value;            /* NaN: not known, left out */
    bool counter;            /* else a gauge */
};

/* Writes the file whole, each value labelled with the run. */
MUST_USE enum status prometheus_write(const char *path, const char *run,
                                      const struct prometheus_value *v, size_t n);

#endif
