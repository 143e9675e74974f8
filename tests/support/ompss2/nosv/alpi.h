/* alpi.h - stands in for nOS-V's header of the tasking interface that TAMPI uses; see
 * ../nodes.h. */
#ifndef WEFT_TESTS_ALPI_H
#define WEFT_TESTS_ALPI_H

#include <stdint.h>

struct alpi_task;
struct alpi_attr;
typedef enum { ALPI_SUCCESS = 0 } alpi_error_t;

const char *alpi_error_string(alpi_error_t error);
int alpi_task_self(struct alpi_task **task);
int alpi_task_events_increase(struct alpi_task *task, uint64_t n);
int alpi_task_events_decrease(struct alpi_task *task, uint64_t n);
int alpi_task_spawn(void (*body)(void *), void *args, void (*completed)(void *),
                    void *completed_args, const char *label,
                    const struct alpi_attr *attributes);
int alpi_cpu_count(uint64_t *count);
int alpi_cpu_logical_id(uint64_t *id);

#endif
