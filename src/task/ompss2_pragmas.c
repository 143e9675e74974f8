/* SPDX-License-Identifier: MIT */
/* Tasks of OmpSs-2 by its pragmas, for a compiler that knows them. */
#include "task/ompss2.h"

const char ompss2_name[] = "OmpSs-2 (NODES, pragmas)";

/* The clauses name the bytes at the sentinels; only their addresses are taken. Numbers
 * are signed: an iterator of Mercurium's runs up to n - 1, which is none of 0. */
void ompss2_spawn(struct record *r, const struct task *t, const char *label, int priority)
{
    const char *const *in = (const char *const *)t->in;
    const char *const *out = (const char *const *)t->out;
    int n_in = (int)t->n_in, n_out = (int)t->n_out;
    bool has_event = t->has_event;

#pragma oss task label("weft", label) priority(priority)                                 \
    in({ *in[i], i = 0; n_in }) inout(                                                   \
        { *out[j], j = 0; n_out })
    ompss2_run(r, has_event);
}

void ompss2_wait(void)
{
#pragma oss taskwait
}
