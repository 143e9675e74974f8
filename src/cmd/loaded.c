/* SPDX-License-Identifier: MIT */
#include "cmd/loaded.h"

#include "base/memory.h"

enum status loaded_open(struct loaded *l, const char *path)
{
    enum status st = model_open(path, &l->file);

    if (st == ST_OK)
        st = kernels_select(NULL, &l->kernels);
    l->file.shape.Vp = round_up(l->file.shape.V, VOCAB_PAD);
    return st;
}

enum status loaded_read(struct loaded *l)
{
    void *memory;
    enum status st = layout_init(&l->layout, &l->file.shape, LAYOUT_STORAGE);

    if (st == ST_OK)
        st = memory_map(l->layout.elems * sizeof *l->params, "model", &memory);
    if (st != ST_OK)
        return st;
    l->params = memory;
    return model_read(&l->file, &l->layout, l->params);
}

void loaded_release(struct loaded *l)
{
    memory_unmap(l->params, l->layout.elems * sizeof *l->params);
    layout_release(&l->layout);
}

enum status loaded_tokenizer(const struct loaded *l, const char *vocab,
                             struct tokenizer **out)
{
    size_t V = l->file.shape.V;
    enum status st;

    if (vocab) {
        st = tokenizer_new_gpt2(vocab, out);
        if (st != ST_OK || tokenizer_vocab(*out) <= V)
            return st;
        return fail(ST_USAGE,
                    "--vocab %s: found %u ids, the vocabulary of %s has %zu; was it "
                    "trained with this tokenizer?",
                    vocab, tokenizer_vocab(*out), l->file.path, V);
    }
    if (l->file.tokens_json[0])
        return tokenizer_load(l->file.tokens_json, out);
    return fail(
        ST_USAGE,
        "%s: found no tokens.json beside the model, needs one from its tokens, or "
        "for GPT-2's tokenizer --vocab vocab.bpe",
        l->file.path);
}
