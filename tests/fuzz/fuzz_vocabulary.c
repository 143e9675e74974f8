/* SPDX-License-Identifier: MIT */
/* A file of JSON that holds a vocabulary: tokens.json, nanoGPT's meta.json, and Hugging
 * Face's vocab.json beside a small table of merges. */
#include "fuzz.h"

#include "data/shards.h"

static const char merges[] = "#version: 0.2\na b\nab c\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shards_meta meta;

    (void)fuzz_file("merges.txt", merges, sizeof merges - 1);
    fuzz_tokenizer(fuzz_file("vocab.json", data, size));
    if (shards_read_meta(fuzz_file("tokens.json", data, size), &meta) == ST_OK)
        fuzz_tokenizer(meta.path);
    return 0;
}
