/* engine_private.h - shared by the files of src/engine only. */
#ifndef WEFT_ENGINE_ENGINE_PRIVATE_H
#define WEFT_ENGINE_ENGINE_PRIVATE_H

#include <stdatomic.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "engine/profile.h"
#include "model/model.h"
#include "task/task.h"

/* A sentinel is one byte that stands for a part of a buffer. Each kind is a matrix of
 * them, [i][j]; what i and j are is said here.
 *
 * Where several tasks write parts of a chunk they all only *need* its sentinel: an empty
 * task before them makes it, which waits for those who read what is overwritten, and
 * another behind them makes it again. So no task has to name every writer
 * (graph_forward.c and graph_backward.c call these tasks joins). */
enum sentinel {
    S_X,        /* [layer 0..L][chunk]  residual stream entering a layer; L: x_last */
    S_QKV,      /* [place][chunk]  qkv and the statistics of ln1 */
    S_ATT,      /* [place][chunk]  att and lse; in forward att_half too */
    S_MID,      /* [layer][chunk]  mid and the statistics of ln2 */
    S_FC,       /* [place][chunk]  (attention_place(), mlp_place()) */
    S_LN1,      /* [set][chunk]      ln1 and partial sums of its gradients; lnf and its
                   statistics */
    S_LN2,      /* [set][chunk]      the same of ln2 */
    S_GELU,     /* [set][chunk] */
    S_DX,       /* [set][chunk] */
    S_DFC,      /* [set][chunk] */
    S_DMID,     /* [set][chunk]      and att_half in backward */
    S_DATT,     /* [set][chunk] */
    S_DQKV,     /* [set][chunk] */
    S_DLNFW,    /* [0][chunk]      partial sums of lnf's gradients */
    S_LOGITS,   /* [chunk % 2][vocabulary tile] */
    S_LOSS,     /* [0][chunk]      lse and losses of the chunk's rows */
    S_DLNF,     /* [chunk % 2][lane] */
    S_GRAD,     /* [slice][gradient tile] */
    S_PARAM,    /* [slice][0]              the slice's parameters of this step are here */
    S_WTE,      /* [0][vocabulary tile]    the same for a tile of wte */
    S_SUM,      /* [0][block]              reduced gradient of a block */
    S_UPDATED,  /* [0][block]              what this rank updates of it is */
    S_ARRIVED,  /* [0][block]              its return has arrived and left */
    S_AGREED,   /* [0][0] */
    S_TOLD,     /* [0][0]       every rank's rows of this step are known */
    S_ROWS,     /* [0][0]       the rows of this step's tokens are here */
    S_ROW_GRAD, /* [0][task]    their gradients */
    S_ROWS_IN,  /* [0][0]       those of the other ranks are here */
    SENTINEL_KINDS
};

struct sentinels {
    char *bytes;
    size_t total;
    size_t base[SENTINEL_KINDS], stride[SENTINEL_KINDS], limit[SENTINEL_KINDS];
};

/* Dependencies of the task being built. */
struct dependencies {
    const void **in, **out;
    size_t n_in, n_out, in_capacity, out_capacity;
};

/* Scratch of attention tasks: as many pieces as tasks can run at once. */
struct scratch_pool {
    size_t n;
    size_t elems;
    float *base;
    atomic_flag *taken;
};

/* The embedding's part of wte's gradient, when it is kept apart. */
struct embedding_rows {
    struct exchange_rows *exchange;
    float *gradients; /* [n][C] */
    int32_t *ids;     /* [n] ascending */
    int32_t *index;   /* [accum][N] number of the token's row */
    int32_t *place;   /* [V] scratch */
    size_t n;
};

struct engine {
    struct engine_options options;
    struct comm *comm;
    struct layout layout;
    struct grid grid;
    struct plan plan;
    struct exchange *exchange;
    struct model model;
    struct arena arena;
    struct layer_state *layers;
    struct comm_memory params_memory, grads_memory;
    float *params, *grads, *m, *v;
    size_t own_elems;          /* of m and v */
    size_t *moment_offset;     /* [part] where what is updated here starts in m and v */
    int32_t *inputs, *targets; /* [accum][N] */
    struct sentinels sentinels;
    struct dependencies deps;
    struct scratch_pool scratch;

    double *squares;       /* sums of squares of the reduced gradient: of each task ... */
    size_t *first_squares; /* [block + 1] ... of a block's last round */
    double *chunk_loss;    /* [accum][chunk] */
    size_t max_chunks;
    double agreed[EXCHANGE_AGREE_MAX];

    bool split; /* wte is first in production order, its rows are in: */
    struct embedding_rows rows;

    size_t spawned;    /* tasks of this window since everything was waited for */
    size_t next_block; /* first block whose reduction is not yet spawned */
    bool stop_wanted, save_wanted, part_saved; /* to be said with the next agreement */
    bool update_pending;
    bool is_packed;     /* bf16: packed weights are those of params */
    struct adamw adamw; /* of the pending update */
    double cost_s;      /* simulated compute: time of a unit of work_cost() on a worker */
    uint64_t window;    /* number of the one that is running */
};

