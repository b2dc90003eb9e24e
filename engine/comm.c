#include "engine/comm.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/comm_page.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct region {
    void *at[TN_COMM_MAX_RANKS];
    int64_t bytes[TN_COMM_MAX_RANKS];
    int fd;
} region;

struct tn_comm {
    tn_world w;
    tn_comm_page *page;
    double timeout_s;
    region regions[TN_COMM_MAX_REGIONS];
    int n_groups;
    struct {
        uint64_t mask;
        int slot;
        uint32_t entered;
    } groups[TN_COMM_MAX_GROUPS];
};

static uint64_t all_ranks(int n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

static tn_status add_group(tn_comm *c, uint64_t mask, int *out)
{
    int start = (int)(mask % TN_COMM_MAX_GROUPS);
    for (int i = 0; i < c->n_groups; i++)
        if (c->groups[i].mask == mask) {
            *out = i;
            return TN_OK;
        }
    for (int k = 0; c->page && k < TN_COMM_MAX_GROUPS; k++) {
        int slot = (start + k) % TN_COMM_MAX_GROUPS;
        uint64_t was = 0;
        if (!atomic_compare_exchange_strong(&c->page->group[slot].mask, &was, mask) && was != mask) continue;
        c->groups[c->n_groups].mask = mask;
        c->groups[c->n_groups].slot = slot;
        *out = c->n_groups++;
        return TN_OK;
    }
    if (!c->page) {
        c->groups[c->n_groups].mask = mask;
        *out = c->n_groups++;
        return TN_OK;
    }
    TN_FAIL(TN_FAILED, "comm: more than %d groups of ranks", (int)TN_COMM_MAX_GROUPS);
}

tn_status tn_comm_open(const tn_world *w, double init_timeout_s, tn_comm **out)
{
    void *mem;
    int world;
    TN_TRY(tn_alloc(sizeof(tn_comm), &mem));
    tn_comm *c = mem;
    c->w = *w;
    c->timeout_s = init_timeout_s;
    for (int r = 0; r < TN_COMM_MAX_REGIONS; r++) c->regions[r].fd = -1;
    if (w->size > 1) {
        void *p = mmap(NULL, sizeof(tn_comm_page), PROT_READ | PROT_WRITE, MAP_SHARED, w->control_fd, 0);
        if (p == MAP_FAILED) {
            tn_free(c);
            TN_FAIL(TN_FAILED, "comm: cannot map the control page: %s", strerror(errno));
        }
        c->page = p;
        atomic_store(&c->page->rank[w->rank].pid, (int)getpid());
    }
    tn_status st = add_group(c, all_ranks(w->size), &world);
    if (!st) st = tn_comm_sync(c, TN_COMM_WORLD, "start", 0);
    if (st) {
        tn_comm_close(c);
        return st;
    }
    *out = c;
    return TN_OK;
}

void tn_comm_close(tn_comm *c)
{
    if (!c) return;
    for (int r = 0; r < TN_COMM_MAX_REGIONS; r++) {
        for (int i = 0; i < c->w.size; i++)
            if (c->regions[r].at[i]) munmap(c->regions[r].at[i], (size_t)c->regions[r].bytes[i]);
        if (c->regions[r].fd >= 0) close(c->regions[r].fd);
    }
    if (c->page) munmap(c->page, sizeof *c->page);
    tn_free(c);
}

void tn_comm_set_timeout(tn_comm *c, double seconds)
{
    c->timeout_s = seconds;
}

int tn_comm_rank(const tn_comm *c)
{
    return c->w.rank;
}

int tn_comm_size(const tn_comm *c)
{
    return c->w.size;
}

/* ---------------------------------------------------------------------------------------------- meeting */

void tn_comm_abort(tn_comm *c, const char *text)
{
    int none = 0;
    if (!c->page || !atomic_compare_exchange_strong(&c->page->aborted, &none, -1)) return;
    snprintf(c->page->reason, sizeof c->page->reason, "%s", text);
    atomic_store(&c->page->aborted, 1 + c->w.rank);
    for (int i = 0; i < c->n_groups; i++) {
        _Atomic uint32_t *bell = &c->page->group[c->groups[i].slot].bell;
        atomic_fetch_add(bell, 1);
        syscall(SYS_futex, bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

/* The first member that has not arrived, -1 when all have. */
static int missing(const tn_comm *c, int slot, uint64_t mask, uint32_t want)
{
    for (int r = 0; r < c->w.size; r++)
        if (mask >> r & 1 && (int32_t)(atomic_load_explicit(&c->page->group[slot].arrived[r], memory_order_acquire) - want) < 0) return r;
    return -1;
}

static tn_status gave_up(tn_comm *c, int late, const char *what)
{
    char text[256];
    int pid = atomic_load(&c->page->rank[late].pid);
    bool dead = pid && kill(pid, 0) && errno == ESRCH;
    snprintf(text, sizeof text, "%s: rank %d %s", what, late, dead ? "died" : "did not arrive before the deadline (comm.train_timeout_s)");
    tn_comm_abort(c, text);
    TN_FAIL(TN_FAILED, "comm: rank %d waits in %s", c->w.rank, text);
}

tn_status tn_comm_sync(tn_comm *c, int group, const char *what, int64_t bytes)
{
    (void)bytes;
    if (!c->page) return TN_OK;
    int slot = c->groups[group].slot, late;
    uint64_t mask = c->groups[group].mask;
    uint32_t want = ++c->groups[group].entered;
    _Atomic uint32_t *bell = &c->page->group[slot].bell;
    atomic_store_explicit(&c->page->group[slot].arrived[c->w.rank], want, memory_order_release);
    atomic_fetch_add(bell, 1);
    if (missing(c, slot, mask, want) < 0) {
        syscall(SYS_futex, bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        return TN_OK;
    }
    double deadline = tn_clock_s() + c->timeout_s;
    for (int spin = 0; (late = missing(c, slot, mask, want)) >= 0; spin++) {
        if (spin < 2000) continue;
        uint32_t rung = atomic_load(bell);
        int aborted = atomic_load(&c->page->aborted);
        if (aborted > 0) TN_FAIL(TN_FAILED, "comm: rank %d: %s", aborted - 1, c->page->reason);
        if (tn_clock_s() > deadline) return gave_up(c, late, what);
        if ((late = missing(c, slot, mask, want)) < 0) break;
        struct timespec nap = {0, 50 * 1000 * 1000};
        syscall(SYS_futex, bell, FUTEX_WAIT, rung, &nap, NULL, 0);
    }
    return TN_OK;
}

tn_status tn_comm_group(tn_comm *c, const int *ranks, int n, int *group_out)
{
    uint64_t mask = 0;
    for (int i = 0; i < n; i++) mask |= (uint64_t)1 << ranks[i];
    return add_group(c, mask, group_out);
}

tn_status tn_comm_agree(tn_comm *c, const char *what, uint64_t value)
{
    if (!c->page) return TN_OK;
    atomic_store(&c->page->rank[c->w.rank].word, value);
    TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, what, 8));
    for (int r = 0; r < c->w.size; r++) {
        uint64_t other = atomic_load(&c->page->rank[r].word);
        if (other != value)
            TN_FAIL(TN_BAD_INPUT, "comm: %s differs: rank %d has %016llx, rank %d has %016llx; all ranks must run the same recipe and build", what,
                    c->w.rank, (unsigned long long)value, r, (unsigned long long)other);
    }
    return tn_comm_sync(c, TN_COMM_WORLD, what, 8);
}

tn_status tn_comm_most(tn_comm *c, const char *what, int value, int *out)
{
    int most = value;
    if (c->page) {
        atomic_store(&c->page->rank[c->w.rank].word, (uint64_t)(uint32_t)value);
        TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, what, 8));
        for (int r = 0; r < c->w.size; r++) {
            int other = (int)(uint32_t)atomic_load(&c->page->rank[r].word);
            if (other > most) most = other;
        }
        TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, what, 8));
    }
    *out = most;
    return TN_OK;
}

