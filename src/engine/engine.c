/* SPDX-License-Identifier: MIT */
/* Life of an engine, and the windows. */
#include "engine/engine_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"

static const double largest_norm = 1e18;

/* Slices of the layout as the block plan wants them. */
static enum status plan_blocks(const struct engine_options *o, const struct layout *l,
                               const struct grid *grid, struct plan *out)
{
    enum strategy strategy = o->strategy ? o->strategy : strategy_default(grid->ranks);
    struct plan_options options = {.strategy = strategy,
                                   .grid = grid,
                                   .block_bytes = o->block_bytes,
                                   .roots = o->roots,
                                   .one_block = o->one_block,
                                   .one_root = o->one_root};
    bool split = splits_embedding(o, grid->ranks);
    struct plan_slice *slices = NULL;
    enum status st = memory_alloc(l->n_slices, sizeof *slices, "block plan", &slices);

    if (st != ST_OK)
        return st;
    if (options.block_bytes == 0)
        options.block_bytes = strategy_ops(strategy)->block_bytes(grid);
    for (size_t i = 0; i < l->n_slices; i++)
        slices[i] = (struct plan_slice){l->slices[i].span, l->slices[i].offset};
    /* Sums that return are of use when all of wte is here: it has to come first again. */
    if (split && strategy_ops(strategy)->replicated)
        options.return_first = slices[0].elems;
    st = plan_init(out, slices, l->n_slices, &options);
    free(slices);
    return st;
}

static enum status make_layout(const struct engine_options *o, int ranks,
                               struct layout *out)
{
    return splits_embedding(o, ranks) ? layout_init_split(out, &o->shape, o->layout)
                                      : layout_init(out, &o->shape, o->layout);
}

/* MPI's collectives choose their own rounds. */
static enum status make_grid(const struct engine_options *o, int ranks, const int *hosts,
                             struct grid *out)
{
    bool direct = o->exchange == EXCHANGE_DIRECT;

    return grid_init(out, ranks, direct && o->host_memory ? hosts : NULL,
                     direct ? o->schedule : SCHEDULE_FLAT);
}

/* Attention and bf16 products. */
static size_t work_elems(const struct engine_options *o)
{
    size_t attention = attention_work_elems(o->seq, o->shape.C / o->shape.H);
    size_t half =
        o->half ? model_work_bytes(&o->shape, o->batch, o->seq) / sizeof(float) : 0;

    return round_up(max_size(attention, half), CACHE_LINE / sizeof(float));
}

static size_t packed_bytes(const struct engine_options *o)
{
    return o->half ? packed_pairs(&o->shape, o->train) * sizeof(bf16_pair) : 0;
}

/* One a worker. The task layer sees to it that the creator runs no bodies, but the user's
 * KMP_ENABLE_TASK_THROTTLING=1 lets libomp run some there: one piece more. */
static size_t scratch_pieces(const struct engine_options *o)
{
    return (size_t)o->workers + 1;
}

/* With few workers the critical path never waits for weight gradients to have read what
 * it overwrites. */
static size_t work_sets(const struct engine_options *o)
{
    enum { FEW_WORKERS = 8 };

    return o->train && o->workers > FEW_WORKERS ? 2 : 1;
}

static struct exchange_options exchange_options(const struct engine_options *o)
{
    return (struct exchange_options){.engine = o->exchange, .wire = o->wire};
}

static bool host_has_one_copy(const struct plan *plan)
{
    return plan->grid.host_ranks > 1 && !plan->replicated;
}

