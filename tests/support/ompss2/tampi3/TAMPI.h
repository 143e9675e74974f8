/* TAMPI.h - stands in for the header of TAMPI 3, whose calls are inline functions. */
#ifndef WEFT_TESTS_TAMPI_3_H
#define WEFT_TESTS_TAMPI_3_H

#include <mpi.h>

int TAMPI_Ireduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op,
                  int root, MPI_Comm comm, MPI_Request *request);
int TAMPI_Ibcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm,
                 MPI_Request *request);
int TAMPI_Iallreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm, MPI_Request *request);
int TAMPI_Ireduce_scatter(const void *from, void *to, const int counts[],
                          MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                          MPI_Request *request);
int TAMPI_Iallgatherv(const void *from, int n, MPI_Datatype from_type, void *to,
                      const int counts[], const int places[], MPI_Datatype to_type,
                      MPI_Comm comm, MPI_Request *request);

#endif
