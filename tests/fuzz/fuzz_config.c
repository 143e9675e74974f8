/* SPDX-License-Identifier: MIT */
/* A config.json, and the index of a sharded model, by a first byte that chooses. */
#include "fuzz.h"

#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[256];
    const char *path;

    if (size == 0)
        return 0;
    if (data[0] == '#') {
        (void)fuzz_file("config.json", FUZZ_CONFIG, sizeof FUZZ_CONFIG - 1);
        path = fuzz_file("model.safetensors.index.json", data + 1, size - 1);
    } else {
        path = fuzz_file("config.json", data, size);
    }
    size_t n = (size_t)(strrchr(path, '/') - path);
    memcpy(folder, path, n);
    folder[n] = 0;
    fuzz_model(folder);
    return 0;
}
