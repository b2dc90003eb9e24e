#include "engine/comm.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/comm_page.h"
#include "engine/resident.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
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
    tn_comm_page *page; /* NULL: a world of one */
    double timeout_s;
    const char *timeout_key;
    int spins; /* before a wait sleeps */
    double waited_s;
    region regions[TN_COMM_MAX_REGIONS];
    int n_groups;
    struct {
        uint64_t mask;
        int slot, n;
        uint32_t entered;
    } groups[TN_COMM_PAGE_GROUPS];
};

/* Some ten microseconds: less than a sleep and a wake. */
static const int SPINS = 40000;

static uint64_t all_ranks(int n)
{
    return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

static int count_bits(uint64_t mask)
{
    int n = 0;
    for (; mask; mask &= mask - 1) n++;
    return n;
}

/* The slot of the page that this list of ranks has, wherever it was first used. */
static tn_status find_slot(tn_comm *c, uint64_t mask, int *out)
{
    int start = (int)(mask % TN_COMM_PAGE_GROUPS);
    for (int k = 0; k < TN_COMM_PAGE_GROUPS; k++) {
        int slot = (start + k) % TN_COMM_PAGE_GROUPS;
        uint64_t was = 0;
        if (!atomic_compare_exchange_strong(&c->page->group[slot].mask, &was, mask) && was != mask)
            continue;
        *out = slot;
        return TN_OK;
    }
    TN_FAIL(TN_FAILED, "comm: more than %d groups of ranks", (int)TN_COMM_PAGE_GROUPS);
}

static tn_status add_group(tn_comm *c, uint64_t mask, int *out)
{
    int slot = 0;
    for (int i = 0; i < c->n_groups; i++)
        if (c->groups[i].mask == mask) {
            *out = i;
            return TN_OK;
        }
    if (c->page) TN_TRY(find_slot(c, mask, &slot)); /* at most as many groups here as slots there */
    c->groups[c->n_groups].mask = mask;
    c->groups[c->n_groups].slot = slot;
    c->groups[c->n_groups].n = count_bits(mask);
    *out = c->n_groups++;
    return TN_OK;
}

static tn_status open_page(tn_comm *c)
{
    int fd, world;
    TN_TRY(tn_comm_page_join(&c->w, c->timeout_s, &c->page, &fd));
    atomic_store(&c->page->rank[c->w.rank].pid, (int)getpid());
    atomic_store(&c->page->timeout_ms, (int64_t)(c->timeout_s * 1000));
    tn_status st = add_group(c, all_ranks(c->w.size), &world);
    if (!st) st = tn_comm_sync(c, TN_COMM_WORLD, "start", 0);
    if (fd >= 0) close(fd);
    return st;
}

tn_status tn_comm_open(const tn_world *w, double init_timeout_s, tn_comm **out)
{
    void *mem;
    int world;
    if (w->size > TN_COMM_MAX_RANKS)
        TN_FAIL(TN_BAD_INPUT, "comm: %d ranks; at most %d on one host", w->size,
                (int)TN_COMM_MAX_RANKS);
    TN_TRY(tn_alloc(sizeof(tn_comm), &mem));
    tn_comm *c = mem;
    c->w = *w;
    c->timeout_s = init_timeout_s;
    c->timeout_key = "comm.init_timeout_s";
    c->spins = w->local_size <= tn_pool_cores()
                   ? SPINS
                   : SPINS / 200; /* with more ranks than cores the other one needs ours */
    for (int r = 0; r < TN_COMM_MAX_REGIONS; r++) c->regions[r].fd = -1;
    tn_status st = w->size > 1 ? open_page(c) : add_group(c, 1, &world);
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
    tn_comm_page_unmap(c->page);
    tn_free(c);
}

void tn_comm_set_timeout(tn_comm *c, double seconds)
{
    c->timeout_s = seconds;
    c->timeout_key = "comm.train_timeout_s";
    if (c->page) atomic_store(&c->page->timeout_ms, (int64_t)(seconds * 1000));
}

int tn_comm_rank(const tn_comm *c)
{
    return c->w.rank;
}

int tn_comm_size(const tn_comm *c)
{
    return c->w.size;
}

/* ------------------------------------------------------------ meeting */

void tn_comm_abort(tn_comm *c, const char *text)
{
    if (c->page) tn_comm_page_abort(c->page, c->w.rank, c->w.rank, text);
}

/* The first member of a group that has not arrived as often as `want`, -1 when all have. */
static int missing(const tn_comm_page *p, int slot, uint32_t want)
{
    uint64_t mask = atomic_load(&p->group[slot].mask);
    for (int r = 0; r < TN_COMM_MAX_RANKS; r++)
        if (mask >> r & 1 && (int32_t)(atomic_load(&p->rank[r].arrived[slot]) - want) < 0) return r;
    return -1;
}

/* Whom the others wait for in the end: the one that is late here may itself wait elsewhere. -1:
 * they wait for each other. */
static int to_blame(const tn_comm_page *p, int late)
{
    for (int hops = 0; hops < TN_COMM_MAX_RANKS; hops++) {
        int slot = atomic_load(&p->rank[late].waits) - 1,
            next = atomic_load(&p->rank[late].waits_for) - 1;
        if (next >= 0) {
            late = next;
            continue;
        }
        if (slot < 0 || (next = missing(p, slot, atomic_load(&p->rank[late].arrived[slot]))) < 0)
            return late;
        late = next;
    }
    return -1;
}

static const char *last_event(const tn_comm_page *p, int rank)
{
    const tn_comm_page_rank *r = &p->rank[rank];
    uint32_t n = atomic_load(&r->n_events);
    return n ? r->events[(n - 1) % TN_COMM_PAGE_EVENTS].what : "nothing yet";
}

static tn_status aborted(const tn_comm *c)
{
    TN_FAIL(TN_FAILED, "comm: %s", c->page->reason);
}

static tn_status gave_up(tn_comm *c, int late, const char *what, bool deadline)
{
    char text[512];
    int culprit = to_blame(c->page, late);
    if (culprit < 0) {
        snprintf(text, sizeof text,
                 "waits in '%s' while rank %d waits in '%s': they wait for each other; their "
                 "programs differ",
                 last_event(c->page, late), c->w.rank, what);
        culprit = late;
    } else {
        tn_comm_page_state state = tn_comm_page_look(c->page, culprit);
        int n = snprintf(text, sizeof text, "%s and did not come to '%s'", state.s, what);
        if (deadline)
            n += snprintf(text + n, sizeof text - (size_t)n, " within %g s (%s)", c->timeout_s,
                          c->timeout_key);
        snprintf(text + n, sizeof text - (size_t)n, "; its last exchange was '%s'",
                 last_event(c->page, culprit));
    }
    if (!tn_comm_page_abort(c->page, c->w.rank, culprit, text) &&
        atomic_load(&c->page->aborted) <= 0)
        TN_FAIL(TN_FAILED, "comm: rank %d %s", culprit, text);
    return aborted(c);
}

/* A launcher tells who has ended; without one the system is asked. */
static bool is_gone(const tn_comm_page *p, int rank)
{
    return atomic_load(&p->launched) ? atomic_load(&p->rank[rank].ended) != 0
                                     : tn_comm_page_look(p, rank).dead;
}

/* The late one, if it or whom it waits for will never come; -1 otherwise. */
static int hopeless(const tn_comm_page *p, int slot, uint32_t want)
{
    int late = missing(p, slot, want), culprit = late < 0 ? -1 : to_blame(p, late);
    return culprit >= 0 && is_gone(p, culprit) ? missing(p, slot, want)
                                               : -1; /* it may have arrived just before it ended */
}

/* Sleeps until the last one arrives. A process that was itself stopped gives the others the time
 * that it missed. */
static tn_status sleep_in(tn_comm *c, int slot, const char *what, uint32_t all, uint32_t want)
{
    _Atomic uint32_t *count = &c->page->group[slot].count;
    double now = tn_clock_s(), deadline = now + c->timeout_s, look = now + 0.5;
    for (;;) {
        struct timespec nap = {0, 50 * 1000 * 1000};
        uint32_t seen = atomic_load(count);
        int late;
        if ((int32_t)(seen - all) >= 0) return TN_OK;
        if (atomic_load(&c->page->aborted) > 0) return aborted(c);
        if (now > look) {
            if ((late = hopeless(c->page, slot, want)) >= 0) return gave_up(c, late, what, false);
            look = now + 0.5;
        }
        if (now > deadline && (late = missing(c->page, slot, want)) >= 0)
            return gave_up(c, late, what, true);
        syscall(SYS_futex, count, FUTEX_WAIT, seen, &nap, NULL, 0);
        double after = tn_clock_s();
        if (after - now > 1) deadline += after - now;
        now = after;
    }
}

static tn_comm_page_event *note(tn_comm *c, int group, const char *what, int64_t bytes)
{
    tn_comm_page_rank *r = &c->page->rank[c->w.rank];
    uint32_t n = atomic_load_explicit(&r->n_events, memory_order_relaxed);
    tn_comm_page_event *e = &r->events[n % TN_COMM_PAGE_EVENTS];
    size_t length = strnlen(what, sizeof e->what - 1);
    e->leave_s = 0;
    e->enter_s = tn_clock_s();
    e->bytes = bytes;
    e->mask = c->groups[group].mask;
    e->sequence = c->groups[group].entered;
    memcpy(e->what, what, length);
    e->what[length] = 0;
    atomic_store_explicit(&r->n_events, n + 1, memory_order_release);
    return e;
}

double tn_comm_waited_s(const tn_comm *c)
{
    return c->waited_s;
}

tn_status tn_comm_sync(tn_comm *c, int group, const char *what, int64_t bytes)
{
    if (!c->page || c->groups[group].n < 2) return TN_OK;
    int slot = c->groups[group].slot;
    uint32_t want = ++c->groups[group].entered, all = want * (uint32_t)c->groups[group].n;
    tn_comm_page_rank *me = &c->page->rank[c->w.rank];
    _Atomic uint32_t *count = &c->page->group[slot].count;
    tn_comm_page_event *e = note(c, group, what, bytes);
    tn_status st = TN_OK;
    atomic_store(&me->arrived[slot], want);
    if (atomic_fetch_add(count, 1) + 1 == all) {
        syscall(SYS_futex, count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    } else {
        int spin = 0;
        while (spin < c->spins &&
               (int32_t)(atomic_load_explicit(count, memory_order_acquire) - all) < 0)
            spin++;
        if (spin == c->spins) {
            atomic_store(&me->waits, 1 + slot);
            st = sleep_in(c, slot, what, all, want);
            if (!st)
                atomic_store(
                    &me->waits,
                    0); /* who failed still waits, for the recorder and for the others' blame */
        }
    }
    if (!st) {
        e->leave_s = tn_clock_s();
        c->waited_s += e->leave_s - e->enter_s;
    }
    return st;
}

/* ------------------------------------------------------------ flags */

static tn_comm_page_event *note_pair(tn_comm *c, int rank, const char *what, int64_t bytes)
{
    tn_comm_page_event *e = note(c, TN_COMM_WORLD, what, bytes);
    e->mask = (uint64_t)1 << c->w.rank | (uint64_t)1 << rank;
    e->sequence = 0;
    return e;
}

void tn_comm_post(tn_comm *c, _Atomic uint32_t *flag, uint32_t value, int rank, const char *what,
                  int64_t bytes)
{
    tn_comm_page_event *e = note_pair(c, rank, what, bytes);
    int waits = 1 + c->w.rank;
    atomic_store(flag, value);
    /* Perhaps it waits for this: what it says while it cannot speak (stopped) must not be old. */
    atomic_compare_exchange_strong(&c->page->rank[rank].waits_for, &waits, 0);
    syscall(SYS_futex, flag, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    e->leave_s = tn_clock_s();
}

/* As sleep_in, for one rank's flag. */
static tn_status sleep_for(tn_comm *c, _Atomic uint32_t *flag, uint32_t value, int rank,
                           const char *what)
{
    double now = tn_clock_s(), deadline = now + c->timeout_s, look = now + 0.5;
    for (;;) {
        struct timespec nap = {0, 50 * 1000 * 1000};
        uint32_t seen = atomic_load(flag);
        if (seen == value) return TN_OK;
        if (atomic_load(&c->page->aborted) > 0) return aborted(c);
        if (now > look) {
            int culprit = to_blame(c->page, rank);
            if (culprit >= 0 && is_gone(c->page, culprit) && atomic_load(flag) != value)
                return gave_up(c, rank, what, false);
            look = now + 0.5;
        }
        if (now > deadline) return gave_up(c, rank, what, true);
        atomic_store(&c->page->rank[c->w.rank].waits_for, 1 + rank);
        syscall(SYS_futex, flag, FUTEX_WAIT, seen, &nap, NULL, 0);
        double after = tn_clock_s();
        if (after - now > 1) deadline += after - now;
        now = after;
    }
}

tn_status tn_comm_await(tn_comm *c, _Atomic uint32_t *flag, uint32_t value, int rank,
                        const char *what, int64_t bytes)
{
    tn_comm_page_rank *me = &c->page->rank[c->w.rank];
    tn_comm_page_event *e = note_pair(c, rank, what, bytes);
    tn_status st = TN_OK;
    int spin = 0;
    while (spin < c->spins && atomic_load_explicit(flag, memory_order_acquire) != value) spin++;
    if (spin == c->spins) {
        st = sleep_for(c, flag, value, rank, what);
        if (!st) atomic_store(&me->waits_for, 0);
    }
    if (!st) {
        e->leave_s = tn_clock_s();
        c->waited_s += e->leave_s - e->enter_s;
    }
    return st;
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
            TN_FAIL(TN_BAD_INPUT,
                    "comm: %s differs: rank %d has %016llx, rank %d has %016llx; all ranks must "
                    "run the same recipe and build",
                    what, c->w.rank, (unsigned long long)value, r, (unsigned long long)other);
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

/* ------------------------------------------------------------ regions */

static tn_status map_region(int fd, int64_t bytes, void **out)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        TN_FAIL(TN_FAILED, "comm: cannot map %lld bytes: %s", (long long)bytes, strerror(errno));
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    *out = p;
    return TN_OK;
}

/* A rank that dies loses its descriptors a little before anyone is told that it died: wait for the
 * word, so that the dead one is named and not its reader. */
static tn_status no_memory_of(tn_comm *c, int rank, int why)
{
    double until = tn_clock_s() + 1;
    while (tn_clock_s() < until && !is_gone(c->page, rank) && atomic_load(&c->page->aborted) <= 0)
        nanosleep(&(struct timespec){0, 5 * 1000 * 1000}, NULL);
    if (is_gone(c->page, rank)) return gave_up(c, rank, "sharing memory", false);
    if (atomic_load(&c->page->aborted) > 0) return aborted(c);
    TN_FAIL(TN_FAILED, "comm: cannot open the memory of rank %d: %s", rank, strerror(why));
}

static tn_status map_peer(tn_comm *c, int rank, int number)
{
    char path[64];
    region *r = &c->regions[number];
    r->bytes[rank] = atomic_load(&c->page->rank[rank].bytes[number]);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", atomic_load(&c->page->rank[rank].pid),
             atomic_load(&c->page->rank[rank].fd[number]));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return no_memory_of(c, rank, errno);
    tn_status st = map_region(fd, r->bytes[rank], &r->at[rank]);
    close(fd);
    return st;
}

tn_status tn_comm_region(tn_comm *c, int number, int64_t bytes, void **mine_out)
{
    if (number < 0 || number >= TN_COMM_MAX_REGIONS)
        TN_FAIL(TN_FAILED, "comm: region %d; there are %d", number, (int)TN_COMM_MAX_REGIONS);
    region *r = &c->regions[number];
    int me = c->w.rank;
    if (bytes < 64) bytes = 64;
    r->fd = memfd_create("titan-region", MFD_CLOEXEC);
    if (r->fd < 0 || ftruncate(r->fd, (off_t)bytes))
        TN_FAIL(TN_FAILED, "comm: no shared memory of %lld bytes: %s", (long long)bytes,
                strerror(errno));
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

int64_t tn_comm_peers_resident(const tn_comm *c)
{
    const void *begins[TN_COMM_MAX_REGIONS * TN_COMM_MAX_RANKS];
    int64_t n = 0;
    for (int k = 0; k < TN_COMM_MAX_REGIONS; k++)
        for (int r = 0; r < c->w.size; r++)
            if (r != c->w.rank && c->regions[k].at[r]) begins[n++] = c->regions[k].at[r];
    return tn_resident_bytes(begins, n);
}

/* ------------------------------------------------------------ flight recorder */

tn_status tn_comm_record_write(const tn_comm *c, const char *path)
{
    return c->page ? tn_comm_page_record(c->page, c->w.rank, path) : TN_OK;
}
