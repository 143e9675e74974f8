/* TAMPI.h - stands in for that of TAMPI 4 where that is not installed; see nodes.h. */
#ifndef WEFT_TESTS_TAMPI_H
#define WEFT_TESTS_TAMPI_H

#include <mpi.h>

#define TAMPI_PROPERTY_AUTO_INIT 0x3

int TAMPI_Property_set(int property, int value);
int TAMPI_Init(int required, int *provided);
int TAMPI_Finalize(void);
int TAMPI_Nonblocking_enabled(int *flag);

int TAMPI_Ireduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op,
                  int root, MPI_Comm comm);
int TAMPI_Ibcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm);
int TAMPI_Iallreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm);
int TAMPI_Ireduce_scatter(const void *from, void *to, const int counts[],
                          MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int TAMPI_Iallgatherv(const void *from, int n, MPI_Datatype from_type, void *to,
                      const int counts[], const int places[], MPI_Datatype to_type,
                      MPI_Comm comm);

#endif
