/* clock.h - time for measuring, not for dates. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

/* Monotonic seconds from an arbitrary origin. */
double clock_s(void);

/* CPU time that the calling thread, or the whole process, has used [s]. What others do on
 * a shared machine shows in it less than in clock_s(). */
double clock_thread_cpu_s(void);
double clock_process_cpu_s(void);

/* Sleeps about `us` microseconds. */
void clock_nap_us(long us);

#endif
