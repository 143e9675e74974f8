/* SPDX-License-Identifier: MIT */
/* weft generate: text from a model. The whole context is computed anew for each token. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "cmd/cmd.h"
#include "comm/comm.h"
#include "data/tokenizer.h"
#include "engine/engine.h"
#include "engine/sample.h"

enum { MOST_WORKERS = 4096 };

struct generate_options {
    const char *model, *prompt, *prompt_file, *vocab;
    size_t max_tokens, seed, threads;
    double temperature, top_p;
    size_t top_k;
    bool stream, help;
};

struct generator {
    struct generate_options o;
    struct model_file file;
    struct tokenizer *tokenizer;
    struct token_list tokens; /* prompt and what follows */
    struct engine *engine;
    float *logits;
    void *work;
    char held[4]; /* bytes of an unfinished UTF-8 character, in --stream */
    size_t n_held;
    enum status st;
    bool told; /* st was agreed on, and said */
};

static enum status make_tokenizer(struct generator *g)
{
    if (g->o.vocab) {
        enum status st = tokenizer_new_gpt2(g->o.vocab, &g->tokenizer);

        if (st != ST_OK || tokenizer_vocab(g->tokenizer) <= g->file.shape.V)
            return st;
        return fail(ST_USAGE,
                    "--vocab %s: found %u ids, the vocabulary of %s has %zu; was it "
                    "trained with this tokenizer?",
                    g->o.vocab, tokenizer_vocab(g->tokenizer), g->file.path,
                    g->file.shape.V);
    }
    if (g->file.tokens_json[0])
        return tokenizer_load(g->file.tokens_json, &g->tokenizer);
    return fail(ST_USAGE,
                "%s: found no tokens.json beside the model, needs --vocab "
                "vocab.bpe",
                g->file.path);
}

static enum status append(struct generator *g, uint32_t id)
{
    struct token_list *l = &g->tokens;

    if (l->count == l->capacity) {
        size_t capacity = 2 * l->capacity + 64;
        uint32_t *ids = realloc(l->ids, capacity * sizeof *ids);

        if (!ids)
            return fail(ST_NOMEM, "generate: no memory for %zu tokens", capacity);
        l->ids = ids;
        l->capacity = capacity;
    }
    l->ids[l->count++] = id;
    return ST_OK;
}

/* Without a prompt a document begins: after end-of-text, or a line break, or where the
 * vocabulary has neither with its first character. */
static enum status begin_document(struct generator *g)
{
    int32_t end_of_text = tokenizer_end_of_text(g->tokenizer);
    enum status st = ST_FORMAT;

    if (end_of_text < 0)
        st = tokenizer_encode(g->tokenizer, "\n", 1, &g->tokens);
    if (st != ST_FORMAT)
        return st;
    g->tokens.count = 0;
    return append(g, end_of_text < 0 ? 0 : (uint32_t)end_of_text);
}

static enum status read_prompt(struct generator *g)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status st = ST_OK;

    if (g->o.prompt && g->o.prompt_file)
        return fail(ST_USAGE, "--prompt and --prompt-file: needs one of them");
    if (g->o.prompt_file)
        st = file_read_all(g->o.prompt_file, &text, &bytes);
    if (st == ST_OK)
        st = tokenizer_encode(g->tokenizer,
                              text          ? text
                              : g->o.prompt ? g->o.prompt
                                            : "",
                              text ? bytes : strlen(g->o.prompt ? g->o.prompt : ""),
                              &g->tokens);
    free(text);
    return st == ST_OK && g->tokens.count == 0 ? begin_document(g) : st;
}

static enum status check_ids(const struct generator *g)
{
    for (size_t i = 0; i < g->tokens.count; i++)
        if (g->tokens.ids[i] >= g->file.shape.V)
            return fail(ST_USAGE,
                        "prompt: found token id %u, the model's vocabulary has "
                        "%zu; was it trained with this tokenizer?",
                        g->tokens.ids[i], g->file.shape.V);
    return ST_OK;
}

/* Bytes that the first byte of a UTF-8 character announces; 1 for anything else. */
static size_t utf8_length(unsigned char first)
{
    if (first >= 0xf0 && first < 0xf8)
        return 4;
    if (first >= 0xe0)
        return first < 0xf0 ? 3 : 1;
    return first >= 0xc2 ? 2 : 1;
}

/* Prints bytes, holding back a character that is not yet whole. */
static void print_streaming(struct generator *g, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool continues = ((unsigned char)bytes[i] & 0xc0) == 0x80;

        if (!continues && g->n_held) { /* the held one will never be whole */
            fwrite(g->held, 1, g->n_held, stdout);
            g->n_held = 0;
        }
        g->held[g->n_held++] = bytes[i];
        if (g->n_held >= utf8_length((unsigned char)g->held[0])) {
            fwrite(g->held, 1, g->n_held, stdout);
            g->n_held = 0;
        }
    }
    fflush(stdout);
}

static void print_token(struct generator *g, uint32_t id)
{
    size_t n;
    const char *bytes = tokenizer_bytes(g->tokenizer, id, &n);

    if (g->o.stream)
        print_streaming(g, bytes, n);
    else
        fwrite(bytes, 1, n, stdout);
}

static enum status next_token(struct generator *g, uint64_t n, int32_t *token)
{
    size_t T = g->file.shape.T;
    size_t length = min_size(T, g->tokens.count);
    const uint32_t *last = g->tokens.ids + (g->tokens.count - length);
    struct sample_options so = {g->o.temperature, g->o.top_k, g->o.top_p};
    size_t known = min_size(g->file.shape.V, tokenizer_vocab(g->tokenizer));

