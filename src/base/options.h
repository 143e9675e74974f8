/* options.h - one table of options drives the command line, the configuration file, the
 * saved configuration and the help text.
 *
 * Command lines are read with getopt_long, files with inih. A configuration file has the
 * same names as the command line (`key = value`); what the command line sets wins.
 */
#ifndef WEFT_BASE_OPTIONS_H
#define WEFT_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum option_kind {
    OPTION_TEXT,   /* const char *  (owned by the table's user: argv or options_free) */
    OPTION_SIZE,   /* size_t, >= 0; k, M, G suffixes of 1024 accepted */
    OPTION_NUMBER, /* double, finite */
    OPTION_SWITCH, /* bool, takes no value on the command line; true/false in a file */
    OPTION_CHOICE, /* int: index into `choices` */
    OPTION_TEXTS   /* struct option_texts: may be given more than once */
};

enum { OPTION_TEXTS_MOST = 16 };
struct option_texts {
    const char *texts[OPTION_TEXTS_MOST]; /* owned as OPTION_TEXT's are */
    size_t n;
};

struct option_row {
    const char *name; /* "batch" for --batch */
    enum option_kind kind;
    void *value;          /* points at the variable, which holds the default */
    const char *meta;     /* "N", "PATH"; for OPTION_CHOICE the words: "on|off" */
    const char *help;     /* one line; the default is appended by the help printer */
    bool set;             /* out: given by the user (command line or file) */
    bool on_command_line; /* out */
};

/* A default that stands for "not given": it is neither shown nor written to a file. NaN
 * is the same for OPTION_NUMBER, NULL and "" for OPTION_TEXT, none for OPTION_TEXTS. */
#define OPTION_SIZE_UNSET SIZE_MAX

/* Tables end with a row whose name is NULL. */

/* Parses argv[1..]; -h is --help; options may stand before, between and after the other
 * arguments.
 *
 * Out      *rest, *n_rest: the arguments that are no options (pointers into argv)
 *
 * Returns  ST_USAGE for an unknown option (with the nearest known name), a missing or
 *          unreadable value (with what was found and what is needed) */
MUST_USE enum status options_parse(struct option_row *table, int argc, char **argv,
                                   char ***rest, int *n_rest);

/* Reads `key = value` lines into rows not set on the command line. Unknown keys and bad
 * values are ST_USAGE with file and key. */
MUST_USE enum status options_read_file(struct option_row *table, const char *path);

/* The same of a text; `name` stands for it in errors. */
MUST_USE enum status options_read_text(struct option_row *table, const char *text,
                                       const char *name);

/* Writes every row as `key = value` (set or default), atomically. Rows whose name is in
 * `skip` (NULL-terminated, may be NULL) are left out, and so are rows without a value; a
 * value that could not be read back is named in a comment instead. */
MUST_USE enum status options_write_file(const struct option_row *table, const char *path,
                                        const char *const *skip);

/* Prints the rows as help on stdout: "  --batch N     sequences a rank (default 4)".
 * While someone listens the table goes to him instead: so a manual or the completion of a
 * shell is made of the tables that the program reads its options with. */
void options_print_help(const struct option_row *table);
void options_listen(void (*listener)(void *arg, const struct option_row *table),
                    void *arg);

/* Value of one row as text, as options_write_file prints it; of OPTION_TEXTS the first.
 */
void option_format(const struct option_row *row, char *buf, size_t buf_bytes);

/* The word of `words` (separated by '|') nearest to `typed` in edit distance, or NULL
 * when none is near. Writes into buf. */
const char *nearest_word(const char *typed, const char *words, char *buf,
                         size_t buf_bytes);

#endif
