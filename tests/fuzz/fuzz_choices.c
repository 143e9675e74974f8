/* SPDX-License-Identifier: MIT */
/* A file of multiple-choice questions: of llm.c by its first word, else JSON lines. */
#include "fuzz.h"

#include <stdio.h>

#include "base/memory.h"
#include "cmd/choices.h"

static const char tokens[] = "{\"format\":\"weft-tokens\",\"version\":1,"
                             "\"kind\":\"bytes\",\"vocab\":257}";

static void check_text(const struct choices *c, const struct choice_text *t, size_t V)
{
    require(t->n > 0 && t->begin <= c->tokens.count &&
            t->n <= c->tokens.count - t->begin);
    for (size_t i = 0; i < t->n; i++)
        require(c->tokens.ids[t->begin + i] < V);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct loaded model = {.file.shape.V = 257};
    struct choices c = {0};

    (void)snprintf(model.file.tokens_json, sizeof model.file.tokens_json, "%s",
                   fuzz_file("tokens.json", tokens, sizeof tokens - 1));
    if (choices_read(&c, fuzz_file("questions", data, size), &model, NULL) == ST_OK) {
        require(c.count > 0);
        for (size_t i = 0; i < c.count; i++) {
            const struct choice_example *e = &c.examples[i];

            require(e->n_endings >= 2 && e->n_endings <= CHOICES_MOST &&
                    e->label < e->n_endings);
            check_text(&c, &e->context, model.file.shape.V);
            for (size_t k = 0; k < e->n_endings; k++)
                check_text(&c, &e->endings[k], model.file.shape.V);
        }
    }
    choices_release(&c);
    return 0;
}
