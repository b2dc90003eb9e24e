/* pool.h - the thread pool: one parallel-for with tiles handed out dynamically.
 *
 * tn_pool_run calls fn(arg, tile, thread) for tile 0 .. n_tiles-1, each exactly once, on any
 * thread, and returns when all are done. The calling thread works too, as thread 0. Which thread
 * computes a tile must never change a bit of the result. A waiting thread spins for a few
 * microseconds, then sleeps. One run at a time per pool.
 *
 * Every thread runs with the same MXCSR (round to nearest, no flush to zero, no
 * denormals-are-zero).
 */
#ifndef TN_ENGINE_BASE_POOL_H
#define TN_ENGINE_BASE_POOL_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_pool tn_pool;
typedef void (*tn_pool_fn)(void *arg, int64_t tile, int thread);

/* n_threads >= 1. With 1 no thread is started. */
tn_status tn_pool_create(int n_threads, tn_pool **out) TN_MUST_USE;
void tn_pool_destroy(tn_pool *pool); /* NULL is fine */
int tn_pool_threads(const tn_pool *pool);
void tn_pool_run(tn_pool *pool, int64_t n_tiles, tn_pool_fn fn, void *arg);

/* Cores this process may use (affinity mask). */
int tn_pool_cores(void);

TN_C_END
#endif
