/* cmd.h - one function a subcommand, one file each; main.c holds the table.
 *
 * Every subcommand knows --help: it prints its usage line and its options on stdout and
 * returns ST_OK; `weft help NAME` calls it that way.
 */
#ifndef WEFT_CMD_CMD_H
#define WEFT_CMD_CMD_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* argv[0] is the subcommand's name. Returns what the process exit code is made of; the
 * text of fail() is printed by main, once. Functions that use ranks agree among
 * themselves first and return ST_OK's exit code through *exit_code when they have already
 * told the user. */
enum status cmd_tokenize(int argc, char **argv, int *exit_code);
enum status cmd_train(int argc, char **argv, int *exit_code);
enum status cmd_eval(int argc, char **argv, int *exit_code);
enum status cmd_generate(int argc, char **argv, int *exit_code);
enum status cmd_convert(int argc, char **argv, int *exit_code);
enum status cmd_info(int argc, char **argv, int *exit_code);
enum status cmd_plan(int argc, char **argv, int *exit_code);
enum status cmd_report(int argc, char **argv, int *exit_code);
enum status cmd_watch(int argc, char **argv, int *exit_code);
enum status cmd_check(int argc, char **argv, int *exit_code);
enum status cmd_bench(int argc, char **argv, int *exit_code);
enum status cmd_help(int argc, char **argv, int *exit_code);

struct command {
    const char *name;
    enum status (*run)(int argc, char **argv, int *exit_code);
    const char *summary;       /* one line of `weft help` */
    bool outlives_its_readers; /* a closed pipe on stdout or stderr does not end it */
    bool one_process;          /* refused under mpirun with several ranks */
};

/* Ends with a row whose name is NULL. */
extern const struct command command_table[];

/* The command of that name; without one NULL, and fail() names the nearest. */
const struct command *command_find(const char *name);

/* A manual page, and the completion of bash, made of what the commands say of themselves.
 */
MUST_USE enum status manual_print_page(void);
MUST_USE enum status manual_print_completion(void);

/* Prints what `weft help` prints. */
void command_print_overview(FILE *out);

#endif
