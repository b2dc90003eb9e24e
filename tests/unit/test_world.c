/* Who am I, and what a launcher does: this program starts itself, and its first argument says what
 * a rank does. */
#include "engine/base/file.h"
#include "engine/base/pool.h"
#include "engine/comm.h"
#include "tests/ranks.h"
#include "tests/scratch.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* ------------------------------------------------------------ the environment */

static const char *const ALL[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "TORCHELASTIC_USE_AGENT_STORE",
                                  "TITAN_WORLD"};

/* "RANK=1 WORLD_SIZE=2" and nothing else of ours */
static tn_status find(const char *settings, tn_world *w)
{
    char text[512], *save = NULL;
    for (int i = 0; i < TN_COUNT(ALL); i++) unsetenv(ALL[i]);
    snprintf(text, sizeof text, "%s", settings);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        *equals = 0;
        setenv(word, equals + 1, 1);
    }
    tn_status st = tn_world_find(w);
    for (int i = 0; i < TN_COUNT(ALL); i++) unsetenv(ALL[i]);
    return st;
}

static void test_find(void)
{
    tn_world w;
    TN_CHECK_OK(find("", &w));
    TN_CHECK(w.rank == 0 && w.size == 1 && w.control_fd == -1 && !w.hidden);
    TN_CHECK_OK(find("RANK=0 WORLD_SIZE=1", &w));
    TN_CHECK(w.rank == 0 && w.size == 1);
    TN_CHECK_OK(
        find("RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 MASTER_ADDR=localhost MASTER_PORT=29500", &w));
    TN_CHECK(w.rank == 3 && w.size == 4 && w.local_rank == 3 && w.local_size == 4 &&
             w.port == 29500 && w.control_fd == -1);
    TN_CHECK_TEXT(w.master, "localhost");
    TN_CHECK_OK(find("RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4 MASTER_ADDR=::1 "
                     "MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True",
                     &w));
    TN_CHECK(w.port == 29501);
    const char *const bad[][2] = {
        {"RANK=1", "WORLD_SIZE unset"},
        {"WORLD_SIZE=2", "RANK unset"},
        {"LOCAL_RANK=0", "WORLD_SIZE must"},
        {"RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=1",
         "RANK must be a number below"},
        {"RANK=x WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=1", "RANK=x"},
        {"RANK=0 WORLD_SIZE=0 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE must"},
        {"RANK=0 WORLD_SIZE=2x LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE=2x"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=1",
         "LOCAL_RANK and RANK differ"},
        {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "LOCAL_RANK must"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_PORT=1", "MASTER_ADDR must"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=a", "MASTER_PORT must"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=a MASTER_PORT=99999", "MASTER_PORT must"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=1",
         "LOCAL_WORLD_SIZE must"},
        {"RANK=8 WORLD_SIZE=16 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1",
         "of one host"},
        {"TITAN_WORLD=0", "TITAN_WORLD='0'"},
        {"TITAN_WORLD=5;2;3;0", "TITAN_WORLD="},
    };
    for (int i = 0; i < TN_COUNT(bad); i++)
        TN_CHECK_FAILS(find(bad[i][0], &w), TN_BAD_INPUT, bad[i][1]);
    setenv("TITAN_WORLD", "0 2 0 0", 1); /* a descriptor that is no page */
    TN_CHECK_FAILS(tn_world_find(&w), TN_BAD_INPUT, "not there");
    unsetenv("TITAN_WORLD");
}

static void test_threads(void)
{
    tn_world w = {.size = 1, .local_size = 1};
    TN_CHECK(tn_world_threads(&w) == tn_pool_cores());
    w.local_size = tn_pool_cores();
    TN_CHECK(tn_world_threads(&w) == 1);
    w.local_size = 64;
    TN_CHECK(tn_world_threads(&w) == (tn_pool_cores() > 64 ? tn_pool_cores() / 64 : 1));
}

/* ------------------------------------------------------------ what a rank does */

static volatile sig_atomic_t told;

static void on_signal(int number)
{
    told = number;
}

static tn_status meet(const tn_world *w, const char *folder)
{
    tn_comm *c;
    TN_TRY(tn_comm_open(w, 20, &c));
    tn_comm_set_timeout(c, 1);
    printf("rank %d before\n", w->rank);
    if (folder) {
        TN_TRY(tn_world_log(w, folder));
        TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "folder", 0));
    }
    printf("rank %d behind\n", w->rank);
    fflush(stdout);
    TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "met", 1));
    tn_comm_close(c);
    return TN_OK;
}

static int act(const char *what, const char *folder)
{
    tn_world w;
    tn_status st = tn_world_find(&w);
    char text[64] = "";
    if (!st && !strcmp(what, "meet")) st = meet(&w, NULL);
    else if (!st && !strcmp(what, "log")) st = meet(&w, folder);
    else if (!st && !strcmp(what, "refuse")) st = tn_error(TN_BAD_INPUT, "recipe: no; yes");
    else if (!st && !strcmp(what, "one refuses"))
        st = w.rank == 1 ? tn_error(TN_BAD_INPUT, "disk: no; yes") : meet(&w, NULL);
    else if (!st && !strcmp(what, "one fails"))
        st = w.rank == 1 ? tn_error(TN_FAILED, "disk: full") : meet(&w, folder);
    else if (!st && !strcmp(what, "one is silent") && w.rank == 1) return 9;
    else if (!st && !strcmp(what, "one dies late")) {
        st = meet(&w, folder);
        if (w.rank == 1) raise(SIGKILL);
    } else if (!st && !strcmp(what, "one stays")) {
        st = meet(&w, folder);
        if (w.rank == 1) raise(SIGSTOP);
    } else if (!st && !strcmp(what, "one cries")) {
        if (w.rank == 1) {
            fprintf(stderr, "last words\n");
            abort();
        }
        st = meet(&w, NULL);
    } else if (!st && !strcmp(what, "input")) {
        if (!fgets(text, sizeof text, stdin) || strcmp(text, "a recipe\n"))
            st = tn_error(TN_FAILED, "input is '%s'", text);
    } else if (!st && !strcmp(what, "wait")) {
        signal(SIGTERM, on_signal);
        st = meet(&w, NULL);
        if (w.rank == 0 && !st) kill(getppid(), SIGTERM);
        for (int i = 0; i < 1000 && !told && !st; i++)
            nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
        if (told) return 128 + told;
        st = tn_error(TN_FAILED, "nobody told me");
    }
    if (st) tn_world_failed(&w, tn_error_text());
    return (int)st;
}

