/* weights.h - the small interface between formats of weight files. Private to this module
 * and its tests.
 *
 * A reader of a format does one thing: it says where in which file the numbers of each
 * slice lie (struct weight_map), and checks all of it against the files. Everything that
 * is common - reading, converting, transposing, counting - is done here for all of them.
 * A writer pulls one slice after the other from a source, so that the memory of a
 * conversion is the largest slice (wte), whatever comes in and goes out.
 */
#ifndef WEFT_CHECKPOINT_WEIGHTS_H
#define WEFT_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/files.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/native.h"

/* ---- where the numbers are ---- */

struct place {
    int file; /* index into weight_map.files; -1: not known yet */
    enum dtype dtype;
    bool transposed; /* stored as [in][out] */
    uint64_t offset; /* of the first number, in bytes from the start of the file */
};

struct weight_map {
    struct shape shape; /* Vp as in memory, whatever the file has */
    struct path_list files;
    int *fds;             /* [files.count] */
    uint64_t *file_bytes; /* [files.count] */
    struct place *places; /* [TENSOR_KINDS * L], kind by kind */
    struct place head;    /* a head of its own, which must equal wte; file -1: none */
};

/* A map begins as zeros; weight_map_close is due in any case. Files may be added before
 * the shape is known, tensors when it is. */
void weight_map_close(struct weight_map *m);
/* Opens a regular file and looks at its size; *file is its index in m->files. */
MUST_USE enum status weight_map_add_file(struct weight_map *m, const char *path,
                                         int *file);
/* Sets the shape, once, to one that shape_from_file has accepted. */
MUST_USE enum status weight_map_set_shape(struct weight_map *m,
                                          const struct shape *shape);

/* A tensor as a file declares it. `dims` are row-major. */
struct declared {
    const char *name; /* as in the file, for error texts */
    enum dtype dtype;
    size_t n_dims;
    uint64_t dims[4];
    uint64_t offset; /* in the file */
};

/* Notes where a slice (or the head, for kind TENSOR_KINDS) is. ST_FORMAT with file,
 * tensor, found and needed when the dimensions are not the slice's or it was there
 * already. wte has V rows in the file, or `wte_rows` where that is not 0. */
MUST_USE enum status weight_map_add(struct weight_map *m, int file, enum tensor_kind kind,
                                    size_t layer, bool transposed, size_t wte_rows,
                                    const struct declared *d);

/* How a format calls its tensors: per-layer ones are <layer_prefix><layer>.<name>. */
struct naming {
    const char *layer_prefix; /* "h." */
    const char *head;         /* "lm_head.weight" */
    const char *names[TENSOR_KINDS];
    bool transposed[TENSOR_KINDS];
};
/* Which slice a name means; kind TENSOR_KINDS: the head. False for no name of a GPT-2. */
bool naming_find(const struct naming *n, const char *name, enum tensor_kind *kind,
                 size_t *layer);
/* The name of a slice, TENSOR_NAME_BYTES. */
enum { TENSOR_NAME_BYTES = 64 };
void naming_put(const struct naming *n, enum tensor_kind kind, size_t layer, char *out);

/* All slices have a place; else ST_FORMAT naming the first that has none. */
MUST_USE enum status weight_map_complete(const struct weight_map *m, const char *path,
                                         const struct naming *n);

/* Bytes [begin, end) of a file that a tensor takes. */
struct extent {
    uint64_t begin, end;
    const char *name; /* borrowed */
};
/* The extents (sorted here) follow one another from 0 to `bytes`, each beginning at the
 * next multiple of `align`: neither holes nor overlaps. `bytes` may or may not count the
 * padding behind the last one. */
MUST_USE enum status extents_check(struct extent *list, size_t n, uint64_t align,
                                   uint64_t bytes, const char *path);

/* ---- sources ---- */

