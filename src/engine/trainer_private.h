/* trainer_private.h - shared by the files of the trainer only. */
#ifndef WEFT_ENGINE_TRAINER_PRIVATE_H
#define WEFT_ENGINE_TRAINER_PRIVATE_H

#include <limits.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "data/sampler.h"
#include "data/shards.h"
#include "engine/cores.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/trainer.h"

/* Weighted sums of what lines show; divided by the weight they are means. */
struct figures {
    double weight, loss, step_s, exposed_s;
};

struct trainer {
    struct comm *comm;
    struct train_options *options; /* resolved by trainer_prepare */
    struct engine_options eo;
    struct shards *train, *val; /* val NULL: validation is off */
    struct shards_meta meta;
    uint64_t data_hash; /* a sample of the training data */
    struct sampler sampler;
    struct schedule schedule;
    struct {
        bool found;
        char path[PATH_MAX];
    } latest;                /* newest complete checkpoint of the run folder */
    struct model_file start; /* where the weights come from, when has_start */
    bool has_start, resumed;
    uint64_t steps;                     /* of the whole run */
    double time_limit_s, stall_limit_s; /* 0: none */
    int lock_fd;                        /* rank 0's lock on the run folder; 0: none */
    char lock_text[160];                /* what its file says */
    struct saver *saver;
    struct {
        uint64_t step;  /* of the last checkpoint that was begun, or of the start */
        double at_s;    /* clock then */
        double seconds; /* that the last one took */
        double stall_s; /* of which no step was done */
    } saved;
    struct { /* steps since the last line the user saw */
        uint64_t steps;
        struct figures figures;
        double line_at_s;
    } unseen;
    struct figures live;    /* running means, for the live line */
    struct cores cores;     /* of this rank */
    double longest_step_s;  /* seen so far; what a stop in time has to leave */
    uint64_t eval_windows;  /* of each evaluation; 0: off */
    double peak_flops;      /* of all ranks' workers together */
    struct account account; /* of this rank since all ranks' were last told ... */
    uint64_t account_steps; /* ... in so many steps */
    struct engine *engine;
    struct metrics *metrics; /* rank 0 */
    struct samples *samples; /* rank 0; NULL: none */
    bool no_texts;           /* there is no memory for them */
    struct run_state state;
    char *config_text;
    enum status st; /* of the loop; agreed */
};

/* ---- trainer_resume.c ---- */
/* Looks for the newest complete checkpoint in the run folder, with --resume auto for the
 * newest whole one. COLLECTIVE, agreed. */
MUST_USE enum status trainer_find_latest(struct trainer *t);
/* From what --resume says and what is there: start, has_start, resumed, seed. LOCAL. */
MUST_USE enum status trainer_find_resume(struct trainer *t);
/* ST_USAGE when the data was made with another tokenizer than the checkpoint's. LOCAL. */
MUST_USE enum status trainer_check_tokenizer(const struct trainer *t);
/* What differs between this run and the one it goes on from. Rank 0. */
void trainer_tell_changes(const struct trainer *t);

/* ---- trainer_setup.c: everything that is checked before step 1 ---- */
/* The user gave this option, on the command line or in a file. */
bool trainer_option_is_set(const struct trainer *t, const char *name);
/* LOCAL: reads options, data and model; nothing is allocated for training. */
MUST_USE enum status trainer_prepare(struct trainer *t);
/* All ranks are about to do the same: options, shape and data seen from each are equal.
 * COLLECTIVE, agreed. */
MUST_USE enum status trainer_same_everywhere(struct trainer *t);
/* With --network: chooses strategy and block size where that was left to a rule. After
 * peak_flops is known. COLLECTIVE, agreed. */
MUST_USE enum status trainer_choose(struct trainer *t);
/* What the run is, in a few lines. COLLECTIVE; rank 0 prints. */
MUST_USE enum status trainer_banner(struct trainer *t);

/* ---- trainer_folder.c ---- */
/* Makes the run folder, keeps other runs out of it, and checks that every rank sees it
 * and may write there. COLLECTIVE, agreed. */
