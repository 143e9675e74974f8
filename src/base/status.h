/* status.h - how a function says that it failed.
 *
 * A function that may fail for a reason outside the program (file, format, memory,
 * argument) returns an enum status. The text of the error is recorded where it is first
 * seen, by fail(); nothing is printed there, so that 64 ranks missing one file do not
 * print 64 lines. The ranks agree on the worst status (comm_agree) and one speaks.
 * What cannot happen is a bug and ends the program through bug().
 */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#define MUST_USE                __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

/* 0 is success; a worse failure is a lower number, so that a minimum over ranks is the
 * worst of them. */
enum status {
    ST_OK = 0,
    ST_STOPPED = -1, /* no failure: stopped on request, saved        exit code 4 */
    ST_USAGE = -2,   /* option or argument of the user               exit code 2 */
    ST_IO = -3,      /* the system refused to open, read, write ...  exit code 1 */
    ST_FORMAT = -4,  /* a file is not what it should be              exit code 1 */
    ST_NOMEM = -5,   /* not enough memory                            exit code 1 */
    ST_NUMERIC = -6, /* NaN or infinity in loss or gradient          exit code 3 */
    ST_BUG = -7      /* an invariant of ours is broken               exit code 70 */
};

/* Records the error text of this thread and returns `code`, so that callers write
 * `return fail(ST_IO, "%s: %s", path, strerror(errno));`. The text names the file, what
 * was found and what was needed; one line, no final newline. A later fail() on the same
 * thread replaces the text.
 * Tasks    safe from any thread; the text belongs to the calling thread. */
MUST_USE enum status fail(enum status code, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Text of this thread's last fail(); "" before the first. Valid until the next fail(). */
const char *fail_text(void);

/* Process exit code for a status (table above; 0 for ST_OK). */
int status_exit_code(enum status st);

/* Ends the program for a broken invariant: prints one line with file and line number,
 * then calls the hook of bug_on_exit() if any (comm installs one that stops the other
 * ranks), then exits with 70. Never returns. */
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
void bug_on_exit(void (*hook)(int exit_code));

#define bug(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
/* Checked in every build type, NDEBUG or not; keep it out of inner loops. */
#define require(cond)                                                                    \
    ((cond) ? (void)0 : bug_at(__FILE__, __LINE__, "broken invariant: %s", #cond))

#endif