/* Slices to be had one by one, in [out][in] order. wte without padding rows. */
struct weight_source {
    struct shape shape;
    enum status (*read)(void *arg, enum tensor_kind kind, size_t layer, float *out);
    void *arg;
    char path[PATH_BYTES]; /* for error texts */
    struct weight_map map;
    struct manifest manifest; /* of a native checkpoint, and where its slices are */
    struct layout layout;
};

/* The parameters of a layout in memory, both borrowed. */
struct weights_in_memory {
    const struct layout *layout;
    const float *params;
};
void weight_source_memory(struct weight_source *s, const struct weights_in_memory *from);
/* A model on disk, its checksums verified where it has some. weight_source_close is due
 * afterwards, on failure too; closing one that is all zeros does nothing. */
MUST_USE enum status weight_source_open(struct weight_source *s,
                                        const struct model_file *f);
void weight_source_close(struct weight_source *s);

/* Rows and columns of a slice in a file: wte has V rows. */
void stored_dims(const struct shape *s, enum tensor_kind kind, size_t *rows,
                 size_t *cols);
/* Numbers of the largest slice. */
size_t stored_most(const struct shape *s);

/* Calls visit(arg, kind, layer) for wte, wpe, each layer's slices, lnfw and lnfb: layer
 * by layer, as Hugging Face and llama.cpp list them. Stops at the first failure. */
MUST_USE enum status each_by_layer(const struct shape *s,
                                   enum status (*visit)(void *arg, enum tensor_kind kind,
                                                        size_t layer),
                                   void *arg);

/* ---- writing ---- */

/* What goes through a file that is written: one slice at a time. */
struct weight_writer {
    const struct weight_source *source;
    struct stream stream;
    char path[PATH_BYTES]; /* of the file being written */
    float *slice;          /* [stored_most()] */
    void *chunk;
};
/* Creates the file. weight_writer_end is due afterwards, on failure too. */
MUST_USE enum status weight_writer_begin(struct weight_writer *w, const char *path,
                                         const struct weight_source *source);
/* Reads a slice and writes it; ST_NUMERIC for a number the type cannot hold. */
MUST_USE enum status weight_writer_put(struct weight_writer *w, enum tensor_kind kind,
                                       size_t layer, enum dtype dtype, bool transposed);
MUST_USE enum status weight_writer_zeros(struct weight_writer *w, uint64_t bytes);
/* Syncs and closes when st is ST_OK; returns st or the first failure here. */
MUST_USE enum status weight_writer_end(struct weight_writer *w, enum status st);

/* ---- the formats ---- */

/* First bytes of a file, or a folder. */
struct sniffed {
    const char *path;
    bool folder;
    unsigned char head[16];
    size_t n_head; /* below 16 only in a shorter file */
};

struct model_format {
    const char *name; /* as --to has it */
    const char *what; /* "a GGUF file" */
    bool (*is)(const struct sniffed *s);
    /* Where the numbers are; `out` is zeros before. */
    enum status (*map)(const char *path, struct weight_map *out);
    /* Path for tokenizer_load; "" when there is none. `out` has PATH_BYTES. */
    enum status (*tokenizer)(const char *path, char *out);
    /* Writes under a temporary name first. */
    enum status (*write)(const char *path, const struct weight_source *source,
                         const struct model_write_options *o);
};

/* By enum model_kind; native checkpoints are recognised elsewhere and have neither map
 * nor tokenizer. */
extern const struct model_format *const model_formats[MODEL_KINDS];
extern const struct model_format format_native, format_llmc, format_safetensors,
    format_gguf;

/* out = path of `name` in the folder that holds the file `path`, PATH_BYTES. */
MUST_USE enum status path_beside(char *out, const char *path, const char *name);
/* fsyncs the folder that holds `path`. */
MUST_USE enum status sync_parent(const char *path);
/* Renames tmp to path and syncs the folder; when st is not ST_OK, or the renaming fails,
 * tmp (file or folder) is removed and that status returned. */
MUST_USE enum status commit_path(const char *tmp, const char *path, enum status st);

#endif
