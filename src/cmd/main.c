/* SPDX-License-Identifier: MIT */
/* main.c - finds the subcommand, runs it, says once what went wrong.
 *
 * Invariant: a failure is told once by the whole job, here or by the ranks among
 * themselves, and the exit code is that of base/status.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/options.h"
#include "cmd/cmd.h"
#include "task/task.h"

const struct command command_table[] = {
    {"tokenize", cmd_tokenize, "turn text files into token files", false, true},
    {"train", cmd_train, "train a model, under mpirun on many ranks", true, false},
    {"eval", cmd_eval, "measure loss and accuracy of a model, under mpirun too", false,
     false},
    {"generate", cmd_generate, "continue a prompt with a trained model", false, false},
    {"convert", cmd_convert, "write a model in another file format", false, true},
    {"info", cmd_info, "say what a file or run folder is and whether it is whole", false,
     true},
    {"plan", cmd_plan, "predict memory, messages and step time of a job", false, true},
    {"report", cmd_report, "draw runs as curves, in one HTML file", false, true},
    {"watch", cmd_watch, "follow a run from another terminal", false, true},
    {"check", cmd_check, "test this machine: kernels, tasks, MPI", false, false},
    {"bench", cmd_bench, "measure network, update, products, kernels, steps", false,
     false},
    {"help", cmd_help, "this overview, or the options of one command", false, false},
    {0}};

/* The program's own options are words in the place of a command. */
static enum status unknown_option(const char *typed)
{
    char near[64];

    if (nearest_word(typed, "--help|--version", near, sizeof near))
        return fail(ST_USAGE, "%s: no such option; did you mean '%s'?", typed, near);
    return fail(ST_USAGE,
                "%s: found an option before the command, needs weft COMMAND [OPTIONS]; "
                "see 'weft help'",
                typed);
}

const struct command *command_find(const char *name)
{
    char words[256] = "";
    char near[64];
    size_t used = 0;

    for (const struct command *c = command_table; c->name; c++) {
        if (!strcmp(c->name, name))
            return c;
        if (used < sizeof words)
            used += (size_t)snprintf(words + used, sizeof words - used, "%s%s",
                                     used ? "|" : "", c->name);
    }
    /* The caller returns ST_USAGE itself. */
    enum status st =
        name[0] == '-' ? unknown_option(name)
        : nearest_word(name, words, near, sizeof near)
            ? fail(ST_USAGE, "%s: no such command; did you mean '%s'?", name, near)
            : fail(ST_USAGE, "%s: no such command; see 'weft help'", name);
    (void)st;
    return NULL;
}

/* What the launcher says of this process, without starting MPI; `otherwise` where no
 * launcher is. */
static long launcher_number(const char *const names[3], long otherwise)
{
    for (int i = 0; i < 3; i++) {
        const char *text = getenv(names[i]);

        if (text)
            return strtol(text, NULL, 10);
    }
    return otherwise;
}

/* One line of a job, however many ranks were started: for what is found wrong before the
 * ranks know each other. */
static void tell_once(void)
{
    static const char *const rank[3] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};

    if (launcher_number(rank, 0) == 0)
        log_error("%s", fail_text());
}

static enum status check_alone(const struct command *c)
{
    static const char *const size[3] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                        "SLURM_STEP_NUM_TASKS"};
    long ranks = launcher_number(size, 1);

    if (c->one_process && ranks > 1)
        return fail(ST_USAGE, "%s: found %ld ranks, runs as one process", c->name, ranks);
    return ST_OK;
}

static int run_command(const struct command *c, int argc, char **argv)
{
    int exit_code = 0;

    if (check_alone(c) != ST_OK) {
        tell_once();
        return status_exit_code(ST_USAGE);
    }

    /* A run of days goes on when the terminal or log reader it writes to is gone; the
     * short commands end quietly, as `weft info FILE | head` should. */
    if (c->outlives_its_readers)
        (void)signal(SIGPIPE, SIG_IGN);
    /* A file grown past `ulimit -f` is a failed write to be told, not a reason to die. */
    (void)signal(SIGXFSZ, SIG_IGN);
    enum status st = c->run(argc, argv, &exit_code);
    if (st != ST_OK) {
        log_error("%s", fail_text());
        return status_exit_code(st);
    }
    return exit_code;
}

/* Results that never reached the disk or the pipe are no success. */
static int finish_stdout(const struct command *c, int exit_code)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || exit_code != 0)
        return exit_code;
    if (errno == EPIPE && c && c->outlives_its_readers)
        return 0;
    log_error("standard output: %s", errno ? strerror(errno) : "write error");
    return 1;
}

/* A stream that was started closed must not become the next file we open, which would
 * then get the log. Results on such a stdout still fail: it is open for reading only. */
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 &&
            open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd)
            _exit(1); /* nowhere to say it */
}

int main(int argc, char **argv)
{
    const struct command *c = NULL;
    int exit_code = 0;

    fill_standard_streams();
    task_configure_runtime();
    if (argc < 2) {
        command_print_overview(stderr);
        exit_code = 2;
    } else if (!strcmp(argv[1], "--version")) {
        printf("weft %s\n", WEFT_VERSION);
    } else if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        command_print_overview(stdout);
    } else {
        c = command_find(argv[1]);
        if (c) {
            exit_code = run_command(c, argc - 1, argv + 1);
        } else {
            tell_once();
            exit_code = status_exit_code(ST_USAGE);
        }
    }
    return finish_stdout(c, exit_code);
}
