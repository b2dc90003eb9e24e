#include "engine/world.h"

#include "engine/base/pool.h"
#include "engine/comm_page.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char VARIABLE[] = "TITAN_WORLD"; /* "rank size fd" */

tn_status tn_world_find(tn_world *out)
{
    const char *text = getenv(VARIABLE);
    tn_world w = {.size = 1, .local_size = 1, .control_fd = -1};
    if (text && (sscanf(text, "%d %d %d", &w.rank, &w.size, &w.control_fd) != 3 || w.size < 1 || w.rank < 0 || w.rank >= w.size))
        TN_FAIL(TN_BAD_INPUT, "world: %s='%s' is not what the launcher sets; unset it", VARIABLE, text);
    w.local_rank = w.rank;
    w.local_size = w.size;
    *out = w;
    return TN_OK;
}

int tn_world_threads(const tn_world *w)
{
    int n = tn_pool_cores() / w->local_size;
    return n > 0 ? n : 1;
}

static volatile sig_atomic_t passed_on;

static void on_signal(int number)
{
    passed_on = number;
}

static pid_t start(int rank, int n, int fd, char *const *argv)
{
    char text[64];
    pid_t parent = getpid(), pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    snprintf(text, sizeof text, "%d %d %d", rank, n, fd);
    setenv(VARIABLE, text, 1);
    if (rank > 0) { /* output of rank 0 only */
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(1);
    }
    execv("/proc/self/exe", argv);
    _exit(127);
}

static void kill_all(const pid_t *pids, int n, int number)
{
    for (int i = 0; i < n; i++)
        if (pids[i] > 0) kill(pids[i], number);
}

/* Waits for all; the first bad end is kept, and the others get a moment to say goodbye before they are killed. */
static void supervise(pid_t *pids, int n, int *first, int *status)
{
    int left = n;
    *first = -1;
    *status = 0;
    while (left > 0) {
        int s;
        pid_t pid = waitpid(-1, &s, 0);
        if (pid < 0 && errno == EINTR) {
            kill_all(pids, n, passed_on);
            continue;
        }
        if (pid < 0) return;
        for (int i = 0; i < n; i++) {
            if (pids[i] != pid) continue;
            pids[i] = 0;
            left--;
            if (s && *first < 0) {
                *first = i;
                *status = s;
                if (WIFSIGNALED(s)) kill_all(pids, n, SIGKILL);
            }
        }
    }
}

tn_status tn_world_launch(int n, char *const *argv)
{
    pid_t pids[TN_COMM_MAX_RANKS] = {0};
    int first, status, fd;
    if (n > TN_COMM_MAX_RANKS) TN_FAIL(TN_BAD_INPUT, "command line: -n %d: at most %d ranks on one host", n, (int)TN_COMM_MAX_RANKS);
    fd = memfd_create("titan", 0);
    if (fd < 0 || ftruncate(fd, (off_t)sizeof(tn_comm_page))) TN_FAIL(TN_FAILED, "world: no shared memory: %s", strerror(errno));
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    for (int i = 0; i < n; i++)
        if ((pids[i] = start(i, n, fd, argv)) < 0) {
            kill_all(pids, i, SIGKILL);
            TN_FAIL(TN_FAILED, "world: cannot start rank %d: %s", i, strerror(errno));
        }
    supervise(pids, n, &first, &status);
    close(fd);
    if (first < 0) return TN_OK;
    if (WIFSIGNALED(status)) TN_FAIL(TN_FAILED, "world: rank %d died first, by signal %d (%s)", first, WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) == TN_BAD_INPUT) return tn_error_give(TN_BAD_INPUT, "");
    TN_FAIL(TN_FAILED, "world: rank %d ended first, with exit status %d", first, WEXITSTATUS(status));
}