static enum status describe_exchange(const struct engine_options *o,
                                     const struct layout *l, const struct plan *plan,
                                     int rank, struct engine_plan *out)
{
    struct exchange_options exchange = exchange_options(o);
    bool hosts = plan->grid.host_ranks > 1;
    enum status st;

    out->rounds = schedule_rounds(plan);
    if (splits_embedding(o, plan->ranks))
        out->scratch += rows_bytes(o, l, plan, rank);
    out->scratch += exchange_scratch_bytes(plan, &exchange, hosts, rank);
    st = exchange_wire_bytes(plan, &exchange, hosts, PHASE_REDUCE, rank,
                             &out->reduce_bytes);
    if (st == ST_OK)
        st = exchange_wire_bytes(plan, &exchange, hosts, PHASE_RETURN, rank,
                                 &out->return_bytes);
    return st;
}

static enum status describe(const struct engine_options *o, const struct layout *l,
                            const struct plan *plan, int rank, struct engine_plan *out)
{
    size_t f = sizeof(float);
    enum status st = ST_OK;

    *out = (struct engine_plan){
        .params = l->elems * f,
        .activations = model_bytes(&o->shape, o->batch, o->seq, o->train, o->recompute,
                                   work_sets(o), o->half != NULL) +
                       2 * o->accum * o->batch * o->seq * sizeof(int32_t),
        .scratch = scratch_pieces(o) * work_elems(o) * f + packed_bytes(o),
        .blocks = plan->n_blocks,
        .block_bytes = (double)plan->elems * (double)f / (double)plan->n_blocks,
        .imbalance = plan_imbalance(plan)};
    if (o->train) {
        out->grads = l->elems * f;
        out->moments = 2 * plan_updated_elems(plan, rank) * f;
        out->owned = plan_owned_elems(plan, rank) * f;
        if (host_has_one_copy(plan))
            out->params /= (size_t)plan->grid.host_ranks;
        st = describe_exchange(o, l, plan, rank, out);
    }
    out->total =
        out->params + out->grads + out->moments + out->activations + out->scratch;
    return st;
}

enum status engine_cut(const struct engine_options *o, int ranks, const int *hosts,
                       struct layout *layout, struct grid *grid, struct plan *plan)
{
    enum status st = make_layout(o, ranks, layout);

    if (st == ST_OK)
        st = make_grid(o, ranks, hosts, grid);
    return st == ST_OK ? plan_blocks(o, layout, grid, plan) : st;
}

enum status engine_make_plan(const struct engine_options *o, int rank, int ranks,
                             const int *hosts, struct engine_plan *out)
{
    struct layout layout = {0};
    struct grid grid = {0};
    struct plan plan = {0};
    enum status st = engine_cut(o, ranks, hosts, &layout, &grid, &plan);

    if (st == ST_OK)
        st = describe(o, &layout, &plan, rank, out);
    plan_release(&plan);
    grid_release(&grid);
    layout_release(&layout);
    return st;
}

/* COLLECTIVE when the ranks of a host share memory, as the next one is. */
static enum status allocate_params(struct engine *e)
{
    bool once = e->options.train && host_has_one_copy(&e->plan);
    enum status st =
        comm_memory_map(e->comm, e->layout.elems * sizeof(float), "parameters",
                        once ? MEMORY_ONE_A_HOST : MEMORY_PRIVATE, &e->params_memory);

    e->params = e->params_memory.base;
    return st;
}

static enum status allocate_grads(struct engine *e)
{
    bool shared = e->grid.host_ranks > 1;
    enum status st =
        comm_memory_map(e->comm, e->layout.elems * sizeof(float), "gradients",
                        shared ? MEMORY_VISIBLE : MEMORY_PRIVATE, &e->grads_memory);

    e->grads = e->grads_memory.base;
    return st;
}

static enum status allocate_moments(struct engine *e)
{
    void *p;
    enum status st;

    e->own_elems = plan_updated_elems(&e->plan, comm_rank(e->comm));
    st = memory_map(2 * e->own_elems * sizeof(float), "optimizer state", &p);
    e->m = p;
    e->v = e->m + e->own_elems;
    return st;
}

