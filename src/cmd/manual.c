/* SPDX-License-Identifier: MIT */
/* The manual page and the completion of bash. Every command is asked for its help: its
 * text is caught, and its option table comes by options_listen(). So neither can tell of
 * an option that is not there, or leave one out. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"

/* What one command says of itself. */
struct topic {
    char name[48]; /* "bench step" */
    char *text;    /* usage, description, examples */
    void (*put_option)(FILE *f, const struct topic *t, const struct option_row *row);
    FILE *f; /* takes what put_option writes, into: */
    char *options;
    size_t options_bytes;
};

static void hear_options(void *arg, const struct option_row *table)
{
    const struct topic *t = arg;

    for (const struct option_row *row = table; row->name; row++)
        t->put_option(t->f, t, row);
}

/* ---- asking a command ---- */

static enum status read_back(FILE *f, char **text)
{
    long bytes = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;

    if (bytes < 0)
        return fail(ST_IO, "help: %s", strerror(errno));
    *text = calloc(1, (size_t)bytes + 1);
    if (!*text)
        return fail(ST_NOMEM, "help: no memory for %ld bytes", bytes);
    rewind(f);
    if (fread(*text, 1, (size_t)bytes, f) != (size_t)bytes)
        return fail(ST_IO, "help: the text of a command cannot be read back");
    return ST_OK;
}

/* Runs the command for its help, with stdout in the file. */
static enum status run_for_help(const struct command *c, char *bench, FILE *f)
{
    char name[32];
    char option[] = "--help";
    char *argv[] = {name, bench ? bench : option, bench ? option : NULL, NULL};
    int kept = dup(STDOUT_FILENO);
    int exit_code = 0;
    enum status st;

    (void)snprintf(name, sizeof name, "%s", c->name);
    if (kept < 0 || fflush(stdout) != 0 || dup2(fileno(f), STDOUT_FILENO) < 0) {
        st = fail(ST_IO, "help: %s", strerror(errno));
    } else {
        st = c->run(bench ? 3 : 2, argv, &exit_code);
        (void)fflush(stdout);
        (void)dup2(kept, STDOUT_FILENO);
    }
    if (kept >= 0)
        close(kept);
    return st;
}

static void topic_release(struct topic *t)
{
    if (t->f)
        fclose(t->f);
    free(t->text);
    free(t->options);
}

/* Fills in t, whose put_option is set; released by the caller whatever is returned. */
static enum status ask(const struct command *c, const char *bench, struct topic *t)
{
    char sub[32];
    FILE *f = tmpfile();
    enum status st;

    (void)snprintf(sub, sizeof sub, "%s", bench ? bench : "");
    (void)snprintf(t->name, sizeof t->name, "%s%s%s", c->name, bench ? " " : "", sub);
    t->f = open_memstream(&t->options, &t->options_bytes);
    if (!f || !t->f) {
        st = fail(ST_IO, "help: %s", strerror(errno));
    } else {
        options_listen(hear_options, t);
        st = run_for_help(c, bench ? sub : NULL, f);
        options_listen(NULL, NULL);
        if (st == ST_OK)
            st = read_back(f, &t->text);
        (void)fflush(t->f);
    }
    if (f)
        fclose(f);
    return st;
}

/* Every command, and every benchmark of bench. */
static enum status each_topic(void (*put_option)(FILE *f, const struct topic *t,
                                                 const struct option_row *row),
                              void (*put)(const struct topic *t))
{
    enum status st = ST_OK;

    for (const struct command *c = command_table; c->name && st == ST_OK; c++) {
        bool many = !strcmp(c->name, "bench");

        for (size_t i = 0; st == ST_OK && (i == 0 || (many && bench_name(i - 1))); i++) {
            struct topic t = {.put_option = put_option};

            st = ask(c, i ? bench_name(i - 1) : NULL, &t);
            if (st == ST_OK)
                put(&t);
            topic_release(&t);
        }
    }
    return st;
}

/* ---- man ---- */

