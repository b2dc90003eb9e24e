#include "engine/comm_page.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/jsonout.h"
#include "engine/store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

tn_status tn_comm_page_map(int fd, tn_comm_page **out)
{
    struct stat s;
    if (fstat(fd, &s) || s.st_size != (off_t)sizeof(tn_comm_page))
        TN_FAIL(TN_FAILED, "comm: descriptor %d is not the control page of this build", fd);
    void *p = mmap(NULL, sizeof(tn_comm_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        TN_FAIL(TN_FAILED, "comm: cannot map the control page: %s", strerror(errno));
    *out = p;
    return TN_OK;
}

void tn_comm_page_unmap(tn_comm_page *p)
{
    if (p) munmap(p, sizeof *p);
}

/* ------------------------------------------------------------ without a launcher */

static const char BOOT_ID[] = "/proc/sys/kernel/random/boot_id", KEY[] = "page";

/* Where rank 0's page is: who can open this path is on the same host. */
typedef struct page_card {
    uint64_t nonce;
    int32_t pid, fd;
    char boot[40];
} page_card;

static void read_boot_id(char *out, size_t size)
{
    memset(out, 0, size);
    FILE *f = fopen(BOOT_ID, "r");
    if (!f) return;
    size_t n = fread(out, 1, size - 1, f);
    out[n] = 0;
    fclose(f);
}

static tn_status make_page(tn_comm_page **out, int *fd_out)
{
    int fd = memfd_create("titan", MFD_CLOEXEC);
    uint64_t nonce = 0;
    if (fd < 0 || ftruncate(fd, (off_t)sizeof(tn_comm_page))) {
        if (fd >= 0) close(fd);
        TN_FAIL(TN_FAILED, "comm: no shared memory: %s", strerror(errno));
    }
    tn_status st = tn_comm_page_map(fd, out);
    if (!st && getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        nonce = (uint64_t)getpid();
    if (st) close(fd);
    else atomic_store(&(*out)->nonce, nonce | 1);
    if (!st) *fd_out = fd;
    return st;
}

static tn_status find_page(const tn_world *w, tn_store *store, double timeout_s, tn_comm_page **out)
{
    page_card card = {0};
    char boot[sizeof card.boot], path[64];
    size_t n = 0;
    TN_TRY_WHILE(tn_store_get(store, KEY, timeout_s, &card, sizeof card, &n),
                 "rank %d was looking for rank 0", w->rank);
    read_boot_id(boot, sizeof boot);
    if (n != sizeof card || memcmp(boot, card.boot, sizeof boot))
        TN_FAIL(
            TN_BAD_INPUT,
            "comm: rank %d is on another host than rank 0; this build joins the ranks of one host",
            w->rank);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", card.pid, card.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        TN_FAIL(TN_FAILED,
                "comm: rank %d cannot open rank 0's control page: %s; all ranks must run as one "
                "user in one container",
                w->rank, strerror(errno));
    tn_status st = tn_comm_page_map(fd, out);
    close(fd);
    if (st || atomic_load(&(*out)->nonce) == card.nonce) return st;
    tn_comm_page_unmap(*out);
    *out = NULL;
    TN_FAIL(TN_FAILED,
            "comm: what rank %d found is not rank 0's control page; all ranks must run in one "
            "container",
            w->rank);
}

/* Rank 0 serves until all have counted themselves. */
static tn_status lead(const tn_world *w, double timeout_s, tn_comm_page **out, int *fd_out)
{
    tn_store_server *server;
    tn_store *store = NULL;
    page_card card = {0};
    double deadline = tn_clock_s() + timeout_s;
    char none;
    size_t n;
    TN_TRY(tn_store_serve(w->master, w->port, &server));
    tn_status st = make_page(out, fd_out);
    if (!st) st = tn_store_open(w->master, w->port, timeout_s, &store);
    if (!st) {
        card = (page_card){
            .nonce = atomic_load(&(*out)->nonce), .pid = (int32_t)getpid(), .fd = *fd_out};
        read_boot_id(card.boot, sizeof card.boot);
        st = tn_store_set(store, KEY, &card, sizeof card);
    }
    for (int r = 1; r < w->size && !st; r++) {
        char key[32];
        snprintf(key, sizeof key, "rank %d", r);
        st = tn_store_get(store, key, deadline - tn_clock_s(), &none, 1, &n);
        if (st)
            st = tn_error(TN_FAILED, "comm: rank %d did not come within %g s (comm.init_timeout_s)",
                          r, timeout_s);
    }
    tn_store_close(store);
    tn_store_stop(server);
    if (st && *fd_out >= 0) {
        close(*fd_out);
        *fd_out = -1;
    }
    return st;
}

static tn_status follow(const tn_world *w, double timeout_s, tn_comm_page **out)
{
    tn_store *store;
    char key[32];
    int64_t again;
    TN_TRY(tn_store_open(w->master, w->port, timeout_s, &store));
    snprintf(key, sizeof key, "count %d", w->rank);
    tn_status st = tn_store_add(store, key, 1, &again);
    if (!st && again != 1)
        st = tn_error(TN_BAD_INPUT, "world: RANK=%d is given to two processes", w->rank);
    if (!st) st = find_page(w, store, timeout_s, out);
    snprintf(key, sizeof key, "rank %d", w->rank);
    if (!st) st = tn_store_set(store, key, "", 1);
    tn_store_close(store);
    return st;
}

tn_status tn_comm_page_join(const tn_world *w, double timeout_s, tn_comm_page **out, int *fd_out)
{
    *fd_out = -1;
    if (w->control_fd >= 0) return tn_comm_page_map(w->control_fd, out);
    return w->rank ? follow(w, timeout_s, out) : lead(w, timeout_s, out, fd_out);
}

bool tn_comm_page_abort(tn_comm_page *p, int writer, int culprit, const char *text)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&p->aborted, &none, -(1 + writer))) return false;
    int n =
        snprintf(p->reason, sizeof p->reason, "rank %d%s ", culprit, culprit == writer ? ":" : "");
    p->plain = n;
    snprintf(p->reason + n, sizeof p->reason - (size_t)n, "%s", text);
    atomic_store(&p->aborted, 1 + culprit);
    for (int i = 0; i < TN_COMM_PAGE_GROUPS; i++)
        if (atomic_load(&p->group[i].mask))
            syscall(SYS_futex, &p->group[i].count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    return true;
}

