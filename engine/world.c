#include "engine/world.h"

#include "engine/base/file.h"
#include "engine/base/pool.h"
#include "engine/comm_page.h"
#include "engine/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char VARIABLE[] = "TITAN_WORLD"; /* "rank size fd hidden" */

/* ------------------------------------------------------------ who am I */

static tn_status from_launcher(const char *text, tn_world *w)
{
    tn_comm_page *page;
    int hidden = 0, end = 0;
    if (sscanf(text, "%d %d %d %d%n", &w->rank, &w->size, &w->control_fd, &hidden, &end) != 4 ||
        text[end] || w->size < 1 || w->size > TN_COMM_MAX_RANKS || w->rank < 0 ||
        w->rank >= w->size)
        TN_FAIL(TN_BAD_INPUT, "world: %s='%s' is not what the launcher sets; unset it", VARIABLE,
                text);
    if (tn_comm_page_map(w->control_fd, &page))
        TN_FAIL(TN_BAD_INPUT, "world: %s='%s' is of a launcher that is not there; unset it",
                VARIABLE, text);
    tn_comm_page_unmap(page);
    fcntl(w->control_fd, F_SETFD, FD_CLOEXEC);
    w->hidden = hidden != 0;
    w->local_rank = w->rank;
    w->local_size = w->size;
    return TN_OK;
}

static const char *const NAMES[] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR", "MASTER_PORT"};
enum { RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, N_NAMES };

static tn_status contradict(const char *why)
{
    char all[512];
    size_t n = 0;
    all[0] = 0;
    for (int i = 0; i < N_NAMES && n < sizeof all; i++) {
        const char *v = getenv(NAMES[i]);
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s%s%.60s", i ? " " : "", NAMES[i],
                              v ? "=" : " unset", v ? v : "");
    }
    TN_FAIL(TN_BAD_INPUT, "world: %s (%s); set all as torchrun does, or unset them", why, all);
}

static bool number(int name, int least, int most, int fallback, int *out)
{
    const char *text = getenv(NAMES[name]);
    char *end;
    *out = fallback;
    if (!text) return fallback >= 0;
    errno = 0;
    long v = strtol(text, &end, 10);
    *out = (int)v;
    return !errno && end != text && !*end && v >= least && v <= most;
}

static tn_status from_torchrun(tn_world *w)
{
    const char *address = getenv(NAMES[MASTER_ADDR]),
               *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!number(WORLD_SIZE, 1, 1 << 20, -1, &w->size))
        return contradict("WORLD_SIZE must be a number of ranks");
    if (!number(RANK, 0, w->size - 1, -1, &w->rank))
        return contradict("RANK must be a number below WORLD_SIZE");
    if (!number(LOCAL_WORLD_SIZE, 1, w->size, w->size, &w->local_size))
        return contradict("LOCAL_WORLD_SIZE must be at most WORLD_SIZE");
    if (!number(LOCAL_RANK, 0, w->local_size - 1, w->size == 1 ? 0 : -1, &w->local_rank))
        return contradict("LOCAL_RANK must be a number below the ranks of this host");
    if (w->local_size == w->size && w->local_rank != w->rank)
        return contradict("LOCAL_RANK and RANK differ though all ranks are on this host");
    if (w->size == 1) return TN_OK;
    if (!address || !address[0] || strlen(address) >= sizeof w->master)
        return contradict("MASTER_ADDR must name the host of rank 0");
    if (!number(MASTER_PORT, 1, 65534, -1, &w->port))
        return contradict("MASTER_PORT must be a port");
    if (w->local_size != w->size)
        TN_FAIL(TN_BAD_INPUT,
                "world: %d of %d ranks are on this host; this build joins the ranks of one host",
                w->local_size, w->size);
    snprintf(w->master, sizeof w->master, "%s", address);
    if (agent && !strcmp(agent, "True")) w->port++; /* torchrun's own store has MASTER_PORT */
    return TN_OK;
}

tn_status tn_world_find(tn_world *out)
{
    const char *text = getenv(VARIABLE);
    tn_world w = {.size = 1, .local_size = 1, .control_fd = -1};
    if (text) TN_TRY(from_launcher(text, &w));
    else if (getenv("RANK") || getenv("WORLD_SIZE") || getenv("LOCAL_RANK"))
        TN_TRY(from_torchrun(&w));
    *out = w;
    return TN_OK;
}

int tn_world_threads(const tn_world *w)
{
    int n = tn_pool_cores() / w->local_size;
    return n > 0 ? n : 1;
}

/* ---------------------------------------------------------------------------------------------- a
 * rank and its launcher */

bool tn_world_failed(const tn_world *w, const char *text)
{
    tn_comm_page *page;
    char keep[TN_COMM_PAGE_REASON];
    if (w->control_fd < 0) return false;
    snprintf(keep, sizeof keep, "%s",
             text); /* it may be the record itself, which a failure here would replace */
    tn_status st = tn_comm_page_map(w->control_fd, &page);
    if (!st) {
        tn_comm_page_abort(page, w->rank, w->rank, keep);
        tn_comm_page_unmap(page);
    }
    tn_error_give(TN_FAILED, keep);
    return !st && !w->hidden;
}

/* What is in the way of this run's files: recorders, and logs of ranks that it does not have. */
static void remove_old(const tn_world *w, const char *folder)
{
    char path[PATH_MAX];
    for (int r = 0; r < TN_COMM_MAX_RANKS; r++) {
        snprintf(path, sizeof path, "%s/flight_rank_%d.json", folder, r);
        unlink(path);
        snprintf(path, sizeof path, "%s/logs/rank_%d.log", folder, r);
        if (r >= w->size) unlink(path);
    }
}