static enum status allocate_moment_table(struct engine *e)
{
    size_t at = 0;
    enum status st = memory_alloc(e->plan.n_parts, sizeof *e->moment_offset,
                                  "block table", &e->moment_offset);

    for (size_t p = 0; st == ST_OK && p < e->plan.n_parts; p++) {
        const struct plan_part *part = &e->plan.parts[p];

        e->moment_offset[p] = at;
        if (plan_updates(&e->plan, part, comm_rank(e->comm)))
            at += part->elems;
    }
    return st;
}

/* After exchange_new. */
static enum status allocate_squares(struct engine *e)
{
    size_t n = e->plan.n_blocks;
    int last = exchange_rounds(e->exchange) - 1;
    enum status st =
        memory_alloc(n + 1, sizeof *e->first_squares, "block table", &e->first_squares);

    for (size_t b = 0; st == ST_OK && b < n; b++)
        e->first_squares[b + 1] =
            e->first_squares[b] + exchange_sum_tasks(e->exchange, b, last);
    if (st == ST_OK)
        st = memory_alloc(e->first_squares[n], sizeof *e->squares, "block table",
                          &e->squares);
    return st;
}

static enum status allocate_activations(struct engine *e,
                                        const struct engine_plan *memory)
{
    const struct engine_options *o = &e->options;
    size_t tokens = o->accum * o->batch * o->seq;
    enum status st;

    st = arena_init(&e->arena, memory->activations + 4 * CACHE_LINE, "activations");
    if (st == ST_OK)
        st = memory_alloc(o->shape.L, sizeof *e->layers, "activations", &e->layers);
    if (st != ST_OK)
        return st;
    e->model = (struct model){.shape = o->shape,
                              .kernels = o->kernels,
                              .half = o->half,
                              .recompute = o->recompute,
                              .sets = work_sets(o),
                              .layout = &e->layout,
                              .params = e->params,
                              .grads = e->grads};
    model_place(&e->model, &e->arena, e->layers, o->batch, o->seq, o->train);
    e->inputs = arena_take(&e->arena, tokens * sizeof *e->inputs);
    e->targets = arena_take(&e->arena, tokens * sizeof *e->targets);
    e->max_chunks = tiling_max_chunks(o->batch * o->seq);
    return memory_alloc(o->accum * e->max_chunks, sizeof *e->chunk_loss, "losses",
                        &e->chunk_loss);
}

static enum status allocate_packed(struct engine *e)
{
    void *p;
    enum status st = ST_OK;

    if (!e->options.half)
        return ST_OK;
    st = memory_map(packed_bytes(&e->options), "packed weights", &p);
    e->model.packed = p;
    return st;
}

static enum status allocate_scratch(struct engine *e)
{
    struct scratch_pool *p = &e->scratch;
    void *base;
    enum status st;

    p->n = scratch_pieces(&e->options);
    p->elems = work_elems(&e->options);
    st = memory_map(p->n * p->elems * sizeof *p->base, "work of the workers", &base);
    p->base = base;
    if (st == ST_OK)
        st = memory_alloc(p->n, sizeof *p->taken, "work of the workers", &p->taken);
    for (size_t i = 0; st == ST_OK && i < p->n; i++)
        atomic_flag_clear(&p->taken[i]);
    return st;
}

static enum status make_plans(struct engine *e, struct engine_plan *memory)
{
    const struct engine_options *o = &e->options;
    const int *hosts = comm_shares_memory(e->comm) ? comm_host_numbers(e->comm) : NULL;
    enum status st =
        engine_cut(o, comm_size(e->comm), hosts, &e->layout, &e->grid, &e->plan);

    e->split = splits_embedding(o, comm_size(e->comm));
    if (st == ST_OK)
        st = describe(o, &e->layout, &e->plan, comm_rank(e->comm), memory);
    return st;
}

static enum status build(struct engine *e, const struct engine_plan *memory)
{
    enum status st = allocate_moment_table(e);

