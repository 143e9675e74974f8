/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Bytes that a first byte announces, and the range of the second one: tighter after a few
 * first bytes, which keeps out overlong forms, surrogates and what is above U+10FFFF. */
static size_t announced(unsigned char first, unsigned char *least, unsigned char *most)
{
    *least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Like utf8_character; `whole` false: the bytes go on well as far as they go. */
static size_t character(const char *text, size_t n, bool *whole)
{
    unsigned char least, most;
    size_t length = announced((unsigned char)text[0], &least, &most);

    for (size_t i = 1; i < min_size(n, length); i++) {
        unsigned char byte = (unsigned char)text[i];

        if (byte < least || byte > most)
            return 0;
        least = 0x80;
        most = 0xbf;
    }
    *whole = length <= n;
    return length;
}

size_t utf8_character(const char *text, size_t n)
{
    bool whole = false;
    size_t length = character(text, n, &whole);

    return whole ? length : 0;
}

size_t utf8_unfinished(const char *text, size_t n)
{
    for (size_t back = 1; back <= min_size(n, 3); back++) {
        bool whole = false;

        if (character(text + n - back, back, &whole) > 0)
            return whole ? 0 : back;
    }
    return 0;
}

json_t *utf8_json_bytes(const char *text, size_t n)
{
    static const char replacement[] = "\xef\xbf\xbd";
    const size_t longest = sizeof replacement - 1;
    char *out = malloc(longest * n + 1);
    json_t *string = NULL;
    size_t used = 0;

    for (size_t at = 0; out && at < n;) {
        size_t length = text[at] ? utf8_character(text + at, n - at) : 0;

        memcpy(out + used, length ? text + at : replacement, length ? length : longest);
        used += length ? length : longest;
        at += length ? length : 1;
    }
    if (out)
        string = json_stringn(out, used);
    free(out);
    return string;
}

json_t *utf8_json(const char *text)
{
    return utf8_json_bytes(text, strlen(text));
}