/* What most task bodies need to know; copied into the task. */
struct job {
    struct engine *e;
    size_t l, i, j;             /* layer and tile numbers */
    size_t a;                   /* micro-batch */
    union {                     /* what computes the tile, where one body does for many */
        model_rows *rows;       /* of row tile j */
        model_columns *columns; /* of chunk i */
    } tile;
    enum work work; /* of a computing task, with i and j its tiles there */
    int round;      /* of a reduction */
    bool accumulate;
    bool failed; /* agreement: this rank could not fill its buffers */
    /* Lives here because it must outlive the operation that completes it: the task layer
     * keeps a task's arguments until the window is over. */
    struct task_event event;
};

/* ---- engine.c ---- */
/* Layout, grid and block plan of a run, for the cost model too. All three zeroed before,
 * and to be released whatever is returned. */
enum status engine_cut(const struct engine_options *o, int ranks, const int *hosts,
                       struct layout *layout, struct grid *grid, struct plan *plan);

/* ---- deps.c: building one task after another ---- */
enum status sentinels_init(struct engine *e);
void sentinels_release(struct engine *e);
const void *sentinel(const struct engine *e, enum sentinel kind, size_t i, size_t j);
void needs(struct engine *e, enum sentinel kind, size_t i, size_t j);
void needs_range(struct engine *e, enum sentinel kind, size_t i, size_t first,
                 size_t last);
void makes(struct engine *e, enum sentinel kind, size_t i, size_t j);
/* Spawns the task with the dependencies gathered since the last spawn. body NULL: it
 * joins them. */
void spawn(struct engine *e, const char *label, int priority, task_body body,
           const struct job *job);
void spawn_with_event(struct engine *e, const char *label, int priority, task_body body,
                      const struct job *job);
/* Tasks with the same dependencies and priority, for job.j from first to first + n. */
void spawn_each(struct engine *e, const char *label, int priority, task_body body,
                const struct job *job, size_t first, size_t n);
/* The tasks of all row tiles of chunk c, and of all tiles of columns beside it. */
void spawn_row_tiles(struct engine *e, const char *label, enum work work,
                     model_rows *rows, size_t l, size_t c);
void spawn_column_tiles(struct engine *e, const char *label, enum work work,
                        const struct column_cut *cut, model_columns *columns, size_t l,
                        size_t c);
/* An empty task with the dependencies gathered. */
void spawn_join(struct engine *e);

float *scratch_take(struct scratch_pool *p);
void scratch_give(struct scratch_pool *p, float *piece);
/* What a product needs beside its factors: with bf16 a piece of scratch, else NULL. */
void *product_work_take(struct engine *e);
void product_work_give(struct engine *e, void *work);

/* Where layer l keeps these: the layer itself, or 0 where all share one place, because
 * they are computed again. */
size_t attention_place(const struct engine *e, size_t l);
size_t mlp_place(const struct engine *e, size_t l);

/* The set of work buffers that layer l uses. */
size_t work_place(const struct engine *e, size_t l);

/* Index of a slice in layout order, for S_GRAD and S_PARAM. */
size_t slice_index(const struct engine *e, enum tensor_kind kind, size_t layer);

/* ---- simulate.c ---- */
/* With options.compute_s: how long a unit of cost lasts. */
enum status simulation_init(struct engine *e);
/* In place of a computing task's body. */
void simulate_work(void *args, struct task_event event);

/* ---- graph_forward.c, graph_head.c, graph_backward.c ---- */
void spawn_forward(struct engine *e, size_t a);
/* What of layer l is computed again for backward. */
void spawn_forward_again(struct engine *e, size_t l);
/* Logits, loss; with `train` also their gradients down to dx of the last layer. */
void spawn_head(struct engine *e, size_t a, bool train);
void spawn_backward(struct engine *e, size_t a);

/* Weights for bf16 products; after the parameters' joins. */
void spawn_packing(struct engine *e);

/* ---- graph_rows.c ---- */
bool splits_embedding(const struct engine_options *o, int ranks);
struct rows_options rows_options(const struct engine_options *o, const struct layout *l,
                                 const struct plan *plan);
size_t rows_bytes(const struct engine_options *o, const struct layout *l,
                  const struct plan *plan, int rank);
size_t rows_most_tasks(const struct engine_options *o);
/* All but rows.exchange, which is made after the exchange. */
enum status rows_init(struct engine *e);
void rows_release(struct engine *e); /* COLLECTIVE when there is an exchange */
void spawn_rows_begin(struct engine *e);
/* Updates wte, before anything else; returns the number of blocks. */
size_t spawn_rows_update(struct engine *e);
/* What the fetch waits for. */
void needs_rows_fetch(struct engine *e);
void spawn_rows_fetch(struct engine *e);
void spawn_row_gradients(struct engine *e, size_t a);
void needs_row_gradients(struct engine *e);
void spawn_rows_reduction(struct engine *e);

/* ---- graph_update.c ---- */
/* fetch: the rows of this step's tokens are wanted ahead (not without a step). */
void spawn_update(struct engine *e, bool fetch);
void spawn_block_update(struct engine *e, size_t block);
/* After the tasks of every slice up to `slice` (in production order) have been spawned:
 * spawns the reductions of the blocks that are thereby complete. */
void spawn_reductions_up_to(struct engine *e, size_t slice);
void spawn_agreement(struct engine *e, bool local_failure);
/* Tells profilers when the last gradient was there. */
void spawn_backward_mark(struct engine *e);

/* Priorities: what feeds communication first, then the critical path. */
enum {
    PRIORITY_PATH = 500,
    PRIORITY_WEIGHT_GRAD = 700,
    PRIORITY_JOIN = 900,
    PRIORITY_COMM = 1000
};

#endif
