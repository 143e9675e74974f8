/* SPDX-License-Identifier: MIT */
/* TAMPI 4: functions of the library, which keep the request to themselves. */
#include <TAMPI.h>

#include "comm/calls_tampi.h"

int tampi_call(const struct call *k, int n, int root, MPI_Comm comm)
{
    switch (k->kind) {
    case REDUCE:
        return TAMPI_Ireduce(k->from, k->to, n, MPI_FLOAT, MPI_SUM, root, comm);
    case BROADCAST:
        return TAMPI_Ibcast(k->to, n, MPI_FLOAT, root, comm);
    case REDUCE_SCATTER:
        return TAMPI_Ireduce_scatter(k->from, k->to, k->counts, MPI_FLOAT, MPI_SUM, comm);
    case ALL_GATHER:
        return TAMPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, k->to, k->counts,
                                 k->places, MPI_FLOAT, comm);
    case ALLREDUCE:
        return TAMPI_Iallreduce(k->from, k->to, n, MPI_FLOAT, MPI_SUM, comm);
    }
    return MPI_ERR_ARG;
}
