/* SPDX-License-Identifier: MIT */
/* A witness between the program and MPI (profiling interface, loaded with LD_PRELOAD):
 * writes one line a call to $WEFT_PMPI_LOG.<rank> for pmpi_check.py, and disturbs.
 *
 *   WEFT_PMPI_LOG=PREFIX             where the lines go; unset: nowhere
 *   WEFT_PMPI_DELAY_MS=N             every start waits 0..N ms, one test in 16 too
 *   WEFT_PMPI_DELAY_TOTAL_MS=N       no more than this in all (default 2000 a rank)
 *   WEFT_PMPI_SEED=N                 of the delays
 *   WEFT_PMPI_THREAD_LEVEL=single|funneled   what MPI_Init_thread pretends to provide
 *   WEFT_PMPI_HOLD=RANK,CALL,WHICH,STEP,MS[,COMM]   one call of one rank comes MS late:
 *                                    in step STEP (from 0) the first Isend with tag WHICH
 *                                    (on communicator COMM), alone, while everything else
 *                                    goes on; or the collective of that name number WHICH
 *                                    (from 0), and all after it
 *   WEFT_PMPI_HOSTS=N,N,...          the number of the host that each rank is told to be
 *                                    on: ranks with the same one share memory
 *
 * A line: microseconds, call, communicator, operation, count, bytes an element, peer or
 * root, tag; what does not apply is -1. Where each rank has a count of its own, their sum
 * stands as the count and all of them behind the operation: sum[16,0,32]. Iallgather has
 * the type there: double, words (of 64 bits) or other. Communicators are numbered in the
 * order in which they were made: 0 is the world. Several threads may call, as TAMPI's
 * tasks do; a collective that is held back then holds only those of its own thread.
 */
#include <inttypes.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_COMMS = 4096 };

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what is not atomic */
static struct {
    MPI_Comm comm;
    int number;
} comms[MAX_COMMS];
static int n_comms, next_number;
static _Atomic uint64_t started, completed;
static uint64_t seed = 1;
static double delay_ms, delay_left_ms;
static atomic_long step = -1;

/* Collectives that can be held back, and how many there were in this step. */
static struct {
    const char *name;
    atomic_long n;
} calls[] = {{"Ireduce", 0},
             {"Ibcast", 0},
             {"Iallreduce", 0},
             {"Ireduce_scatter", 0},
             {"Iallgatherv", 0}};
enum { N_CALLS = sizeof calls / sizeof calls[0] };

static struct {
    atomic_bool wanted;
    char call[32];
    long which, step;
    double ms;
    int comm; /* -1: any */
} hold = {.comm = -1};

/* A message that the program believes to be on its way. */
static struct {
    bool waits, runs;
    int64_t due_us;
    const void *buf;
    int count, dest, tag;
    MPI_Datatype type;
    MPI_Comm comm;
    MPI_Request seen, real;
} held;

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Under lock. */
static int append_comm(MPI_Comm comm)
{
    if (n_comms == MAX_COMMS) {
        fprintf(stderr, "pmpi_log: more than %d communicators\n", MAX_COMMS);
        PMPI_Abort(MPI_COMM_WORLD, 70);
    }
    comms[n_comms].comm = comm;
    comms[n_comms++].number = next_number;
    return next_number++;
}

static int add_comm(MPI_Comm comm)
{
    pthread_mutex_lock(&lock);
    int number = append_comm(comm);

    pthread_mutex_unlock(&lock);
    return number;
}

static int comm_number(MPI_Comm comm)
{
    int number = -1;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_comms && number < 0; i++)
        if (comms[i].comm == comm)
            number = comms[i].number;
    if (number < 0)
        number = append_comm(comm);
    pthread_mutex_unlock(&lock);
    return number;
}

static void drop_comm(MPI_Comm comm)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_comms; i++)
        if (comms[i].comm == comm)
            comms[i--] = comms[--n_comms];
    pthread_mutex_unlock(&lock);
}

static void line(const char *call, int comm, const char *op, long count, int size,
                 int peer, int tag)
{
    if (out)
        fprintf(out, "%" PRId64 " %s %d %s %ld %d %d %d\n", now_us(), call, comm, op,
                count, size, peer, tag);
}

static const char *op_name(MPI_Op op)
{
    return op == MPI_SUM ? "sum" : op == MPI_OP_NULL ? "-" : "other";
}

static void call_line(const char *call, MPI_Comm comm, MPI_Op op, int count,
                      MPI_Datatype type, int peer, int tag)
{
    int size;

    PMPI_Type_size(type, &size);
    line(call, comm_number(comm), op_name(op), count, size, peer, tag);
}

