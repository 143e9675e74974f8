/* SPDX-License-Identifier: MIT */
/* TAMPI 3: its calls are MPI's, followed by one that binds their request to the task and
 * takes it away; inline, and the second only where the compiler says that it knows tasks
 * of OmpSs-2 or OpenMP. Here the calls of the runtime stand for such a compiler. */
#define _OMPSS_2 1 /* what TAMPI_Wrappers.h asks */
#include <TAMPI.h>

#include "comm/calls_tampi.h"

int tampi_call(const struct call *k, int n, int root, MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;

    switch (k->kind) {
    case REDUCE:
        return TAMPI_Ireduce(k->from, k->to, n, MPI_FLOAT, MPI_SUM, root, comm, &request);
    case BROADCAST:
        return TAMPI_Ibcast(k->to, n, MPI_FLOAT, root, comm, &request);
    case REDUCE_SCATTER:
        return TAMPI_Ireduce_scatter(k->from, k->to, k->counts, MPI_FLOAT, MPI_SUM, comm,
                                     &request);
    case ALL_GATHER:
        return TAMPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, k->to, k->counts,
                                 k->places, MPI_FLOAT, comm, &request);
    case ALLREDUCE:
        return TAMPI_Iallreduce(k->from, k->to, n, MPI_FLOAT, MPI_SUM, comm, &request);
    }
    return MPI_ERR_ARG;
}
