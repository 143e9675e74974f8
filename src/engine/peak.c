/* SPDX-License-Identifier: MIT */
#include "engine/peak.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/ceiling.h"
#include "task/task.h"

/* Sum over workers, in whole flop/s. */
struct measuring {
    double seconds;
    bool bf16;
    _Atomic uint64_t flops;
};

static void do_measure(void *args, struct task_event event)
{
    struct measuring *m = *(struct measuring **)args;
    double rate = m->bf16 ? ceiling_bf16(m->seconds) : ceiling_fma(NULL, m->seconds);

    (void)event;
    atomic_fetch_add(&m->flops, (uint64_t)rate);
}

static double measure(int workers, double seconds, bool bf16)
{
    struct measuring m = {.seconds = seconds, .bf16 = bf16};
    struct measuring *arg = &m;

    for (int i = 0; i < workers; i++)
        task_spawn(&(struct task){
            .label = "peak", .body = do_measure, .args = &arg, .args_bytes = sizeof arg});
    task_wait_all();
    return (double)atomic_load(&m.flops);
}

void peak_measure(int workers, double seconds, bool bf16, struct peak *out)
{
    /* One after the other they would be counted as if they were several. */
    if (!strcmp(task_backend(), "serial"))
        workers = 1;
    *out = (struct peak){.fma_flops = measure(workers, seconds, false)};
    if (bf16)
        out->bf16_flops = measure(workers, seconds, true);
}