static void gather_line(MPI_Comm comm, int count, MPI_Datatype type)
{
    int size;

    PMPI_Type_size(type, &size);
    line("Iallgather", comm_number(comm),
         type == MPI_DOUBLE     ? "double"
         : type == MPI_UINT64_T ? "words"
                                : "other",
         count, size, -1, -1);
}

/* A call in which every rank has a count of its own. */
static void counts_line(const char *call, MPI_Comm comm, MPI_Op op, const int *counts,
                        MPI_Datatype type)
{
    char *text = NULL;
    size_t bytes;
    long sum = 0;
    int ranks, size;
    FILE *list = open_memstream(&text, &bytes);

    PMPI_Comm_size(comm, &ranks);
    PMPI_Type_size(type, &size);
    fputs(op_name(op), list);
    for (int r = 0; r < ranks; r++) {
        fprintf(list, "%c%d", r == 0 ? '[' : ',', counts[r]);
        sum += counts[r];
    }
    fputc(']', list);
    fclose(list);
    line(call, comm_number(comm), text, sum, size, -1, -1);
    free(text);
}

static double random_unit(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 40) / (double)(1 << 24);
}

static void sleep_ms(double ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms * 1e6) % 1000000000};

    nanosleep(&t, NULL);
}

static void delay_one_in(double most)
{
    double ms = 0;

    pthread_mutex_lock(&lock);
    if (delay_ms > 0 && random_unit() * most < 1)
        ms = delay_ms * random_unit();
    if (ms > delay_left_ms)
        ms = 0;
    delay_left_ms -= ms;
    pthread_mutex_unlock(&lock);
    if (ms > 0)
        sleep_ms(ms);
}

static void delay(void)
{
    delay_one_in(1);
}

static void delay_test(void)
{
    delay_one_in(16);
}

/* Once true, for the call that is to be held back. */
static bool is_held(const char *call, long which, MPI_Comm comm)
{
    if (!hold.wanted || hold.step != step || hold.which != which ||
        strcmp(hold.call, call) != 0 ||
        (hold.comm >= 0 && hold.comm != comm_number(comm)))
        return false;
    return atomic_exchange(&hold.wanted, false);
}

static void hold_collective(const char *call, MPI_Comm comm)
{
    long which = -1;

    for (int i = 0; i < N_CALLS; i++)
        if (!strcmp(calls[i].name, call))
            which = calls[i].n++;
    if (!is_held(call, which, comm))
        return;
    sleep_ms(hold.ms);
    line("Released", -1, "-", (long)hold.ms, -1, -1, -1);
}