/* ------------------------------------------------------------ who is how */

/* The letter of /proc/PID/stat, 0 when there is no such process. */
static char process_state(int pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *end = strrchr(text, ')');
    return end && end[1] ? end[2] : 0;
}

tn_comm_page_state tn_comm_page_look(const tn_comm_page *p, int rank)
{
    tn_comm_page_state s = {0};
    int ended = atomic_load(&p->rank[rank].ended), pid = atomic_load(&p->rank[rank].pid);
    if (ended) {
        int status = ended - 1;
        s.dead = true;
        if (WIFSIGNALED(status))
            snprintf(s.s, sizeof s.s, "died: signal %d (%s)", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
        else snprintf(s.s, sizeof s.s, "has ended with exit status %d", WEXITSTATUS(status));
        return s;
    }
    if (!pid) {
        snprintf(s.s, sizeof s.s, "has not started");
        return s;
    }
    char state = process_state(pid);
    s.dead = state == 0 || state == 'Z' || state == 'X';
    if (s.dead) snprintf(s.s, sizeof s.s, "died (process %d is gone)", pid);
    else
        snprintf(s.s, sizeof s.s, "is %s (process %d)",
                 state == 'T' || state == 't' ? "stopped by a signal" : "running", pid);
    return s;
}

/* ------------------------------------------------------------ flight recorder */

static void put_event(tn_jsonout *w, const tn_comm_page_event *e)
{
    char what[sizeof e->what];
    memcpy(what, e->what, sizeof what);
    what[sizeof what - 1] = 0;
    tn_jsonout_open(w, NULL, '{');
    tn_jsonout_string(w, "what", what);
    tn_jsonout_open(w, "ranks", '[');
    for (int r = 0; r < TN_COMM_MAX_RANKS; r++)
        if (e->mask >> r & 1) tn_jsonout_int(w, NULL, r);
    tn_jsonout_close(w);
    tn_jsonout_int(w, "sequence", e->sequence);
    tn_jsonout_int(w, "bytes", e->bytes);
    tn_jsonout_double(w, "enter_s", e->enter_s);
    if (e->leave_s > 0) tn_jsonout_double(w, "leave_s", e->leave_s);
    else tn_jsonout_null(w, "leave_s");
    tn_jsonout_string(w, "state", e->leave_s > 0 ? "done" : "waiting");
    tn_jsonout_close(w);
}

tn_status tn_comm_page_record(const tn_comm_page *p, int rank, const char *path)
{
    tn_text text = {0};
    tn_jsonout w = {.text = &text, .indent = 1};
    const tn_comm_page_rank *r = &p->rank[rank];
    uint32_t n = atomic_load(&r->n_events),
             first = n > TN_COMM_PAGE_EVENTS ? n - TN_COMM_PAGE_EVENTS : 0;
    tn_comm_page_state state = tn_comm_page_look(p, rank);
    tn_jsonout_open(&w, NULL, '{');
    tn_jsonout_int(&w, "rank", rank);
    tn_jsonout_string(&w, "state", state.s);
    tn_jsonout_string(&w, "reason", atomic_load(&p->aborted) > 0 ? p->reason : NULL);
    tn_jsonout_double(&w, "now_s", tn_clock_s());
    tn_jsonout_int(&w, "meetings", n);
    tn_jsonout_open(&w, "last", '[');
    for (uint32_t i = first; i < n; i++) put_event(&w, &r->events[i % TN_COMM_PAGE_EVENTS]);
    tn_jsonout_close(&w);
    tn_jsonout_close(&w);
    tn_text_put(&text, "\n", 1);
    tn_status st = tn_text_end(&text);
    if (!st) st = tn_file_write(path, tn_text_str(&text), (size_t)text.n_bytes);
    tn_text_fini(&text);
    return st;
}
