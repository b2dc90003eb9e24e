#include "engine/launch.h"

#include "engine/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double GRACE_S = 2, POLL_S = 0.25;

static void kill_all(const tn_launch *l, int number)
{
    for (int i = 0; i < l->n; i++)
        if (l->child[i].pid > 0) kill(l->child[i].pid, number);
}

static void kill_by(tn_launch *l, double when)
{
    if (!(l->kill_at > 0) || when < l->kill_at) l->kill_at = when;
}

/* ------------------------------------------------------------ ends */

static bool stopped(const tn_launch *l, int status)
{
    return (WIFEXITED(status) && WEXITSTATUS(status) >= 128) ||
           (l->signal && WIFSIGNALED(status) && WTERMSIG(status) == l->signal);
}

/* An abort that its writer did not live to finish (comm_page.h, 2). */
static void free_half_abort(tn_launch *l, int rank)
{
    int half = -(1 + rank);
    atomic_compare_exchange_strong(&l->page->aborted, &half, 0);
}

static void ended(tn_launch *l, tn_launch_child *c, int status)
{
    char text[96];
    c->pid = 0;
    c->status = status;
    l->left--;
    atomic_store(&l->page->rank[c->rank].ended, 1 + status);
    free_half_abort(l, c->rank);
    if (!status || stopped(l, status)) {
        if (!l->one_is_done)
            kill_by(l, tn_clock_s() + (double)atomic_load(&l->page->timeout_ms) / 1000);
        l->one_is_done = true;
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == TN_LAUNCH_NO_START)
        snprintf(text, sizeof text, "could not be started");
    else if (WIFEXITED(status))
        snprintf(text, sizeof text, "ended with exit status %d and said nothing",
                 WEXITSTATUS(status));
    else snprintf(text, sizeof text, "%s", tn_comm_page_look(l->page, c->rank).s);
    tn_comm_page_abort(l->page, l->n, c->rank, text);
    if (!l->failed) kill_by(l, tn_clock_s() + GRACE_S);
    l->failed = true;
}

static void reap(tn_launch *l)
{
    int status;
    for (int i = 0; i < l->n; i++)
        if (l->child[i].pid > 0 && waitpid(l->child[i].pid, &status, WNOHANG) == l->child[i].pid)
            ended(l, &l->child[i], status);
}

/* Time is up (2). */
static void kill_rest(tn_launch *l)
{
    for (int i = 0; i < l->n && !l->failed; i++) {
        char text[160];
        if (!l->child[i].pid) continue;
        snprintf(text, sizeof text,
                 "%s and did not end within %g s of the others (comm.train_timeout_s)",
                 tn_comm_page_look(l->page, i).s, (double)atomic_load(&l->page->timeout_ms) / 1000);
        tn_comm_page_abort(l->page, l->n, i, text);
        l->failed = true;
    }
    kill_all(l, SIGKILL);
    l->kill_at = 0;
}

static void watch(tn_launch *l, const sigset_t *wanted)
{
    double before = tn_clock_s();
    while (l->left > 0) {
        struct timespec nap = {0, (long)(POLL_S * 1e9)};
        int number = sigtimedwait(wanted, NULL, &nap);
        if (number == SIGINT || number == SIGTERM) {
            l->signal = number;
            kill_all(l, l->n_signals++ ? SIGKILL : number);
        }
        reap(l);
        double now = tn_clock_s();
        if (l->kill_at > 0 && now - before > 1)
            l->kill_at += now - before; /* the whole job was stopped and went on */
        before = now;
        if (l->kill_at > 0 && now > l->kill_at) kill_rest(l);
    }
}

/* ------------------------------------------------------------ the verdict */

static void write_recorders(const tn_launch *l)
{
    char path[PATH_MAX];
    if (!atomic_load(&l->page->has_folder)) return;
    for (int r = 0; r < l->n; r++) {
        snprintf(path, sizeof path, "%s/flight_rank_%d.json", l->page->folder, r);
        if (tn_comm_page_record(l->page, r, path))
            tn_error_clear(); /* the failure itself is more important */
    }
}

/* The last lines that a hidden rank printed before it had a log file: a sanitizer's or a library's
 * last words. */
