/* SPDX-License-Identifier: MIT */
/* One rank of a job as a job of its own: nothing of it reaches MPI, as with one rank
 * nothing does, but the marks for profilers. They gather as posts and are made by the
 * thread of the whole job when the lone one ends. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/comm_bench.h"
#include "comm/comm_private.h"

enum status comm_alone_new(struct comm *c, struct comm **out)
{
    struct comm *alone = NULL;
    enum status st = memory_alloc(1, sizeof *alone, "communication", &alone);

    *out = NULL;
    if (st == ST_OK)
        st = memory_alloc(1, sizeof *alone->host_numbers, "hosts", &alone->host_numbers);
    if (st != ST_OK) {
        free(alone);
        return st;
    }
    alone->size = 1;
    alone->thread = c->thread;
    alone->control = MPI_COMM_NULL;
    alone->posts_end = &alone->posts;
    memcpy(alone->library, c->library, sizeof alone->library);
    memcpy(alone->host, c->host, sizeof alone->host);
    pthread_mutex_init(&alone->lock, NULL);
    pthread_cond_init(&alone->wake, NULL);
    pthread_cond_init(&alone->answered, NULL);
    *out = alone;
    return ST_OK;
}

static void start_posts(struct control *op)
{
    struct comm *alone = op->args;

    for (struct post *p = alone->posts, *next; p; p = next) {
        next = p->next;
        p->run(p->self);
    }
}

void comm_alone_free(struct comm *c, struct comm *alone)
{
    if (!alone)
        return;
    control_run(c, start_posts, alone);
    pthread_cond_destroy(&alone->answered);
    pthread_cond_destroy(&alone->wake);
    pthread_mutex_destroy(&alone->lock);
    free(alone->host_numbers);
    free(alone);
}
