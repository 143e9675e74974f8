/* SPDX-License-Identifier: MIT */
/* A file of tokens: an llm.c shard, or by its name one of nanoGPT. */
#include "fuzz.h"

#include <stdlib.h>

#include "base/memory.h"
#include "data/shards.h"

static void read_all(const char *path, size_t T)
{
    struct shards *s;
    int32_t x[8], y[8];
    uint64_t hash;

    if (shards_open(path, NULL, 50257, &s) != ST_OK)
        return;
    for (uint64_t w = 0; w < shards_windows(s, T, NULL); w++) {
        if (shards_window(s, T, w, x, y) != ST_OK)
            continue;
        for (size_t i = 0; i < T; i++)
            require(x[i] >= 0 && x[i] < 50257 && y[i] >= 0 && y[i] < 50257);
        for (size_t i = 1; i < T; i++)
            require(x[i] == y[i - 1]);
    }
    require(shards_hash(s, &hash) == ST_OK && shards_sample_hash(s, &hash) == ST_OK);
    shards_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_all(fuzz_file("x_train_000001.bin", data, size), 1);
    read_all(fuzz_file("train.bin", data, size), 8);
    return 0;
}
