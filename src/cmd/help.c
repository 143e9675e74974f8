/* SPDX-License-Identifier: MIT */
/* help.c - the overview, and the help of one command.
 *
 * Options are described by each command's own table (base/options.h), so `weft help NAME`
 * is that command with --help: there is no second list to keep true.
 */
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"

void command_print_overview(FILE *out)
{
    fprintf(out,
            "weft %s - trains GPT-2 models on CPU clusters\n\n"
            "usage: weft COMMAND [OPTIONS]\n\n",
            WEFT_VERSION);
    for (const struct command *c = command_table; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fprintf(
        out,
        "\n'weft help COMMAND' lists the options of a command; 'weft --version' prints "
        "the version.\n");
}

enum status cmd_help(int argc, char **argv, int *exit_code)
{
    if (argc > 2)
        return fail(ST_USAGE, "help: found %d arguments, needs one command at most",
                    argc - 1);
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
        command_print_overview(stdout);
        return ST_OK;
    }

    const struct command *c = command_find(argv[1]);
    char help_option[] = "--help";
    char *sub_argv[] = {argv[1], help_option, NULL};

    return c ? c->run(2, sub_argv, exit_code) : ST_USAGE;
}
