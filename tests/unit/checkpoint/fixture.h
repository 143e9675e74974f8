/* fixture.h - small models whose every number is known, for the checkpoint tests.
 *
 * The value of an element depends on its canonical position only, so what one layout,
 * plan and rank count wrote can be checked in any other. The mapping is worked out here
 * element by element, without the code under test.
 */
#ifndef WEFT_TESTS_FIXTURE_H
#define WEFT_TESTS_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/native.h"
#include "checkpoint/saver.h"

/* How a rank of a job holds its numbers. */
struct holding {
    const char *spec; /* of the shape */
    enum layout_order order;
    int ranks;
    size_t block_bytes;
    bool one_block;
    enum strategy strategy; /* 0: reduce-broadcast */
    int roots;
};

struct fixture {
    struct layout layout;
    struct plan plan;
    struct checkpoint_view view;
    int rank;
    size_t moments;
};

void fixture_init(struct fixture *f, const struct holding *h, int rank);
void fixture_release(struct fixture *f);

/* Sets parameters and moments; `salt` tells states apart. */
void fixture_fill(struct fixture *f, uint64_t salt);
/* NaN everywhere, gaps too. */
void fixture_poison(struct fixture *f);
/* Elements that are not as fixture_fill(salt) leaves them; gaps must be 0. */
size_t fixture_wrong_params(const struct fixture *f, uint64_t salt);
size_t fixture_wrong_moments(const struct fixture *f, uint64_t salt);

/* A state with a value in every field. */
struct run_state fixture_state(uint64_t step);
bool same_state(const struct run_state *a, const struct run_state *b);

/* A whole save by the ranks of `c`, in the background or not by turns; `path` gets the
 * folder. COLLECTIVE. */
MUST_USE enum status fixture_save(struct comm *c, const char *run,
                                  const struct run_state *state,
                                  const struct checkpoint_view *view,
                                  const char *config_text, const char *tokens_json,
                                  char *path);

/* Writes, from one process, what a job of h->ranks ranks would. */
void simulate_save(const char *folder, const struct holding *h,
                   const struct run_state *state, uint64_t salt);
/* Loads as each rank of such a job; returns the number of wrong elements. */
size_t simulate_load(const char *folder, const struct holding *h, uint64_t salt);

/* A new empty folder; scratch_remove takes it away. */
void scratch_make(char *out); /* PATH_BYTES */
void scratch_remove(const char *path);

/* printf to a string that stays: paths of the tests. */
const char *text(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Between these two calls stderr goes to a file; the text read is valid until the next
 * capture. */
void capture_begin(void);
const char *capture_end(void);

/* Overwrites one byte, or changes the size, of a file. */
void file_flip_byte(const char *path, long offset);
void file_resize(const char *path, long change);
/* Replaces the first `from` in a text file by `to`; it must be there. */
void file_replace(const char *path, const char *from, const char *to);
/* Makes the checksum at the end of a changed manifest right again. */
void manifest_sign(const char *path);

#endif