static tn_status to_log(const char *path)
{
    char block[4096];
    ssize_t n;
    off_t at = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return tn_file_error(path, "create");
    fflush(stdout);
    fflush(stderr);
    while ((n = pread(STDOUT_FILENO, block, sizeof block, at)) > 0) {
        if (write(fd, block, (size_t)n) != n) break;
        at += n;
    }
    bool ok = n == 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0;
    tn_status st = ok ? TN_OK : tn_file_error(path, "write");
    close(fd);
    return st;
}

/* A shown rank's stdout goes to the terminal and to its log. */
typedef struct outputs {
    int out_fd, log_fd;
} outputs;

static ssize_t tee_write(void *cookie, const char *bytes, size_t n)
{
    const outputs *t = cookie;
    size_t done = 0;
    while (done < n) {
        ssize_t k = write(t->out_fd, bytes + done, n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) break;
        done += (size_t)k;
    }
    if (write(t->log_fd, bytes, done) < 0) errno = 0; /* a full disk does not stop what is shown */
    return (ssize_t)done;
}

static tn_status to_both(const char *path)
{
    static outputs both = {.out_fd = STDOUT_FILENO};
    static const cookie_io_functions_t calls = {.write = tee_write};
    both.log_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (both.log_fd < 0) return tn_file_error(path, "create");
    fflush(stdout);
    FILE *f = fopencookie(&both, "w", calls);
    if (!f) return tn_file_error(path, "open");
    if (isatty(STDOUT_FILENO)) setvbuf(f, NULL, _IOLBF, BUFSIZ);
    stdout = f;
    return TN_OK;
}

tn_status tn_world_log(const tn_world *w, const char *folder)
{
    char path[PATH_MAX];
    tn_comm_page *page;
    if (w->control_fd < 0) return TN_OK;
    snprintf(path, sizeof path, "%s/logs", folder);
    TN_TRY(tn_file_mkdirs(path));
    TN_TRY(tn_comm_page_map(w->control_fd, &page));
    if (w->rank == 0) {
        remove_old(w, folder);
        snprintf(page->folder, sizeof page->folder, "%s", folder);
        atomic_store(&page->has_folder, strlen(folder) < sizeof page->folder);
    }
    snprintf(path, sizeof path, "%s/logs/rank_%d.log", folder, w->rank);
    tn_status st = w->hidden ? to_log(path) : to_both(path);
    if (!st && w->hidden) atomic_store(&page->rank[w->rank].logged, 1);
    tn_comm_page_unmap(page);
    return st;
}

/* ------------------------------------------------------------ starting */

static tn_status read_show(const char *text, int ranks, uint64_t *out)
{
    *out = 0;
    if (!text) text = "0";
    if (!strcmp(text, "all")) {
        *out = ~(uint64_t)0;
        return TN_OK;
    }
    for (const char *p = text;; p++) {
        char *end;
        long r = strtol(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || r >= ranks || (*end && *end != ','))
            TN_FAIL(TN_BAD_INPUT,
                    "command line: --log-ranks %s: must be all, or ranks below %d with commas "
                    "between them",
                    text, ranks);
        *out |= (uint64_t)1 << r;
        p = end;
        if (!*p) return TN_OK;
    }
}

/* Standard input as a file that each rank opens for itself. */
static tn_status spool_input(int *out)
{
    char block[65536];
    ssize_t n;
    int fd = memfd_create("titan-input", 0);
    if (fd < 0) TN_FAIL(TN_FAILED, "world: no shared memory: %s", strerror(errno));
    while ((n = read(STDIN_FILENO, block, sizeof block)) > 0)
        if (write(fd, block, (size_t)n) != n) break;
    if (n) {
        close(fd);
        TN_FAIL(TN_FAILED, "world: cannot read standard input: %s", strerror(errno));
    }
    *out = fd;
    return TN_OK;
}

/* In the new process; does not come back. */
static void become(const tn_launch_child *c, const tn_launch *l)
{
    char text[64], path[64];
    int in;
    snprintf(text, sizeof text, "%d %d %d %d", c->rank, l->n, l->control_fd, c->output_fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", l->input_fd);
    if (l->input_fd >= 0) in = open(path, O_RDONLY);
    else in = c->rank > 0 ? open("/dev/null", O_RDONLY) : STDIN_FILENO;
    if (in < 0 || dup2(in, STDIN_FILENO) < 0) _exit(TN_LAUNCH_NO_START);
    if (c->output_fd >= 0 &&
        (dup2(c->output_fd, STDOUT_FILENO) < 0 || dup2(c->output_fd, STDERR_FILENO) < 0))
        _exit(TN_LAUNCH_NO_START);
    setenv(VARIABLE, text, 1);
    execv("/proc/self/exe", l->argv);
    _exit(TN_LAUNCH_NO_START);
}

tn_status tn_world_launch(const tn_world_launch_options *o, int *signal_out)
{
    uint64_t show;
    tn_launch l = {
        .n = o->ranks, .argv = o->argv, .become = become, .control_fd = -1, .input_fd = -1};
    if (o->ranks > TN_COMM_MAX_RANKS)
        TN_FAIL(TN_BAD_INPUT, "command line: -n %d: at most %d ranks on one host", o->ranks,
                (int)TN_COMM_MAX_RANKS);
    TN_TRY(read_show(o->show, o->ranks, &show));
    if (o->input) TN_TRY(spool_input(&l.input_fd));
    for (int i = 0; i < o->ranks; i++)
        l.child[i] = (tn_launch_child){.rank = i, .hidden = !(show >> i & 1), .output_fd = -1};
    tn_status st = tn_launch_run(&l, signal_out);
    if (l.input_fd >= 0) close(l.input_fd);
    return st;
}
