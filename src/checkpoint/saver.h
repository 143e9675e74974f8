/* saver.h - checkpoints written beside the training.
 *
 * What a rank owns is copied between two steps; the copy is written, synced and given its
 * name (checkpoint.h says in which order) by a thread, while steps go on:
 *
 *     saver_prepare(s, true);
 *     for (i = 0; i < saver_pieces(s); i++)
 *         saver_copy(s, i);              any worker; different pieces at the same time
 *     st = saver_start(s, &state);       COLLECTIVE
 *     ... steps; in each, the ranks tell each other saver_part_done(s) ...
 *     if (all of them are done)
 *         st = saver_advance(s);         COLLECTIVE; twice, then saver_busy() is false
 *
 * A checkpoint is complete when the second saver_advance has returned ST_OK. Until then,
 * and when one fails, nothing stands under its name and older ones are intact.
 */
#ifndef WEFT_CHECKPOINT_SAVER_H
#define WEFT_CHECKPOINT_SAVER_H

#include "checkpoint/checkpoint.h"

struct saver;

struct saver_options {
    const char *run;
    struct checkpoint_view view; /* outlives the saver */
    const char *config_text;     /* the resolved options, as saved in config.ini */
    const char *tokens_json;     /* path of a file to copy in, or NULL */
    size_t keep;                 /* for checkpoint_prune, after each */
    bool background; /* memory of 12 bytes an owned element is taken for copies */
};

/* COLLECTIVE; status agreed. */
MUST_USE enum status saver_new(struct comm *c, const struct saver_options *options,
                               struct saver **out);
void saver_free(struct saver *s); /* not while one is being written; NULL allowed */

/* How the next save is done: from a copy and by a thread, or (always so without
 * `background`) from where the state lies, which must not change before saver_wait has
 * returned; its pieces are looked at only. LOCAL, the same on all ranks; no save is
 * running. */
void saver_prepare(struct saver *s, bool beside);

/* Copies piece i and looks for numbers that are not finite. LOCAL; no save is running,
 * and the parameters are those of the step. */
size_t saver_pieces(const struct saver *s);
void saver_copy(struct saver *s, size_t i);

/* Begins to write the copy, unless a rank found a number that is not finite: ST_NUMERIC
 * names rank and tensor. COLLECTIVE, agreed and told. */
MUST_USE enum status saver_start(struct saver *s, const struct run_state *state);

/* A save is running; the same on all ranks. */
bool saver_busy(const struct saver *s);
/* This rank's part of its phase is done. LOCAL. */
bool saver_part_done(const struct saver *s);
/* Ends a phase, waiting for what is not done, and begins the next. COLLECTIVE while
 * saver_busy, agreed and told. */
MUST_USE enum status saver_advance(struct saver *s);
/* To the end of the save, if one is running. COLLECTIVE, agreed and told. */
MUST_USE enum status saver_wait(struct saver *s);

struct saver_report {
    const char *path; /* of the folder */
    uint64_t step;
    uint64_t bytes; /* of all ranks' files */
};
/* Of the save that has just ended well. LOCAL. */
void saver_last(const struct saver *s, struct saver_report *out);

#endif