    if (st == ST_OK && e->options.train)
        st = allocate_moments(e);
    if (st == ST_OK)
        st = allocate_activations(e, memory);
    if (st == ST_OK)
        st = allocate_packed(e);
    if (st == ST_OK)
        st = allocate_scratch(e);
    if (st == ST_OK)
        st = sentinels_init(e);
    if (st == ST_OK)
        st = simulation_init(e);
    if (st == ST_OK && e->split)
        st = rows_init(e);
    return st;
}

static enum status build_exchange(struct engine *e)
{
    struct exchange_options options = exchange_options(&e->options);
    enum status st = exchange_new(e->comm, &e->plan, &e->grads_memory, &e->params_memory,
                                  &options, &e->exchange);

    if (st == ST_OK && e->split) {
        struct rows_options rows = rows_options(&e->options, &e->layout, &e->plan);

        st = exchange_rows_new(e->exchange, &rows, &e->rows.exchange);
    }
    return st == ST_OK ? allocate_squares(e) : st;
}

enum status engine_new(struct comm *c, const struct engine_options *o,
                       struct engine **out)
{
    struct engine_plan memory;
    struct engine *e = NULL;
    enum status st = memory_alloc(1, sizeof *e, "engine", &e);

    *out = NULL;
    if (st == ST_OK) {
        e->options = *o;
        e->comm = c;
        st = make_plans(e, &memory);
    }
    st = comm_agree(c, st);
    if (st == ST_OK)
        st = comm_agree(c, allocate_params(e));
    if (st == ST_OK && o->train)
        st = comm_agree(c, allocate_grads(e));
    if (st == ST_OK)
        st = comm_agree(c, build(e, &memory));
    if (st == ST_OK && o->train)
        st = comm_agree(c, build_exchange(e));
    if (st == ST_OK) {
        *out = e;
        e = NULL;
    }
    engine_free(e);
    return st;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    rows_release(e);
    exchange_free(e->exchange);
    comm_memory_unmap(e->comm, &e->params_memory);
    comm_memory_unmap(e->comm, &e->grads_memory);
    memory_unmap(e->m, 2 * e->own_elems * sizeof(float));
    memory_unmap(e->scratch.base, e->scratch.n * e->scratch.elems * sizeof(float));
    free(e->scratch.taken);
    memory_unmap(e->model.packed, packed_bytes(&e->options));
    arena_release(&e->arena);
    free(e->layers);
    free(e->chunk_loss);
    free(e->squares);
    free(e->first_squares);
    free(e->moment_offset);
    sentinels_release(e);
    plan_release(&e->plan);
    grid_release(&e->grid);
    layout_release(&e->layout);
    free(e);
}

void engine_run(struct engine *e, void (*fn)(void *arg), void *arg)
{
    task_run(e->options.workers, fn, arg);
}

const struct layout *engine_layout(const struct engine *e)
{
    return &e->layout;
}

const struct plan *engine_block_plan(const struct engine *e)
{
    return &e->plan;
}

float *engine_params(struct engine *e)
{
    e->is_packed = false; /* the caller may write */
    return e->params;
}

float *engine_grads(struct engine *e)
{
    return e->grads;
}

void engine_moments(struct engine *e, float **m, float **v)
{
    *m = e->m;
    *v = e->v;
}

int32_t *engine_inputs(struct engine *e, size_t a)
{
    return e->inputs + a * e->options.batch * e->options.seq;
}

int32_t *engine_targets(struct engine *e, size_t a)
{
    return e->targets + a * e->options.batch * e->options.seq;
}

/* ---- initial weights ---- */

struct init_job {
    struct engine *e;
    const struct slice *slice;
    uint64_t seed;
    size_t row0, row1;
};

static void do_init(void *args, struct task_event event)
{
    struct init_job *j = args;

    (void)event;
    tensor_init_rows(&j->e->layout, j->slice, j->seed, j->row0, j->row1,
                     j->e->params + j->slice->offset);
}

