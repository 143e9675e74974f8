/* SPDX-License-Identifier: MIT */
/* Does this MPI library compute what the exchange relies on? Released libraries have
 * returned wrong sums for some sizes, counts of ranks or roots without an error. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "comm/comm_private.h"

enum { LONGEST = 262144, N_SIZES = 3 };

static const int sizes[N_SIZES] = {1, 16384, LONGEST};

struct trial {
    float *mine;
    float *result; /* pair messages: one longest message a rank */
    int n;
    int root;
    MPI_Request *requests;
};

static void start_reduce(struct control *op)
{
    struct trial *t = op->args;

    mpi_check(op->comm,
              MPI_Ireduce(t->mine, op->comm->rank == t->root ? t->result : NULL, t->n,
                          MPI_FLOAT, MPI_SUM, t->root, op->comm->control, &op->one),
              "MPI_Ireduce");
}

static void start_broadcast(struct control *op)
{
    struct trial *t = op->args;

    mpi_check(
        op->comm,
        MPI_Ibcast(t->result, t->n, MPI_FLOAT, t->root, op->comm->control, &op->one),
        "MPI_Ibcast");
}

static void start_pairs(struct control *op)
{
    struct trial *t = op->args;
    struct comm *c = op->comm;

    op->requests = t->requests;
    op->n_requests = 0;
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            continue;
        mpi_check(c,
                  MPI_Irecv(t->result + (size_t)r * (size_t)sizes[1], t->n, MPI_FLOAT, r,
                            t->n, c->control, &op->requests[op->n_requests++]),
                  "MPI_Irecv");
        mpi_check(c,
                  MPI_Isend(t->mine, t->n, MPI_FLOAT, r, t->n, c->control,
                            &op->requests[op->n_requests++]),
                  "MPI_Isend");
    }
}

/* Rank r's value at i; sums of up to 2^21 ranks are exact in float. */
static float value(int r, int i)
{
    return (float)(r + 1 + i % 7);
}

static enum status wrong(const struct comm *c, const char *call, int n, int root, int at,
                         float found, float needed)
{
    return fail(ST_BUG,
                "%s: %s of %d floats among %d ranks with root %d is wrong: element %d: "
                "found %g, needs %g",
                c->library, call, n, c->size, root, at, (double)found, (double)needed);
}

static enum status test_reduce(struct comm *c, struct trial *t)
{
    for (int i = 0; i < t->n; i++)
        t->result[i] = -1;
    control_run(c, start_reduce, t);
    for (int i = 0; i < t->n && c->rank == t->root; i++) {
        float needed = (float)(c->size * (c->size + 1) / 2 + c->size * (i % 7));

        if (t->result[i] != needed)
            return wrong(c, "MPI_Ireduce", t->n, t->root, i, t->result[i], needed);
    }
    return ST_OK;
}

static enum status test_broadcast(struct comm *c, struct trial *t)
{
    for (int i = 0; i < t->n; i++)
        t->result[i] = c->rank == t->root ? value(t->root, i) : -1;
    control_run(c, start_broadcast, t);
    for (int i = 0; i < t->n; i++)
        if (t->result[i] != value(t->root, i))
            return wrong(c, "MPI_Ibcast", t->n, t->root, i, t->result[i],
                         value(t->root, i));
    return ST_OK;
}

static enum status test_pairs(struct comm *c, struct trial *t)
{
    for (size_t i = 0; i < (size_t)c->size * (size_t)sizes[1]; i++)
        t->result[i] = -1;
    control_run(c, start_pairs, t);
    for (int r = 0; r < c->size; r++) {
        const float *from = t->result + (size_t)r * (size_t)sizes[1];

        for (int i = 0; i < t->n && r != c->rank; i++)
            if (from[i] != value(r, i))
                return wrong(c, "MPI_Irecv", t->n, r, i, from[i], value(r, i));
    }
    return ST_OK;
}

/* Keeps the first failure and its text. */
static void keep(enum status *first, enum status st)
{
    if (*first == ST_OK)
        *first = st;
}

/* Every rank makes every call, whatever it has found: the others wait for it. */
static enum status run(struct comm *c, struct trial *t)
{
    char text[512] = "";
    enum status first = ST_OK;

    for (int s = 0; s < N_SIZES; s++) {
        t->n = sizes[s];
        for (t->root = 0; t->root < c->size; t->root++) {
            enum status before = first;

            keep(&first, test_reduce(c, t));
            keep(&first, test_broadcast(c, t));
            if (before == ST_OK && first != ST_OK)
                (void)snprintf(text, sizeof text, "%s", fail_text());
        }
        if (t->n <= sizes[1] && first == ST_OK) {
            first = test_pairs(c, t);
            (void)snprintf(text, sizeof text, "%s", fail_text());
        } else if (t->n <= sizes[1]) {
            (void)test_pairs(c, t);
        }
    }
    return first == ST_OK ? ST_OK : fail(first, "%s", text);
}

enum status comm_self_test(struct comm *c)
{
    size_t ranks = (size_t)c->size;
    size_t n = max_size(LONGEST, ranks * (size_t)sizes[1]);
    struct trial t = {0};
    enum status st;

    if (c->size == 1)
        return ST_OK;
    st = memory_alloc(n, sizeof *t.result, "self-test", &t.result);
    if (st == ST_OK)
        st = memory_alloc(LONGEST, sizeof *t.mine, "self-test", &t.mine);
    if (st == ST_OK)
        st = memory_alloc(2 * ranks, sizeof *t.requests, "self-test", &t.requests);
    st = comm_share(c, st);
    if (st != ST_OK)
        goto done;
    for (int i = 0; i < LONGEST; i++)
        t.mine[i] = value(c->rank, i);
    st = comm_share(c, run(c, &t));
done:
    free(t.requests);
    free(t.mine);
    free(t.result);
    return st;
}
