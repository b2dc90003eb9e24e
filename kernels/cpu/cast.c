/* cast.c - picks the instruction set and cuts elements into tiles. */
#include "kernels/cpu/cast.h"

#include "kernels/cpu/dispatch.h"

#include <string.h>

TN_ISA_TABLES(tn_cast_fns, tn_cast_fns);
static const tn_cast_fns *const by_isa[TN_N_ISA] = TN_BY_ISA(tn_cast_fns);

const tn_cast_fns *tn_cast_table(tn_isa isa)
{
    return by_isa[isa];
}

void tn_cast_block(tn_isa isa, const tn_cast_args *a)
{
    if (a->x_bf16 && !a->y_bf16) by_isa[isa]->widen(a->y, a->x, a->n);
    else if (!a->x_bf16 && a->y_bf16) by_isa[isa]->narrow(a->y, a->x, a->n);
    else if (a->x != a->y) memcpy(a->y, a->x, (size_t)a->n * (a->x_bf16 ? 2 : 4));
}

typedef struct job {
    const tn_cast_args *args;
    tn_isa isa;
    int64_t items;
} job;

static void tile(void *arg, int64_t t, int thread)
{
    const job *j = arg;
    const tn_cast_args *a = j->args;
    const int64_t begin = t * j->items;
    (void)thread;
    tn_cast_block(j->isa, &(tn_cast_args){.n = tn_tile_end(a->n, j->items, t) - begin,
                                          .x = (const char *)a->x + begin * (a->x_bf16 ? 2 : 4),
                                          .x_bf16 = a->x_bf16,
                                          .y = (char *)a->y + begin * (a->y_bf16 ? 2 : 4),
                                          .y_bf16 = a->y_bf16});
}

void tn_cast_run(const tn_cpu *cpu, const tn_cast_args *a)
{
    job j = {a, cpu->isa, tn_tile_items(cpu, a->n, (a->x_bf16 ? 2 : 4) + (a->y_bf16 ? 2 : 4))};
    tn_pool_run(cpu->pool, tn_tile_count(a->n, j.items), tile, &j);
}
