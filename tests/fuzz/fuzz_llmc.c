/* SPDX-License-Identifier: MIT */
/* An llm.c model file. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_model(fuzz_file("model.bin", data, size));
    return 0;
}
