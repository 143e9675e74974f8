/* SPDX-License-Identifier: MIT */
/* Everything about a run that can be found wrong before it costs anything. */
#include "engine/trainer_private.h"

#include <dirent.h>
#include <float.h>
#include <fnmatch.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/cores.h"
#include "engine/stop.h"
#include "task/task.h"

static const struct option_row *option_row(const struct trainer *t, const char *name)
{
    for (const struct option_row *row = t->options->table; row->name; row++)
        if (!strcmp(row->name, name))
            return row;
    bug("no option %s", name);
}

bool trainer_option_is_set(const struct trainer *t, const char *name)
{
    return option_row(t, name)->set;
}

/* Files of options write down all of them, also those that go with one that is off. */
static bool option_is_typed(const struct trainer *t, const char *name)
{
    return option_row(t, name)->on_command_line;
}

/* ---- model ---- */

/* Data with more ids than the model has would stop the run at the first of them. */
static enum status check_vocabulary(const struct trainer *t)
{
    if (t->meta.vocab <= t->eo.shape.V)
        return ST_OK;
    return fail(ST_USAGE, "--model %s: found V=%zu, needs at least the %u of %s",
                t->options->model, t->eo.shape.V, t->meta.vocab, t->meta.path);
}

static enum status find_shape(struct trainer *t)
{
    const struct train_options *o = t->options;
    struct shape asked;
    enum status st = ST_OK;

    if (shape_is_spec(o->model)) {
        st = shape_parse(o->model, t->meta.vocab, &asked);
        if (st != ST_OK)
            return st;
        t->eo.shape = asked;
        if (t->resumed && memcmp(&asked, &t->start.shape, sizeof asked) != 0)
            return fail(ST_USAGE,
                        "%s: found a model of L=%zu H=%zu C=%zu T=%zu V=%zu, "
                        "--model %s asks for L=%zu H=%zu C=%zu T=%zu V=%zu",
                        t->start.path, t->start.shape.L, t->start.shape.H,
                        t->start.shape.C, t->start.shape.T, t->start.shape.V, o->model,
                        asked.L, asked.H, asked.C, asked.T, asked.V);
        return check_vocabulary(t);
    }
    if (!t->resumed) {
        if (!file_exists(o->model))
            return fail(
                ST_IO,
                "--model %s: no file of that name, nor a known model; needs one of "
                "gpt2, gpt2-medium, gpt2-large, gpt2-xl, d12, ..., or "
                "L=,H=,C=[,T=][,V=]",
                o->model);
        st = model_open(o->model, &t->start);
        t->has_start = st == ST_OK;
    }
    t->eo.shape = t->start.shape;
    t->eo.shape.Vp = round_up(t->eo.shape.V, VOCAB_PAD);
    return st == ST_OK ? check_vocabulary(t) : st;
}

/* ---- batch ---- */

/* Micro-batches and tokens of a step say the same; what is typed wins over a file. */
static enum status choose_batch_rule(struct trainer *t)
{
    struct train_options *o = t->options;

    if (!o->total_batch_tokens || !trainer_option_is_set(t, "accum"))
        return ST_OK;
    if (option_is_typed(t, "accum") == option_is_typed(t, "total-batch-tokens"))
        return fail(ST_USAGE, "--accum and --total-batch-tokens: needs one of them");
    if (option_is_typed(t, "accum"))
        o->total_batch_tokens = 0;
    return ST_OK;
}

/* Micro-batches that make the tokens of a step. */
static enum status share_total_batch(struct trainer *t)
{
    const struct train_options *o = t->options;
    size_t P = (size_t)comm_size(t->comm);
    size_t micro = P * o->batch * t->eo.seq;
    size_t below = o->total_batch_tokens / micro * micro;

    if (o->total_batch_tokens % micro)
        return fail(ST_USAGE,
                    "--total-batch-tokens: found %zu, needs a multiple of "
                    "%zu (ranks %zu x batch %zu x seq %zu); nearest %zu or %zu",
                    o->total_batch_tokens, micro, P, o->batch, t->eo.seq,
                    below ? below : micro, below ? below + micro : 2 * micro);
    t->eo.accum = o->total_batch_tokens / micro;
    return ST_OK;
}

static enum status check_sequences(const char *name, size_t found)
{
    const size_t most = (size_t)1 << 24;