/* ---------------------------------------------------------------------------------------------- regions */

static tn_status map_region(int fd, int64_t bytes, void **out)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED) TN_FAIL(TN_FAILED, "comm: cannot map %lld bytes: %s", (long long)bytes, strerror(errno));
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    *out = p;
    return TN_OK;
}

static tn_status map_peer(tn_comm *c, int rank, int number)
{
    char path[64];
    region *r = &c->regions[number];
    r->bytes[rank] = atomic_load(&c->page->rank[rank].bytes[number]);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", atomic_load(&c->page->rank[rank].pid), atomic_load(&c->page->rank[rank].fd[number]));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) TN_FAIL(TN_FAILED, "comm: cannot open the memory of rank %d: %s", rank, strerror(errno));
    tn_status st = map_region(fd, r->bytes[rank], &r->at[rank]);
    close(fd);
    return st;
}

tn_status tn_comm_region(tn_comm *c, int number, int64_t bytes, void **mine_out)
{
    region *r = &c->regions[number];
    int me = c->w.rank;
    if (bytes < 64) bytes = 64;
    r->fd = memfd_create("titan-region", MFD_CLOEXEC);
    if (r->fd < 0 || ftruncate(r->fd, (off_t)bytes)) TN_FAIL(TN_FAILED, "comm: no shared memory of %lld bytes: %s", (long long)bytes, strerror(errno));
    r->bytes[me] = bytes;
    TN_TRY(map_region(r->fd, bytes, &r->at[me]));
    if (c->page) {
        atomic_store(&c->page->rank[me].bytes[number], bytes);
        atomic_store(&c->page->rank[me].fd[number], r->fd);
        TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "sharing memory", bytes));
        for (int i = 0; i < c->w.size; i++)
            if (i != me) TN_TRY(map_peer(c, i, number));
        TN_TRY(tn_comm_sync(c, TN_COMM_WORLD, "sharing memory", bytes));
    }
    *mine_out = r->at[me];
    return TN_OK;
}

void *tn_comm_peer(const tn_comm *c, int rank, int number)
{
    return c->regions[number].at[rank];
}
