/* optim.c - rounds the constants of a step to float and cuts the array into tiles. */
#include "kernels/cpu/optim.h"

#include "kernels/cpu/dispatch.h"

#include <math.h>

TN_ISA_TABLES(tn_optim_fns, tn_optim_fns);
static const tn_optim_fns *const fns[TN_N_ISA] = TN_BY_ISA(tn_optim_fns);

typedef struct job {
    const tn_optim_adam *adam;
    const tn_optim_sgd *sgd;
    tn_optim_constants k;
    const tn_optim_fns *f;
    int64_t n, items;
} job;

static void tile(void *arg, int64_t t, int thread)
{
    const job *j = arg;
    int64_t begin = t * j->items, end = tn_tile_end(j->n, j->items, t);
    (void)thread;
    if (j->adam) j->f->adam(j->adam, &j->k, begin, end);
    else j->f->sgd(j->sgd, &j->k, begin, end);
}

static void run(const tn_cpu *cpu, job *j)
{
    j->f = fns[cpu->isa];
    j->items = tn_tile_items(cpu, j->n, 28);
    tn_pool_run(cpu->pool, tn_tile_count(j->n, j->items), tile, j);
}

/* beta^n by squaring: libm's pow differs between machines. */
static double power(double b, int64_t n)
{
    double r = 1;
    for (; n; n >>= 1, b *= b)
        if (n & 1) r *= b;
    return r;
}

void tn_optim_adam_run(const tn_cpu *cpu, const tn_optim_adam *a)
{
    double bc1 = 1 - power(a->beta1, a->step), bc2 = 1 - power(a->beta2, a->step);
    job j = {.adam = a, .n = a->n};
    j.k = (tn_optim_constants){.decay = (float)(1 - a->lr * a->weight_decay),
                               .wd = (float)a->weight_decay,
                               .b2 = (float)a->beta2,
                               .c1 = (float)(1 - a->beta1),
                               .c2 = (float)(1 - a->beta2),
                               .eps = (float)a->eps,
                               .step_size = (float)(a->lr / bc1),
                               .root_bc2 = (float)sqrt(bc2),
                               .coefficient = *a->coefficient,
                               .decoupled = a->decoupled};
    run(cpu, &j);
}

void tn_optim_sgd_run(const tn_cpu *cpu, const tn_optim_sgd *a)
{
    job j = {.sgd = a, .n = a->n};
    j.k = (tn_optim_constants){.lr = (float)a->lr,
                               .wd = (float)a->weight_decay,
                               .momentum = (float)a->momentum,
                               .coefficient = *a->coefficient,
                               .first = a->step == 1};
    run(cpu, &j);
}
