/* SPDX-License-Identifier: MIT */
/* A safetensors file beside a right config.json. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)fuzz_file("config.json", FUZZ_CONFIG, sizeof FUZZ_CONFIG - 1);
    fuzz_model(fuzz_file("model.safetensors", data, size));
    return 0;
}
