/* nodes.h - stands in for the header of NODES where that is not installed, so that
 * src/task/task_ompss2.c is at least compiled: declarations only, and only what is used.
 * A build with -DWEFT_TASKS=ompss2 takes NODES' own. */
#ifndef WEFT_TESTS_NODES_H
#define WEFT_TESTS_NODES_H

#include <stddef.h>
#include <stdint.h>

enum { nanos6_task_info_contents = 6, nanos6_instantiation_api = 6 };
enum { nanos6_host_device = 0 };

typedef signed long nanos6_priority_t;
typedef struct {
    size_t local_address, device_address;
} nanos6_address_translation_entry_t;

typedef struct {
    int device_type_id;
    void (*run)(void *args, void *device, nanos6_address_translation_entry_t *addresses);
    const char *task_type_label;
    const char *declaration_source;
} nanos6_task_implementation_info_t;

typedef struct {
    int num_symbols;
    void (*register_depinfo)(void *args, void *bounds, void *handler);
    void (*get_priority)(void *args, nanos6_priority_t *priority);
    int implementation_count;
    nanos6_task_implementation_info_t *implementations;
    int coro_handle_idx;
} nanos6_task_info_t;

typedef struct {
    const char *invocation_source;
} nanos6_task_invocation_info_t;

void nanos6_init(void);
void nanos6_shutdown(void);
void *nanos6_get_current_blocking_context(void);
void nanos6_block_current_task(void *context);
void nanos6_unblock_task(void *context);
void nanos6_spawn_function(void (*function)(void *), void *args,
                           void (*completed)(void *), void *completed_args,
                           const char *label);
void nanos6_register_task_info(nanos6_task_info_t *info);
void nanos6_create_task(nanos6_task_info_t *info, nanos6_task_invocation_info_t *place,
                        const char *label, size_t args_bytes, void **args, void **task,
                        size_t flags, size_t n_dependencies);
void nanos6_submit_task(void *task);
void nanos6_register_read_depinfo(void *handler, void *start, size_t bytes, int symbol);
void nanos6_register_readwrite_depinfo(void *handler, void *start, size_t bytes,
                                       int symbol);
void nanos6_taskwait(const char *place);

#endif