/* Text as roff wants it: what it would take for a request or an escape is hidden. */
static void put_roff(FILE *f, const char *text, size_t n)
{
    for (size_t i = 0; i < n && text[i]; i++) {
        bool first = i == 0 || text[i - 1] == '\n';

        if (first && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", f);
        if (text[i] == '\\')
            fputs("\\e", f);
        else if (text[i] == '-')
            fputs("\\-", f);
        else
            fputc(text[i], f);
    }
}

static void put_man_option(FILE *f, const struct topic *t, const struct option_row *row)
{
    char value[256];

    (void)t;
    option_format(row, value, sizeof value);
    fputs(".TP\n.B \\-\\-", f);
    put_roff(f, row->name, SIZE_MAX);
    if (row->meta) {
        fputc(' ', f);
        put_roff(f, row->meta, SIZE_MAX);
    }
    fputc('\n', f);
    put_roff(f, row->help, SIZE_MAX);
    if (row->kind != OPTION_SWITCH && value[0]) {
        fputs(" (default ", f);
        put_roff(f, value, SIZE_MAX);
        fputc(')', f);
    }
    fputc('\n', f);
}

/* The command's text as it stands, up to where its options would follow. */
static void put_man_topic(const struct topic *t)
{
    const char *end = strstr(t->text, "\noptions");

    printf(".SH WEFT ");
    for (const char *p = t->name; *p; p++)
        putchar(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
    printf("\n.nf\n");
    put_roff(stdout, t->text, end ? (size_t)(end - t->text) : strlen(t->text));
    printf("\n.fi\n%s", t->options);
}

enum status manual_print_page(void)
{
    printf(".TH WEFT 1 \"\" \"weft %s\" \"User Commands\"\n"
           ".SH NAME\nweft \\- trains GPT\\-2 models on CPU clusters\n"
           ".SH SYNOPSIS\n.B weft\n.I COMMAND\n[options]\n"
           ".SH COMMANDS\n",
           WEFT_VERSION);
    for (const struct command *c = command_table; c->name; c++) {
        printf(".TP\n.B %s\n", c->name);
        put_roff(stdout, c->summary, SIZE_MAX);
        putchar('\n');
    }
    printf(".SH EXIT STATUS\n"
           "0 done; 1 failed; 2 wrong usage; 3 loss or gradient not a finite number; 4 "
           "stopped on request after a checkpoint; 70 a fault of the program.\n"
           ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nset and not empty: no colours\n");
    return each_topic(put_man_option, put_man_topic);
}

/* ---- bash ---- */

/* One case of what may follow an option: its words, or names of files. */
static void put_bash_option(FILE *f, const struct topic *t, const struct option_row *row)
{
    if (row->kind == OPTION_SWITCH)
        return;
    fprintf(f, "    '%s --%s') words='", t->name, row->name);
    for (const char *p = row->meta; row->kind == OPTION_CHOICE && *p; p++)
        fputc(*p == '|' ? ' ' : *p, f);
    fputs("' ;;\n", f);
}

static void put_bash_topic(const struct topic *t)
{
    printf("%s", t->options);
}

static void put_bash_name(FILE *f, const struct topic *t, const struct option_row *row)
{
    (void)t;
    fprintf(f, " --%s", row->name);
}

static void put_bash_names(const struct topic *t)
{
    printf("    '%s') words='%s' ;;\n", t->name, t->options + (*t->options == ' '));
}

enum status manual_print_completion(void)
{
    printf("# Completion of bash for weft %s, printed by weft help --bash-completion.\n"
           "_weft() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local topic=${COMP_WORDS[1]} words=\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        COMPREPLY=($(compgen -W '",
           WEFT_VERSION);
    for (const struct command *c = command_table; c->name; c++)
        printf("%s ", c->name);
    printf("--version' -- \"$cur\"))\n        return\n    fi\n"
           "    if [ \"$topic\" = bench ] || [ \"$topic\" = help ]; then\n"
           "        if [ \"$COMP_CWORD\" = 2 ]; then\n"
           "            [ \"$topic\" = bench ] && words='");
    for (size_t i = 0; bench_name(i); i++)
        printf("%s%s", i ? " " : "", bench_name(i));
    printf(" --help'\n            [ \"$topic\" = help ] && words='");
    for (const struct command *c = command_table; c->name; c++)
        printf("%s ", c->name);
    printf("--man --bash-completion'\n"
           "            COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "            return\n        fi\n"
           "        [ \"$topic\" = bench ] && topic=\"bench ${COMP_WORDS[2]}\"\n    fi\n"
           "    case \"$topic $before\" in\n");
    enum status st = each_topic(put_bash_option, put_bash_topic);

    if (st != ST_OK)
        return st;
    printf("    *)\n    case $topic in\n");
    st = each_topic(put_bash_name, put_bash_names);
    printf("    esac\n"
           "    case $cur in -*) ;; *) words= ;; esac ;;\n"
           "    esac\n"
           "    [ -n \"$words\" ] && COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "}\ncomplete -o default -F _weft weft\n");
    return st;
}
