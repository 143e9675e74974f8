/* SPDX-License-Identifier: MIT */
/* weft eval: how well a model predicts a text, and which of several endings it prefers.
 *
 * Contexts and questions are dealt to the ranks in turn. Each one's result is a number
 * that no other depends on; they are added in their own order on every rank. So what is
 * printed is the same, to the last bit, for any number of ranks, batch and threads. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/progress.h"
#include "base/utf8.h"
#include "cmd/choices.h"
#include "cmd/cmd.h"
#include "cmd/eval_data.h"
#include "comm/comm.h"
#include "engine/cores.h"
#include "engine/score.h"
#include "task/task.h"

struct eval_options {
    const char *model, *data, *multiple_choice, *vocab;
    size_t batch, seq, stride, threads;
    bool json, quiet, help;
};

struct evaluation {
    struct eval_options o;
    struct comm *comm;
    struct loaded model;
    struct eval_data data;
    struct choices choices;
    struct decoder *decoder;
    size_t T, stride;
    int workers;
    struct progress bar;
    int32_t *tokens; /* [batch][T + 1] */
    struct score *scores;
    size_t n_scores;
    uint64_t *indices; /* [batch] of what is scored */

    uint64_t contexts;
    double *losses; /* [contexts] this rank's, else 0 */
    double predicted, loss, seconds;
    double right, right_normalised; /* examples */
    size_t cut;                     /* examples whose context lost its beginning */
    enum status st;
};

/* ---- loss ---- */

static struct score_windows windows_of(const struct evaluation *e, size_t stream)
{
    return (struct score_windows){eval_data_tokens(&e->data, stream), e->T, e->stride};
}

static void count_contexts(struct evaluation *e)
{
    for (size_t i = 0; i < e->data.streams; i++) {
        struct score_windows w = windows_of(e, i);

        e->contexts += score_windows_count(&w);
        if (w.tokens > 0)
            e->predicted += (double)(w.tokens - 1);
    }
}

/* Reads context `index` of all for the next free sequence. */
static void add_context(struct evaluation *e, uint64_t index)
{
    size_t sequence = e->n_scores;
    int32_t *tokens = e->tokens + sequence * (e->T + 1);
    struct score *s = &e->scores[sequence];
    uint64_t k = index;
    uint64_t begin;
    size_t stream = 0;
    struct score_windows w = windows_of(e, stream);

    while (k >= score_windows_count(&w)) {
        k -= score_windows_count(&w);
        w = windows_of(e, ++stream);
    }
    *s = (struct score){.sequence = sequence, .tokens = tokens};
    score_window(&w, k, &begin, &s->n, &s->first);
    e->st = eval_data_read(&e->data, stream, begin, s->n, tokens);
    e->indices[e->n_scores++] = index;
}

static void score_contexts(struct evaluation *e)
{
    score_all(e->decoder, e->scores, e->n_scores);
    for (size_t i = 0; i < e->n_scores; i++)
        e->losses[e->indices[i]] = e->scores[i].loss;
    e->n_scores = 0;
}

static void measure_loss(void *arg)
{
    struct evaluation *e = arg;
    uint64_t P = (uint64_t)comm_size(e->comm);
    double start = clock_s();

    progress_begin(&e->bar, "eval", "contexts", (double)e->contexts,
                   comm_rank(e->comm) == 0 && !e->o.quiet);
    for (uint64_t k = (uint64_t)comm_rank(e->comm); k < e->contexts && e->st == ST_OK;
         k += P) {
        add_context(e, k);
        if (e->st == ST_OK && (e->n_scores == e->o.batch || k + P >= e->contexts)) {
            score_contexts(e);
            progress_update(&e->bar, (double)(k + 1), NULL);
        }
    }
    progress_end(&e->bar, (double)e->contexts);
    e->seconds = clock_s() - start;
}

/* COLLECTIVE, agreed. */
static enum status evaluate_data(struct evaluation *e)
{
    enum status st;

    count_contexts(e);
    st = memory_alloc(e->contexts, sizeof *e->losses, "losses", &e->losses);
    st = comm_agree(e->comm, st);
    if (st != ST_OK)
        return st;
    task_run(e->workers, measure_loss, e);
    st = comm_agree(e->comm, e->st);
    if (st != ST_OK)
        return st;
    comm_sum(e->comm, e->losses, e->contexts);
    for (uint64_t k = 0; k < e->contexts; k++)
        e->loss += e->losses[k];
    e->loss /= e->predicted;
    comm_max(e->comm, &e->seconds, 1);
    if (!isfinite(e->loss))
        st = fail(ST_NUMERIC, "%s: loss %g: not a finite number", e->o.model, e->loss);
    return comm_agree(e->comm, st);
}

