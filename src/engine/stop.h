/* stop.h - requests to stop a run: signals and the time limit.
 *
 * SIGUSR1 and SIGTERM (what batch systems send before they take the machine) and SIGINT
 * (Ctrl-C) ask for a checkpoint and an orderly end. The handler only sets a flag: signals
 * reach ranks at different times, so the ranks agree on the stop with the next step's
 * agreement. A second SIGINT ends the process at once, as without a handler.
 */
#ifndef WEFT_ENGINE_STOP_H
#define WEFT_ENGINE_STOP_H

#include <stdbool.h>

#include "base/status.h"

/* Installs the handlers; the clock of the time limit starts here. Once a process. */
void stop_watch(void);

/* A signal has come. */
bool stop_signalled(void);

/* Seconds since stop_watch(). */
double stop_elapsed_s(void);

/* "23h50m", "90m", "45s", "1h30m15s", "3600" (seconds) -> seconds.
 * Returns  ST_USAGE naming --`option`, what was found and what is needed */
MUST_USE enum status stop_parse_limit(const char *option, const char *text,
                                      double *seconds);

#endif
