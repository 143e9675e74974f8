/* SPDX-License-Identifier: MIT */
/* Stands in front of MPI_Isend and adds 1 to the first float of every longer message that
 * rank 0 sends: what a faulty network or library would do. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 64, MOST_KEPT = 1 << 16 };

/* Copies that may still be on their way; a test is short, they are never freed. */
static void *kept[MOST_KEPT];
static size_t n_kept;

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    int rank, type_bytes;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Type_size(type, &type_bytes);
    size_t bytes = (size_t)count * (size_t)type_bytes;
    void *copy = rank == 0 && count > SHORT && n_kept < MOST_KEPT ? malloc(bytes) : NULL;

    if (copy) {
        float first;

        memcpy(copy, buf, bytes);
        memcpy(&first, copy, sizeof first);
        first += 1;
        memcpy(copy, &first, sizeof first);
        kept[n_kept++] = copy;
        buf = copy;
    }
    return PMPI_Isend(buf, count, type, dest, tag, comm, request);
}
