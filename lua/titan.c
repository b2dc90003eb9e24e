/* titan.c - the program: take the command line apart, run one command, print its error once, say by
 * the exit status how it went (commands.h). */
#include "engine/base/plant.h"
#include "engine/world.h"
#include "lua/commands.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int stopped_by = SIGTERM;

void tn_command_stopped(int signal_number)
{
    stopped_by = signal_number;
}

/* "titan: error: " and the record; its context lines indented. One write, so that lines of several
 * ranks do not mix. */
static void print_error(const char *text)
{
    char out[8192];
    size_t n = 0;
    const char *mark = "titan: error: ";
    while (*text && n + 32 < sizeof out) {
        size_t line = strcspn(text, "\n");
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s\n", mark, (int)line, text);
        if (n >= sizeof out) n = sizeof out - 1;
        text += line + (text[line] == '\n');
        mark = "    ";
    }
    ssize_t written = write(STDERR_FILENO, out, n);
    (void)written;
}

/* The recipe's own print: standard output belongs to the command's answer. */
static void print_line(const char *line)
{
    fprintf(stderr, "%s\n", line);
}

/* In a signal handler, when a recipe does not come back from a C function (host.h). */
static void give_up(const char *text)
{
    print_error(text);
    _exit(TN_BAD_INPUT);
}

static tn_status print_config(const tn_args *a)
{
    tn_recipe *r = NULL;
    TN_TRY(tn_args_recipe(a, &r));
    fputs(tn_recipe_config(r), stdout);
    tn_recipe_close(r);
    return TN_OK;
}

static tn_status launch(const tn_args *a, const tn_world *world, char **argv)
{
    tn_world_launch_options o = {.ranks = a->ranks,
                                 .argv = argv,
                                 .show = a->log_ranks,
                                 .input = a->n_paths && !strcmp(a->paths[0], "-")};
    int number = 0;
    if (world->size > 1)
        TN_FAIL(TN_BAD_INPUT,
                "command line: -n %d: this is already rank %d of the %d that the environment's "
                "RANK and WORLD_SIZE speak of; leave -n out",
                a->ranks, world->rank, world->size);
    tn_status st = tn_world_launch(&o, &number);
    if (st == TN_STOPPED) tn_command_stopped(number);
    return st;
}

static tn_status run(int argc, char **argv, tn_world *world)
{
    tn_args a;
    TN_TRY(tn_args_parse(argc, argv, &a));
    a.host.print = print_line;
    a.host.overrun = give_up;
    a.home = getenv("HOME");
    a.state_home = getenv("XDG_STATE_HOME");
    tn_status st = tn_world_find(world);
    if (!st && a.ranks > 1 && world->control_fd < 0 && !a.print_config)
        st = launch(&a, world, argv);
    else if (!st) st = a.print_config ? print_config(&a) : a.command->run(&a);
    tn_args_fini(&a);
    return st;
}

/* An answer that could not be written is a failure, unless the reader has gone (`titan help |
 * head`). */
static tn_status finish_output(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return TN_OK;
    if (errno == EPIPE) return TN_OK;
    TN_FAIL(TN_FAILED, "standard output: cannot write: %s",
            errno ? strerror(errno) : "an earlier write failed");
}

/* By the launcher, where there is one and it writes to the same terminal. */
static void report(const tn_world *world)
{
    if (!tn_world_failed(world, tn_error_text())) print_error(tn_error_text());
}

int main(int argc, char **argv)
{
    tn_world world = {.size = 1, .control_fd = -1};
    signal(SIGPIPE, SIG_IGN);
    tn_status st = tn_plant_choose(getenv("TITAN_PLANT"));
    if (!st) st = run(argc, argv, &world);
    if (st != TN_OK && st != TN_STOPPED) report(&world);
    tn_status output = finish_output();
    if (output && !st) {
        report(&world);
        st = output;
    }
    return st == TN_STOPPED ? 128 + stopped_by : (int)st;
}
