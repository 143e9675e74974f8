/* SPDX-License-Identifier: MIT */
/* weft convert: a model in another file format. */
#include <stdio.h>
#include <stdlib.h>

#include "base/files.h"
#include "base/log.h"
#include "base/options.h"
#include "checkpoint/checkpoint.h"
#include "cmd/cmd.h"

struct settings {
    const char *from, *out, *vocab;
    int to, dtype;
    bool head, help;
};

/* The tokenizer that goes with the model: as asked, or as found with it, or NULL. */
static enum status find_tokenizer(const struct settings *s, const struct model_file *f,
                                  struct tokenizer **out)
{
    *out = NULL;
    if (s->vocab)
        return tokenizer_new_gpt2(s->vocab, out);
    if (f->tokens_json[0])
        return tokenizer_load(f->tokens_json, out);
    return ST_OK;
}

static enum status convert(const struct settings *s)
{
    static const char *const words[MODEL_KINDS] = {"checkpoint", "llm.c model",
                                                   "Hugging Face folder", "GGUF file"};
    struct model_write_options o = {.dtype = (enum dtype)s->dtype, .head = s->head};
    struct tokenizer *tokenizer = NULL;
    struct model_file file;
    enum status st = model_open(s->from, &file);

    if (st == ST_OK)
        st = find_tokenizer(s, &file, &tokenizer);
    o.tokenizer = tokenizer;
    if (st == ST_OK)
        st = model_convert(&file, (enum model_kind)s->to, s->out, &o);
    if (st == ST_OK)
        log_info("%s: %s, %s, %.2f M parameters, from %s", s->out, words[s->to],
                 dtype_name(o.dtype), 1e-6 * (double)shape_parameters(&file.shape),
                 file.path);
    if (st == ST_OK && !tokenizer && s->to != MODEL_LLMC)
        log_warn("%s: found no tokenizer with the model, %s has none; --vocab names "
                 "GPT-2's table",
                 file.path, s->out);
    if (st == ST_OK && s->to == MODEL_LLMC && file.tokens_json[0])
        log_info(
            "llm.c's files have no tokenizer in them; weft looks for it beside them: "
            "copy %s there",
            file.tokens_json);
    tokenizer_free(tokenizer);
    return st;
}

enum status cmd_convert(int argc, char **argv, int *exit_code)
{
    struct settings s = {.to = -1};
    struct option_row table[] = {
        {"from", OPTION_TEXT, &s.from, "PATH",
         "model to read; its content tells the format", 0, 0},
        {"to", OPTION_CHOICE, &s.to, MODEL_KIND_WORDS, "format to write", 0, 0},
        {"out", OPTION_TEXT, &s.out, "PATH",
         "file (llmc, gguf) or folder (weft, safetensors) to write; must not exist", 0,
         0},
        {"dtype", OPTION_CHOICE, &s.dtype, DTYPE_WORDS, "type of the weights written", 0,
         0},
        {"vocab", OPTION_TEXT, &s.vocab, "PATH",
         "GPT-2's merge table (vocab.bpe), for a model that has no tokenizer with it", 0,
         0},
        {"head", OPTION_SWITCH, &s.head, NULL,
         "gguf: the token embedding once more as output.weight, which llama.cpp needed "
         "before March 2025",
         0, 0},
        {"help", OPTION_SWITCH, &s.help, NULL, "this text", 0, 0},
        {0},
    };
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    (void)exit_code;
    if (st != ST_OK)
        return st;
    if (s.help) {
        printf(
            "usage: weft convert --from PATH --to weft|llmc|safetensors|gguf --out "
            "PATH\n\n"
            "Writes a model in another format: a checkpoint, an llm.c model file, a "
            "Hugging Face\nfolder (config, tokenizer files, model.safetensors) or a "
            "GGUF file for llama.cpp.\nReads all of them, told by their content. "
            "Memory: the largest tensor.\n\n"
            "example: weft convert --from runs/a --to gguf --out a.gguf\n\noptions:\n");
        options_print_help(table);
        return ST_OK;
    }
    if (n_rest > 0)
        return fail(ST_USAGE, "convert: found '%s', needs options only", rest[0]);
    if (!s.from || !s.out || s.to < 0)
        return fail(ST_USAGE,
                    "convert: needs --from, --to and --out; see weft help convert");
    if (s.head && s.to != MODEL_GGUF)
        return fail(ST_USAGE, "--head: needs --to gguf");
    if (file_exists(s.out))
        return fail(ST_USAGE, "%s: is already there; needs a new name", s.out);
    return convert(&s);
}
