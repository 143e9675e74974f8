/* cmd.h - one function a subcommand, one file each; main.c holds the table. */
#ifndef WEFT_CMD_CMD_H
#define WEFT_CMD_CMD_H

#include "base/status.h"

/* argv[0] is the subcommand's name. Returns what the process exit code is made of; the
 * text of fail() is printed by main, once. Functions that use ranks agree among
 * themselves first and return ST_OK's exit code through *exit_code when they have already
 * told the user. */
enum status cmd_tokenize(int argc, char **argv, int *exit_code);
enum status cmd_train(int argc, char **argv, int *exit_code);
enum status cmd_generate(int argc, char **argv, int *exit_code);
enum status cmd_info(int argc, char **argv, int *exit_code);
enum status cmd_check(int argc, char **argv, int *exit_code);
enum status cmd_help(int argc, char **argv, int *exit_code);

#endif
