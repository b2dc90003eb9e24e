/* loss.c - picks the instruction set and cuts rows into tiles. */
#include "kernels/cpu/loss.h"

#include "kernels/cpu/dispatch.h"

#include <assert.h>

TN_ISA_TABLES(tn_loss_fns, tn_loss_fns);
static const tn_loss_fns *const fns[TN_N_ISA] = TN_BY_ISA(tn_loss_fns);

typedef struct job {
    const tn_loss_fns *f;
    const tn_loss_parts_args *parts; /* one of the three */
    const tn_loss_merge_args *merge;
    const tn_loss_grad_args *grad;
    int64_t rows, items;
} job;

static void tile(void *arg, int64_t t, int thread)
{
    const job *j = arg;
    int64_t begin = t * j->items, end = tn_tile_end(j->rows, j->items, t);
    (void)thread;
    if (j->parts) j->f->parts(j->parts, begin, end);
    else if (j->merge) j->f->merge(j->merge, begin, end);
    else j->f->backward(j->grad, begin, end);
}

static void run(const tn_cpu *cpu, job *j, int64_t row_bytes)
{
    j->f = fns[cpu->isa];
    j->items = tn_tile_items(cpu, j->rows, row_bytes);
    tn_pool_run(cpu->pool, tn_tile_count(j->rows, j->items), tile, j);
}

void tn_loss_parts(const tn_cpu *cpu, const tn_loss_parts_args *a)
{
    job j = {.parts = a, .rows = a->rows};
    run(cpu, &j, a->v_count * 4 + 12 * a->part_count);
}

void tn_loss_merge(const tn_cpu *cpu, const tn_loss_merge_args *a)
{
    job j = {.merge = a, .rows = a->rows};
    assert(a->parts >= 1 && a->parts <= TN_LOSS_MAX_PARTS);
    run(cpu, &j, a->parts * 256); /* merging two parts takes as long as streaming 256 bytes */
}

void tn_loss_backward(const tn_cpu *cpu, const tn_loss_grad_args *a)
{
    job j = {.grad = a, .rows = a->rows};
    run(cpu, &j, a->v_count * 8 + 8);
}
