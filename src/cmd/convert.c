/* SPDX-License-Identifier: MIT */
/* weft convert: a model in another file format. */
#include <stdio.h>
#include <stdlib.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "checkpoint/checkpoint.h"
#include "cmd/cmd.h"

static enum status convert(const char *from, const char *out)
{
    struct model_file file;
    struct layout layout = {0};
    float *params = NULL;
    void *p;
    enum status st = model_open(from, &file);

    if (st != ST_OK)
        return st;
    file.shape.Vp = round_up(file.shape.V, VOCAB_PAD);
    st = layout_init(&layout, &file.shape, LAYOUT_STORAGE);
    if (st == ST_OK)
        st = memory_map(layout.elems * sizeof *params, "model", &p);
    if (st == ST_OK) {
        params = p;
        st = model_read(&file, &layout, params);
    }
    if (st == ST_OK)
        st = llmc_write(out, &layout, params);
    if (st == ST_OK)
        log_info("%s: llm.c model, %.2f M parameters, from %s", out,
                 1e-6 * (double)shape_parameters(&file.shape), file.path);
    memory_unmap(params, layout.elems * sizeof *params);
    layout_release(&layout);
    return st;
}

enum status cmd_convert(int argc, char **argv, int *exit_code)
{
    const char *from = NULL;
    const char *out = NULL;
    int to = 0;
    bool help = false;
    struct option_row table[] = {
        {"from", OPTION_TEXT, &from, "PATH", "run folder, checkpoint or llm.c model file",
         0, 0},
        {"to", OPTION_CHOICE, &to, "llmc", "format to write", 0, 0},
        {"out", OPTION_TEXT, &out, "PATH", "file to write; must not exist", 0, 0},
        {"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
        {0},
    };
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    (void)exit_code;
    if (st != ST_OK)
        return st;
    if (help) {
        printf(
            "usage: weft convert --from PATH --to llmc --out PATH\n\n"
            "Writes the weights of a model as an llm.c model file (version 3, fp32).\n\n"
            "example: weft convert --from runs/a --to llmc --out "
            "model.bin\n\noptions:\n");
        options_print_help(table);
        return ST_OK;
    }
    if (n_rest > 0)
        return fail(ST_USAGE, "convert: found '%s', needs options only", rest[0]);
    if (!from || !out)
        return fail(ST_USAGE, "convert: needs --from and --out; see weft help convert");
    if (file_exists(out))
        return fail(ST_USAGE, "%s: is already there; needs a new name", out);
    return convert(from, out);
}