/* ---- multiple choice ---- */

static size_t longest_ending(const struct choice_example *x)
{
    size_t longest = 0;

    for (size_t i = 0; i < x->n_endings; i++)
        longest = max_size(longest, x->endings[i].n);
    return longest;
}

/* How much of its context an example has beside its longest ending. */
static size_t context_left(const struct evaluation *e, const struct choice_example *x)
{
    size_t longest = longest_ending(x);

    return longest > e->T ? 0 : min_size(x->context.n, e->T + 1 - longest);
}

static enum status check_lengths(struct evaluation *e)
{
    for (size_t i = 0; i < e->choices.count; i++) {
        const struct choice_example *x = &e->choices.examples[i];

        if (context_left(e, x) == 0)
            return fail(ST_FORMAT,
                        "%s: example %zu: found an ending of %zu tokens, needs "
                        "at most the model's %zu",
                        e->o.multiple_choice, i + 1, longest_ending(x), e->T);
        e->cut += context_left(e, x) < x->context.n;
    }
    return ST_OK;
}

/* The ending of one example: the first leaves the context in the cache for the others. */
static void add_ending(struct evaluation *e, size_t sequence, uint64_t example, size_t k)
{
    const struct choice_example *x = &e->choices.examples[example];
    const uint32_t *ids = e->choices.tokens.ids;
    int32_t *tokens = e->tokens + sequence * (e->T + 1);
    size_t context = context_left(e, x);
    size_t from = x->context.begin + x->context.n - context;

    for (size_t i = 0; i < context; i++)
        tokens[i] = (int32_t)ids[from + i];
    for (size_t i = 0; i < x->endings[k].n; i++)
        tokens[context + i] = (int32_t)ids[x->endings[k].begin + i];
    e->scores[e->n_scores++] = (struct score){.sequence = sequence,
                                              .tokens = tokens,
                                              .n = context + x->endings[k].n,
                                              .first = context,
                                              .cached = k == 0 ? 0 : context - 1};
}

static size_t smallest(const double *values, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (values[i] < values[best])
            best = i;
    return best;
}

static void judge(struct evaluation *e, uint64_t example, const double *losses)
{
    const struct choice_example *x = &e->choices.examples[example];
    double means[CHOICES_MOST];

    for (size_t k = 0; k < x->n_endings; k++) {
        means[k] = losses[k] / (double)x->endings[k].n;
        if (!isfinite(losses[k]))
            e->st = fail(ST_NUMERIC, "%s: example %zu: loss %g: not a finite number",
                         e->o.multiple_choice, (size_t)example + 1, losses[k]);
    }
    e->right += smallest(losses, x->n_endings) == x->label;
    e->right_normalised += smallest(means, x->n_endings) == x->label;
}

/* Examples indices[0..n), side by side. */
static void score_examples(struct evaluation *e, size_t n, double (*losses)[CHOICES_MOST])
{
    for (size_t k = 0; k < CHOICES_MOST; k++) {
        e->n_scores = 0;
        for (size_t i = 0; i < n; i++)
            if (k < e->choices.examples[e->indices[i]].n_endings)
                add_ending(e, i, e->indices[i], k);
        score_all(e->decoder, e->scores, e->n_scores);
        for (size_t i = 0; i < e->n_scores; i++)
            losses[e->scores[i].sequence][k] = e->scores[i].loss;
    }
    for (size_t i = 0; i < n; i++)
        judge(e, e->indices[i], losses[i]);
}

static void choose(void *arg)
{
    struct evaluation *e = arg;
    uint64_t P = (uint64_t)comm_size(e->comm);
    uint64_t count = e->choices.count;
    double(*losses)[CHOICES_MOST];
    size_t n = 0;

    e->st = memory_alloc(e->o.batch, sizeof *losses, "losses", &losses);
    progress_begin(&e->bar, "eval", "questions", (double)count,
                   comm_rank(e->comm) == 0 && !e->o.quiet);
    for (uint64_t k = (uint64_t)comm_rank(e->comm); k < count && e->st == ST_OK; k += P) {
        e->indices[n++] = k;
        if (n == e->o.batch || k + P >= count) {
            score_examples(e, n, losses);
            n = 0;
            progress_update(&e->bar, (double)(k + 1), NULL);
        }
    }
    progress_end(&e->bar, (double)count);
    free(losses);
}

/* COLLECTIVE, agreed. */
static enum status evaluate_choices(struct evaluation *e)
{
    double sums[2];
    enum status st;

