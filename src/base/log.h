/* log.h - the log on stderr. stdout is for results only.
 *
 * Every line leaves in one write(2), so that lines of several ranks never mix. Lines
 * start with "weft: ", and with "weft: rank R: " for warnings and errors of a job of
 * several ranks. Safe from any thread.
 */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

/* Who speaks; 0 of 1 until set. Called once, by comm, before other threads exist. */
void log_set_rank(int rank, int size);
int log_rank(void);

/* Silences log_info (option --quiet); warnings and errors always print. */
void log_set_quiet(bool quiet);

/* Prints on rank 0 only: what is the same on all ranks. */
void log_info(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Print on the calling rank. */
void log_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_error(const char *fmt, ...) PRINTF_LIKE(1, 2);

#endif
