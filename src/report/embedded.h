/* embedded.h - files of this folder, compiled in by cmake/embed.cmake. */
#ifndef WEFT_REPORT_EMBEDDED_H
#define WEFT_REPORT_EMBEDDED_H

#include <stddef.h>

extern const unsigned char embedded_page_css[];
extern const size_t embedded_page_css_bytes;
extern const unsigned char embedded_page_js[];
extern const size_t embedded_page_js_bytes;

#endif
