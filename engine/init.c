#include "engine/init.h"

#include "engine/base/rng.h"
#include "kernels/cpu/rope.h"

#include <string.h>

enum { TILE = 1 << 14 };

typedef struct fill {
    tn_rng rng;
    tn_rng_dist dist;
    float *out;
    tn_runs runs;
    int64_t per_run; /* tiles of one run */
} fill;

static void fill_tile(void *arg, int64_t tile, int thread)
{
    const fill *f = arg;
    int64_t run = tile / f->per_run, first = tile % f->per_run * TILE,
            n = f->runs.run - first < TILE ? f->runs.run - first : TILE;
    (void)thread;
    tn_rng_fill(f->rng, &f->dist, (uint64_t)(f->runs.first + run * f->runs.stride + first), n,
                f->out + run * f->runs.run + first);
}

static tn_status random_state(const tn_node *n, const char *init, uint64_t seed, tn_pool *pool,
                              float *out, tn_runs runs)
{
    double std = tn_node_attr_num(n, "std"), bound = tn_node_attr_num(n, "bound");
    fill f = {.rng = tn_rng_make(seed, tn_node_attr_text(n, "name"), 0),
              .out = out,
              .runs = runs,
              .per_run = (runs.run + TILE - 1) / TILE};
    if (bound <= 0) bound = 2.0;
    if (!strcmp(init, "normal")) f.dist = (tn_rng_dist){.kind = TN_RNG_NORMAL, .std = std};
    else if (!strcmp(init, "trunc_normal"))
        f.dist = (tn_rng_dist){.kind = TN_RNG_TRUNC_NORMAL, .std = std, .lo = -bound, .hi = bound};
    else if (!strcmp(init, "ones")) f.dist = (tn_rng_dist){.kind = TN_RNG_CONSTANT, .mean = 1.0};
    else if (!strcmp(init, "zeros")) return TN_OK; /* fresh memory */
    else
        TN_FAIL(TN_BAD_INPUT, "%s: init '%s'; zeros, ones, normal, trunc_normal or rope",
                tn_node_attr_text(n, "name"), init);
    tn_pool_run(pool, runs.n * f.per_run, fill_tile, &f);
    return TN_OK;
}

static void rope_state(const tn_node *n, const tn_value *v, float *out)
{
    tn_rope_scaling s = {tn_node_attr_num(n, "factor"), tn_node_attr_num(n, "low"),
                         tn_node_attr_num(n, "high"), (double)tn_node_attr_int(n, "original")};
    tn_rope_table(v->dim[0].extent, v->dim[1].extent, tn_node_attr_num(n, "theta"),
                  s.factor > 0 ? &s : NULL, out);
}

tn_status tn_init_states(tn_exec *e, uint64_t seed, bool buffers_only)
{
    const tn_program *p = tn_exec_program(e);
    for (int64_t i = 0; i < p->g->n_nodes; i++) {
        const tn_node *n = &p->g->nodes[i];
        if (n->op != TN_OP_state ||
            (buffers_only && strcmp(tn_node_attr_text(n, "kind"), "buffer")))
            continue;
        const char *init = tn_node_attr_text(n, "init");
        const tn_value *v = &p->g->values[n->out0];
        float *out = tn_exec_value(e, n->out0);
        if (!strcmp(init, "rope")) rope_state(n, v, out);
        else TN_TRY(random_state(n, init, seed, tn_exec_pool(e), out, tn_program_runs(p, n->out0)));
    }
    return TN_OK;
}
