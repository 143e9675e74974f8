/* SPDX-License-Identifier: MIT */
/* One rank without MPI: every collective is the identity. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/exchange_private.h"

struct comm {
    char host[HOST_NAME_MAX + 1];
};

enum status comm_start(struct comm **out)
{
    enum status st = memory_alloc(1, sizeof **out, "communication", out);

    if (st == ST_OK && gethostname((*out)->host, sizeof(*out)->host - 1) != 0)
        strcpy((*out)->host, "unknown");
    log_set_rank(0, 1);
    return st;
}

void comm_stop(struct comm *c)
{
    free(c);
}

void comm_abort(struct comm *c, int exit_code)
{
    (void)c;
    _exit(exit_code);
}

int comm_rank(const struct comm *c)
{
    (void)c;
    return 0;
}

int comm_size(const struct comm *c)
{
    (void)c;
    return 1;
}

const char *comm_library(const struct comm *c)
{
    (void)c;
    return "none (one rank)";
}

void comm_set_longest_nap(struct comm *c, long us)
{
    (void)c;
    (void)us;
}

double comm_cpu_s(const struct comm *c)
{
    (void)c;
    return 0;
}

const char *comm_host(const struct comm *c)
{
    return c->host;
}

bool comm_shares_memory(const struct comm *c)
{
    (void)c;
    return false;
}

const int *comm_host_numbers(const struct comm *c)
{
    static const int only = 0;

    (void)c;
    return &only;
}

enum status comm_share(struct comm *c, enum status mine)
{
    (void)c;
    return mine;
}

enum status comm_agree(struct comm *c, enum status mine)
{
    (void)c;
    if (mine != ST_OK)
        log_error("%s", fail_text());
    return mine;
}

void comm_sum(struct comm *c, double *values, size_t n)
{
    (void)c;
    (void)values;
    (void)n;
}

void comm_max(struct comm *c, double *values, size_t n)
{
    (void)c;
    (void)values;
    (void)n;
}

void comm_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    (void)c;
    (void)data;
    (void)bytes;
    require(root == 0);
}

void comm_gather_all(struct comm *c, const void *mine, size_t bytes, void *out)
{
    (void)c;
    memmove(out, mine, bytes);
}

double comm_clock_offset(struct comm *c)
{
    (void)c;
    return 0;
}

enum status comm_same(struct comm *c, const void *data, size_t bytes, const char *what)
{
    (void)c;
    (void)data;
    (void)bytes;
    (void)what;
    return ST_OK;
}

enum status comm_self_test(struct comm *c)
{
    (void)c;
    return ST_OK;
}

const struct traffic_ops *comm_traffic(const struct comm *c)
{
    (void)c;
    return NULL;
}

void comm_mark(struct comm *c, int level)
{
    (void)c;
    (void)level;
}

enum status comm_watch_begin(struct comm *c, double notice_s, double limit_s)
{
    (void)c;
    (void)notice_s;
    (void)limit_s;
    return ST_OK;
}

void comm_watch_at(struct comm *c, uint64_t step, enum comm_stage stage)
{
    (void)c;
    (void)step;
    (void)stage;
}
