/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "cmd/cmd.h"
#include "comm/comm.h"
#include "engine/trainer.h"
#include "kernels/kernels.h"
#include "model/recompute.h"
#include "optim/schedule.h"

enum { MAX_OPTIONS = 64 };

static void fill_table(struct option_row *table, struct train_options *o,
                       const char **config, bool *help)
{
    const struct option_row rows[] = {
        {"data", OPTION_TEXT, &o->data, "DIR|GLOB", "token shards to train on", 0, 0},
        {"val", OPTION_TEXT, &o->val, "GLOB",
         "validation shards; those of --data when it is a folder", 0, 0},
        {"model", OPTION_TEXT, &o->model, "SPEC|PATH",
         "gpt2, gpt2-medium, ..., d12, L=6,H=6,C=384,T=256, or a model to start from", 0,
         0},
        {"out", OPTION_TEXT, &o->out, "RUN", "run folder", 0, 0},
        {"batch", OPTION_SIZE, &o->batch, "N",
         "sequences a rank and micro-batch; a step has ranks x batch x accum of them", 0,
         0},
        {"seq", OPTION_SIZE, &o->seq, "N", "tokens a sequence; 0: the model's T", 0, 0},
        {"accum", OPTION_SIZE, &o->accum, "N", "micro-batches a step", 0, 0},
        {"total-batch-tokens", OPTION_SIZE, &o->total_batch_tokens, "N",
         "tokens a step over all ranks, instead of --accum; 0: off", 0, 0},
        {"steps", OPTION_SIZE, &o->steps, "N", "steps of the whole run; 0: by --epochs",
         0, 0},
        {"epochs", OPTION_NUMBER, &o->epochs, "X", "passes over the data", 0, 0},
        {"lr", OPTION_NUMBER, &o->lr, "X", "peak learning rate", 0, 0},
        {"min-lr", OPTION_NUMBER, &o->min_lr, "X",
         "final learning rate; a tenth of --lr when not given", 0, 0},
        {"warmup", OPTION_SIZE, &o->warmup, "N",
         "steps of linear rise; a twentieth of the run when not given", 0, 0},
        {"schedule", OPTION_CHOICE, &o->schedule, SCHEDULE_WORDS,
         "shape of the rate after the warm-up", 0, 0},
        {"weight-decay", OPTION_NUMBER, &o->weight_decay, "X", "on matrices only", 0, 0},
        {"beta1", OPTION_NUMBER, &o->beta1, "X", "AdamW", 0, 0},
        {"beta2", OPTION_NUMBER, &o->beta2, "X", "AdamW", 0, 0},
        {"eps", OPTION_NUMBER, &o->eps, "X", "AdamW", 0, 0},
        {"clip", OPTION_NUMBER, &o->clip, "X",
         "limit of the global gradient norm; 0: off", 0, 0},
        {"seed", OPTION_SIZE, &o->seed, "N", "of initial weights and data order", 0, 0},
        {"order", OPTION_CHOICE, &o->order, "shuffled|sequential", "of the windows", 0,
         0},
        {"threads", OPTION_SIZE, &o->threads, "N",
         "workers a rank; 0: this rank's share of the cores", 0, 0},
        {"isa", OPTION_TEXT, &o->isa, "NAME", "force kernels: generic, avx2, avx512", 0,
         0},
        {"dtype", OPTION_CHOICE, &o->dtype, "fp32|bf16",
         "factors of the matrix products; weights and sums are fp32 always", 0, 0},
        {"recompute", OPTION_CHOICE, &o->recompute, RECOMPUTE_WORDS,
         "compute again in backward what takes memory: nothing, the MLP's hidden "
         "layer, or attention's inputs too; same numbers",
         0, 0},
        {"strategy", OPTION_CHOICE, &o->strategy,
         "auto|central|reduce-broadcast|reduce-scatter|allreduce",
         "how gradients are summed and who updates", 0, 0},
        {"engine", OPTION_CHOICE, &o->engine, "direct|collective",
         "messages of our own, or MPI's collectives", 0, 0},
        {"rounds", OPTION_CHOICE, &o->rounds, "auto|flat|recursive",
         "direct engine: all to all in one round, or halving and doubling", 0, 0},
        {"roots", OPTION_SIZE, &o->roots, "N",
         "reduce-broadcast: ranks that share the update of a block", 0, 0},
        {"wire", OPTION_CHOICE, &o->wire, "fp32|bf16",
         "direct engine: precision of gradients in messages", 0, 0},
        {"split-embedding", OPTION_CHOICE, &o->split_embedding, "on|off",
         "the embedding's own part of wte's gradient travels as rows", 0, 0},
        {"host-memory", OPTION_CHOICE, &o->host_memory, "on|off",
         "ranks of a host read each other's memory; off is for comparison", 0, 0},
        {"layout", OPTION_CHOICE, &o->layout, "production|storage",
         "order of the tensors in memory", 0, 0},
        {"block-bytes", OPTION_TEXT, &o->block_bytes, "N|auto|one",
         "size of a communication block", 0, 0},
        {"network", OPTION_TEXT, &o->network, "FILE",
         "figures of weft bench network --json, for auto strategy and block size", 0, 0},
        {"overlap", OPTION_CHOICE, &o->overlap, "on|off",
         "communicate while computing; off is for comparison", 0, 0},
        {"eval-every", OPTION_SIZE, &o->eval_every, "N",
         "steps between evaluations; 0: only at the end", 0, 0},
        {"eval-batches", OPTION_SIZE, &o->eval_batches, "N",
         "global batches an evaluation; 0: all validation data", 0, 0},
        {"sample-every", OPTION_SIZE, &o->sample_every, "N",
         "steps between texts of 100 tokens in the log; 0: none", 0, 0},
        {"sample-prompt", OPTION_TEXT, &o->sample_prompt, "TEXT",
         "what these texts begin with; a new document when not given", 0, 0},
        {"save-every", OPTION_SIZE, &o->save_every, "N",
         "steps between checkpoints; 0: only at the end; every 10 minutes when not given",
         0, 0},
        {"save", OPTION_CHOICE, &o->save, "background|blocking",
         "write checkpoints while steps go on, from a copy in memory, or between them", 0,
         0},
        {"keep", OPTION_SIZE, &o->keep, "N", "checkpoints to keep", 0, 0},
        {"resume", OPTION_TEXT, &o->resume, "auto|PATH|none", "where to go on from", 0,
         0},
        {"time-limit", OPTION_TEXT, &o->time_limit, "TIME",
         "save and stop (exit code 4) before this much time is over: 23h50m", 0, 0},
        {"stall-limit", OPTION_TEXT, &o->stall_limit, "TIME",
         "end the job when a rank keeps the others waiting for so long; 0: never", 0, 0},
        {"check-sync", OPTION_SIZE, &o->check_sync, "N",
         "steps between comparisons of all ranks' weights; 0: off", 0, 0},
        {"log-every", OPTION_SIZE, &o->log_every, "N",
         "steps between log lines; 0: about 50 lines a run", 0, 0},
        {"trace", OPTION_SWITCH, &o->trace, NULL,
         "record tasks and messages, and write a timeline to RUN/trace at the end", 0, 0},
        {"trace-steps", OPTION_SIZE, &o->trace_steps, "N",
         "newest steps that the timeline keeps", 0, 0},
        {"tensorboard", OPTION_SWITCH, &o->tensorboard, NULL,
         "write event files for TensorBoard to RUN/tensorboard", 0, 0},
        {"prometheus", OPTION_TEXT, &o->prometheus, "FILE",
         "keep FILE up to date for the textfile collector of Prometheus", 0, 0},
        {"trace-data", OPTION_SWITCH, &o->trace_data, NULL,
         "log the first token of every row of every step", 0, 0},
        {"dry-run", OPTION_SWITCH, &o->dry_run, NULL,
         "check everything, print the plan, train nothing", 0, 0},
        {"quiet", OPTION_SWITCH, &o->quiet, NULL, "warnings and errors only", 0, 0},
        {"config", OPTION_TEXT, config, "FILE",
         "read options from FILE (key = value); the command line wins", 0, 0},
        {"help", OPTION_SWITCH, help, NULL, "this text", 0, 0},
        {0},
    };

    _Static_assert(sizeof rows / sizeof *rows <= MAX_OPTIONS, "table too small");
    memcpy(table, rows, sizeof rows);
}

