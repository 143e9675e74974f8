/* native.h - parts of the native checkpoint, private to this module and its tests.
 *
 * Everything here is LOCAL and takes rank numbers as ints, so that checkpoints of any
 * number of ranks can be written and read by one process.
 */
#ifndef WEFT_CHECKPOINT_NATIVE_H
#define WEFT_CHECKPOINT_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

#include "base/files.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "checkpoints are little-endian: this machine needs byte swaps here"
#endif

enum { PATH_BYTES = 4096, STATE_NAME_BYTES = 48 };

/* ---- ranges.c: memory against the canonical vector ---- */

/* A run of elements that adjoin in memory, in the moments and in the canonical vector. */
struct owned_range {
    size_t memory;    /* from the base of the parameters */
    size_t moment;    /* from the base of the rank's m or v */
    size_t canonical; /* in the canonical vector */
    size_t elems;
};

/* What one rank saves, in block order; gap elements are left out. Where every rank keeps
 * all moments each saves what it owns, and reads all. */
enum owned_kind { OWNED, OWNED_AND_COPIES };
struct owned {
    struct owned_range *ranges;
    size_t n, capacity;
    size_t elems; /* sum over ranges */
    size_t span;  /* moments of the rank, gaps included */
};

MUST_USE enum status owned_init(struct owned *o, const struct layout *l,
                                const struct plan *plan, int rank, enum owned_kind kind);
void owned_release(struct owned *o); /* NULL members allowed */

/* Length of the canonical vector of a shape read from a file; ST_FORMAT when the shape is
 * impossible. `path` starts the error text. */
MUST_USE enum status shape_from_file(const struct shape *s, const char *path,
                                     size_t *canonical_elems);
/* ST_USAGE with both shapes unless they are the same. */
MUST_USE enum status shape_match(const struct shape *found, const char *path,
                                 const struct shape *needed);
/* Sets the gap elements behind every slice to 0. */
void params_zero_gaps(const struct layout *l, float *params);

/* ---- stream.c: large writes and checksums ---- */

/* A file written front to back through a buffer and hashed on the way. */
struct stream {
    int fd;
    const char *path; /* borrowed */
    char *buf;
    size_t used;
    uint64_t bytes; /* written so far, buffered ones included */
    XXH3_state_t *hash;
};

/* Creates or truncates the file. After a failure stream_close must still be called. */
MUST_USE enum status stream_open(struct stream *s, const char *path);
MUST_USE enum status stream_put(struct stream *s, const void *data, size_t bytes);
/* XXH3-64 of all that was put so far. */
MUST_USE enum status stream_digest(struct stream *s, uint64_t *hash);
/* Writes what is buffered and fsyncs when st is ST_OK; frees and closes in any case.
 * Returns st, or the first failure here. */
MUST_USE enum status stream_close(struct stream *s, enum status st);

/* XXH3-64 of the first `bytes` of a file. */
MUST_USE enum status file_hash(const char *path, uint64_t bytes, uint64_t *hash);

/* ---- manifest.c ---- */

struct file_sums {
    uint64_t bytes;
    uint64_t hash;        /* XXH3-64 of the file */
    uint64_t params_hash; /* of its first third, the parameters */
};

struct manifest_range {
    size_t begin, elems; /* in the canonical vector */
};

struct manifest_file {
    char name[STATE_NAME_BYTES];
    struct file_sums sums;
    size_t first_range, n_ranges; /* into manifest->ranges, in file order */
    size_t elems;                 /* sum over its ranges */
};

struct manifest {
    struct shape shape;
    struct run_state state;
    size_t canonical_elems;
    int ranks;
    struct manifest_file *files; /* one a rank */
    struct manifest_range *ranges;
    size_t n_ranges, range_capacity;
    char *config; /* the resolved options of the run */
    struct {
        bool there;
        uint64_t bytes, hash;
    } tokens_json;
};

/* Manifest of what the ranks of view->plan save; checksums are not set. */
MUST_USE enum status manifest_init(struct manifest *m, const struct checkpoint_view *view,
                                   const struct run_state *state,
                                   const char *config_text);
void manifest_release(struct manifest *m);

