/* SPDX-License-Identifier: MIT */
/* Start and end of MPI, and what the job looks like. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/comm_private.h"

static struct comm *the_comm; /* for the hook of bug() only */

static void stop_job(int exit_code)
{
    comm_abort(the_comm, exit_code);
}

static const char *level_name(int level)
{
    switch (level) {
    case MPI_THREAD_SINGLE:
        return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
        return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
        return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE:
        return "MPI_THREAD_MULTIPLE";
    default:
        return "an unknown level";
    }
}

/* First line of the library's text up to a comma, blanks tidied: "Open MPI v4.1.4",
 * "MPICH 4.0.2". */
static void read_library(struct comm *c)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    size_t n = 0;
    int length;

    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS)
        strcpy(text, "unknown MPI");
    for (const char *p = text;
         *p && *p != ',' && *p != '\n' && n + 1 < sizeof c->library;) {
        if (!strncmp(p, "Version:", 8)) {
            p += 8;
            continue;
        }
        bool blank = isspace((unsigned char)*p);

        if (!blank || (n > 0 && c->library[n - 1] != ' '))
            c->library[n++] = blank ? ' ' : *p;
        p++;
    }
    c->library[n] = 0;
}

/* What must be known to Open MPI before it starts; users' own settings win. */
static void set_environment(void)
{
    char from[8] = "";
    char to[8];
    struct iovec local = {to, sizeof to};
    struct iovec remote = {from, sizeof from};

    /* We nap ourselves; yielding inside each call would cost 10 us and more. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    /* Over TCP a longer message waits for its receiver's answer, which queues behind what
     * that rank sends itself: two ranks that send to each other get half the rate each.
     * Up to this size, the exchange's messages and their headers, nothing is answered. */
    setenv("OMPI_MCA_btl_tcp_eager_limit", "1052672", 0);
    setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", "1052672", 0);
    setenv("OMPI_MCA_btl_tcp_max_send_size", "1052672", 0);
    /* Containers may forbid reading other processes: then each message prints a line. */
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0)
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

static long number_of(const char *variable)
{
    const char *text = getenv(variable);

    return text ? strtol(text, NULL, 10) : 0;
}

/* The number of processes the launcher has started, or 0 when no launcher says. */
static long launched(int size, const char **variable)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    long found = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        long n = number_of(names[i]);

        if (n == size)
            return n;
        if (n > found) {
            found = n;
            *variable = names[i];
        }
    }
    if (found > 0 || size > 1)
        return found;
    /* A batch script that calls the program without srun has no step: one rank is meant.
     */
    *variable = getenv("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    return getenv("SLURM_STEP_ID") || getenv("SLURM_STEP_NUM_TASKS")
               ? number_of(*variable)
               : 0;
}

static enum status refuse(struct comm *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

static enum status refuse(struct comm *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(c->refusal, sizeof c->refusal, fmt, ap);
    va_end(ap);
    return ST_USAGE;
}

/* Ranks that MPI can place in one shared memory have the same host number. */
static void number_hosts(struct comm *c)
{
    MPI_Comm host;
    int lowest = c->rank;

    c->host_numbers = calloc((size_t)c->size, sizeof *c->host_numbers);
    if (!c->host_numbers)
        bug("no memory for the numbers of %d hosts", c->size);
    mpi_check(c,
              MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, c->rank,
                                  MPI_INFO_NULL, &host),
              "MPI_Comm_split_type");
    mpi_check(c, MPI_Bcast(&lowest, 1, MPI_INT, 0, host), "MPI_Bcast");
    mpi_check(c, MPI_Comm_free(&host), "MPI_Comm_free");
    mpi_check(
        c,
        MPI_Allgather(&lowest, 1, MPI_INT, c->host_numbers, 1, MPI_INT, MPI_COMM_WORLD),
        "MPI_Allgather");
    /* From lowest ranks to 0, 1, ...: a host's number comes before it is used. */
    for (int r = 0, hosts = 0; r < c->size; r++)
        c->host_numbers[r] =
            c->host_numbers[r] == r ? hosts++ : c->host_numbers[c->host_numbers[r]];
}

enum status comm_mpi_begin(struct comm *c)
{
    const char *variable = "";
    int provided = -1;
    int lowest;

