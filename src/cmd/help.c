/* SPDX-License-Identifier: MIT */
/* help.c - the overview, and the help of one command.
 *
 * Options are described by each command's own table (base/options.h), so `weft help NAME`
 * is that command with --help: there is no second list to keep true.
 */
#include <stdio.h>
#include <string.h>

#include "base/options.h"
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

/* Words: a command, or bench and one of its own. */
static enum status help_on(char **words, int n, int *exit_code)
{
    const struct command *c = command_find(words[0]);
    char help_option[] = "--help";
    char *sub_argv[] = {words[0], n > 1 ? words[1] : help_option, help_option, NULL};

    if (!c)
        return ST_USAGE;
    if (n > 1 && c->run != cmd_bench)
        return fail(ST_USAGE, "help: found %d arguments, needs one command at most", n);
    return c->run(n + 1, sub_argv, exit_code);
}

enum status cmd_help(int argc, char **argv, int *exit_code)
{
    bool man = false, completion = false, help = false;
    struct option_row table[] = {
        {"man", OPTION_SWITCH, &man, NULL, "print the manual page, for man -l", 0, 0},
        {"bash-completion", OPTION_SWITCH, &completion, NULL,
         "print the completion of bash, to be sourced", 0, 0},
        {"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
        {0}};
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    if (st != ST_OK)
        return st;
    if (n_rest > 2)
        return fail(ST_USAGE, "help: found %d arguments, needs one command at most",
                    n_rest);
    if (man)
        return manual_print_page();
    if (completion)
        return manual_print_completion();
    if (n_rest > 0 && strcmp(rest[0], "help") != 0)
        return help_on(rest, n_rest, exit_code);
    command_print_overview(stdout);
    printf("\nexample: weft help train\n\noptions of help:\n");
    options_print_help(table);
    return ST_OK;
}