static void print_help(const struct option_row *table)
{
    printf(
        "usage: weft train --data DIR --model SPEC|PATH --out RUN [options]\n"
        "       mpirun -n P weft train ...\n\n"
        "Trains a GPT-2 on token shards (weft tokenize makes them). Interrupted runs go "
        "on\nwhere their last checkpoint was when the same command is given again.\n\n"
        "example: mpirun -n 2 --bind-to none weft train --data tokens --model d4 "
        "--out runs/a\n"
        "example: weft train --data tokens --model L=4,H=4,C=192,T=128 --steps 1000 --lr "
        "3e-3 --out runs/b\n"
        "example: mpirun -n 8 weft train --config runs/a/config.ini --steps 5000 --out "
        "runs/a --trace\n\noptions:\n");
    options_print_help(table);
}

static enum status read_options(struct option_row *table, int argc, char **argv,
                                const char **config, const bool *help)
{
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    if (st == ST_OK && n_rest > 0)
        st = fail(ST_USAGE, "train: found '%s', needs options only", rest[0]);
    if (st != ST_OK || !*config || *help)
        return st;
    const char *path = *config;

    /* A file that names another is refused, not passed over for the command line's. */
    for (struct option_row *row = table; row->name; row++)
        row->on_command_line = row->on_command_line && row->value != config;
    st = options_read_file(table, path);
    if (st == ST_OK && (*config != path || *help))
        st = fail(ST_USAGE, "%s: found %s, which is for the command line only", path,
                  *help ? "help" : "config");
    return st;
}

enum status cmd_train(int argc, char **argv, int *exit_code)
{
    struct train_options o = {.resume = "auto",
                              .batch = 8,
                              .accum = 1,
                              .epochs = 1,
                              .lr = 6e-4,
                              .min_lr = NAN,
                              .warmup = OPTION_SIZE_UNSET,
                              .save_every = OPTION_SIZE_UNSET,
                              .weight_decay = 0.1,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .clip = 1,
                              .seed = 1,
                              .block_bytes = "auto",
                              .roots = 1,
                              .keep = 2,
                              .trace_steps = 4,

                              .stall_limit = "30m"};
    struct option_row table[MAX_OPTIONS];
    const char *config = NULL;
    bool help = false;
    struct comm *comm;
    enum status st;

    fill_table(table, &o, &config, &help);
    o.table = table;
    st = read_options(table, argc, argv, &config, &help);
    if (st == ST_OK && help) {
        print_help(table);
        return ST_OK;
    }
    /* Ranks meet before the first error is told, so that one of them tells it. */
    enum status started = comm_start(&comm);
    if (started != ST_OK)
        return started;
    log_set_quiet(o.quiet);
    gemm_init();
    st = comm_agree(comm, st);
    if (st == ST_OK)
        st = train_run(comm, &o);
    comm_stop(comm);
    *exit_code = status_exit_code(st);
    return ST_OK;
}
