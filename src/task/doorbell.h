/* doorbell.h - how a thread without work naps and is woken.
 *
 * A sleeper enters (from here on it is counted), looks for work once more, and then
 * either sleeps or leaves. A ringer publishes its work first, with a sequentially
 * consistent operation, and rings second. So either the sleeper sees the work or the
 * ringer sees the sleeper. Ringing costs one load when nobody sleeps.
 */
#ifndef WEFT_TASK_DOORBELL_H
#define WEFT_TASK_DOORBELL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct doorbell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    atomic_uint rings;
    atomic_int sleepers;
};

#define DOORBELL_INIT                                                                    \
    {                                                                                    \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0                        \
    }

/* Returns the ticket that doorbell_sleep() needs. */
unsigned doorbell_enter(struct doorbell *d);
void doorbell_leave(struct doorbell *d);

/* Sleeps until rung after the ticket was drawn, or for `us` microseconds (< 0: without
 * limit); leaves. Returns whether it was rung. May return early. */
bool doorbell_sleep(struct doorbell *d, unsigned ticket, long us);

void doorbell_ring(struct doorbell *d);     /* wakes one sleeper */
void doorbell_ring_all(struct doorbell *d); /* wakes all of them */

#endif
