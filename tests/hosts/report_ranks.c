/* SPDX-License-Identifier: MIT */
/* Each rank says where it is and how its messages travel; for ranks.py.
 *
 * A line a rank: rank, host name, ranks that share memory with it (first and number), and
 * the bytes that left this host's interface while pairs of ranks exchanged BYTES each
 * way: within the host, and between hosts (-1 where there is no such pair).
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BYTES = 8 << 20 };

static long long sent_bytes(void)
{
    long long bytes = -1;
    FILE *f = fopen("/sys/class/net/eth0/statistics/tx_bytes", "r");
    if (!f || fscanf(f, "%lld", &bytes) != 1)
        MPI_Abort(MPI_COMM_WORLD, 1);
    fclose(f);
    return bytes;
}

/* What left the host while all exchanged with their peers; -1 without a peer. */
static long long exchange(int peer)
{
    char *out = calloc(1, BYTES), *in = malloc(BYTES);
    MPI_Barrier(MPI_COMM_WORLD);
    long long before = sent_bytes();
    MPI_Barrier(MPI_COMM_WORLD);
    if (peer >= 0)
        MPI_Sendrecv(out, BYTES, MPI_BYTE, peer, 0, in, BYTES, MPI_BYTE, peer, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    long long after = sent_bytes();
    MPI_Barrier(MPI_COMM_WORLD);
    free(out);
    free(in);
    return peer < 0 ? -1 : after - before;
}

/* A word in a shared window must be seen by every rank of the host. */
static int window_is_shared(MPI_Comm host, int first)
{
    int *mine, *word, unit, size, same = 0;
    MPI_Aint bytes;
    MPI_Win window;
    MPI_Comm_size(host, &size);
    MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, host, &mine,
                            &window);
    MPI_Win_lock_all(0, window);
    *mine = first + 1000;
    MPI_Win_sync(window);
    MPI_Barrier(host);
    MPI_Win_sync(window);
    for (int i = 0; i < size; i++) {
        MPI_Win_shared_query(window, i, &bytes, &unit, &word);
        same += *word == first + 1000;
    }
    MPI_Barrier(host);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    return same == size;
}

int main(int argc, char **argv)
{
    int rank, ranks, local, locals, first;
    char name[256];
    MPI_Comm host;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local);
    MPI_Comm_size(host, &locals);
    first = rank;
    MPI_Bcast(&first, 1, MPI_INT, 0, host);
    gethostname(name, sizeof name);
    int shared = window_is_shared(host, first);
    /* Connections are made before anything is counted. */
    int inside = (local ^ 1) < locals ? first + (local ^ 1) : -1;
    int beyond = (rank + ranks / 2) % ranks;
    exchange(inside);
    exchange(beyond);
    long long within = exchange(inside), between = exchange(beyond);
    printf("rank %d of %d on %s: first %d of %d, window %s, sent within %lld, between "
           "%lld\n",
           rank, ranks, name, first, locals, shared ? "shared" : "not shared", within,
           between);
    MPI_Finalize();
    return 0;
}
