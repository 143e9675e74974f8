/* utf8.h - characters of UTF-8 (Unicode 15.0, table 3-7), and texts that need not be
 * UTF-8 as strings of JSON, which have to be. */
#ifndef WEFT_BASE_UTF8_H
#define WEFT_BASE_UTF8_H

#include <jansson.h>
#include <stddef.h>

/* How many bytes at the end of text[0..n) begin a well-formed UTF-8 character without
 * completing it: 0 to 3. Pure. */
size_t utf8_unfinished(const char *text, size_t n);

/* Bytes of the well-formed UTF-8 character that text[0..n) begins with, 1 to 4; 0 when
 * it begins with none. n >= 1. Pure. */
size_t utf8_character(const char *text, size_t n);

/* The text as a JSON string: bytes that are not UTF-8, and 0 bytes, become U+FFFD. NULL:
 * no memory. */
json_t *utf8_json_bytes(const char *text, size_t n);
/* The same of a C string: a file's name may be anything. */
json_t *utf8_json(const char *text);

#endif
