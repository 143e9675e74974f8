/* meter.h - how long task bodies ran, and how long none did although some were waiting.
 *
 * A window opens with the first spawn after everything has finished and closes when the
 * creator sees that everything has finished again. Idle time is counted inside windows.
 */
#ifndef WEFT_TASK_METER_H
#define WEFT_TASK_METER_H

#include <stdatomic.h>
#include <stdint.h>

struct meter {
    double origin_s;
    /* Number of bodies running now and the time when it last became 0 (or the window
     * opened), in one word so that both change together. */
    _Atomic uint64_t word;
    _Atomic uint64_t idle_ns;   /* closed idle spans */
    _Atomic uint64_t finish_ns; /* when an event last finished a task */
};

/* By the creator, while no task is unfinished. */
void meter_reset(struct meter *m, double now_s);
void meter_window_open(struct meter *m, double now_s);
void meter_window_close(struct meter *m);

/* By workers, around each body. */
void meter_body_begin(struct meter *m, double now_s);
void meter_body_end(struct meter *m, double now_s);

/* By whoever finishes a task outside its body, before it says so. */
void meter_event_finish(struct meter *m, double now_s);

/* Bodies running now. */
unsigned meter_running(const struct meter *m);

double meter_idle_s(const struct meter *m);

#endif
