/* SPDX-License-Identifier: MIT */
/* calls_tampi.h - TAMPI's collectives, whose interface differs between its versions:
 * calls_tampi_3.c or calls_tampi_4.c, as CMake finds. */
#ifndef WEFT_COMM_CALLS_TAMPI_H
#define WEFT_COMM_CALLS_TAMPI_H

#include "comm/comm_private.h"

/* From a task, collective over comm: starts the call, n floats (n and root: where the
 * kind has them). Returns at once with MPI's code; the task is complete when the call is,
 * its body may end before. All that the call names must stay until then. */
int tampi_call(const struct call *call, int n, int root, MPI_Comm comm);

#endif