    /* Ids are below 2^31 (checked), so they are the same as int32_t. */
    engine_logits(g->engine, (const int32_t *)last, length, g->logits);
    return sample_token(&so, g->logits, known, rng_uniform(g->o.seed, 0, n), g->work,
                        token);
}

static void generate(void *arg)
{
    struct generator *g = arg;
    int32_t stop = tokenizer_end_of_text(g->tokenizer);

    for (size_t i = 0; i < g->tokens.count; i++)
        print_token(g, g->tokens.ids[i]);
    for (size_t n = 0; n < g->o.max_tokens && g->st == ST_OK; n++) {
        int32_t token;

        g->st = next_token(g, n, &token);
        if (g->st != ST_OK || token == stop)
            break;
        g->st = append(g, (uint32_t)token);
        if (g->st == ST_OK)
            print_token(g, (uint32_t)token);
    }
    fwrite(g->held, 1, g->n_held, stdout);
    putchar('\n');
    if ((fflush(stdout) != 0 || ferror(stdout)) && g->st == ST_OK)
        g->st = fail(ST_IO, "standard output: cannot write: %s", strerror(errno));
}

static enum status load(struct generator *g, struct comm *comm)
{
    struct engine_options eo = {.shape = g->file.shape,
                                .batch = 1,
                                .seq = g->file.shape.T,
                                .accum = 1,
                                .workers = (int)g->o.threads,
                                .block_bytes = (size_t)1 << 20};
    enum status st = kernels_select(NULL, &eo.kernels);

    eo.shape.Vp = round_up(eo.shape.V, VOCAB_PAD);
    if (st == ST_OK)
        st = engine_new(comm, &eo, &g->engine);
    g->told = st != ST_OK;
    if (st == ST_OK)
        st = model_read(&g->file, engine_layout(g->engine), engine_params(g->engine));
    if (st == ST_OK)
        st = memory_alloc(g->file.shape.V, sizeof(float), "logits", &g->logits);
    if (st == ST_OK)
        st = memory_alloc(1, sample_work_bytes(g->file.shape.V), "logits", &g->work);
    return st;
}

static enum status run(struct generator *g, struct comm *comm)
{
    enum status st;

    if (!g->o.model)
        return fail(ST_USAGE, "generate: needs --model; see weft help generate");
    if (g->o.temperature < 0 || !(g->o.top_p > 0) || g->o.top_p > 1 || g->o.threads < 1 ||
        g->o.threads > MOST_WORKERS)
        return fail(ST_USAGE,
                    "--temperature %g --top-p %g --threads %zu: needs temperature "
                    ">= 0, 0 < top-p <= 1, threads 1 to %d",
                    g->o.temperature, g->o.top_p, g->o.threads, MOST_WORKERS);
    st = model_open(g->o.model, &g->file);
    if (st == ST_OK)
        st = make_tokenizer(g);
    if (st == ST_OK)
        st = read_prompt(g);
    if (st == ST_OK)
        st = check_ids(g);
    if (st == ST_OK)
        st = load(g, comm);
    if (st != ST_OK)
        return st;
    engine_run(g->engine, generate, g);
    return g->st;
}

static void print_help(const struct option_row *table)
{
    printf("usage: weft generate --model PATH [--prompt TEXT] [options]\n\n"
           "Continues a text with a model: a run folder, a checkpoint or an llm.c model "
           "file.\nThe text goes to standard output.\n\n"
           "example: weft generate --model runs/a --prompt 'In the beginning' "
           "--max-tokens 100\n\noptions:\n");
    options_print_help(table);
}

enum status cmd_generate(int argc, char **argv, int *exit_code)
{
    struct generator g = {
        .o = {.max_tokens = 200, .seed = 1, .threads = 1, .temperature = 1, .top_p = 1}};
    struct generate_options *o = &g.o;
    struct option_row table[] = {
        {"model", OPTION_TEXT, &o->model, "PATH", "run folder, checkpoint or llm.c file",
         0, 0},
        {"prompt", OPTION_TEXT, &o->prompt, "TEXT", "text to continue", 0, 0},
        {"prompt-file", OPTION_TEXT, &o->prompt_file, "FILE", "text to continue", 0, 0},
        {"max-tokens", OPTION_SIZE, &o->max_tokens, "N", "tokens to add", 0, 0},
        {"temperature", OPTION_NUMBER, &o->temperature, "X", "0: always the most likely",
         0, 0},
        {"top-k", OPTION_SIZE, &o->top_k, "K", "draw from the K most likely; 0: all", 0,
         0},
        {"top-p", OPTION_NUMBER, &o->top_p, "P", "draw from the most likely that make P",
         0, 0},
        {"seed", OPTION_SIZE, &o->seed, "N", "of the draws", 0, 0},
        {"stream", OPTION_SWITCH, &o->stream, NULL, "print each token as it comes", 0, 0},
        {"threads", OPTION_SIZE, &o->threads, "N", "worker threads", 0, 0},
        {"vocab", OPTION_TEXT, &o->vocab, "FILE",
         "GPT-2's vocab.bpe, for a model without tokens.json", 0, 0},
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
    gemm_init();
    if (st == ST_OK && comm_size(comm) > 1)
        st = fail(ST_USAGE, "generate: found %d ranks, runs on one", comm_size(comm));
    if (st == ST_OK)
        st = run(&g, comm);
    if (!g.told)
        st = comm_agree(comm, st);
    engine_free(g.engine);
    tokenizer_free(g.tokenizer);
    token_list_release(&g.tokens);
    free(g.logits);
    free(g.work);
    comm_stop(comm);
    *exit_code = status_exit_code(st);
    return ST_OK;
}
