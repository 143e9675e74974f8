/* SPDX-License-Identifier: MIT */
#include "engine/generation.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"

/* A sequence of the cache and the text that has it. */
struct slot {
    struct generation *text; /* NULL: free */
    struct text_out out;
    size_t begin; /* first token of the context, in the text's tokens */
    size_t fed;   /* tokens of the context that the cache holds */
    void *work;   /* for sampling */
    int32_t token;
    enum status st; /* of sampling it */
};

struct run {
    struct decoder *d;
    const struct generation_options *o;
    struct slot *slots;
    size_t n_slots;
    struct decode_row rows[DECODE_ROWS];
    size_t n_rows;
    struct slot *outputs[DECODE_ROWS]; /* the i-th row with output is of this slot */
    size_t n_outputs;
    bool prompt;  /* the pass has rows beside each text's newest token */
    size_t known; /* ids that may be drawn */
};

static enum status append(struct token_list *l, uint32_t id)
{
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

static enum status begin_document(const struct tokenizer *t, struct token_list *out)
{
    int32_t end_of_text = tokenizer_end_of_text(t);
    enum status st = ST_FORMAT;

    if (end_of_text < 0)
        st = tokenizer_encode(t, "\n", 1, out);
    if (st != ST_FORMAT)
        return st;
    out->count = 0;
    return append(out, end_of_text < 0 ? 0 : (uint32_t)end_of_text);
}

enum status generation_prompt(const struct tokenizer *t, const char *text, size_t bytes,
                              size_t V, struct token_list *out)
{
    enum status st = ST_OK;

    if (bytes > 0)
        st = tokenizer_encode(t, text, bytes, out);
    if (st == ST_OK && out->count == 0)
        st = begin_document(t, out);
    for (size_t i = 0; st == ST_OK && i < out->count; i++)
        if (out->ids[i] >= V)
            st = fail(ST_USAGE,
                      "prompt: found token id %u, the model's vocabulary has %zu; was it "
                      "trained with this tokenizer?",
                      out->ids[i], V);
    return st;
}

static void begin_text(struct slot *s, struct generation *text, size_t T)
{
    s->text = text;
    s->fed = 0;
    s->begin = text->tokens.count > T ? text->tokens.count - T : 0;
}

static void end_text(struct slot *s, enum generation_end end)
{
    text_out_end(&s->out, s->text->sink, s->text->arg);
    s->text->end = end;
    s->text->done = true;
    if (s->text->finished)
        s->text->finished(s->text->arg);
    s->text = NULL;
}

static size_t unfed(const struct slot *s)
{
    return s->text->tokens.count - s->begin - s->fed;
}

/* Rows of the next tokens of a text, as far as the pass has room. */
static void feed(struct run *r, struct slot *s)
{
    size_t n = min_size(unfed(s), DECODE_ROWS - r->n_rows);
    bool last = n > 0 && n == unfed(s);

    for (size_t i = 0; i < n; i++, s->fed++)
        r->rows[r->n_rows++] =
            (struct decode_row){.sequence = (size_t)(s - r->slots),
                                .position = s->fed,
                                .token = (int32_t)s->text->tokens.ids[s->begin + s->fed],
                                .output = last && i + 1 == n};
    if (last)
        r->outputs[r->n_outputs++] = s;
    r->prompt = r->prompt || n > 1 || (n == 1 && !last);
}

/* Texts that need one token first: none of them waits for another's prompt. */
static void fill_pass(struct run *r, size_t T)
{
    r->n_rows = 0;
    r->n_outputs = 0;
    r->prompt = false;
    for (size_t i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slots[i];

        if (s->text && s->fed == T) {
            s->begin = s->text->tokens.count - max_size(1, T / 2);
            s->fed = 0;
        }
        if (s->text && unfed(s) == 1)
            feed(r, s);
    }
    for (size_t i = 0; i < r->n_slots; i++)
        if (r->slots[i].text && unfed(&r->slots[i]) > 0)
            feed(r, &r->slots[i]);
}

static void sample(void *arg, size_t i, float *logits)
{
    const struct run *r = arg;
    const struct generation_options *o = r->o;
    struct slot *s = r->outputs[i];
    const struct token_list *l = &s->text->tokens;

    if (o->repetition_penalty > 1 || o->repetition_penalty < 1)
        sample_penalize(logits, r->known, l->ids, l->count, o->repetition_penalty,
                        s->work);
    s->st = sample_token(&o->sample, logits, r->known,
                         rng_uniform(o->seed, s->text->stream, s->text->new_tokens),
                         s->work, &s->token);
}

/* Takes the token that was drawn for a text. */
static enum status take(const struct run *r, struct slot *s)
{
    const struct generation_options *o = r->o;
    struct generation *text = s->text;
    bool stopped;
    size_t n;

