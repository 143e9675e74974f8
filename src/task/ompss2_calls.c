/* SPDX-License-Identifier: MIT */
/* Tasks of OmpSs-2 on the C interface of NODES: what a compiler for `#pragma oss task`
 * emits, so that any compiler does. */
#include "task/ompss2.h"

#include <nodes.h>

_Static_assert(nanos6_task_info_contents == 6 && nanos6_instantiation_api == 6,
               "needs NODES 1.3: nanos6_task_info_t of version 6");

const char ompss2_name[] = "OmpSs-2 (NODES)";

enum { TYPES_MOST = 64 };

/* Types of tasks, one a label: what comes later runs as "other". */
static struct type {
    const char *label;
    nanos6_task_implementation_info_t code;
    nanos6_task_info_t info;
} types[TYPES_MOST];
static size_t n_types;

/* What the runtime keeps of a task. */
struct parcel {
    struct record *record;
    const struct task *task; /* until it is submitted */
    int priority;
    bool has_event;
};

static void run_task(void *args, void *device,
                     nanos6_address_translation_entry_t *addresses)
{
    struct parcel *p = args;

    (void)device;
    (void)addresses;
    ompss2_run(p->record, p->has_event);
}

/* The runtime takes addresses, and writes nothing there. */
static void *sentinel(const void *address)
{
    union {
        const void *ours;
        void *theirs;
    } s = {address};

    return s.theirs;
}

static void register_dependencies(void *args, void *bounds, void *handler)
{
    const struct task *t = ((struct parcel *)args)->task;

    (void)bounds;
    for (size_t i = 0; i < t->n_in; i++)
        nanos6_register_read_depinfo(handler, sentinel(t->in[i]), 1, 0);
    for (size_t i = 0; i < t->n_out; i++)
        nanos6_register_readwrite_depinfo(handler, sentinel(t->out[i]), 1, 0);
}

static void read_priority(void *args, nanos6_priority_t *priority)
{
    *priority = ((struct parcel *)args)->priority;
}

static nanos6_task_info_t *type_of(const char *label)
{
    for (size_t i = 0; i < n_types; i++)
        if (types[i].label == label)
            return &types[i].info;
    if (n_types == TYPES_MOST)
        return &types[TYPES_MOST - 1].info;

    struct type *t = &types[n_types++];

    t->label = label;
    t->code = (nanos6_task_implementation_info_t){
        .device_type_id = nanos6_host_device,
        .run = run_task,
        .task_type_label = n_types == TYPES_MOST ? "other" : label,
        .declaration_source = __FILE__};
    t->info = (nanos6_task_info_t){.num_symbols = 1,
                                   .register_depinfo = register_dependencies,
                                   .get_priority = read_priority,
                                   .implementation_count = 1,
                                   .implementations = &t->code,
                                   .coro_handle_idx = -1};
    nanos6_register_task_info(&t->info);
    return &t->info;
}

void ompss2_spawn(struct record *r, const struct task *t, const char *label, int priority)
{
    static nanos6_task_invocation_info_t here = {__FILE__};
    void *args = NULL, *handle = NULL;

    nanos6_create_task(type_of(label), &here, NULL, sizeof(struct parcel), &args, &handle,
                       0, t->n_in + t->n_out);
    *(struct parcel *)args = (struct parcel){r, t, priority, t->has_event};
    nanos6_submit_task(handle);
}

void ompss2_wait(void)
{
    nanos6_taskwait(__FILE__);
}
