/* SPDX-License-Identifier: MIT */
#include "model/shape.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { GPT2_VOCAB = 50257, GPT2_CONTEXT = 1024, HEAD_WIDTH = 64 };

static const struct {
    const char *name;
    size_t L, H, C;
} known[] = {{"gpt2", 12, 12, 768},
             {"gpt2-medium", 24, 16, 1024},
             {"gpt2-large", 36, 20, 1280},
             {"gpt2-xl", 48, 25, 1600}};

static int find_known(const char *spec)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(spec, known[i].name))
            return (int)i;
    return -1;
}

static size_t parse_depth(const char *spec)
{
    char *end;

    if (spec[0] != 'd' || !isdigit((unsigned char)spec[1]))
        return 0;
    unsigned long depth = strtoul(spec + 1, &end, 10);
    return *end == 0 && depth <= 1000 ? (size_t)depth : 0;
}

int shape_is_spec(const char *spec)
{
    return find_known(spec) >= 0 || parse_depth(spec) > 0 ||
           (strchr(spec, '=') && !strchr(spec, '/'));
}

static enum status parse_pairs(const char *spec, struct shape *s)
{
    const char *p = spec;

    while (*p) {
        size_t *field;
        char *end;

        switch (*p) {
        case 'L':
            field = &s->L;
            break;
        case 'H':
            field = &s->H;
            break;
        case 'C':
            field = &s->C;
            break;
        case 'T':
            field = &s->T;
            break;
        case 'V':
            field = &s->V;
            break;
        default:
            return fail(ST_USAGE,
                        "--model %s: found '%s', needs L=, H=, C=, T= or V=", spec, p);
        }
        if (p[1] != '=' || !isdigit((unsigned char)p[2]))
            return fail(ST_USAGE, "--model %s: found '%s', needs %c=NUMBER", spec, p, *p);
        errno = 0;
        *field = (size_t)strtoull(p + 2, &end, 10);
        if (errno || (*end && *end != ',') || (*end == ',' && !end[1]))
            return fail(ST_USAGE, "--model %s: found '%s', needs %c=NUMBER", spec, p, *p);
        p = end + (*end == ',');
    }
    return ST_OK;
}

enum status shape_parse(const char *spec, size_t vocab, struct shape *out)
{
    struct shape s = {.T = GPT2_CONTEXT, .V = vocab ? vocab : GPT2_VOCAB};
    int k = find_known(spec);
    size_t depth = parse_depth(spec);

    if (k >= 0) {
        s.L = known[k].L;
        s.H = known[k].H;
        s.C = known[k].C;
    } else if (depth > 0) {
        s.L = depth;
        s.H = depth;
        s.C = HEAD_WIDTH * depth;
    } else {
        enum status st = parse_pairs(spec, &s);

        if (st != ST_OK)
            return st;
        if (!s.L || !s.H || !s.C)
            return fail(ST_USAGE,
                        "--model %s: needs a known name (gpt2, gpt2-medium, "
                        "gpt2-large, gpt2-xl, d12, ...) or L=,H=,C=[,T=][,V=]",
                        spec);
    }
    s.Vp = round_up(s.V, VOCAB_PAD);
    *out = s;
    return shape_check(out, "--model");
}

enum status shape_check(const struct shape *s, const char *where)
{
    const size_t limit = (size_t)1 << 24;

    if (!s->L || !s->H || !s->C || !s->T || !s->V)
        return fail(ST_USAGE, "%s: L=%zu H=%zu C=%zu T=%zu V=%zu: all must be at least 1",
                    where, s->L, s->H, s->C, s->T, s->V);
    if (s->L > 10000 || s->C > limit || s->T > limit || s->V > limit * 16)
        return fail(ST_USAGE, "%s: L=%zu H=%zu C=%zu T=%zu V=%zu: out of range", where,
                    s->L, s->H, s->C, s->T, s->V);
    if (s->C % s->H)
        return fail(ST_USAGE, "%s: found C=%zu and H=%zu, needs a C that H divides",
                    where, s->C, s->H);
    if (s->Vp < s->V)
        return fail(ST_USAGE, "%s: padded vocabulary %zu is below the vocabulary %zu",
                    where, s->Vp, s->V);
    return ST_OK;
}

size_t shape_parameters(const struct shape *s)
{
    size_t C = s->C;
    size_t layer = 12 * C * C + 13 * C; /* 4 matrices, 4 biases, 2 layer-norms */

    return (s->V + s->T) * C + s->L * layer + 2 * C;
}

double shape_train_flops(const struct shape *s, size_t T, double tokens)
{
    return 6.0 * (double)shape_parameters(s) * tokens +
           12.0 * (double)s->L * (double)s->C * (double)T * tokens;
}