    if (s->st != ST_OK)
        return fail(s->st, "logits: none of %zu is a finite number", r->known);
    if (s->token == tokenizer_end_of_text(o->tokenizer)) {
        end_text(s, GENERATION_END_OF_TEXT);
        return ST_OK;
    }
    const char *bytes = tokenizer_bytes(o->tokenizer, (uint32_t)s->token, &n);
    enum status st = append(&text->tokens, (uint32_t)s->token);

    if (st == ST_OK)
        st = text_out_add(&s->out, bytes, n, o->stops, o->n_stops, text->sink, text->arg,
                          &stopped);
    if (st != ST_OK)
        return st;
    text->new_tokens++;
    if (stopped)
        end_text(s, GENERATION_STOP);
    else if (text->new_tokens == o->max_tokens)
        end_text(s, GENERATION_LENGTH);
    return ST_OK;
}

static enum status pass(struct run *r, struct generation_stats *stats)
{
    double start = clock_s();
    enum status st = ST_OK;

    fill_pass(r, decoder_room(r->d));
    decoder_pass(r->d, r->rows, r->n_rows, sample, r);
    for (size_t i = 0; i < r->n_outputs && st == ST_OK; i++)
        st = take(r, r->outputs[i]);
    *(r->prompt ? &stats->prompt_s : &stats->new_s) += clock_s() - start;
    if (r->prompt)
        stats->prompt_tokens += r->n_rows;
    else
        stats->next_tokens += r->n_outputs;
    stats->new_tokens += r->n_outputs;
    return st;
}

/* Gives free sequences to the next texts; false when no text is left. */
static bool seat_texts(struct run *r, struct generation *texts, size_t n, size_t *next)
{
    bool any = false;

    for (size_t i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slots[i];

        for (; !s->text && *next < n; (*next)++) {
            texts[*next].new_tokens = 0;
            begin_text(s, &texts[*next], decoder_room(r->d));
            if (r->o->max_tokens == 0)
                end_text(s, GENERATION_LENGTH);
        }
        any = any || s->text;
    }
    return any;
}

enum status generation_run(struct decoder *d, const struct generation_options *o,
                           struct generation *texts, size_t n,
                           struct generation_stats *stats)
{
    size_t V = decoder_shape(d)->V;
    struct run r = {.d = d,
                    .o = o,
                    .n_slots = min_size(n, decoder_sequences(d)),
                    .known = min_size(V, tokenizer_vocab(o->tokenizer))};
    enum status st = memory_alloc(r.n_slots, sizeof *r.slots, "texts", &r.slots);
    size_t next = 0;

    *stats = (struct generation_stats){0};
    for (size_t i = 0; st == ST_OK && i < r.n_slots; i++)
        st = memory_alloc(1, sample_work_bytes(V), "sampling", &r.slots[i].work);
    while (st == ST_OK && seat_texts(&r, texts, n, &next))
        st = pass(&r, stats);
    for (size_t i = 0; r.slots && i < r.n_slots; i++) {
        text_out_release(&r.slots[i].out);
        free(r.slots[i].work);
    }
    free(r.slots);
    return st;
}
