/* SPDX-License-Identifier: MIT */
/* trainer_sample.c - what the model writes, in the log now and then.
 *
 * Nothing here may end a run: a failure is a warning, and the texts are left out. */
#include "engine/trainer_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "engine/generation.h"

enum { SAMPLE_TOKENS = 100, SHOWN_BYTES = 1500 }; /* a line of the log has 2048 */

struct samples {
    struct tokenizer *tokenizer;
    struct decoder *decoder;
    struct token_list prompt;
    char shown[SHOWN_BYTES + 8];
    size_t n_shown;
};

/* Adds text as one line shows it: control characters and what is no UTF-8 escaped. */
static void show(void *arg, const char *bytes, size_t n)
{
    struct samples *s = arg;

    for (size_t at = 0; at < n && s->n_shown < SHOWN_BYTES;) {
        unsigned char c = (unsigned char)bytes[at];
        size_t length = utf8_character(bytes + at, n - at);
        char *to = s->shown + s->n_shown;

        if (c == '\n') {
            s->n_shown += (size_t)snprintf(to, 8, "\\n");
        } else if (length == 0 || c < ' ' || c == 0x7f) {
            s->n_shown += (size_t)snprintf(to, 8, "\\x%02x", c);
        } else {
            memcpy(to, bytes + at, length);
            s->n_shown += length;
        }
        at += length ? length : 1;
    }
}

size_t train_sample_bytes(const struct shape *s, size_t seq, int workers)
{
    return decoder_bytes(s, 1, seq, workers) + sample_work_bytes(s->V);
}

static enum status open_samples(struct trainer *t, struct samples *s)
{
    const char *prompt = t->options->sample_prompt ? t->options->sample_prompt : "";
    struct decoder_options d = {.layout = engine_layout(t->engine),
                                .params = engine_params(t->engine),
                                .kernels = t->eo.kernels,
                                .sequences = 1,
                                .room = t->eo.seq,
                                .workers = t->eo.workers};
    enum status st;

    if (!t->meta.path[0])
        return fail(ST_USAGE, "%s: found no tokens.json beside the data",
                    t->options->data);
    st = tokenizer_load(t->meta.path, &s->tokenizer);
    if (st == ST_OK)
        st = generation_prompt(s->tokenizer, prompt, strlen(prompt), t->eo.shape.V,
                               &s->prompt);
    return st == ST_OK ? decoder_new(&d, &s->decoder) : st;
}

void trainer_samples_open(struct trainer *t)
{
    enum status st;

    if (comm_rank(t->comm) != 0 || t->options->sample_every == 0 || t->options->quiet ||
        t->no_texts)
        return;
    st = memory_alloc(1, sizeof *t->samples, "samples", &t->samples);
    if (st == ST_OK)
        st = open_samples(t, t->samples);
    if (st == ST_OK)
        return;
    log_warn("--sample-every: no texts in this run: %s", fail_text());
    trainer_samples_close(t);
}

void trainer_samples_close(struct trainer *t)
{
    struct samples *s = t->samples;

    if (!s)
        return;
    decoder_free(s->decoder);
    tokenizer_free(s->tokenizer);
    token_list_release(&s->prompt);
    free(s);
    t->samples = NULL;
}

static enum status write_text(struct trainer *t, struct samples *s)
{
    struct generation text = {.stream = t->state.step, .sink = show, .arg = s};
    struct generation_options o = {.tokenizer = s->tokenizer,
                                   .sample = {.temperature = 0.8, .top_p = 0.95},
                                   .repetition_penalty = 1,
                                   .max_tokens = SAMPLE_TOKENS,
                                   .seed = t->options->seed};
    struct generation_stats stats;
    size_t n = s->prompt.count;
    enum status st = fault_status("sample", "a text");

    if (st == ST_OK)
        st = memory_alloc(n, sizeof *text.tokens.ids, "sample", &text.tokens.ids);
    if (st != ST_OK)
        return st;
    memcpy(text.tokens.ids, s->prompt.ids, n * sizeof *text.tokens.ids);
    text.tokens.count = text.tokens.capacity = n;
    s->n_shown = 0;
    if (t->options->sample_prompt)
        show(s, t->options->sample_prompt, strlen(t->options->sample_prompt));
    st = generation_run(s->decoder, &o, &text, 1, &stats);
    token_list_release(&text.tokens);
    return st;
}

void trainer_sample(struct trainer *t)
{
    struct samples *s = t->samples;

    engine_flush(t->engine);
    if (!s)
        return;
    if (write_text(t, s) != ST_OK)
        log_warn("step %" PRIu64 "  no sample: %s", t->state.step, fail_text());
    else
        log_info("step %" PRIu64 "  sample: %.*s", t->state.step, (int)s->n_shown,
                 s->shown);
}
