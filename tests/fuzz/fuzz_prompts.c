/* SPDX-License-Identifier: MIT */
/* A list of prompts: lines of a text, and of a .jsonl file. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cmd/prompts.h"
#include "data/tokenizer_private.h"

static void read_list(const char *path)
{
    struct prompts p = {0};

    if (prompts_read_list(&p, path) == ST_OK)
        require(p.count > 0);
    for (size_t i = 0; i < p.count; i++) {
        char *json = prompts_json_text(p.prompts[i].text, p.prompts[i].bytes);

        require(p.prompts[i].text[p.prompts[i].bytes] == 0);
        require(json && utf8_run(json, strlen(json)) == strlen(json));
        free(json);
    }
    prompts_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_list(fuzz_file("prompts.txt", data, size));
    read_list(fuzz_file("prompts.jsonl", data, size));
    return 0;
}
