/* SPDX-License-Identifier: MIT */
/* weft generate: texts continued by a model. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/loaded.h"
#include "cmd/prompts.h"
#include "comm/comm.h"
#include "engine/cores.h"
#include "engine/generation.h"
#include "task/task.h"

struct generate_options {
    const char *model, *prompt, *prompt_file, *prompts, *vocab;
    size_t max_tokens, seed, threads, batch;
    double temperature, top_p, repetition_penalty;
    size_t top_k;
    struct option_texts stop;
    bool stream, json, quiet, help;
};

struct generator;

/* What has come of one text. */
struct output {
    struct generator *g;
    char *text; /* what follows the prompt */
    size_t n, capacity;
};

struct generator {
    struct generate_options o;
    struct loaded model;
    struct tokenizer *tokenizer;
    struct prompts prompts;
    struct generation *texts; /* [prompts.count], as the outputs */
    struct output *outputs;
    size_t printed; /* the first so many */
    struct decoder *decoder;
    int workers;
    struct generation_stats stats;
    enum status st;
};

static enum status fail_stdout(void)
{
    return fail(ST_IO, "standard output: cannot write: %s", strerror(errno));
}

/* ---- what is printed ---- */

static const char *end_name(enum generation_end end)
{
    static const char *const names[] = {"length", "end_of_text", "stop"};

    return names[end];
}

static enum status print_json(const struct prompt *p, const struct output *out,
                              const struct generation *text)
{
    json_t *object = json_pack(
        "{s:o, s:o, s:I, s:I, s:s}", "prompt", utf8_json_bytes(p->text, p->bytes), "text",
        utf8_json_bytes(out->text, out->n), "prompt_tokens",
        (json_int_t)(text->tokens.count - text->new_tokens), "tokens",
        (json_int_t)text->new_tokens, "end", end_name(text->end));
    int rc = object ? json_dumpf(object, stdout, JSON_COMPACT) : -1;

    json_decref(object);
    if (rc != 0)
        return object ? fail_stdout() : fail(ST_NOMEM, "generate: no memory");
    putchar('\n');
    return ST_OK;
}

static enum status print_text(struct generator *g, size_t i)
{
    const struct prompt *p = &g->prompts.prompts[i];
    const struct output *out = &g->outputs[i];

    if (g->o.json)
        return print_json(p, out, &g->texts[i]);
    if (i > 0)
        fputs("---\n", stdout);
    fwrite(p->text, 1, p->bytes, stdout);
    if (out->n > 0)
        fwrite(out->text, 1, out->n, stdout);
    putchar('\n');
    return ST_OK;
}

/* Texts are printed in the order of their prompts, each as soon as it can be. */
static void finished(void *arg)
{
    struct generator *g = ((struct output *)arg)->g;

    if (g->o.stream)
        return;
    for (; g->st == ST_OK && g->printed < g->prompts.count && g->texts[g->printed].done;
         g->printed++)
        g->st = print_text(g, g->printed);
    fflush(stdout);
}

static void keep(void *arg, const char *bytes, size_t n)
{
    struct output *out = arg;

    if (out->n + n > out->capacity) {
        size_t capacity = 2 * (out->n + n) + 256;
        char *text = realloc(out->text, capacity);

        if (!text) {
            out->g->st = fail(ST_NOMEM, "generate: no memory for %zu bytes", capacity);
            return;
        }
        out->text = text;
        out->capacity = capacity;
    }
    memcpy(out->text + out->n, bytes, n);
    out->n += n;
}

static void print_now(void *arg, const char *bytes, size_t n)
{
    (void)arg;
    fwrite(bytes, 1, n, stdout);
    fflush(stdout);
}

/* ---- the work ---- */

static void generate(void *arg)
{
    struct generator *g = arg;
    const struct generate_options *o = &g->o;
    struct generation_options go = {.tokenizer = g->tokenizer,
                                    .sample = {o->temperature, o->top_k, o->top_p},
                                    .repetition_penalty = o->repetition_penalty,
                                    .max_tokens = o->max_tokens,
                                    .seed = o->seed,
                                    .stops = o->stop.texts,
                                    .n_stops = o->stop.n};
    enum status st;

    if (o->stream)
        print_now(NULL, g->prompts.prompts[0].text, g->prompts.prompts[0].bytes);
    st = generation_run(g->decoder, &go, g->texts, g->prompts.count, &g->stats);
    if (o->stream)
        putchar('\n');
    if (st != ST_OK)
        g->st = st;
    if ((fflush(stdout) != 0 || ferror(stdout)) && g->st == ST_OK)
        g->st = fail_stdout();
}