    if (found >= 1 && found <= most)
        return ST_OK;
    return fail(ST_USAGE, "--%s %zu: needs 1 to %zu", name, found, most);
}

static enum status find_batch(struct trainer *t)
{
    const struct train_options *o = t->options;
    size_t seq = o->seq ? o->seq : t->eo.shape.T;
    enum status st = choose_batch_rule(t);

    if (st == ST_OK && seq > t->eo.shape.T)
        st = fail(ST_USAGE, "--seq: found %zu, needs at most the model's T=%zu", seq,
                  t->eo.shape.T);
    if (st == ST_OK)
        st = check_sequences("batch", o->batch);
    if (st == ST_OK)
        st = check_sequences("accum", o->accum);
    if (st != ST_OK)
        return st;
    t->eo.batch = o->batch;
    t->eo.seq = seq;
    t->eo.accum = o->accum;
    return o->total_batch_tokens ? share_total_batch(t) : ST_OK;
}

/* ---- data ---- */

static void warn_short_files(const struct shards *s, size_t T)
{
    for (size_t i = 0; i < shards_files(s); i++)
        if (shards_file_tokens(s, i) < T + 1)
            log_warn("%s: skipped: found %llu tokens, a window needs %zu",
                     shards_path(s, i), (unsigned long long)shards_file_tokens(s, i),
                     T + 1);
}

static enum status open_training_data(struct trainer *t)
{
    const struct engine_options *e = &t->eo;
    size_t skipped = 0;
    enum status st =
        shards_open(t->options->data, "train", (uint32_t)e->shape.V, &t->train);

    if (st != ST_OK)
        return st;
    t->sampler =
        (struct sampler){.windows = shards_windows(t->train, e->seq, &skipped),
                         .batch = (uint64_t)comm_size(t->comm) * e->batch * e->accum,
                         .seed = t->options->seed,
                         .shuffled = t->options->order == 0};
    st = sampler_check(&t->sampler,
                       shards_files(t->train) == 1 ? shards_path(t->train, 0)
                                                   : t->options->data,
                       shards_tokens(t->train), e->seq);
    if (st == ST_OK && skipped && comm_rank(t->comm) == 0)
        warn_short_files(t->train, e->seq);
    return st == ST_OK ? shards_sample_hash(t->train, &t->data_hash) : st;
}

static bool folder_has_validation(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry = NULL;

    while (dir && (entry = readdir(dir)))
        if (!fnmatch("*_val_*.bin", entry->d_name, FNM_PERIOD) ||
            !strcmp(entry->d_name, "val.bin"))
            break;
    if (dir)
        closedir(dir);
    return entry != NULL;
}

/* Validation data: as asked, or the data folder's own; without any it is off. */
static enum status open_validation_data(struct trainer *t)
{
    const struct train_options *o = t->options;
    const char *where = o->val ? o->val : o->data;
    uint64_t windows;
    enum status st;

    if (!o->val && !(file_is_folder(o->data) && folder_has_validation(o->data)))
        return ST_OK;
    st = shards_open(where, "val", (uint32_t)t->eo.shape.V, &t->val);
    if (st != ST_OK)
        return st;
    windows = shards_windows(t->val, t->eo.seq, NULL);
    if (windows == 0 && o->val)
        return fail(ST_FORMAT,
                    "%s: found %llu tokens, needs at least %zu (--seq + 1) for "
                    "validation; lower --seq",
                    shards_path(t->val, 0), (unsigned long long)shards_tokens(t->val),
                    t->eo.seq + 1);
    if (windows == 0 && comm_rank(t->comm) == 0)
        log_warn("%s: validation is off: found %llu tokens, needs %zu",
                 shards_path(t->val, 0), (unsigned long long)shards_tokens(t->val),
                 t->eo.seq + 1);
    t->eval_windows = windows;
    if (o->eval_batches) {
        uint64_t most = windows / t->sampler.batch + 1;

        if (o->eval_batches < most)
            most = o->eval_batches;
        most *= t->sampler.batch;
        t->eval_windows = windows < most ? windows : most;
    }
    return ST_OK;
}

/* ---- length and rate ---- */

/* Kernels calculate with floats: what is beyond them would become infinity, zero or one
 * on the way. */