MUST_USE enum status manifest_write(const struct manifest *m, const char *folder);
/* Reads and checks <folder>/manifest.json: version, its own checksum, shape, ranges that
 * cover the canonical vector exactly once, sizes that follow from them. */
MUST_USE enum status manifest_read(struct manifest *m, const char *folder);
/* Every file that it names is there and has its size. */
MUST_USE enum status manifest_check_sizes(const struct manifest *m, const char *folder);

void state_file_name(char *out, int rank, int ranks); /* STATE_NAME_BYTES */

/* ---- native_save.c, native_load.c ---- */

/* The three equal parts of a state file, in order. */
enum section { PARAMS, MOMENT_M, MOMENT_V, N_SECTIONS };

/* Where a range of a section is in memory. */
const float *state_at(const struct checkpoint_view *view, const struct owned_range *r,
                      enum section section);

/* Where a rank's numbers are taken from: from the run, or from a copy of what it owns,
 * section by section. */
struct state_source {
    const struct checkpoint_view *view;
    const float *copy; /* or NULL */
};

/* The steps of a save, in this order. */
struct save_paths {
    char run[PATH_BYTES];
    char folder[PATH_BYTES]; /* <run>/checkpoints */
    char final[PATH_BYTES];
    char tmp[PATH_BYTES];
    char old[PATH_BYTES]; /* an earlier checkpoint of the same step, while replaced */
};
/* Sets the paths; the first rank makes an empty .tmp folder. */
MUST_USE enum status save_folder(struct save_paths *p, const char *run, uint64_t step,
                                 bool first);
/* Writes and syncs the file of one rank. */
MUST_USE enum status save_state(const char *folder, int rank, int ranks,
                                const struct owned *own, const struct state_source *from,
                                struct file_sums *sums);
/* On one rank, with all files there: manifest, final name, `latest`. */
MUST_USE enum status save_publish(const struct save_paths *p,
                                  const struct checkpoint_view *view,
                                  const struct run_state *state, const char *config_text,
                                  const char *tokens_json, const struct file_sums *sums);
/* On one rank, instead: removes the .tmp folder and says what is kept. */
void save_give_up(const struct save_paths *p);

/* Writes the file of one rank of view->plan. */
MUST_USE enum status native_write_state(const char *folder,
                                        const struct checkpoint_view *view, int rank,
                                        struct file_sums *sums);
/* Writes the manifest over the files of all ranks and over tokens.json, when the folder
 * has one. */
MUST_USE enum status native_write_manifest(const char *folder,
                                           const struct checkpoint_view *view,
                                           const struct run_state *state,
                                           const char *config_text,
                                           const struct file_sums *sums);

/* Checks the checksum of one file: of its parameters only, or of all of it. */
MUST_USE enum status native_verify(const struct manifest *m, const char *folder, int file,
                                   bool params_only);
/* Checks the checksums of every `ranks`-th file from number `rank` on: all ranks together
 * read every byte once. Of tokens.json too on rank 0. */
MUST_USE enum status native_verify_share(const struct manifest *m, const char *folder,
                                         int rank, int ranks);
MUST_USE enum status native_read_params(const struct manifest *m, const char *folder,
                                        const struct layout *l, float *params);
/* Parameters [begin, begin + elems) of the canonical vector. */
MUST_USE enum status native_read_range(const struct manifest *m, const char *folder,
                                       size_t begin, size_t elems, float *to);
/* m and v of one rank of view->plan. */
MUST_USE enum status native_read_moments(const struct manifest *m, const char *folder,
                                         const struct checkpoint_view *view, int rank);

/* ---- folders.c ---- */

/* out = folder/name, PATH_BYTES; ST_IO when too long. */
MUST_USE enum status path_in(char *out, const char *folder, const char *name);
/* out = <run>/checkpoints/step-NNNNNN<suffix>. */
MUST_USE enum status step_path(char *out, const char *run, uint64_t step,
                               const char *suffix);
/* Reads the manifest and checks sizes: is this checkpoint complete? The manifest is to be
 * released in any case. */
MUST_USE enum status native_inspect(const char *folder, struct manifest *m);

#endif