void engine_init_weights(struct engine *e, uint64_t seed)
{
    const size_t elems_a_task = (size_t)1 << 18;

    e->is_packed = false;
    for (size_t i = 0; i < e->layout.n_slices; i++) {
        const struct slice *s = &e->layout.slices[i];
        size_t rows = max_size(1, elems_a_task / s->cols);

        for (size_t r = 0; r < s->rows; r += rows) {
            struct init_job job = {e, s, seed, r, min_size(s->rows, r + rows)};
            struct task t = {.label = "initial weights",
                             .body = do_init,
                             .args = &job,
                             .args_bytes = sizeof job};

            task_spawn(&t);
        }
    }
    task_wait_all();
}

/* ---- windows ---- */

/* Without overlap compute and communication take turns at these points. */
static void take_turns(struct engine *e)
{
    if (!e->options.overlap)
        task_wait_all();
}

static void spawn_pending_update(struct engine *e, bool fetch)
{
    if (!e->update_pending)
        return;
    e->update_pending = false;
    exchange_begin(e->exchange, PHASE_RETURN);
    spawn_update(e, fetch);
    e->is_packed = false;
    take_turns(e);
}

static void spawn_packing_if_needed(struct engine *e)
{
    if (e->options.half && !e->is_packed)
        spawn_packing(e);
    e->is_packed = true;
}

/* Tasks that wait take memory: many micro-batches are not spawned all at once. */
static void bound_graph(struct engine *e)
{
    enum { MOST_TASKS = 20000 };

    if (e->spawned < MOST_TASKS)
        return;
    task_wait_all();
    e->spawned = 0;
}

static void run_window(struct engine *e, bool local_failure)
{
    exchange_mark(e->exchange, MARK_STEP_BEGIN);
    exchange_begin(e->exchange, PHASE_REDUCE);
    if (e->split)
        spawn_rows_begin(e);
    spawn_pending_update(e, true);
    spawn_packing_if_needed(e);
    e->next_block = 0;
    e->spawned = 0;
    e->window++;
    for (size_t a = 0; a < e->options.accum; a++) {
        bound_graph(e);
        spawn_forward(e, a);
        fault_at("forward");
        spawn_head(e, a, true);
        spawn_backward(e, a);
        fault_at("backward");
    }
    spawn_backward_mark(e);
    take_turns(e);
    spawn_reductions_up_to(e, e->layout.n_slices - 1);
    if (e->split)
        spawn_rows_reduction(e);
    take_turns(e);
    spawn_agreement(e, local_failure);
    task_wait_all();
    exchange_mark(e->exchange, MARK_STEP_END);
}

static void read_result(struct engine *e, double seconds, struct step_result *out)
{
    double tokens =
        (double)e->model.tiling.N * (double)e->options.accum * (double)comm_size(e->comm);
    struct task_stats tasks;
    struct exchange_stats traffic;

    task_stats_get(&tasks);
    exchange_stats_get(e->exchange, &traffic);
    *out = (struct step_result){.loss = e->agreed[0] / tokens,
                                .grad_norm = sqrt(e->agreed[1]),
                                .failed_ranks = (int)e->agreed[2],
                                .stop = e->agreed[3] > 0,
                                .save = e->agreed[4] > 0,
                                .saved_ranks = (int)e->agreed[5],
                                .step_s = seconds,
                                .compute_s = tasks.busy_s / tasks.workers,
                                .comm_busy_s = traffic.busy_s,
                                .idle_s = tasks.all_idle_s,
                                .comm_bytes = traffic.bytes_sent,
                                .comm_messages = traffic.messages,
                                .comm_cpu_s = traffic.cpu_s,
                                .tasks = tasks.tasks};
    out->finite = isfinite(out->loss) && isfinite(out->grad_norm);
    if (comm_size(e->comm) > 1)
        out->comm_exposed_s = fmin(tasks.all_idle_s, traffic.busy_s);
}