static enum status check_rates(const struct trainer *t)
{
    const struct train_options *o = t->options;

    if (!(o->lr > 0) || o->lr > (double)FLT_MAX)
        return fail(ST_USAGE, "--lr %g: needs more than 0 and at most %g", o->lr,
                    (double)FLT_MAX);
    if (o->min_lr < 0 || o->min_lr > o->lr)
        return fail(ST_USAGE, "--min-lr %g: needs 0 to --lr %g", o->min_lr, o->lr);
    if (o->beta1 < 0 || (float)o->beta1 >= 1)
        return fail(ST_USAGE, "--beta1 %.12g: needs 0 or more, as a float below 1",
                    o->beta1);
    if (o->beta2 < 0 || (float)o->beta2 >= 1)
        return fail(ST_USAGE, "--beta2 %.12g: needs 0 or more, as a float below 1",
                    o->beta2);
    if (o->eps < (double)FLT_MIN || o->eps > 1)
        return fail(ST_USAGE, "--eps %g: needs %g to 1", o->eps, (double)FLT_MIN);
    if (o->clip < 0)
        return fail(ST_USAGE, "--clip %g: needs 0 (off) or more", o->clip);
    if (o->weight_decay < 0 || o->weight_decay > (double)FLT_MAX)
        return fail(ST_USAGE, "--weight-decay %g: needs 0 to %g", o->weight_decay,
                    (double)FLT_MAX);
    return ST_OK;
}

static enum status find_length(struct trainer *t)
{
    const struct train_options *o = t->options;
    double per_epoch = (double)sampler_steps_per_epoch(&t->sampler);
    const double most = 9e18; /* steps are saved as signed 64-bit numbers */

    if (o->steps && trainer_option_is_set(t, "epochs"))
        return fail(ST_USAGE, "--steps and --epochs: needs one of them");
    if (!(o->epochs > 0) || o->epochs * per_epoch > most)
        return fail(ST_USAGE,
                    "--epochs %g: needs more than 0, and at most %g with %.0f steps each",
                    o->epochs, most / per_epoch, per_epoch);
    if ((double)o->steps > most)
        return fail(ST_USAGE, "--steps: found %zu, needs at most %g", o->steps, most);
    t->steps = o->steps ? o->steps : (uint64_t)ceil(o->epochs * per_epoch);
    return ST_OK;
}

static enum status find_schedule(struct trainer *t)
{
    const struct train_options *o = t->options;
    enum status st = check_rates(t);

    if (st == ST_OK)
        st = find_length(t);
    if (st != ST_OK)
        return st;
    t->schedule = (struct schedule){
        .kind = (enum schedule_kind)o->schedule,
        .lr = o->lr,
        .min_lr = isnan(o->min_lr) ? o->lr / 10 : o->min_lr,
        .warmup = o->warmup == OPTION_SIZE_UNSET ? t->steps / 20 : o->warmup,
        .steps = t->steps};
    t->eo.adamw = (struct adamw_options){o->beta1, o->beta2, o->eps, o->weight_decay};
    t->eo.clip = o->clip;
    return ST_OK;
}

static enum status find_strategy(struct trainer *t)
{
    const struct train_options *o = t->options;
    size_t ranks = (size_t)comm_size(t->comm);
    struct engine_options *e = &t->eo;

    e->strategy =
        o->strategy ? (enum strategy)o->strategy : strategy_default(comm_size(t->comm));
    e->exchange = (enum exchange_engine)o->engine;
    e->schedule = (enum grid_schedule)o->rounds;
    e->wire = (enum exchange_wire)o->wire;
    e->host_memory = o->host_memory == 0;
    e->split_embedding = o->split_embedding == 0;
    if (o->roots < 1 || o->roots > ranks)
        return fail(ST_USAGE, "--roots: found %zu, needs 1 to %zu, the ranks", o->roots,
                    ranks);
    if (o->roots > 1 && e->strategy != STRATEGY_REDUCE_BROADCAST)
        return fail(ST_USAGE, "--roots %zu: needs --strategy reduce-broadcast", o->roots);
    e->roots = (int)o->roots;
    if (e->exchange == EXCHANGE_COLLECTIVE && e->wire != WIRE_FP32)
        return fail(ST_USAGE, "--wire bf16: needs --engine direct; MPI cannot add bf16");
    if (e->exchange == EXCHANGE_COLLECTIVE && e->schedule != SCHEDULE_AUTO)
        return fail(ST_USAGE, "--rounds %s: needs --engine direct; MPI chooses its own",
                    e->schedule == SCHEDULE_FLAT ? "flat" : "recursive");
    return ST_OK;
}

