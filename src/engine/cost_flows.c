/* SPDX-License-Identifier: MIT */
/* A change on a link concerns the flows on it alone: they are marked, and get their new
 * rates together when the next end is asked for. */
#include "engine/cost_private.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

enum { NO_FLOW = -1 };

enum status flows_init(struct flows *f, size_t n_links)
{
    *f = (struct flows){.n_links = n_links, .unused = NO_FLOW};
    return memory_alloc(n_links, sizeof *f->links, "links", &f->links);
}

void flows_release(struct flows *f)
{
    for (size_t i = 0; f->links && i < f->n_links; i++)
        free(f->links[i].users);
    free(f->links);
    free(f->flows);
    free(f->changed);
    free(f->ends);
    *f = (struct flows){0};
}

/* Makes room for one more; what is no memory here is none for anything. */
static void *grown(void *list, size_t n, size_t *capacity, size_t bytes)
{
    if (n < *capacity)
        return list;
    *capacity = *capacity ? 2 * *capacity : 64;
    list = realloc(list, *capacity * bytes);
    if (!list)
        bug("cost model: no memory for %zu flows", *capacity);
    return list;
}

/* ---- rates ---- */

static double share_of(const struct link *l)
{
    double crowded = l->crowd > 1 ? (double)(l->n - 1) / (l->crowd - 1) : 1;

    if (l->n < 2)
        return l->capacity;
    return (l->capacity + (l->congested - l->capacity) * fmin(1, crowded)) / (double)l->n;
}

static void mark(struct flows *f, const struct link *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct flow *flow = &f->flows[l->users[i].flow];

        if (flow->changed)
            continue;
        flow->changed = true;
        f->changed =
            grown(f->changed, f->n_changed, &f->changed_capacity, sizeof *f->changed);
        f->changed[f->n_changed++] = l->users[i].flow;
    }
}

static bool is_end_of(const struct flows *f, const struct flow_end *e)
{
    return f->flows[e->flow].version == e->version;
}

/* ends is a heap. */
static void push_end(struct flows *f, struct flow_end e)
{
    f->ends = grown(f->ends, f->n_ends, &f->end_capacity, sizeof *f->ends);

    size_t i = f->n_ends++;

    for (size_t up; i > 0 && f->ends[up = (i - 1) / 2].t > e.t; i = up)
        f->ends[i] = f->ends[up];
    f->ends[i] = e;
}

static void pop_end(struct flows *f)
{
    struct flow_end last = f->ends[--f->n_ends];
    size_t i = 0;

    for (size_t down; (down = 2 * i + 1) < f->n_ends; i = down) {
        if (down + 1 < f->n_ends && f->ends[down + 1].t < f->ends[down].t)
            down++;
        if (f->ends[down].t >= last.t)
            break;
        f->ends[i] = f->ends[down];
    }
    f->ends[i] = last;
}

static void set_rate(struct flows *f, int32_t id)
{
    struct flow *flow = &f->flows[id];
    double rate = (double)INFINITY;

    flow->changed = false;
    if (flow->n_links == 0)
        return; /* it has gone */
    for (int k = 0; k < flow->n_links; k++)
        rate = fmin(rate, share_of(&f->links[flow->links[k]]));
    if (rate == flow->rate)
        return;
    flow->left -= flow->rate * (f->now - flow->since);
    flow->since = f->now;
    flow->rate = rate;
    push_end(f,
             (struct flow_end){f->now + fmax(0, flow->left) / rate, id, ++flow->version});
}

double flows_next(struct flows *f)
{
    for (size_t i = 0; i < f->n_changed; i++)
        set_rate(f, f->changed[i]);
    f->n_changed = 0;
    while (f->n_ends > 0 && !is_end_of(f, &f->ends[0]))
        pop_end(f);
    return f->n_ends > 0 ? f->ends[0].t : (double)INFINITY;
}

/* ---- flows that come and go ---- */

static int32_t unused_flow(struct flows *f)
{
    int32_t id = f->unused;

    if (id != NO_FLOW) {
        f->unused = f->flows[id].next_unused;
        return id;
    }
    f->flows = grown(f->flows, f->n_flows, &f->flow_capacity, sizeof *f->flows);
    f->flows[f->n_flows] = (struct flow){.version = 0};
    return (int32_t)f->n_flows++;
}

void flows_add(struct flows *f, double now, const int *links, int n_links, double bytes,
               uint32_t message)
{
    int32_t id = unused_flow(f);
    struct flow *flow = &f->flows[id];

    require(n_links >= 1 && n_links <= FLOW_LINKS);
    f->now = now;
    *flow = (struct flow){.n_links = n_links,
                          .left = bytes,
                          .since = now,
                          .message = message,
                          .version = flow->version + 1};
    for (int k = 0; k < n_links; k++) {
        struct link *l = &f->links[links[k]];

        flow->links[k] = links[k];
        flow->place[k] = l->n;
        l->users = grown(l->users, l->n, &l->user_capacity, sizeof *l->users);
        l->users[l->n++] = (struct link_user){id, k};
        mark(f, l);
    }
}

static void leave_link(struct flows *f, const struct flow *flow, int k)
{
    struct link *l = &f->links[flow->links[k]];
    struct link_user last = l->users[--l->n];

    l->users[flow->place[k]] = last;
    f->flows[last.flow].place[last.k] = flow->place[k];
    mark(f, l);
}

bool flows_take(struct flows *f, double now, double tolerance, uint32_t *message)
{
    f->now = now;
    while (f->n_ends > 0 && !is_end_of(f, &f->ends[0]))
        pop_end(f);
    if (f->n_ends == 0 || f->ends[0].t > now + tolerance)
        return false;
    int32_t id = f->ends[0].flow;
    struct flow *flow = &f->flows[id];

    pop_end(f);
    *message = flow->message;
    for (int k = 0; k < flow->n_links; k++)
        leave_link(f, flow, k);
    flow->n_links = 0;
    flow->version++;
    flow->next_unused = f->unused;
    f->unused = id;
    return true;
}