static void set_tiling(struct engine *e, size_t B, size_t T)
{
    tiling_init(&e->model.tiling, &e->layout.shape, B, T);
}

static void window_with_result(struct engine *e, bool local_failure,
                               struct step_result *out)
{
    double start = clock_s();

    task_stats_reset();
    exchange_stats_reset(e->exchange);
    run_window(e, local_failure);
    read_result(e, clock_s() - start, out);
}

void engine_step(struct engine *e, double lr, uint64_t adam_step, bool local_failure,
                 struct step_result *out)
{
    window_with_result(e, local_failure, out);
    /* The second moment holds squares of clipped gradients, in floats. */
    double clipped = out->grad_norm * clip_scale(out->grad_norm, e->options.clip);
    out->finite = out->finite && clipped < largest_norm;
    e->update_pending = out->finite && out->failed_ranks == 0;
    e->adamw = adamw_constants(&e->options.adamw, lr, adam_step,
                               clip_scale(out->grad_norm, e->options.clip));
}

double engine_local_loss(const struct engine *e)
{
    double loss = 0;

    for (size_t a = 0; a < e->options.accum; a++)
        for (size_t i = 0; i < e->model.tiling.chunks; i++)
            loss += e->chunk_loss[a * e->max_chunks + i];
    return loss;
}

void engine_request_stop(struct engine *e)
{
    e->stop_wanted = true;
}

void engine_request_save(struct engine *e)
{
    e->save_wanted = true;
}

void engine_tell_saved(struct engine *e, bool saved)
{
    e->part_saved = saved;
}

void engine_gradients(struct engine *e, struct step_result *out)
{
    window_with_result(e, false, out);
}

void engine_flush(struct engine *e)
{
    spawn_pending_update(e, false);
    task_wait_all();
}

double engine_eval(struct engine *e)
{
    double loss = 0;

    spawn_packing_if_needed(e);
    spawn_forward(e, 0);
    spawn_head(e, 0, false);
    task_wait_all();
    for (size_t c = 0; c < e->model.tiling.chunks; c++)
        loss += e->chunk_loss[c];
    return loss;
}

/* Forward of other tokens than the buffers' shape; positions restart in each sequence. */
static void forward_tokens(struct engine *e, const int32_t *tokens, size_t B, size_t T)
{
    const struct engine_options *o = &e->options;
    int32_t *positions = e->model.positions;

    require(B <= o->batch && T <= o->seq);
    set_tiling(e, B, T);
    for (size_t n = 0; n < B * T; n++)
        positions[n] = (int32_t)(n % T);
    memcpy(engine_inputs(e, 0), tokens, B * T * sizeof *tokens);
    spawn_packing_if_needed(e);
    spawn_forward(e, 0);
    task_wait_all();
}

static void restore_shape(struct engine *e)
{
    const struct engine_options *o = &e->options;
    int32_t *positions = e->model.positions;

    set_tiling(e, o->batch, o->seq);
    for (size_t n = 0; n < o->batch * o->seq; n++)
        positions[n] = (int32_t)(n % o->seq);
}

static void logits_of_rows(struct engine *e, size_t row, size_t rows, float *logits)
{
    float *work = scratch_take(&e->scratch);

    model_logits(&e->model, row, rows, logits, work);
    scratch_give(&e->scratch, work);
}

void engine_logits(struct engine *e, const int32_t *tokens, size_t n, float *logits)
{
    forward_tokens(e, tokens, 1, n);
    logits_of_rows(e, n - 1, 1, logits);
    restore_shape(e);
}

void engine_all_logits(struct engine *e, const int32_t *tokens, size_t B, size_t T,
                       float *logits)
{
    forward_tokens(e, tokens, B, T);
    logits_of_rows(e, 0, B * T, logits);
    restore_shape(e);
}