static enum status find_blocks(struct trainer *t)
{
    const char *text = t->options->block_bytes;
    size_t bytes = 0; /* what suits the strategy */
    struct option_row row[] = {
        {.name = "block-bytes", .kind = OPTION_SIZE, .value = &bytes}, {0}};
    char arg[64];
    char *argv[] = {(char *)"train", arg, NULL};
    char **rest;
    int n_rest;
    enum status st = ST_OK;

    t->eo.one_block = !strcmp(text, "one");
    if (strcmp(text, "auto") != 0 && !t->eo.one_block) {
        (void)snprintf(arg, sizeof arg, "--block-bytes=%s", text);
        st = options_parse(row, 2, argv, &rest, &n_rest);
        if (st == ST_OK && bytes < 64)
            st = fail(ST_USAGE, "--block-bytes: found %s, needs at least 64, auto or one",
                      text);
    }
    t->eo.block_bytes = bytes;
    return st;
}

/* What was left to a rule gets its value, for config.ini and the checkpoints. Of a step's
 * tokens the rule is written, so that other ranks keep them. */
static void resolve(struct trainer *t)
{
    struct train_options *o = t->options;

    o->seq = t->eo.seq;
    o->accum = t->eo.accum;
    o->steps = t->steps;
    o->min_lr = t->schedule.min_lr;
    o->warmup = t->schedule.warmup;
}

enum status trainer_same_everywhere(struct trainer *t)
{
    const struct engine_options *e = &t->eo;
    const struct shape *s = &e->shape;
    const struct schedule *r = &t->schedule;
    const struct train_options *o = t->options;
    /* Numbers, not structs: padding bytes need not be equal. */
    const double numbers[] = {(double)s->L,
                              (double)s->H,
                              (double)s->C,
                              (double)s->T,
                              (double)s->V,
                              (double)e->batch,
                              (double)e->seq,
                              (double)e->accum,
                              (double)e->layout,
                              (double)e->block_bytes,
                              (double)e->one_block,
                              (double)e->exchange,
                              (double)e->strategy,
                              (double)e->schedule,
                              (double)e->roots,
                              (double)e->wire,
                              (double)e->host_memory,
                              (double)e->split_embedding,
                              (double)e->overlap,
                              e->clip,
                              e->adamw.beta1,
                              e->adamw.beta2,
                              e->adamw.eps,
                              e->adamw.weight_decay,
                              (double)r->kind,
                              r->lr,
                              r->min_lr,
                              (double)r->warmup,
                              (double)t->steps,
                              (double)t->sampler.windows,
                              (double)t->sampler.batch,
                              (double)t->sampler.seed,
                              (double)t->sampler.shuffled,
                              (double)t->eval_windows,
                              (double)shards_tokens(t->train),
                              (double)(t->data_hash >> 12),
                              (double)o->eval_every,
                              (double)o->save_every,
                              (double)o->sample_every,
                              (double)o->keep,
                              (double)o->dry_run,
                              (double)o->trace,
                              (double)o->trace_steps,
                              (double)t->has_start,
                              (double)t->resumed,
                              (double)t->start.state.step,
                              t->time_limit_s,
                              t->stall_limit_s,
                              (double)o->check_sync};

    return comm_agree(t->comm, comm_same(t->comm, numbers, sizeof numbers,
                                         "options, model shape or data of this run"));
}

/* They go into files of JSON. */
static enum status check_names(const struct train_options *o)
{
    const char *const names[] = {o->out, o->data, o->model, o->val};
    static const char *const what[] = {"out", "data", "model", "val"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *text = names[i] ? json_string(names[i]) : json_null();

        if (!text)
            return fail(ST_USAGE, "--%s %s: needs a name that is valid UTF-8", what[i],
                        names[i]);
        json_decref(text);
    }
    return ST_OK;
}

enum status trainer_prepare(struct trainer *t)
{
    const struct train_options *o = t->options;
    enum status st = ST_OK;

