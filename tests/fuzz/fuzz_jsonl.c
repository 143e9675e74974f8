/* SPDX-License-Identifier: MIT */
/* Lines of a .jsonl file. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cmd/jsonl.h"
#include "data/tokenizer_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = (const char *)data, *end = line + size;

    for (uint64_t n = 1; line < end; n++) {
        const char *eol = memchr(line, '\n', (size_t)(end - line));
        const char *stop = eol ? eol : end;
        char *text;
        size_t bytes;

        if (jsonl_text("x.jsonl", n, line, (size_t)(stop - line), "text", &text,
                       &bytes) == ST_OK) {
            require((bytes == 0) == (text == NULL));
            require(bytes <= (size_t)(stop - line));
            require(utf8_run(text ? text : "", bytes) == bytes);
            free(text);
        }
        line = stop + (eol ? 1 : 0);
    }
    return 0;
}
