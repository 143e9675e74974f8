/* SPDX-License-Identifier: MIT */
#include "task/doorbell.h"

#include <errno.h>
#include <time.h>

unsigned doorbell_enter(struct doorbell *d)
{
    unsigned ticket = atomic_load(&d->rings);

    atomic_fetch_add(&d->sleepers, 1);
    return ticket;
}

void doorbell_leave(struct doorbell *d)
{
    atomic_fetch_sub(&d->sleepers, 1);
}

static struct timespec time_in(long us)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += us / 1000000;
    t.tv_nsec += us % 1000000 * 1000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

bool doorbell_sleep(struct doorbell *d, unsigned ticket, long us)
{
    struct timespec until = {0, 0};
    int err = 0;

    if (us >= 0)
        until = time_in(us);
    pthread_mutex_lock(&d->lock);
    while (atomic_load(&d->rings) == ticket && err != ETIMEDOUT) {
        if (us < 0)
            pthread_cond_wait(&d->rung, &d->lock);
        else
            err = pthread_cond_clockwait(&d->rung, &d->lock, CLOCK_MONOTONIC, &until);
    }
    bool was_rung = atomic_load(&d->rings) != ticket;
    pthread_mutex_unlock(&d->lock);
    doorbell_leave(d);
    return was_rung;
}

void doorbell_ring(struct doorbell *d)
{
    if (atomic_load(&d->sleepers) == 0)
        return;
    pthread_mutex_lock(&d->lock);
    atomic_fetch_add(&d->rings, 1);
    pthread_mutex_unlock(&d->lock);
    pthread_cond_signal(&d->rung); /* after unlocking: the woken thread needs the lock */
}

void doorbell_ring_all(struct doorbell *d)
{
    pthread_mutex_lock(&d->lock);
    atomic_fetch_add(&d->rings, 1);
    pthread_cond_broadcast(&d->rung);
    pthread_mutex_unlock(&d->lock);
}