    task_run(e->workers, choose, e);
    st = comm_agree(e->comm, e->st);
    sums[0] = e->right;
    sums[1] = e->right_normalised;
    comm_sum(e->comm, sums, 2);
    e->right = sums[0] / (double)e->choices.count;
    e->right_normalised = sums[1] / (double)e->choices.count;
    return st;
}

/* ---- results ---- */

static json_t *json_results(const struct evaluation *e)
{
    json_t *root = json_pack("{s:o}", "model", utf8_json(e->model.file.path));

    if (e->o.data)
        (void)json_object_set_new(
            root, "data",
            json_pack("{s:o, s:I, s:I, s:I, s:f, s:f, s:f}", "path", utf8_json(e->o.data),
                      "tokens", (json_int_t)e->predicted, "context", (json_int_t)e->T,
                      "stride", (json_int_t)e->stride, "loss", e->loss, "perplexity",
                      exp(e->loss), "tokens_per_s", e->predicted / e->seconds));
    if (e->o.multiple_choice)
        (void)json_object_set_new(root, "multiple_choice",
                                  json_pack("{s:o, s:I, s:I, s:f, s:f}", "path",
                                            utf8_json(e->o.multiple_choice), "examples",
                                            (json_int_t)e->choices.count, "contexts_cut",
                                            (json_int_t)e->cut, "accuracy", e->right,
                                            "accuracy_normalised", e->right_normalised));
    return root;
}

static enum status print_json(const struct evaluation *e)
{
    json_t *root = json_results(e);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(12));

    json_decref(root);
    if (!text)
        return fail(ST_NOMEM, "eval: no memory");
    printf("%s\n", text);
    free(text);
    return ST_OK;
}

static void print_table(const struct evaluation *e)
{
    printf("%-22s %s\n", "model", e->model.file.path);
    if (e->o.data)
        printf("%-22s %s\n%-22s %.0f, context %zu, stride %zu\n%-22s %.9f\n%-22s %.9g\n"
               "%-22s %.0f\n",
               "data", e->o.data, "tokens predicted", e->predicted, e->T, e->stride,
               "loss", e->loss, "perplexity", exp(e->loss), "tokens/s",
               e->predicted / e->seconds);
    if (e->o.multiple_choice)
        printf("%-22s %s\n%-22s %zu, contexts cut %zu\n%-22s %.6f\n%-22s %.6f\n",
               "questions", e->o.multiple_choice, "examples", e->choices.count, e->cut,
               "accuracy", e->right, "normalised accuracy", e->right_normalised);
}

/* ---- the run ---- */

static enum status check(const struct eval_options *o)
{
    if (!o->model)
        return fail(ST_USAGE, "eval: needs --model; see weft help eval");
    if (!o->data && !o->multiple_choice)
        return fail(ST_USAGE,
                    "eval: needs --data or --multiple-choice; see weft help eval");
    if (o->batch < 1)
        return fail(ST_USAGE, "--batch: found 0, needs at least 1");
    if (o->threads > MOST_WORKERS)
        return fail(ST_USAGE, "--threads: found %zu, needs at most %d", o->threads,
                    MOST_WORKERS);
    return ST_OK;
}

static enum status find_context(struct evaluation *e)
{
    size_t most = e->model.file.shape.T;

    e->T = e->o.seq ? e->o.seq : most;
    e->stride = e->o.stride ? e->o.stride : e->T;
    if (e->T > most)
        return fail(ST_USAGE, "--seq: found %zu, needs at most the model's T=%zu", e->T,
                    most);
    if (e->stride > e->T)
        return fail(ST_USAGE, "--stride: found %zu, needs at most the context's %zu",
                    e->stride, e->T);
    return ST_OK;
}

static enum status open_all(struct evaluation *e)
{
    const struct eval_options *o = &e->o;
    enum status st = check(o);

    if (st == ST_OK)
        st = loaded_open(&e->model, o->model);
    if (st == ST_OK)
        st = find_context(e);
    if (st == ST_OK && o->data)
        st = eval_data_open(&e->data, o->data, &e->model, o->vocab);
    if (st == ST_OK && o->multiple_choice)
        st = choices_read(&e->choices, o->multiple_choice, &e->model, o->vocab);
    return st == ST_OK && o->multiple_choice ? check_lengths(e) : st;
}

static enum status make_decoder(struct evaluation *e)
{
    struct decoder_options d = {.layout = &e->model.layout,
                                .params = e->model.params,
                                .kernels = e->model.kernels,
                                .sequences = e->o.batch,
                                .room = e->T,
                                .workers = e->workers};

