/* rope.c - the table of angles, and the cut of tokens into tiles. */
#include "kernels/cpu/rope.h"

#include "kernels/cpu/dispatch.h"

#include <math.h>

TN_ISA_TABLES(tn_rope_fns, tn_rope_fns);
static const tn_rope_fns *const by_isa[TN_N_ISA] = TN_BY_ISA(tn_rope_fns);

static double scaled(double freq, const tn_rope_scaling *s)
{
    const double wavelength = 2 * 3.14159265358979323846 / freq;
    if (wavelength < s->original / s->high) return freq;
    if (wavelength > s->original / s->low) return freq / s->factor;
    const double t = (s->original / wavelength - s->low) / (s->high - s->low);
    return (1 - t) * freq / s->factor + t * freq;
}

void tn_rope_table(int64_t positions, int64_t d, double theta, const tn_rope_scaling *scaling,
                   float *table)
{
    const int64_t half = d / 2;
    for (int64_t i = 0; i < half; i++) {
        double freq = pow(theta, -(double)(2 * i) / (double)d);
        if (scaling) freq = scaled(freq, scaling);
        for (int64_t p = 0; p < positions; p++) {
            table[p * d + i] = (float)cos((double)p * freq);
            table[p * d + half + i] = (float)sin((double)p * freq);
        }
    }
}

typedef struct job {
    const tn_rope_fns *fns;
    const tn_rope_args *args;
    int64_t items;
} job;

static void apply_tile(void *arg, int64_t tile, int thread)
{
    const job *j = arg;
    (void)thread;
    j->fns->apply(j->args, tile * j->items, tn_tile_end(j->args->tokens, j->items, tile));
}

void tn_rope_apply(const tn_cpu *cpu, const tn_rope_args *a)
{
    job j = {by_isa[cpu->isa], a,
             tn_tile_items(cpu, a->tokens, a->heads * a->d * (a->bf16 ? 4 : 8))};
    tn_pool_run(cpu->pool, tn_tile_count(a->tokens, j.items), apply_tile, &j);
}