/* ------------------------------------------------------------ launching */

static char *program;
static int stopped_by;

static tn_status launch(int n, const char *what, const char *folder)
{
    char *argv[] = {program, (char *)(uintptr_t)what, (char *)(uintptr_t)folder, NULL};
    tn_world_launch_options o = {
        .ranks = n, .argv = argv, .show = NULL, .input = !strcmp(what, "input")};
    stopped_by = 0;
    int keep = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY); /* rank 0 talks */
    fflush(stdout);
    if (keep < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0)
        return tn_error(TN_FAILED, "no descriptors");
    tn_status st = tn_world_launch(&o, &stopped_by);
    dup2(keep, STDOUT_FILENO);
    close(keep);
    close(null);
    ranks_check_clean();
    return st;
}

static void check_file(const char *folder, const char *name, const char *want)
{
    char path[512], *text;
    int64_t n;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!TN_CHECK_OK(tn_file_read(path, 1 << 20, &text, &n))) return;
    TN_CHECK_MSG(strstr(text, want), "%s: '%s' lacks '%s'", name, text, want);
    tn_free(text);
}

static void test_launch(void)
{
    const char *folder = tn_scratch_path("run");
    char path[512];
    TN_CHECK_OK(launch(3, "meet", NULL));
    TN_CHECK_OK(launch(3, "log", folder));
    check_file(folder, "logs/rank_0.log", "rank 0 behind\n");
    check_file(folder, "logs/rank_1.log", "rank 1 before\nrank 1 behind\n");
    check_file(folder, "logs/rank_2.log", "rank 2 before\nrank 2 behind\n");
    TN_CHECK_FAILS(launch(3, "one dies late", folder), TN_FAILED, "rank 1 died: signal 9");
    check_file(folder, "flight_rank_1.json", "\"met\"");
    TN_CHECK_FAILS(launch(2, "one stays", folder), TN_FAILED, "rank 1 is stopped by a signal");
    TN_CHECK_OK(launch(2, "log", folder)); /* clears what an earlier run has left */
    snprintf(path, sizeof path, "%s/flight_rank_1.json", folder);
    TN_CHECK(!tn_file_exists(path));
    snprintf(path, sizeof path, "%s/logs/rank_2.log", folder);
    TN_CHECK(!tn_file_exists(path));
    tn_status st = launch(3, "refuse", NULL);
    TN_CHECK(st == TN_BAD_INPUT);
    TN_CHECK_TEXT(tn_error_text(), "recipe: no; yes");
    st = launch(3, "one refuses", NULL);
    TN_CHECK(st == TN_BAD_INPUT);
    TN_CHECK_TEXT(tn_error_text(), "rank 1: disk: no; yes");
    TN_CHECK_FAILS(launch(3, "one fails", NULL), TN_FAILED, "rank 1: disk: full");
    TN_CHECK_FAILS(launch(2, "one is silent", NULL), TN_FAILED,
                   "rank 1 ended with exit status 9 and said nothing");
    TN_CHECK_FAILS(launch(2, "one cries", NULL), TN_FAILED, "\nlast words");
    TN_CHECK(launch(3, "wait", NULL) == TN_STOPPED && stopped_by == SIGTERM);
}

static void test_options(void)
{
    char *argv[] = {program, (char *)(uintptr_t) "meet", NULL};
    const char *const bad[] = {
        "", "x", "0,", "3", "-1", "0,,1", "0 1", "all,0", "99999999999999999999"};
    int number;
    for (int i = 0; i < TN_COUNT(bad); i++) {
        tn_world_launch_options o = {.ranks = 3, .argv = argv, .show = bad[i]};
        TN_CHECK_FAILS(tn_world_launch(&o, &number), TN_BAD_INPUT, "--log-ranks");
    }
    tn_world_launch_options o = {.ranks = TN_COMM_MAX_RANKS + 1, .argv = argv};
    TN_CHECK_FAILS(tn_world_launch(&o, &number), TN_BAD_INPUT, "at most");
    int pipes[2], keep = dup(STDIN_FILENO);
    if (!TN_CHECK(pipe(pipes) == 0 && write(pipes[1], "a recipe\n", 9) == 9 &&
                  dup2(pipes[0], STDIN_FILENO) == 0))
        return;
    close(pipes[1]);
    TN_CHECK_OK(launch(3, "input", NULL));
    dup2(keep, STDIN_FILENO);
    close(keep);
    close(pipes[0]);
}

int main(int argc, char **argv)
{
    if (argc > 1) return act(argv[1], argc > 2 ? argv[2] : NULL);
    program = argv[0];
    test_find();
    test_threads();
    test_launch();
    test_options();
    return tn_test_done("world");
}