static tn_status add_last_words(const tn_launch *l, int rank, tn_status st)
{
    char text[1024];
    int fd = l->child[rank].output_fd;
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (atomic_load(&l->page->rank[rank].logged) && atomic_load(&l->page->has_folder))
        return tn_error_note(st, "what rank %d printed is in %s/logs/rank_%d.log", rank,
                             l->page->folder, rank);
    if (size <= 0 || !WIFSIGNALED(l->child[rank].status)) return st;
    off_t from = size < (off_t)sizeof text ? 0 : size - (off_t)sizeof text + 1;
    ssize_t n = pread(fd, text, sizeof text - 1, from);
    if (n <= 0) return st;
    text[n] = 0;
    return tn_error_note(st, "%s", text);
}

static tn_status verdict(tn_launch *l, int *signal_out)
{
    bool all_refuse = true, stop = false;
    int culprit = atomic_load(&l->page->aborted) - 1, by = l->signal;
    for (int i = 0; i < l->n; i++) {
        int s = l->child[i].status;
        all_refuse &= WIFEXITED(s) && WEXITSTATUS(s) == TN_BAD_INPUT;
        stop |= stopped(l, s);
        if (WIFEXITED(s) && WEXITSTATUS(s) > 128) by = WEXITSTATUS(s) - 128;
    }
    if (l->n_signals > 1 || (culprit < 0 && stop) ||
        (culprit >= 0 && stopped(l, l->child[culprit].status))) {
        *signal_out = by ? by : SIGTERM;
        return TN_STOPPED;
    }
    if (culprit < 0) return TN_OK;
    write_recorders(l);
    if (all_refuse) return tn_error_give(TN_BAD_INPUT, l->page->reason + l->page->plain);
    bool refused = WIFEXITED(l->child[culprit].status) &&
                   WEXITSTATUS(l->child[culprit].status) == TN_BAD_INPUT;
    return add_last_words(l, culprit,
                          tn_error_give(refused ? TN_BAD_INPUT : TN_FAILED, l->page->reason));
}

/* ------------------------------------------------------------ all */

static tn_status start(tn_launch *l, tn_launch_child *c, const sigset_t *before)
{
    if (c->hidden) {
        c->output_fd = memfd_create("titan-output", MFD_CLOEXEC);
        if (c->output_fd < 0 || fcntl(c->output_fd, F_SETFL, O_APPEND))
            TN_FAIL(TN_FAILED, "world: no memory for rank %d's output: %s", c->rank,
                    strerror(errno));
    }
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) TN_FAIL(TN_FAILED, "world: cannot start rank %d: %s", c->rank, strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) raise(SIGKILL);
        sigprocmask(SIG_SETMASK, before, NULL);
        l->become(c, l);
    }
    c->pid = pid;
    l->left++;
    atomic_store(&l->page->rank[c->rank].pid, (int)pid);
    return TN_OK;
}

static tn_status make_page(tn_launch *l)
{
    l->control_fd = memfd_create("titan", 0);
    if (l->control_fd < 0 || ftruncate(l->control_fd, (off_t)sizeof(tn_comm_page)))
        TN_FAIL(TN_FAILED, "world: no shared memory: %s", strerror(errno));
    TN_TRY(tn_comm_page_map(l->control_fd, &l->page));
    atomic_store(&l->page->launched, 1);
    atomic_store(&l->page->timeout_ms, 100000);
    return TN_OK;
}

tn_status tn_launch_run(tn_launch *l, int *signal_out)
{
    sigset_t wanted, before;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &wanted, &before);
    tn_status st = make_page(l);
    for (int i = 0; i < l->n && !st; i++) st = start(l, &l->child[i], &before);
    if (st) kill_all(l, SIGKILL);
    if (l->page) watch(l, &wanted);
    if (!st) st = verdict(l, signal_out);
    sigprocmask(SIG_SETMASK, &before, NULL);
    for (int i = 0; i < l->n; i++)
        if (l->child[i].output_fd >= 0) close(l->child[i].output_fd);
    tn_comm_page_unmap(l->page);
    if (l->control_fd >= 0) close(l->control_fd);
    return st;
}