static enum status encode_prompts(struct generator *g, size_t *longest)
{
    size_t n = g->prompts.count;
    enum status st = memory_alloc(n, sizeof *g->texts, "texts", &g->texts);

    if (st == ST_OK)
        st = memory_alloc(n, sizeof *g->outputs, "texts", &g->outputs);
    *longest = 0;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        struct generation *text = &g->texts[i];

        g->outputs[i].g = g;
        *text = (struct generation){.stream = i,
                                    .sink = g->o.stream ? print_now : keep,
                                    .finished = finished,
                                    .arg = &g->outputs[i]};
        st = generation_prompt(g->tokenizer, g->prompts.prompts[i].text,
                               g->prompts.prompts[i].bytes, g->model.file.shape.V,
                               &text->tokens);
        *longest = max_size(*longest, text->tokens.count);
    }
    return st;
}

static enum status make_decoder(struct generator *g, size_t longest)
{
    size_t T = g->model.file.shape.T;
    struct decoder_options d = {
        .layout = &g->model.layout,
        .params = g->model.params,
        .kernels = g->model.kernels,
        .sequences = min_size(g->o.batch, g->prompts.count),
        .room = g->o.max_tokens < T ? min_size(T, longest + g->o.max_tokens) : T,
        .workers = g->workers};

    return decoder_new(&d, &g->decoder);
}

static void tell_speed(const struct generator *g)
{
    const struct generation_stats *s = &g->stats;

    log_info("read %zu tokens in %.2f s, %.1f tokens/s; wrote %zu tokens in %.2f s, "
             "%.1f tokens/s (%d thread%s)",
             s->prompt_tokens, s->prompt_s,
             s->prompt_s > 0 ? (double)s->prompt_tokens / s->prompt_s : 0, s->new_tokens,
             s->new_s, s->new_s > 0 ? (double)s->next_tokens / s->new_s : 0, g->workers,
             g->workers == 1 ? "" : "s");
}

static enum status check(const struct generate_options *o)
{
    int sources = !!o->prompt + !!o->prompt_file + !!o->prompts;

    if (!o->model)
        return fail(ST_USAGE, "generate: needs --model; see weft help generate");
    if (o->temperature < 0)
        return fail(ST_USAGE, "--temperature: found %g, needs 0 or more", o->temperature);
    if (!(o->top_p > 0) || o->top_p > 1)
        return fail(ST_USAGE, "--top-p: found %g, needs more than 0, 1 at most",
                    o->top_p);
    if (!(o->repetition_penalty > 0))
        return fail(ST_USAGE, "--repetition-penalty: found %g, needs more than 0",
                    o->repetition_penalty);
    if (o->threads > MOST_WORKERS)
        return fail(ST_USAGE, "--threads: found %zu, needs at most %d", o->threads,
                    MOST_WORKERS);
    if (o->batch < 1)
        return fail(ST_USAGE, "--batch: found 0, needs at least 1");
    if (sources > 1)
        return fail(ST_USAGE, "--%s: found --%s too, needs one of them",
                    o->prompt ? "prompt" : "prompt-file",
                    o->prompt && o->prompt_file ? "prompt-file" : "prompts");
    if (o->stream && (o->prompts || o->json))
        return fail(ST_USAGE, "--stream: found --%s, needs one prompt and plain text",
                    o->prompts ? "prompts" : "json");
    for (size_t i = 0; i < o->stop.n; i++)
        if (!o->stop.texts[i][0])
            return fail(ST_USAGE, "--stop: found an empty text, needs one byte at least");
    return ST_OK;
}

static enum status read_prompts(struct generator *g)
{
    const struct generate_options *o = &g->o;

    if (o->prompts)
        return prompts_read_list(&g->prompts, o->prompts);
    if (o->prompt_file)
        return prompts_read_one(&g->prompts, o->prompt_file);
    return prompts_add(&g->prompts, o->prompt ? o->prompt : "",
                       o->prompt ? strlen(o->prompt) : 0);
}

static enum status run(struct generator *g, struct comm *comm)
{
    size_t longest;
    enum status st = check(&g->o);

    if (st == ST_OK)
        st = loaded_open(&g->model, g->o.model);
    if (st == ST_OK)
        st = loaded_tokenizer(&g->model, g->o.vocab, &g->tokenizer);
    if (st == ST_OK)
        st = read_prompts(g);
    if (st == ST_OK)
        st = encode_prompts(g, &longest);
    if (st == ST_OK)
        st = loaded_read(&g->model);
    if (st != ST_OK)
        return st;
    g->workers = cores_workers(comm, g->o.threads, NULL);
    st = make_decoder(g, longest);
    if (st != ST_OK)
        return st;
    task_run(g->workers, generate, g);
    if (g->st == ST_OK)
        tell_speed(g);
    return g->st;
}