static int query_held(void *state, MPI_Status *status)
{
    (void)state;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int free_held(void *state)
{
    (void)state;
    return MPI_SUCCESS;
}

static int cancel_held(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

/* Under lock. */
static void move_held_locked(void)
{
    int flag = 0;

    if (held.waits && now_us() >= held.due_us) {
        held.waits = false;
        held.runs = true;
        line("Released", -1, "-", (long)hold.ms, -1, held.dest, held.tag);
        PMPI_Isend(held.buf, held.count, held.type, held.dest, held.tag, held.comm,
                   &held.real);
    }
    if (!held.runs)
        return;
    PMPI_Test(&held.real, &flag, MPI_STATUS_IGNORE);
    if (!flag)
        return;
    held.runs = false;
    PMPI_Grequest_complete(held.seen);
}

/* Sends the held message when it is due, and tells the program when it has gone. A
 * program that waits instead of testing would wait for ever. */
static void move_held(void)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return;
    move_held_locked();
    pthread_mutex_unlock(&lock);
}

static double number_of(const char *name, double otherwise)
{
    const char *text = getenv(name);

    return text ? strtod(text, NULL) : otherwise;
}

static void read_hold(int rank)
{
    const char *text = getenv("WEFT_PMPI_HOLD");
    int wanted_rank;

    if (!text)
        return;
    if (sscanf(text, "%d,%31[A-Za-z_],%ld,%ld,%lf,%d", &wanted_rank, hold.call,
               &hold.which, &hold.step, &hold.ms, &hold.comm) < 5) {
        fprintf(stderr,
                "pmpi_log: WEFT_PMPI_HOLD=%s: needs RANK,CALL,WHICH,STEP,MS[,COMM]\n",
                text);
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    hold.wanted = wanted_rank == rank;
}

static void set_up(void)
{
    const char *prefix = getenv("WEFT_PMPI_LOG");
    char path[4096];
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    delay_ms = number_of("WEFT_PMPI_DELAY_MS", 0);
    delay_left_ms = number_of("WEFT_PMPI_DELAY_TOTAL_MS", 2000);
    seed = (uint64_t)number_of("WEFT_PMPI_SEED", 1) * 7919 + (uint64_t)rank + 1;
    read_hold(rank);
    comm_number(MPI_COMM_WORLD);
    if (!prefix)
        return;
    snprintf(path, sizeof path, "%s.%d", prefix, rank);
    out = fopen(path, "w");
    if (!out) {
        perror(path);
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int code = PMPI_Init_thread(argc, argv, required, provided);
    const char *pretend = getenv("WEFT_PMPI_THREAD_LEVEL");

    if (pretend && !strcmp(pretend, "single"))
        *provided = MPI_THREAD_SINGLE;
    else if (pretend && !strcmp(pretend, "funneled"))
        *provided = MPI_THREAD_FUNNELED;
    set_up();
    return code;
}

int MPI_Finalize(void)
{
    if (out) {
        fprintf(out, "# requests started %" PRIu64 " completed %" PRIu64 "\n", started,
                completed);
        fclose(out);
        out = NULL;
    }
    return PMPI_Finalize();
}

enum { LEVEL_STEP_BEGIN = 101 };

int MPI_Pcontrol(const int level, ...)
{
    if (level == LEVEL_STEP_BEGIN) {
        step++;
        for (int i = 0; i < N_CALLS; i++)
            calls[i].n = 0;
    }
    line("Pcontrol", -1, "-", level, -1, -1, -1);
    return MPI_SUCCESS;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *newcomm)
{
    int code = PMPI_Comm_dup(comm, newcomm);

    line("Comm_dup", comm_number(comm), "-", add_comm(*newcomm), -1, -1, -1);
    return code;
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request)
{
    int code = PMPI_Comm_idup(comm, newcomm, request);

    started++;
    /* Both Open MPI and MPICH have written the handle by now. */
    line("Comm_idup", comm_number(comm), "-", add_comm(*newcomm), -1, -1, -1);
    return code;
}

/* The number in the list at a rank's place. */
static int host_of(const char *list, int rank)
{
    const char *at = list;

    for (int i = 0; i < rank && at; i++)
        at = strchr(at + 1, ',');
    if (!at) {
        fprintf(stderr, "pmpi_log: WEFT_PMPI_HOSTS=%s: needs one for rank %d\n", list,
                rank);
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    return atoi(at + (*at == ','));
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info,
                        MPI_Comm *newcomm)
{
    const char *hosts = getenv("WEFT_PMPI_HOSTS");
    int rank, code;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    code = hosts && type == MPI_COMM_TYPE_SHARED
               ? PMPI_Comm_split(comm, host_of(hosts, rank), key, newcomm)
               : PMPI_Comm_split_type(comm, type, key, info, newcomm);
    line("Comm_split_type", comm_number(comm), "-", add_comm(*newcomm), -1, -1, -1);
    return code;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    drop_comm(*comm);
    return PMPI_Comm_free(comm);
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    delay();
    started++;
    call_line("Isend", comm, MPI_OP_NULL, count, type, dest, tag);
    if (is_held("Isend", tag, comm)) {
        pthread_mutex_lock(&lock);
        held.waits = true;
        held.due_us = now_us() + (int64_t)(hold.ms * 1000);
        held.buf = buf;
        held.count = count;
        held.type = type;
        held.dest = dest;
        held.tag = tag;
        held.comm = comm;
        int code = PMPI_Grequest_start(query_held, free_held, cancel_held, NULL, request);

        held.seen = *request;
        pthread_mutex_unlock(&lock);
        return code;
    }
    return PMPI_Isend(buf, count, type, dest, tag, comm, request);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    delay();
    started++;
    call_line("Irecv", comm, MPI_OP_NULL, count, type, source, tag);
    return PMPI_Irecv(buf, count, type, source, tag, comm, request);
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag,
             MPI_Comm comm)
{
    delay();
    call_line("Send", comm, MPI_OP_NULL, count, type, dest, tag);
    return PMPI_Send(buf, count, type, dest, tag, comm);
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    call_line("Recv", comm, MPI_OP_NULL, count, type, source, tag);
    return PMPI_Recv(buf, count, type, source, tag, comm, status);
}

int MPI_Ireduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                int root, MPI_Comm comm, MPI_Request *request)
{
    delay();
    started++;
    call_line("Ireduce", comm, op, count, type, root, -1);
    hold_collective("Ireduce", comm);
    return PMPI_Ireduce(from, to, count, type, op, root, comm, request);
}

int MPI_Ibcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request *request)
{
    delay();
    started++;
    call_line("Ibcast", comm, MPI_OP_NULL, count, type, root, -1);
    hold_collective("Ibcast", comm);
    return PMPI_Ibcast(buf, count, type, root, comm, request);
}

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    delay();
    started++;
    call_line("Iallreduce", comm, op, count, type, -1, -1);
    hold_collective("Iallreduce", comm);
    return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

int MPI_Iallgather(const void *from, int n_from, MPI_Datatype from_type, void *to,
                   int n_to, MPI_Datatype to_type, MPI_Comm comm, MPI_Request *request)
{
    delay();
    started++;
    gather_line(comm, n_to, to_type);
    return PMPI_Iallgather(from, n_from, from_type, to, n_to, to_type, comm, request);
}

int MPI_Ireduce_scatter(const void *from, void *to, const int *counts, MPI_Datatype type,
                        MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    delay();
    started++;
    counts_line("Ireduce_scatter", comm, op, counts, type);
    hold_collective("Ireduce_scatter", comm);
    return PMPI_Ireduce_scatter(from, to, counts, type, op, comm, request);
}

int MPI_Iallgatherv(const void *from, int n_from, MPI_Datatype from_type, void *to,
                    const int *counts, const int *places, MPI_Datatype to_type,
                    MPI_Comm comm, MPI_Request *request)
{
    delay();
    started++;
    counts_line("Iallgatherv", comm, MPI_OP_NULL, counts, to_type);
    hold_collective("Iallgatherv", comm);
    return PMPI_Iallgatherv(from, n_from, from_type, to, counts, places, to_type, comm,
                            request);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
    delay();
    started++;
    line("Ibarrier", comm_number(comm), "-", 0, 0, -1, -1);
    return PMPI_Ibarrier(comm, request);
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    call_line("Allreduce", comm, op, count, type, -1, -1);
    return PMPI_Allreduce(from, to, count, type, op, comm);
}

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    call_line("Bcast", comm, MPI_OP_NULL, count, type, root, -1);
    return PMPI_Bcast(buf, count, type, root, comm);
}

int MPI_Allgather(const void *from, int n_from, MPI_Datatype from_type, void *to,
                  int n_to, MPI_Datatype to_type, MPI_Comm comm)
{
    call_line("Allgather", comm, MPI_OP_NULL, n_to, to_type, -1, -1);
    return PMPI_Allgather(from, n_from, from_type, to, n_to, to_type, comm);
}

int MPI_Barrier(MPI_Comm comm)
{
    line("Barrier", comm_number(comm), "-", 0, 0, -1, -1);
    return PMPI_Barrier(comm);
}

static int count_live(int n, const MPI_Request *requests)
{
    int live = 0;

    for (int i = 0; i < n; i++)
        live += requests[i] != MPI_REQUEST_NULL;
    return live;
}

static void complete(const char *call, int n)
{
    if (n <= 0)
        return;
    completed += (uint64_t)n;
    line(call, -1, "-", n, -1, -1, -1);
}

int MPI_Grequest_start(MPI_Grequest_query_function *query,
                       MPI_Grequest_free_function *release,
                       MPI_Grequest_cancel_function *cancel, void *state,
                       MPI_Request *request)
{
    started++;
    return PMPI_Grequest_start(query, release, cancel, state, request);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    int live = count_live(1, request);

    delay_test();
    move_held();
    int code = PMPI_Test(request, flag, status);

    complete("Test", *flag ? live : 0);
    return code;
}

int MPI_Testall(int n, MPI_Request *requests, int *flag, MPI_Status *statuses)
{
    int live = count_live(n, requests);

    delay_test();
    move_held();
    int code = PMPI_Testall(n, requests, flag, statuses);

    complete("Testall", *flag ? live : 0);
    return code;
}

int MPI_Testsome(int n, MPI_Request *requests, int *n_out, int *indices,
                 MPI_Status *statuses)
{
    delay_test();
    move_held();
    int code = PMPI_Testsome(n, requests, n_out, indices, statuses);

    complete("Testsome", *n_out == MPI_UNDEFINED ? 0 : *n_out);
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    int live = count_live(1, request);
    int code = PMPI_Wait(request, status);

    complete("Wait", live);
    return code;
}

int MPI_Waitall(int n, MPI_Request *requests, MPI_Status *statuses)
{
    int live = count_live(n, requests);
    int code = PMPI_Waitall(n, requests, statuses);

    complete("Waitall", live);
    return code;
}

int MPI_Cancel(MPI_Request *request)
{
    line("Cancel", -1, "-", -1, -1, -1, -1);
    return PMPI_Cancel(request);
}
