/* norm.c - picks the instruction set and cuts rows (the gain's gradient: columns) into tiles. */
#include "kernels/cpu/norm.h"

#include "kernels/cpu/dispatch.h"

TN_ISA_TABLES(tn_norm_fns, tn_norm_fns);
static const tn_norm_fns *const by_isa[TN_N_ISA] = TN_BY_ISA(tn_norm_fns);

typedef struct job {
    const tn_norm_fns *fns;
    const void *args;
    int64_t n, items;
} job;

static void forward_tile(void *arg, int64_t tile, int thread)
{
    const job *j = arg;
    (void)thread;
    j->fns->forward(j->args, tile * j->items, tn_tile_end(j->n, j->items, tile));
}

static void backward_tile(void *arg, int64_t tile, int thread)
{
    const job *j = arg;
    (void)thread;
    j->fns->backward(j->args, tile * j->items, tn_tile_end(j->n, j->items, tile));
}

static void gain_tile(void *arg, int64_t tile, int thread)
{
    const job *j = arg;
    (void)thread;
    j->fns->gain(j->args, tile * j->items, tn_tile_end(j->n, j->items, tile));
}

static void run(const tn_cpu *cpu, tn_pool_fn fn, const void *args, int64_t n, int64_t items)
{
    job j = {by_isa[cpu->isa], args, n, items};
    tn_pool_run(cpu->pool, tn_tile_count(n, items), fn, &j);
}

void tn_norm_forward(const tn_cpu *cpu, const tn_norm_forward_args *a)
{
    run(cpu, forward_tile, a, a->rows,
        tn_tile_items(cpu, a->rows, a->d * (a->add ? 16 : 8) / (a->bf16 ? 2 : 1)));
}

void tn_norm_backward(const tn_cpu *cpu, const tn_norm_backward_args *a)
{
    run(cpu, backward_tile, a, a->rows,
        tn_tile_items(cpu, a->rows, a->d * (a->more ? 16 : 12) / (a->bf16 ? 2 : 1)));
}

void tn_norm_gain(const tn_cpu *cpu, const tn_norm_gain_args *a)
{
    /* Two tiles of columns per thread, 32 columns (two cache lines of a token) at least. */
    int64_t parts = 2 * (int64_t)tn_pool_threads(cpu->pool),
            cols = ((a->d + parts - 1) / parts + 31) / 32 * 32;
    run(cpu, gain_tile, a, a->d, cols < TN_NORM_GAIN_COLS ? cols : TN_NORM_GAIN_COLS);
}
