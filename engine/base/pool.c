/* pool.c - threads that share one parallel-for (contract in pool.h).
 *
 * NOTES ON THE POOL
 * (1) `state` holds generation << 32 | OPEN | number of workers inside. Only the caller changes
 * generation and OPEN; a worker enters by compare-and-swap on the whole word, so it can enter only
 * the run it looked at, and only while that is open. (2) fn, arg and n_tiles change only while the
 * run is closed and no worker is inside. (3) The caller closes the run when no tile is left, and
 * waits for the workers inside. A worker that wakes too late finds the run closed and goes back to
 * sleep: nobody waits for a thread that has no tile. (4) Who goes to sleep first announces it
 * (sleepers, caller_sleeps) and then looks at `state` again under the lock; who changes `state`
 * changes it first and then looks at the announcement. Both orders are sequentially consistent: no
 * wake-up is lost.
 */
#include "engine/base/pool.h"
#include "engine/base/mem.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OPEN ((uint64_t)1 << 16)
#define INSIDE (OPEN - 1)

/* Longer than a kernel launch by the executor, shorter than what the scheduler would give to
 * somebody else. */
enum { SPIN_NS = 20000, LINE = 64 };

typedef struct worker {
    tn_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct tn_pool {
    int n_threads, n_started;
    worker *workers;
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    tn_pool_fn fn;
    void *arg;
    int64_t n_tiles;
    _Atomic int sleepers;
    _Atomic bool caller_sleeps, quit;
    char pad0[LINE];
    _Atomic uint64_t state;
    char pad1[LINE];
    _Atomic int64_t next;
    char pad2[LINE];
};

#if defined __x86_64__ || defined __i386__
static inline void relax(void)
{
    __builtin_ia32_pause();
}
#elif defined __aarch64__
static inline void relax(void)
{
    __asm__ volatile("yield");
}
#else
static inline void relax(void)
{
}
#endif

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t generation(uint64_t state)
{
    return state >> 32;
}

/* Is there a run that the worker, whose last run was `seen`, may enter? */
static bool ready(tn_pool *p, uint64_t seen)
{
    uint64_t s = atomic_load(&p->state);
    return atomic_load(&p->quit) || ((s & OPEN) && generation(s) != seen);
}

static bool idle(tn_pool *p, uint64_t unused)
{
    (void)unused;
    return (atomic_load(&p->state) & INSIDE) == 0;
}

static bool spin(tn_pool *p, bool (*until)(tn_pool *, uint64_t), uint64_t seen)
{
    if (until(p, seen)) return true;
    int64_t end = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 16; i++) {
            relax();
            if (until(p, seen)) return true;
        }
    } while (now_ns() < end);
    return false;
}

static void work(tn_pool *p, int thread)
{
    int64_t n = p->n_tiles, tile;
    while ((tile = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < n)
        p->fn(p->arg, tile, thread);
}

static bool enter(tn_pool *p, uint64_t *seen)
{
    uint64_t s = atomic_load(&p->state);
    while ((s & OPEN) && generation(s) != *seen) {
        if (!atomic_compare_exchange_weak(&p->state, &s, s + 1)) continue;
        *seen = generation(s);
        return true;
    }
    return false;
}

static void leave(tn_pool *p)
{
    uint64_t before = atomic_fetch_sub(&p->state, 1);
    if ((before & INSIDE) != 1 || !atomic_load(&p->caller_sleeps)) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    tn_pool *p = w->pool;
    uint64_t seen = 0;
    fesetenv(FE_DFL_ENV);
    while (!atomic_load(&p->quit)) {
        if (!spin(p, ready, seen)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1); /* (4) */
            while (!ready(p, seen)) pthread_cond_wait(&p->start, &p->lock);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        if (!enter(p, &seen)) continue;
        work(p, w->index);
        leave(p);
    }
    return NULL;
}

static void wake(tn_pool *p, int64_t n)
{
    if (atomic_load(&p->sleepers) == 0) return; /* (4) */
    pthread_mutex_lock(&p->lock);
    if (n >= p->n_threads - 1) pthread_cond_broadcast(&p->start);
    else
        for (; n > 0; n--) pthread_cond_signal(&p->start);
    pthread_mutex_unlock(&p->lock);
}

static void run_shared(tn_pool *p, int64_t n_tiles, tn_pool_fn fn, void *arg)
{
    p->fn = fn;
    p->arg = arg;
    p->n_tiles = n_tiles;
    atomic_store(&p->next, 0);
    uint64_t g = (generation(atomic_load(&p->state)) + 1) & 0xffffffff;
    if (g == 0) g = 1; /* 0 is what a worker that has seen nothing remembers */
    atomic_store(&p->state, g << 32 | OPEN);
    wake(p, n_tiles - 1);
    work(p, 0);
    atomic_fetch_and(&p->state, ~OPEN); /* (3) */
    if (spin(p, idle, 0)) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true); /* (4) */
    while (!idle(p, 0)) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void tn_pool_run(tn_pool *pool, int64_t n_tiles, tn_pool_fn fn, void *arg)
{
    fenv_t env;
    if (n_tiles <= 0) return;
    fegetenv(&env); /* the default environment is MXCSR 0x1f80, FPCR 0 on arm64 */
    fesetenv(FE_DFL_ENV);
    if (pool->n_threads > 1 && n_tiles > 1) run_shared(pool, n_tiles, fn, arg);
    else
        for (int64_t t = 0; t < n_tiles; t++) fn(arg, t, 0);
    fesetenv(&env);
}

int tn_pool_threads(const tn_pool *pool)
{
    return pool->n_threads;
}

tn_status tn_pool_create(int n_threads, tn_pool **out)
{
    void *mem;
    tn_pool *p;
    if (n_threads < 1 || n_threads > 1024)
        TN_FAIL(TN_BAD_INPUT, "device.threads: %d threads cannot be; use 1 to 1024", n_threads);
    TN_TRY(tn_alloc(sizeof *p, &mem));
    p = mem;
    p->n_threads = n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    tn_status st = tn_alloc((size_t)n_threads * sizeof *p->workers, &mem);
    if (st) goto fail;
    p->workers = mem;
    for (int i = 0; i < n_threads - 1; i++) {
        worker *w = &p->workers[i];
        w->pool = p;
        w->index = i + 1;
        int err = pthread_create(&w->thread, NULL, worker_main, w);
        if (err) {
            st = tn_error(TN_FAILED,
                          "threads: cannot start thread %d of %d: %s; use fewer (device.threads)",
                          i + 2, n_threads, strerror(err));
            goto fail;
        }
        p->n_started++;
    }
    *out = p;
    return TN_OK;
fail:
    tn_pool_destroy(p);
    return st;
}

void tn_pool_destroy(tn_pool *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->quit, true);
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->start);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    tn_free(pool->workers);
    tn_free(pool);
}

int tn_pool_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more than CPU_SETSIZE processors */
    return n < 1 ? 1 : (int)n;
}
