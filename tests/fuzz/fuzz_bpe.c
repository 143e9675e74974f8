/* SPDX-License-Identifier: MIT */
/* A table of merges and a text, parted by the first zero byte: what is encoded with an
 * accepted table must decode to the text, and both ways to merge a piece must agree. */
#include "fuzz.h"

#include <string.h>

#include "base/memory.h"
#include "data/tokenizer_private.h"

static void merge_both_ways(const struct tokenizer *t, const char *text, size_t bytes)
{
    uint32_t a[BPE_SHORT], b[BPE_SHORT];
    size_t n = min_size(bytes, BPE_SHORT), m = n;
    struct bpe_scratch *s;

    for (size_t i = 0; i < n; i++)
        a[i] = b[i] = bpe_byte_id(t->bpe, (unsigned char)text[i]);
    if (n == 0 || bpe_scratch_new(t->bpe, &s) != ST_OK)
        return;
    bpe_merge_short(t->bpe, a, &n);
    require(bpe_merge_long(t->bpe, s, b, &m) == ST_OK);
    require(n == m && !memcmp(a, b, n * sizeof *a));
    bpe_scratch_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t table = zero ? (size_t)(zero - data) : size, at = 0;
    const char *text = (const char *)data + table + (zero ? 1 : 0);
    size_t bytes = size - table - (zero ? 1 : 0);
    struct token_list list = {0};
    struct tokenizer *t;

    if (tokenizer_new_merges(fuzz_file("vocab.bpe", data, table), 0, &t) != ST_OK)
        return 0;
    merge_both_ways(t, text, bytes);
    require(tokenizer_encode(t, text, bytes, &list) == ST_OK);
    for (size_t i = 0; i < list.count; i++) {
        size_t n;
        const char *found = tokenizer_bytes(t, list.ids[i], &n);

        require(n <= bytes - at && !memcmp(found, text + at, n));
        at += n;
    }
    require(at == bytes);
    token_list_release(&list);
    tokenizer_free(t);
    return 0;
}
