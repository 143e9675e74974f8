/* SPDX-License-Identifier: MIT */
/* A GGUF file: shape, weights and the tokenizer inside. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file("model.gguf", data, size);

    fuzz_model(path);
    fuzz_tokenizer(path);
    return 0;
}