    if (!o->data || !o->model || !o->out)
        return fail(ST_USAGE,
                    "train: needs --data, --model and --out; see weft help train");
    if (!*o->data || !*o->model || !*o->out || !*o->resume)
        return fail(ST_USAGE, "--%s: found '', needs a value",
                    !*o->data    ? "data"
                    : !*o->model ? "model"
                    : !*o->out   ? "out"
                                 : "resume");
    st = check_names(o);
    if (st != ST_OK)
        return st;
    if (o->threads > MOST_WORKERS)
        return fail(ST_USAGE, "--threads: found %zu, needs at most %d", o->threads,
                    MOST_WORKERS);
    if (o->trace_steps < 1 || (!o->trace && option_is_typed(t, "trace-steps")))
        return fail(ST_USAGE, "--trace-steps: found %zu, needs at least 1, and --trace",
                    o->trace_steps);
    if (o->keep < 1)
        return fail(ST_USAGE, "--keep: found 0, needs at least 1");
    t->eo.train = true;
    t->eo.layout = (enum layout_order)o->layout;
    t->eo.recompute = (enum recompute)o->recompute;
    t->eo.overlap = o->overlap == 0;
    st = kernels_select(o->isa, &t->eo.kernels);
    if (st == ST_OK && o->dtype == 1)
        st = gemm_bf16_select(o->isa, &t->eo.half);
    if (st == ST_OK)
        st = shards_read_meta(o->data, &t->meta);
    if (st == ST_OK)
        st = trainer_find_resume(t);
    if (st == ST_OK)
        st = find_shape(t);
    if (st == ST_OK)
        st = find_batch(t);
    if (st == ST_OK)
        st = open_training_data(t);
    if (st == ST_OK)
        st = open_validation_data(t);
    if (st == ST_OK)
        st = find_schedule(t);
    if (st == ST_OK)
        st = find_strategy(t);
    if (st == ST_OK)
        st = find_blocks(t);
    if (st == ST_OK && o->time_limit)
        st = stop_parse_limit("time-limit", o->time_limit, &t->time_limit_s);
    if (st == ST_OK)
        resolve(t);
    return st == ST_OK ? trainer_check_tokenizer(t) : st;
}

/* ---- banner ---- */

/* Memory that a save in the background takes. */
static double save_copy_bytes(const struct trainer *t, const struct engine_plan *plan)
{
    return trainer_saves_beside(t) ? 3 * (double)plan->owned : 0;
}

/* Memory for the texts of --sample-every; on rank 0 only. */
static double texts_bytes(const struct trainer *t)
{
    const struct engine_options *e = &t->eo;

    if (comm_rank(t->comm) != 0 || t->options->sample_every == 0 || t->options->quiet)
        return 0;
    return (double)train_sample_bytes(&e->shape, e->seq, e->workers);
}

/* Tokens as weft info counts them, and those predicted as weft eval does. */
static void say_validation(const struct trainer *t, char *out, size_t out_bytes)
{
    if (t->eval_windows == 0)
        (void)snprintf(out, out_bytes, "off");
    else
        (void)snprintf(out, out_bytes,
                       "%llu tokens in %zu file%s, %llu predicted each time",
                       (unsigned long long)shards_tokens(t->val), shards_files(t->val),
                       shards_files(t->val) == 1 ? "" : "s",
                       (unsigned long long)(t->eval_windows * t->eo.seq));
}

