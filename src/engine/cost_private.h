/* cost_private.h - shared by the files of the cost model only. */
#ifndef WEFT_ENGINE_COST_PRIVATE_H
#define WEFT_ENGINE_COST_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "comm/plan.h"
#include "engine/network.h"

/* ---- cost_flows.c: bytes on links ---- */

/* A link's capacity is shared evenly by the flows on it, and a flow goes as fast as the
 * fullest of its links allows. */
struct link {
    double capacity;  /* bytes a second with one flow */
    double congested; /* with `crowd` flows and more; in between on a line */
    double crowd;
    struct link_user {
        int32_t flow;
        int k; /* the flow's link number k */
    } * users;
    size_t n, user_capacity;
};

enum { FLOW_LINKS = 4 };

struct flow {
    int links[FLOW_LINKS]; /* one may be there twice: both directions of one thread */
    size_t place[FLOW_LINKS];
    int n_links;
    bool changed;
    double left, rate, since; /* bytes left at `since` */
    uint32_t message, version;
    int32_t next_unused;
};

struct flow_end {
    double t;
    int32_t flow;
    uint32_t version;
};

struct flows {
    struct link *links; /* the caller sets capacities */
    size_t n_links;
    struct flow *flows;
    size_t n_flows, flow_capacity;
    int32_t unused, *changed;
    size_t n_changed, changed_capacity;
    struct flow_end *ends;
    size_t n_ends, end_capacity;
    double now;
};

MUST_USE enum status flows_init(struct flows *f, size_t n_links);
void flows_release(struct flows *f);
/* `now` never goes back. */
void flows_add(struct flows *f, double now, const int *links, int n_links, double bytes,
               uint32_t message);
/* When the next flow ends; infinity when there is none. */
double flows_next(struct flows *f);
/* Takes out a flow that ends within `tolerance` from now; false when there is none. */
bool flows_take(struct flows *f, double now, double tolerance, uint32_t *message);

/* ---- cost_step.c: one step ---- */

struct step_input {
    const struct plan *plan;
    const struct network *network;
    const int *host; /* [plan->ranks] */
    int hosts;
    enum exchange_wire wire; /* of sums and their terms */
    bool overlap;            /* else compute and communication take turns */
    int workers;
    double compute_s;    /* forward and backward */
    double lag_s;        /* until a worker is free for work that is more urgent */
    double update_Bps;   /* of parameters, by one worker */
    const double *need;  /* [block] fraction of compute at which it must have returned */
    const double *ready; /* [block] fraction at which its gradient is final */
    /* The embedding's rows, when they go by themselves. */
    bool rows, rows_fetched;
    double rows_bytes; /* of those of a rank */
    size_t wte_elems;  /* first elements of production order */
};

struct step_output {
    double step_s;
    double idle_s, most_idle_s; /* no task runs: mean over ranks, most */
    double link_bytes;          /* of the busiest link in its busier direction */
    uint64_t sent_bytes;        /* between hosts, by the rank that sends most */
    uint64_t messages;          /* sent, by the rank that sends most */
};

/* Returns ST_OK, ST_NOMEM. */
MUST_USE enum status step_simulate(const struct step_input *in, struct step_output *out);

/* ---- cost_lists.c: the messages of a step ---- */

/* What may be in flight: the first two are the exchange's phases. */
enum traffic_phase { TRAFFIC_REDUCE, TRAFFIC_RETURN, TRAFFIC_FETCH, TRAFFIC_ROWS };
enum { TRAFFIC_PHASES = 4 };

#define NO_MESSAGE UINT32_MAX

struct cost_message {
    double bytes;   /* 0: told only */
    double ready_s; /* at the receiver: posted, and later the last byte there as well */
    uint32_t block; /* of an exchange */
    uint32_t next;  /* behind it on its connection */
    int from, to;   /* simulated ranks */
    int peer;       /* the rank that `to` stands for */
    uint16_t calls; /* MPI calls a side makes */
    uint8_t round, phase;
    bool is_posted, has_arrived; /* at the receiver */
};

/* Messages in the order in which one side starts them. */
struct cost_stream {
    uint32_t *list;
    size_t n, capacity, next;
    uint32_t block; /* of the next message */
    int running;
    double bytes_running;
};

struct cost_lists {
    const struct step_input *in;
    int ranks; /* simulated: one where all behave alike */
    int rounds;
    size_t blocks;
    struct cost_message *messages;
    size_t n_messages, message_capacity;
    struct cost_stream *streams; /* [rank][phase][round][receives] */
    uint16_t *left[2];           /* messages of an operation: [rank][round][block] */
    uint16_t *arriving;          /* returns: [rank][round][block] */
    size_t *rows_left[2];        /* fetch, rows: [rank] */
};

MUST_USE enum status lists_init(struct cost_lists *l, const struct step_input *in);
void lists_release(struct cost_lists *l);
struct cost_stream *lists_stream(const struct cost_lists *l, int rank,
                                 enum traffic_phase phase, int round, bool receives);
size_t lists_op(const struct cost_lists *l, int rank, int round, size_t block);
/* Through the busiest link, and by the busiest rank. */
MUST_USE enum status lists_totals(const struct cost_lists *l, struct step_output *out);
bool message_leaves_host(const struct step_input *in, const struct cost_message *m);

#endif
