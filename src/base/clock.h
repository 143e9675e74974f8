/* clock.h - time for measuring, not for dates. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

/* Monotonic seconds from an arbitrary origin. */
double clock_s(void);

/* Sleeps about `us` microseconds. */
void clock_nap_us(long us);

#endif
