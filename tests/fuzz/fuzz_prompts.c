/* SPDX-License-Identifier: MIT */
/* A list of prompts: lines of a text, and of a .jsonl file. */
#include "fuzz.h"

#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "cmd/prompts.h"
#include "data/tokenizer_private.h"

static void read_list(const char *path)
{
    struct prompts p = {0};

    if (prompts_read_list(&p, path) == ST_OK)
        require(p.count > 0);
    for (size_t i = 0; i < p.count; i++) {
        json_t *json = utf8_json_bytes(p.prompts[i].text, p.prompts[i].bytes);
        const char *text = json_string_value(json);

        require(p.prompts[i].text[p.prompts[i].bytes] == 0);
        require(text && utf8_run(text, strlen(text)) == json_string_length(json));
        json_decref(json);
    }
    prompts_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_list(fuzz_file("prompts.txt", data, size));
    read_list(fuzz_file("prompts.jsonl", data, size));
    return 0;
}