    return decoder_new(&d, &e->decoder);
}

static enum status allocate(struct evaluation *e)
{
    enum status st = loaded_read(&e->model);

    if (st == ST_OK)
        st = make_decoder(e);
    if (st == ST_OK)
        st = memory_alloc(e->o.batch * (e->T + 1), sizeof *e->tokens, "tokens",
                          &e->tokens);
    if (st == ST_OK)
        st = memory_alloc(e->o.batch, sizeof *e->scores, "contexts", &e->scores);
    if (st == ST_OK)
        st = memory_alloc(e->o.batch, sizeof *e->indices, "contexts", &e->indices);
    return st;
}

/* COLLECTIVE, agreed. */
static enum status run(struct evaluation *e, enum status st)
{
    st = comm_agree(e->comm, st == ST_OK ? open_all(e) : st);
    if (st != ST_OK)
        return st;
    e->workers = cores_workers(e->comm, e->o.threads, NULL);
    st = comm_agree(e->comm, allocate(e));
    if (st == ST_OK && e->o.data)
        st = evaluate_data(e);
    if (st == ST_OK && e->o.multiple_choice)
        st = evaluate_choices(e);
    if (st != ST_OK)
        return st;
    if (comm_rank(e->comm) == 0 && e->o.json)
        st = print_json(e);
    else if (comm_rank(e->comm) == 0)
        print_table(e);
    return comm_agree(e->comm, st);
}

static void release(struct evaluation *e)
{
    decoder_free(e->decoder);
    eval_data_release(&e->data);
    choices_release(&e->choices);
    loaded_release(&e->model);
    free(e->tokens);
    free(e->scores);
    free(e->indices);
    free(e->losses);
}

static void print_help(const struct option_row *table)
{
    printf(
        "usage: weft eval --model PATH --data GLOB [--multiple-choice FILE] [options]\n"
        "       mpirun -n P weft eval ...\n\n"
        "Loss (nats a token) and perplexity of token shards or a text file, every token\n"
        "but a file's first predicted exactly once; accuracy on multiple-choice "
        "questions\n"
        "in HellaSwag's format, as JSON lines or as llm.c's file. The numbers are the\n"
        "same for any number of ranks, threads and batch: docs/EVALUATION.md.\n\n"
        "example: weft eval --model runs/a --data tokens\n\noptions:\n");
    options_print_help(table);
}

enum status cmd_eval(int argc, char **argv, int *exit_code)
{
    struct evaluation e = {.o = {.batch = 8}};
    struct eval_options *o = &e.o;
    struct option_row table[] = {
        {"model", OPTION_TEXT, &o->model, "PATH", "run folder, checkpoint or model file",
         0, 0},
        {"data", OPTION_TEXT, &o->data, "DIR|GLOB|FILE",
         "token shards (of a folder those for validation), or a text file", 0, 0},
        {"multiple-choice", OPTION_TEXT, &o->multiple_choice, "FILE",
         "questions: HellaSwag's JSON lines, or llm.c's file", 0, 0},
        {"seq", OPTION_SIZE, &o->seq, "N", "tokens a context; 0: the model's T", 0, 0},
        {"stride", OPTION_SIZE, &o->stride, "N",
         "tokens between two contexts; 0: they do not overlap", 0, 0},
        {"batch", OPTION_SIZE, &o->batch, "N",
         "contexts a rank computes side by side; does not change the numbers", 0, 0},
        {"threads", OPTION_SIZE, &o->threads, "N",
         "workers a rank; 0: this rank's share of the cores", 0, 0},
        {"vocab", OPTION_TEXT, &o->vocab, "FILE",
         "GPT-2's vocab.bpe, for texts and a model without tokens.json", 0, 0},
        {"json", OPTION_SWITCH, &o->json, NULL, "one JSON object instead of the table", 0,
         0},
        {"quiet", OPTION_SWITCH, &o->quiet, NULL, "warnings and errors only", 0, 0},
        {"help", OPTION_SWITCH, &o->help, NULL, "this text", 0, 0},
        {0},
    };
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    if (st == ST_OK && n_rest > 0)
        st = fail(ST_USAGE, "eval: found '%s', needs options only", rest[0]);
    if (st == ST_OK && o->help) {
        print_help(table);
        return ST_OK;
    }
    /* Ranks meet before the first error is told, so that one of them tells it. */
    enum status started = comm_start(&e.comm);
    if (started != ST_OK)
        return started;
    log_set_quiet(o->quiet);
    st = run(&e, st);
    release(&e);
    comm_stop(e.comm);
    *exit_code = status_exit_code(st);
    return ST_OK;
}
