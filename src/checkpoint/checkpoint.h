/* checkpoint.h - models and runs on disk.
 *
 * Native checkpoint: a folder "<run>/checkpoints/step-NNNNNN/" with
 *   manifest.json          format version, shape, tensor table, P, run state, the
 *                          resolved options; size, XXH3 and element ranges of each file;
 *                          last its own XXH3
 *   state-RRRRR-of-PPPPP.bin  written by rank R: for each of its ranges of the canonical
 *                          vector (tensors.h) the parameters, then the same ranges of m,
 *                          then of v; fp32 little-endian
 *   tokens.json            the tokenizer the data was made with, when there is one
 * A file that is cut or changed by one bit makes the whole folder a damaged one.
 * It is written as "step-NNNNNN.tmp", every file and the folder fsynced, all ranks agree,
 * then renamed (an older one of the same step waits as "step-NNNNNN.old" meanwhile);
 * "<run>/checkpoints/latest" (a text file with the folder's name) is replaced last.
 * saver.h writes them. Elements are addressed by canonical range, so a run resumes with
 * any number of ranks, layout, exchange engine and block size.
 *
 * Other programs' files hold weights only: llm.c models, folders of Hugging Face, GGUF.
 * docs/FORMATS.md says what is read and written of each.
 */
#ifndef WEFT_CHECKPOINT_CHECKPOINT_H
#define WEFT_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/files.h"
#include "base/status.h"
#include "checkpoint/dtype.h"
#include "comm/comm.h"
#include "comm/plan.h"
#include "data/tokenizer.h"
#include "model/tensors.h"

/* What a run is at a step, beside its weights and moments. */
struct run_state {
    uint64_t step;   /* steps done: the next one is number `step` (0-based) */
    uint64_t tokens; /* trained on so far */
    uint64_t seed;
    uint64_t batch_windows; /* global batch in windows; the sampler's position is
                               step * batch_windows */
    uint64_t adam_step;     /* t of the bias correction */
    double best_val_loss;   /* infinity when there was no evaluation */
    double wall_s;          /* training time so far, over all resumes */
    uint64_t data_tokens;   /* of the training data, 0: not known */
    uint64_t data_hash;     /* shards_sample_hash() of them */
};

/* A run's numbers in memory. Offsets of slices and plan refer to params. */
struct checkpoint_view {
    const struct layout *layout;
    const struct plan *plan; /* whose block is whose; built for comm_size ranks */
    float *params;           /* all of them on every rank */
    float *m, *v;            /* moments of the blocks rooted here, concatenated in block
                                order: plan_root_elems() floats each */
};

/* Gives the checkpoints after step `step` the suffix ".damaged", since the run goes on
 * from an older one: they must be neither taken for the newest nor pruned for. LOCAL, one
 * rank. */
MUST_USE enum status checkpoint_set_aside(const char *run, uint64_t step);

/* Removes all complete checkpoints but the newest `keep` (numeric order) and the best one
 * (the oldest of those with the lowest best_val_loss; none without an evaluation),
 * damaged ones (set aside or not) older than all that are kept, and leftovers (*.tmp,
 * *.old) not newer than the newest. keep >= 1. LOCAL, one rank. */
MUST_USE enum status checkpoint_prune(const char *run, size_t keep);

/* Newest complete checkpoint of a run folder: *found false when there is none. Damaged or
 * incomplete ones (manifest unreadable, file missing or of another size) are passed over
 * with a log_warn that names them. LOCAL; `path` >= 4096 bytes. */
MUST_USE enum status checkpoint_latest(const char *run, char *path, bool *found);

/* The same with the checksums of all files verified, by all ranks together. COLLECTIVE;
 * the same answer on all ranks. */
MUST_USE enum status checkpoint_find(struct comm *c, const char *run, char *path,
                                     bool *found);

/* Adds the checkpoint folders of a run, complete or not, in ascending numeric order; none
 * is no error. LOCAL. */
MUST_USE enum status checkpoint_list(const char *run, struct path_list *out);

/* What a checkpoint folder says of itself. */
struct checkpoint_info {
    struct shape shape;
    struct run_state state;
    int ranks;           /* that wrote it: one state file each */
    uint64_t file_bytes; /* of all state files */
    size_t elems;        /* of the canonical vector */
};

/* Reads the manifest and checks the sizes of the files and, with `verify`, their
 * checksums (reads everything). LOCAL. */
MUST_USE enum status checkpoint_inspect(const char *path, bool verify,
                                        struct checkpoint_info *out);

/* The options of the run as they were saved, freed by the caller with free(). LOCAL. */
MUST_USE enum status checkpoint_read_config(const char *path, char **text);

/* Loads weights, moments and state into view (already allocated for layout and plan), for
 * any number of ranks. `verify`: checksums first (checkpoint_find has done it).
 * Call     COLLECTIVE; status agreed */
MUST_USE enum status checkpoint_load(struct comm *c, const char *path, bool verify,
                                     const struct checkpoint_view *view,
                                     struct run_state *state);

/* What a model path is, by its content: a native checkpoint folder or a run folder (its
 * newest checkpoint); an llm.c model file; a folder with config.json and safetensors
 * files, or one of these files; a GGUF file. */
enum model_kind { MODEL_NATIVE, MODEL_LLMC, MODEL_SAFETENSORS, MODEL_GGUF, MODEL_KINDS };
#define MODEL_KIND_WORDS "weft|llmc|safetensors|gguf" /* in the order of the enum */

struct model_file {
    enum model_kind kind;
    struct shape shape;
    char path[4096];        /* the checkpoint folder or file itself */
    char tokens_json[4096]; /* a file for tokenizer_load; "" when there is none */
    struct run_state state; /* zero for all but MODEL_NATIVE */
};
/* Does the content of a file or folder look like a model? A run folder does not count. */
bool model_recognised(const char *path);
/* Looks at a path: heads, lists of tensors and sizes are checked, no weights are read.
 * LOCAL. */
MUST_USE enum status model_open(const char *path, struct model_file *out);

/* Reads the weights of an opened model into params (layout->elems floats, layout of the
 * same shape); gaps and padding rows are set to 0. LOCAL. */
MUST_USE enum status model_read(const struct model_file *f, const struct layout *layout,
                                float *params);

/* What the numbers of a model are. */
struct model_numbers {
    size_t tensors[DTYPES]; /* how many are stored as what; all 0 for MODEL_NATIVE */
    size_t not_finite;      /* numbers that are NaN or infinite */
    char first[32];         /* the first tensor with such, "" */
};
/* Reads all weights, a tensor at a time. LOCAL. */
MUST_USE enum status model_check_numbers(const struct model_file *f,
                                         struct model_numbers *out);

struct model_write_options {
    enum dtype dtype;                  /* MODEL_NATIVE: fp32 only; llm.c: no fp16 */
    const struct tokenizer *tokenizer; /* to go with it; NULL: none */
    bool head; /* GGUF: the token embedding once more, as head; else not looked at */
};
/* Writes an opened model in another format. Memory: the largest tensor and some buffers.
 * Nothing stands under `out` before all of it is on the disk. LOCAL, by the caller only.
 * Returns  ST_USAGE for a type or tokenizer that the format or model cannot have */
MUST_USE enum status model_convert(const struct model_file *from, enum model_kind to,
                                   const char *out, const struct model_write_options *o);
/* The same from memory. */
MUST_USE enum status model_write(const struct layout *layout, const float *params,
                                 enum model_kind to, const char *out,
                                 const struct model_write_options *o);

#endif