MUST_USE enum status trainer_lock_run(struct trainer *t);
/* config.ini, metrics.jsonl, a look at the space on disk. COLLECTIVE, agreed. */
MUST_USE enum status trainer_open_run(struct trainer *t);

/* Before a save: the folder under the run's name is still this run's, or is made anew
 * with lock and config.ini where there is none. COLLECTIVE, agreed. */
MUST_USE enum status trainer_keep_run(struct trainer *t);

/* ---- trainer_save.c ---- */
struct checkpoint_view trainer_view(struct trainer *t);
/* COLLECTIVE, as all of these; status agreed and told. From the training loop. */
MUST_USE enum status trainer_new_saver(struct trainer *t);
/* Saves of this run are copied first and written beside the steps. Not the last one,
 * which nothing follows: it needs no second copy of the state. LOCAL, pure. */
bool trainer_saves_beside(const struct trainer *t);
/* Begins to save the state of this step, unless that has been done; waits for a save that
 * is running first. */
MUST_USE enum status trainer_save_begin(struct trainer *t);
/* The same for a state that no step will follow; returns when it is safe. */
MUST_USE enum status trainer_save_now(struct trainer *t);
/* To the end of a running save, if there is one. */
MUST_USE enum status trainer_save_wait(struct trainer *t);
/* Before a step: this rank's part of a save may be done. LOCAL. */
void trainer_save_tell(struct trainer *t);
/* After a step: goes on with a running save when all ranks have said so. */
MUST_USE enum status trainer_save_look(struct trainer *t, const struct step_result *r);

/* ---- trainer_guard.c ---- */
/* After a step whose result is not finite: names rank and tensor. COLLECTIVE, agreed and
 * told; never ST_OK. */
MUST_USE enum status trainer_say_diverged(struct trainer *t, const struct step_result *r);
/* All ranks hold the same weights, or ST_NUMERIC names rank and tensor. COLLECTIVE,
 * agreed and told; from the training loop. */
MUST_USE enum status trainer_check_sync(struct trainer *t);

/* ---- trainer_sample.c: texts in the log; what goes wrong with them is a warning ---- */
/* With --sample-every: tokenizer, prompt and memory, on rank 0; nothing where
 * no_texts is set. LOCAL. */
void trainer_samples_open(struct trainer *t);
/* One text. COLLECTIVE: the update that is due is done first. */
void trainer_sample(struct trainer *t);
void trainer_samples_close(struct trainer *t);

/* ---- trainer_account.c ---- */
struct account account_of(const struct step_result *r);
/* Adds a step to this rank's account. */
void trainer_account(struct trainer *t, const struct account *step);
/* The ranks tell each other about a hundred times a run; the same answer on all. */
bool trainer_account_is_due(const struct trainer *t);
/* Gathers the accounts and starts new ones. COLLECTIVE; status of this rank's file. */
MUST_USE enum status trainer_share_account(struct trainer *t);
/* Writes that a process begins at a step; on the rank that has metrics. */
MUST_USE enum status trainer_note_start(struct trainer *t, uint64_t step);

/* ---- trainer_trace.c ---- */
/* Begins to record, with --trace. */
void trainer_trace_begin(const struct trainer *t);
/* A step that began then is over. */
void trainer_trace_step(const struct trainer *t, double begin_s);
/* Ends recording and writes RUN/trace. COLLECTIVE, agreed; nothing without --trace. */
MUST_USE enum status trainer_trace_write(struct trainer *t);

/* ---- trainer_memory.c ---- */
/* What a rank takes at the very least; no overflow, whatever the shape. LOCAL, pure. */
double trainer_least_bytes(const struct trainer *t);
/* ST_NOMEM when the ranks of a host need more than is available there. COLLECTIVE,
 * agreed; `bytes` of this rank. */
MUST_USE enum status trainer_check_memory(struct trainer *t, double bytes);

/* ---- trainer_data.c ---- */
/* Fills the engine's buffers for a step; on failure the buffers hold harmless zeros. */
MUST_USE enum status trainer_fetch(struct trainer *t, uint64_t step);
/* Mean validation loss over all ranks. COLLECTIVE, status agreed. */
MUST_USE enum status trainer_evaluate(struct trainer *t, double *loss);

#endif