    set_environment();
    if (MPI_Init_thread(NULL, NULL, calls_thread_level(), &provided) != MPI_SUCCESS)
        return refuse(c, "MPI_Init_thread failed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c->size);
    read_library(c);

    long wanted = launched(c->size, &variable);

    if (wanted > c->size)
        return refuse(
            c,
            "%s: found %d rank%s, but the launcher has started %ld (%s); use the "
            "mpirun of the MPI this program was built with",
            c->library, c->size, c->size == 1 ? "" : "s", wanted, variable);
    mpi_check(c, MPI_Allreduce(&provided, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
              "MPI_Allreduce");
    c->thread_level = lowest;
    mpi_check(c, MPI_Comm_dup(MPI_COMM_WORLD, &c->control), "MPI_Comm_dup");
    mpi_check(c, MPI_Comm_set_errhandler(c->control, MPI_ERRORS_RETURN),
              "MPI_Comm_set_errhandler");
    number_hosts(c);
    return calls_begin(c);
}

void comm_mpi_end(struct comm *c)
{
    int initialized = 0;

    MPI_Initialized(&initialized);
    if (!initialized)
        return;
    calls_end(c);
    if (c->control != MPI_COMM_NULL)
        MPI_Comm_free(&c->control);
    MPI_Finalize();
}

static void init_sync(struct comm *c)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&c->answered, NULL);
    pthread_mutex_init(&c->lock, NULL);
}

static void comm_release(struct comm *c)
{
    pthread_cond_destroy(&c->wake);
    pthread_cond_destroy(&c->answered);
    pthread_mutex_destroy(&c->lock);
    free(c->host_numbers);
    free(c);
}

enum status comm_start(struct comm **out)
{
    struct comm *c;
    enum status st = memory_alloc(1, sizeof *c, "communication", &c);

    *out = NULL;
    if (st != ST_OK)
        return st;
    c->control = MPI_COMM_NULL;
    c->posts_end = &c->posts;
    atomic_init(&c->longest_nap_us, COMM_LONGEST_NAP_US);
    if (gethostname(c->host, sizeof c->host - 1) != 0)
        strcpy(c->host, "unknown");
    init_sync(c);
    int code = pthread_create(&c->thread, NULL, comm_thread_main, c);

    if (code != 0) {
        comm_release(c);
        return fail(ST_NOMEM, "communication thread: %s", strerror(code));
    }
    pthread_mutex_lock(&c->lock);
    while (!c->started)
        pthread_cond_wait(&c->answered, &c->lock);
    st = c->start_status;
    pthread_mutex_unlock(&c->lock);
    if (st != ST_OK) {
        pthread_join(c->thread, NULL);
        st = fail(st, "%s", c->refusal);
        comm_release(c);
        return st;
    }
    log_set_rank(c->rank, c->size);
    if (c->thread_level < MPI_THREAD_FUNNELED && c->rank == 0)
        log_warn("%s: found thread level %s, MPI_THREAD_FUNNELED is wanted; going on: "
                 "one thread of a rank makes all MPI calls",
                 c->library, level_name(c->thread_level));
    the_comm = c;
    bug_on_exit(stop_job);
    c->shares_memory = comm_memory_works(c);
    *out = c;
    return ST_OK;
}

void comm_stop(struct comm *c)
{
    if (!c)
        return;
    require(!c->traffics);
    watch_end(c);
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    bug_on_exit(NULL);
    the_comm = NULL;
    comm_release(c);
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_size(const struct comm *c)
{
    return c->size;
}

bool comm_shares_memory(const struct comm *c)
{
    return c->shares_memory;
}

const int *comm_host_numbers(const struct comm *c)
{
    return c->host_numbers;
}

const char *comm_library(const struct comm *c)
{
    return c->library;
}

void comm_set_longest_nap(struct comm *c, long us)
{
    require(us >= 0);
    atomic_store(&c->longest_nap_us, us);
}

double comm_cpu_s(const struct comm *c)
{
    struct timespec t;
    clockid_t id;

    if (pthread_getcpuclockid(c->thread, &id) != 0 || clock_gettime(id, &t) != 0)
        return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *comm_host(const struct comm *c)
{
    return c->host;
}

static void mark(void *self);

struct mark {
    struct post post;
    int level;
};

static void mark(void *self)
{
    struct mark *m = self;

    MPI_Pcontrol(m->level);
    free(m);
}

void comm_mark(struct comm *c, int level)
{
    struct mark *m;

    /* A mark is only for the eye of a profiler: without memory it is left out. */
    if (memory_alloc(1, sizeof *m, "mark", &m) != ST_OK)
        return;
    m->post = (struct post){.run = mark, .self = m};
    m->level = level;
    comm_post(c, &m->post);
}
