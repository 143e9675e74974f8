/* profile.h - where the computing time of a step goes.
 *
 * Every task of forward, head and backward has a cost: the operations of its matrix
 * products, and for what works element by element the products that take as long
 * (attention is counted in full, see profile.c). Costs mean something only beside one
 * another: they say when in a step a gradient is final and a parameter needed, and how
 * long a task lasts when the length of the whole step is given.
 *
 * Pure; needs the model's shapes only.
 */
#ifndef WEFT_ENGINE_PROFILE_H
#define WEFT_ENGINE_PROFILE_H

#include <stddef.h>

#include "base/status.h"
#include "model/recompute.h"
#include "model/tensors.h"
#include "model/tiling.h"

/* Kinds of computing tasks; i and j are the tile numbers named behind each. */
enum work {
    WORK_NONE, /* no computing task: communication, update, joins */
    /* chunk, row tile: */
    WORK_EMBEDDING,
    WORK_NORM1,
    WORK_NORM2,
    WORK_FINAL_NORM,
    WORK_FINAL_NORM_BWD,
    WORK_NORM2_BWD,
    WORK_NORM1_BWD,
    /* chunk, tile of columns: */
    WORK_QKV,
    WORK_ATTPROJ,
    WORK_FC,
    WORK_FCPROJ,
    WORK_FCPROJ_BWD,
    WORK_FC_BWD,
    WORK_ATTPROJ_BWD,
    WORK_QKV_BWD,
    /* sequence, head group: */
    WORK_ATTENTION,
    WORK_ATTENTION_BWD,
    WORK_LOGITS,          /* chunk, vocabulary tile */
    WORK_LOSS,            /* chunk */
    WORK_HEAD_GRAD,       /* chunk, vocabulary tile */
    WORK_FINAL_NORM_GRAD, /* one task */
    WORK_WEIGHT_GRAD,     /* tile of output rows, tensor_kind of the matrix */
    WORK_NORM_GRAD,       /* one task */
    WORK_POSITION_GRAD,   /* tile of wpe */
    WORK_TOKEN_GRAD,      /* vocabulary tile */
    WORK_KINDS
};

/* Cost of one task. */
double work_cost(const struct shape *s, const struct tiling *t, enum work work, size_t i,
                 size_t j);

/* Times are fractions of a rank's forward and backward of one step, all micro-batches.
 */
struct profile_slice {
    double need; /* forward first reads the parameters */
    /* The gradient is final: of its first element, of all. In between it grows evenly. */
    double ready_begin, ready_end;
};

struct profile {
    size_t n_slices;
    struct profile_slice *slices; /* in the layout's order */
    double forward, head;         /* shares of the step; the rest is backward */
    double task;                  /* mean length of a task that runs at an instant */
    double busy;                  /* workers that have a task, over all of them */
    double length;                /* of the step in units of work_cost() */
};

/* The layout's slices are in production order, with wte at its end, or at its start when
 * the embedding's part of its gradient goes another way: then wte is final when the head
 * is done, and first read by the head.
 * In       B, T, accum, workers >= 1
 * Returns  ST_OK, ST_NOMEM
 * Memory   profile_release() frees; allowed on a zeroed profile */
MUST_USE enum status profile_init(struct profile *p, const struct layout *l, size_t B,
                                  size_t T, size_t accum, enum recompute recompute,
                                  int workers);
void profile_release(struct profile *p);

#endif
