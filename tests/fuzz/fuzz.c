/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "data/tokenizer.h"

enum { MOST_FILES = 8, SMALL_ELEMS = 1 << 20 };

static char folder[] = "/dev/shm/weft-fuzz-XXXXXX";
static struct {
    char name[64];
    char path[128];
    int fd;
} files[MOST_FILES];

static void remove_folder(void)
{
    if (folder_remove(folder) != ST_OK)
        (void)fprintf(stderr, "%s is left\n", folder);
}

const char *fuzz_file(const char *name, const void *data, size_t size)
{
    int i = 0;

    if (!files[0].name[0]) {
        require(mkdtemp(folder));
        (void)atexit(remove_folder);
    }
    while (files[i].name[0] && strcmp(files[i].name, name) != 0)
        require(++i < MOST_FILES);
    if (!files[i].name[0]) {
        (void)snprintf(files[i].name, sizeof files[i].name, "%s", name);
        (void)snprintf(files[i].path, sizeof files[i].path, "%s/%s", folder, name);
        files[i].fd = open(files[i].path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        require(files[i].fd >= 0);
    }
    require(ftruncate(files[i].fd, 0) == 0);
    require(fd_write_at(files[i].fd, name, data, size, 0) == ST_OK);
    return files[i].path;
}

void fuzz_tokenizer(const char *path)
{
    static const char text[] =
        "The  end's \xc3\xa9\xff 12\n\n!!! aaaaaaaaaaaa<|endoftext|>";
    struct tokenizer *t;
    struct token_list list = {0};
    size_t at = 0;

    if (tokenizer_load(path, &t) != ST_OK)
        return;
    if (tokenizer_encode(t, text, sizeof text - 1, &list) == ST_OK) {
        for (size_t i = 0; i < list.count; i++) {
            size_t n;
            const char *bytes = tokenizer_bytes(t, list.ids[i], &n);

            require(n <= sizeof text - 1 - at && !memcmp(bytes, text + at, n));
            at += n;
        }
        require(at == sizeof text - 1);
    }
    token_list_release(&list);
    tokenizer_free(t);
}

void fuzz_model(const char *path)
{
    struct model_numbers numbers;
    struct model_file f;
    struct layout layout;
    float *params;

    if (model_open(path, &f) != ST_OK)
        return;
    if (f.tokens_json[0])
        fuzz_tokenizer(f.tokens_json);
    if (shape_parameters(&f.shape) > SMALL_ELEMS ||
        f.shape.Vp * f.shape.C > SMALL_ELEMS ||
        layout_init(&layout, &f.shape, LAYOUT_PRODUCTION) != ST_OK)
        return;
    require(memory_alloc(layout.elems, sizeof *params, "model", &params) == ST_OK);
    enum status st = model_read(&f, &layout, params);
    require((model_check_numbers(&f, &numbers) == ST_OK) == (st == ST_OK));
    free(params);
    layout_release(&layout);
}