static void print_banner(const struct trainer *t, const struct engine_plan *plan,
                         size_t program_bytes)
{
    const struct engine_options *e = &t->eo;
    const struct shape *s = &e->shape;
    int P = comm_size(t->comm);
    double tokens = (double)(t->sampler.batch * e->seq);
    char copy[64] = "";
    char texts[64] = "";
    char validation[128];

    say_validation(t, validation, sizeof validation);
    if (texts_bytes(t) > 0)
        (void)snprintf(texts, sizeof texts, ", and %.1f MB on rank 0 for texts",
                       texts_bytes(t) * 1e-6);
    if (save_copy_bytes(t, plan) > 0)
        (void)snprintf(copy, sizeof copy, ", and %.1f MB while saving",
                       save_copy_bytes(t, plan) * 1e-6);
    log_info("model: L=%zu H=%zu C=%zu T=%zu V=%zu, %.2f M parameters", s->L, s->H, s->C,
             s->T, s->V, (double)shape_parameters(s) * 1e-6);
    log_info("data: %llu tokens in %zu file%s; validation: %s",
             (unsigned long long)shards_tokens(t->train), shards_files(t->train),
             shards_files(t->train) == 1 ? "" : "s", validation);
    log_info("batch: %d rank%s x %zu sequences x %zu tokens x %zu micro-batch%s = %.0f "
             "tokens a step; %llu step%s = %.2f epochs",
             P, P == 1 ? "" : "s", e->batch, e->seq, e->accum, e->accum == 1 ? "" : "es",
             tokens, (unsigned long long)t->steps, t->steps == 1 ? "" : "s",
             (double)t->steps / (double)sampler_steps_per_epoch(&t->sampler));
    log_info("start: %s%s",
             !t->has_start ? "new weights"
             : t->resumed  ? "goes on from "
                           : "weights of ",
             t->has_start ? t->start.path : "");
    log_info("machine: %d worker%s a rank; kernels %s, products %s, tasks %s, MPI %s",
             e->workers, e->workers == 1 ? "" : "s", e->kernels->isa,
             e->half ? "of our own in bf16" : gemm_library(), task_backend(),
             comm_library(t->comm));
    log_info("binding: %d rank%s on this host of %d cores; %d rank%s may use %d core%s%s",
             t->cores.on_host, t->cores.on_host == 1 ? "" : "s", t->cores.host_cores,
             t->cores.sharers, t->cores.sharers == 1 ? "" : "s", t->cores.own,
             t->cores.own == 1 ? "" : "s", t->cores.sharers == 1 ? "" : " together");
    if (P > 1)
        log_info(
            "update: %s, engine %s, %d round%s, %zu blocks of %.0f KiB, busiest "
            "owner %.2f x mean, layout %s, overlap %s, wire %s; a rank sends %.1f MB "
            "a step",
            strategy_ops(e->strategy)->name,
            e->exchange == EXCHANGE_DIRECT ? "direct" : "collective", plan->rounds,
            plan->rounds == 1 ? "" : "s", plan->blocks, plan->block_bytes / 1024,
            plan->imbalance, e->layout == LAYOUT_PRODUCTION ? "production" : "storage",
            e->overlap ? "on" : "off", e->wire == WIRE_FP32 ? "fp32" : "bf16",
            1e-6 * (double)(plan->reduce_bytes + plan->return_bytes));
    log_info(
        "memory a rank: parameters %.1f + gradients %.1f + moments %.1f + activations "
        "%.1f + scratch %.1f + program %.1f = %.1f MB%s%s; recompute %s; a checkpoint "
        "takes "
        "%.1f MB",
        (double)plan->params * 1e-6, (double)plan->grads * 1e-6,
        (double)plan->moments * 1e-6, (double)plan->activations * 1e-6,
        (double)plan->scratch * 1e-6, (double)program_bytes * 1e-6,
        (double)(plan->total + program_bytes) * 1e-6, texts, copy,
        recompute_name(e->recompute), 12e-6 * (double)shape_parameters(s));
}

enum status trainer_banner(struct trainer *t)
{
    struct engine_plan plan;
    size_t program_bytes = memory_resident_bytes();
    /* The plan of an absurd model would itself take more than there is. */
    enum status st = trainer_check_memory(t, trainer_least_bytes(t));

    if (st == ST_OK)
        st = comm_agree(
            t->comm,
            engine_make_plan(
                &t->eo, comm_rank(t->comm), comm_size(t->comm),
                comm_shares_memory(t->comm) ? comm_host_numbers(t->comm) : NULL, &plan));
    if (st != ST_OK)
        return st;
    if (comm_rank(t->comm) == 0)
        print_banner(t, &plan, program_bytes);
    double needed = (double)plan.total + save_copy_bytes(t, &plan);

    st = trainer_check_memory(t, needed);
    /* Texts may be left out, training not. */
    if (st == ST_OK && t->options->sample_every > 0 &&
        trainer_check_memory(t, needed + texts_bytes(t)) != ST_OK) {
        if (comm_rank(t->comm) == 0)
            log_warn("--sample-every: no texts in this run: %s", fail_text());
        t->no_texts = true;
    }
    return st;
}
