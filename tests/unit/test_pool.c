/* test_pool.c - every tile once, on any thread, with one floating-point environment, awake or
 * asleep. */
#include "engine/base/pool.h"
#include "tests/test.h"

#include <fenv.h>
#include <float.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_THREADS = 8, MAX_TILES = 4096 };

typedef struct counts {
    _Atomic int tile[MAX_TILES];
    _Atomic int thread[MAX_THREADS];
    _Atomic int outside; /* tiles or threads that do not exist */
    int64_t n_tiles;
    int n_threads;
} counts;

static void count_tile(void *arg, int64_t tile, int thread)
{
    counts *c = arg;
    if (tile < 0 || tile >= c->n_tiles || thread < 0 || thread >= c->n_threads) {
        atomic_fetch_add(&c->outside, 1);
        return;
    }
    atomic_fetch_add(&c->tile[tile], 1);
    atomic_fetch_add(&c->thread[thread], 1);
}

static void pause_ns(long ns)
{
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

static void check_once(tn_pool *pool, int64_t n_tiles, counts *c)
{
    memset(c, 0, sizeof *c);
    c->n_tiles = n_tiles;
    c->n_threads = tn_pool_threads(pool);
    tn_pool_run(pool, n_tiles, count_tile, c);
    bool once = atomic_load(&c->outside) == 0;
    for (int64_t i = 0; i < MAX_TILES; i++)
        once = once && atomic_load(&c->tile[i]) == (i < n_tiles);
    TN_CHECK_MSG(once, "%lld tiles on %d threads: not each once", (long long)n_tiles, c->n_threads);
}

static void test_every_tile_once(void)
{
    counts *c = calloc(1, sizeof *c);
    for (int n = 1; n <= MAX_THREADS; n++) {
        tn_pool *pool = NULL;
        if (!TN_CHECK_OK(tn_pool_create(n, &pool))) return;
        TN_CHECK(tn_pool_threads(pool) == n);
        for (int64_t tiles = 0; tiles <= 20; tiles++) check_once(pool, tiles, c);
        check_once(pool, MAX_TILES, c);
        pause_ns(2000000); /* the workers are asleep now */
        check_once(pool, 64, c);
        tn_pool_destroy(pool);
    }
    free(c);
}

/* Runs that follow each other at once, and runs with gaps of about the time a worker spins: workers
 * that are just going to sleep, that wake late, and that are still leaving the run before. */
static void add_tile(void *arg, int64_t tile, int thread)
{
    (void)thread;
    atomic_fetch_add((_Atomic int64_t *)arg, tile + 1);
}

static void test_many_runs(void)
{
    tn_pool *pool = NULL;
    _Atomic int64_t sum = 0;
    int64_t expected = 0;
    if (!TN_CHECK_OK(tn_pool_create(3, &pool))) return;
    for (int i = 0; i < 20000; i++) {
        int64_t n = i % 7;
        tn_pool_run(pool, n, add_tile, &sum);
        expected += n * (n + 1) / 2;
        if (atomic_load(&sum) != expected) break;
        if (i % 100 == 0) pause_ns((i / 100) * 500);
    }
    TN_CHECK_MSG(atomic_load(&sum) == expected, "sum %lld, expected %lld",
                 (long long)atomic_load(&sum), (long long)expected);
    tn_pool_destroy(pool);
}

/* The other threads take part: a tile that waits for a second thread ends. */
typedef struct meeting {
    _Atomic int arrived;
    _Atomic bool alone;
} meeting;

static void meet(void *arg, int64_t tile, int thread)
{
    meeting *m = arg;
    (void)tile, (void)thread;
    atomic_fetch_add(&m->arrived, 1);
    for (int i = 0; atomic_load(&m->arrived) < 2; i++) {
        if (i == 10000) {
            atomic_store(&m->alone, true);
            return;
        }
        pause_ns(1000000);
    }
}

static void test_threads_share(void)
{
    tn_pool *pool = NULL;
    if (!TN_CHECK_OK(tn_pool_create(2, &pool))) return;
    for (int i = 0; i < 20; i++) {
        meeting m = {0};
        tn_pool_run(pool, 2, meet, &m);
        TN_CHECK_MSG(!atomic_load(&m.alone),
                     "run %d: the second thread did not come within ten seconds", i);
        if (i % 2) pause_ns(500000);
    }
    tn_pool_destroy(pool);
}

#if defined __x86_64__
static void flush_to_zero(void)
{
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
}
#else
static void flush_to_zero(void)
{
}
#endif

typedef struct arithmetic {
    float denormal[256], third[256];
    int rounding[256];
} arithmetic;

static void compute(void *arg, int64_t tile, int thread)
{
    arithmetic *a = arg;
    volatile float tiny = FLT_MIN, two = 2, one = 1, three = 3;
    (void)thread;
    a->denormal[tile] = tiny / two;
    a->third[tile] = one / three;
    a->rounding[tile] = fegetround();
    pause_ns(10000); /* so that every thread gets some */
}

static void test_one_environment(void)
{
    for (int n = 1; n <= 4; n += 3) {
        tn_pool *pool = NULL;
        arithmetic a;
        fenv_t env;
        fegetenv(&env);
        fesetround(FE_UPWARD);
        flush_to_zero();
        bool created =
            tn_pool_create(n, &pool) == TN_OK; /* workers would inherit the environment */
        if (created) tn_pool_run(pool, 256, compute, &a);
        int rounding = fegetround();
        fesetenv(&env);
        if (!TN_CHECK(created)) return;
        bool same = true;
        for (int i = 0; i < 256; i++)
            same = same && a.denormal[i] == 0x1p-127f && a.third[i] == 0x1.555556p-2f &&
                   a.rounding[i] == FE_TONEAREST;
        TN_CHECK_MSG(same, "%d threads: a tile ran with another rounding or flushed to zero", n);
        TN_CHECK_MSG(rounding == FE_UPWARD, "the caller's environment was not restored");
        tn_pool_destroy(pool);
    }
}

static tn_status create_and_destroy(void *arg)
{
    tn_pool *pool = NULL;
    (void)arg;
    TN_TRY(tn_pool_create(3, &pool));
    tn_pool_destroy(pool);
    return TN_OK;
}

static void test_failures(void)
{
    tn_pool *pool = NULL;
    TN_CHECK_FAILS(tn_pool_create(0, &pool), TN_BAD_INPUT, "device.threads: 0");
    TN_CHECK_FAILS(tn_pool_create(-3, &pool), TN_BAD_INPUT, "device.threads: -3");
    TN_CHECK_FAILS(tn_pool_create(1 << 20, &pool), TN_BAD_INPUT, "use 1 to 1024");
    TN_CHECK(pool == NULL);
    TN_CHECK(tn_test_each_alloc(create_and_destroy, NULL) == 2);
    tn_pool_destroy(NULL);
    TN_CHECK(tn_pool_cores() >= 1);
}

int main(void)
{
    test_every_tile_once();
    test_many_runs();
    test_threads_share();
    test_one_environment();
    test_failures();
    return tn_test_done("pool");
}
