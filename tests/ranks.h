/* ranks.h - tests of several ranks: a function run in n processes, watched by the launcher's own
 * watch. */
#ifndef TN_TESTS_RANKS_H
#define TN_TESTS_RANKS_H
#include "engine/base/clock.h"
#include "engine/launch.h"
#include "tests/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef tn_status (*ranks_fn)(const tn_world *w, const void *user);

typedef struct ranks_job {
    ranks_fn fn;
    const void *user;
} ranks_job;

/* As lua/titan.c ends a rank. */
static void ranks_become(const tn_launch_child *c, const tn_launch *l)
{
    const ranks_job *job = l->user;
    tn_world w = {.rank = c->rank,
                  .size = l->n,
                  .local_rank = c->rank,
                  .local_size = l->n,
                  .control_fd = l->control_fd};
    tn_status st = job->fn(&w, job->user);
    if (st) tn_world_failed(&w, tn_error_text());
    _exit((int)st);
}

/* n ranks run fn; how the launcher says it went. */
TN_UNUSED static tn_status ranks_run(int n, ranks_fn fn, const void *user, double *seconds_out)
{
    ranks_job job = {fn, user};
    tn_launch l = {.n = n, .become = ranks_become, .user = &job, .control_fd = -1, .input_fd = -1};
    int signal_number;
    for (int i = 0; i < n; i++) l.child[i] = (tn_launch_child){.rank = i, .output_fd = -1};
    double begun = tn_clock_s();
    tn_status st = tn_launch_run(&l, &signal_number);
    if (seconds_out) *seconds_out = tn_clock_s() - begun;
    return st;
}

/* Nothing is left: no child, no file in shared memory whose name is ours. */
TN_UNUSED static void ranks_check_clean(void)
{
    struct dirent *e;
    TN_CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    DIR *d = opendir("/dev/shm");
    while (d && (e = readdir(d)))
        TN_CHECK_MSG(!strstr(e->d_name, "titan"), "/dev/shm/%s is left", e->d_name);
    if (d) closedir(d);
}

#endif