static void release(struct generator *g)
{
    for (size_t i = 0; g->outputs && i < g->prompts.count; i++) {
        token_list_release(&g->texts[i].tokens);
        free(g->outputs[i].text);
    }
    free(g->texts);
    free(g->outputs);
    decoder_free(g->decoder);
    tokenizer_free(g->tokenizer);
    prompts_release(&g->prompts);
    loaded_release(&g->model);
}

static void print_help(const struct option_row *table)
{
    printf(
        "usage: weft generate --model PATH [--prompt TEXT] [options]\n\n"
        "Continues texts with a model: a run folder, a checkpoint or a model file. The\n"
        "texts go to standard output, in the order of their prompts, with a line '---'\n"
        "between two of them; the speed goes to standard error. A text longer than the\n"
        "model's context goes on from its newer half: docs/EVALUATION.md.\n\n"
        "example: weft generate --model runs/a --prompt 'In the beginning' "
        "--max-tokens 100\n"
        "example: weft generate --model runs/a --prompt-file start.txt --temperature 0.7 "
        "--top-p 0.9 --stream\n\noptions:\n");
    options_print_help(table);
}

enum status cmd_generate(int argc, char **argv, int *exit_code)
{
    struct generator g = {.o = {.max_tokens = 200,
                                .seed = 1,
                                .batch = 8,
                                .temperature = 1,
                                .top_p = 1,
                                .repetition_penalty = 1}};
    struct generate_options *o = &g.o;
    struct option_row table[] = {
        {"model", OPTION_TEXT, &o->model, "PATH", "run folder, checkpoint or model file",
         0, 0},
        {"prompt", OPTION_TEXT, &o->prompt, "TEXT", "text to continue", 0, 0},
        {"prompt-file", OPTION_TEXT, &o->prompt_file, "FILE", "text to continue", 0, 0},
        {"prompts", OPTION_TEXT, &o->prompts, "FILE",
         "a prompt a line; of NAME.jsonl the \"prompt\" of the object on each", 0, 0},
        {"batch", OPTION_SIZE, &o->batch, "N", "texts computed side by side, at most", 0,
         0},
        {"max-tokens", OPTION_SIZE, &o->max_tokens, "N", "tokens to add", 0, 0},
        {"stop", OPTION_TEXTS, &o->stop, "TEXT",
         "end before this text; may be given more than once", 0, 0},
        {"temperature", OPTION_NUMBER, &o->temperature, "X", "0: always the most likely",
         0, 0},
        {"top-k", OPTION_SIZE, &o->top_k, "K", "draw from the K most likely; 0: all", 0,
         0},
        {"top-p", OPTION_NUMBER, &o->top_p, "P", "draw from the most likely that make P",
         0, 0},
        {"repetition-penalty", OPTION_NUMBER, &o->repetition_penalty, "X",
         "above 1: tokens the text has already become less likely", 0, 0},
        {"seed", OPTION_SIZE, &o->seed, "N", "of the draws", 0, 0},
        {"stream", OPTION_SWITCH, &o->stream, NULL, "print each character as it comes", 0,
         0},
        {"json", OPTION_SWITCH, &o->json, NULL,
         "a line of JSON a text: prompt, text, prompt_tokens, tokens, end", 0, 0},
        {"threads", OPTION_SIZE, &o->threads, "N", "worker threads; 0: all cores", 0, 0},
        {"vocab", OPTION_TEXT, &o->vocab, "FILE",
         "GPT-2's vocab.bpe, for a model without tokens.json", 0, 0},
        {"quiet", OPTION_SWITCH, &o->quiet, NULL, "warnings and errors only", 0, 0},
        {"help", OPTION_SWITCH, &o->help, NULL, "this text", 0, 0},
        {0},
    };
    struct comm *comm;
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    if (st == ST_OK && n_rest > 0)
        st = fail(ST_USAGE, "generate: found '%s', needs options only", rest[0]);
    if (st == ST_OK && o->help) {
        print_help(table);
        return ST_OK;
    }
    /* Ranks meet before the first error is told, so that one of them tells it. */
    enum status started = comm_start(&comm);
    if (started != ST_OK)
        return started;
    log_set_quiet(o->quiet);
    if (st == ST_OK && comm_size(comm) > 1)
        st = fail(ST_USAGE, "generate: found %d ranks, runs on one", comm_size(comm));
    if (st == ST_OK)
        st = run(&g, comm);
    st = comm_agree(comm, st);
    release(&g);
    comm_stop(comm);
    *exit_code = status_exit_code(st);
    return ST_OK;
}
