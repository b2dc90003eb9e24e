/* mesh.c - parallel dimensions: the degrees of a recipe against the ranks there are
 * (docs/layouts.md).
 *
 * All rules that are broken are reported at once, before anything is allocated: the first is the
 * error, the others its notes. */
#include "lua/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *key;
    tn_axis axis;
} degrees[] = {{"parallelism.data_parallel_replicate_degree", TN_AXIS_DP_REPLICATE},
               {"parallelism.data_parallel_shard_degree", TN_AXIS_DP_SHARD},
               {"parallelism.context_parallel_degree", TN_AXIS_CP},
               {"parallelism.tensor_parallel_degree", TN_AXIS_TP}};

typedef struct problems {
    const tn_recipe *r;
    tn_status st;
} problems;

static void add(problems *p, const char *key, const char *fmt, ...) TN_PRINTF(3, 4);
static void add(problems *p, const char *key, const char *fmt, ...)
{
    char text[384];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!p->st) p->st = tn_error(TN_BAD_INPUT, "%s: %s: %s", tn_recipe_where(p->r, key), key, text);
    else p->st = tn_error_note(p->st, "%s: %s: %s", tn_recipe_where(p->r, key), key, text);
}

static int power_below(int64_t n)
{
    int p = 1;
    while (2 * p <= n) p *= 2;
    return p;
}

/* The layouts that keep the bits: powers of two within the reduce grid (DESIGN.md 7 (15)). */
static void check_grid(problems *p, const tn_mesh *m)
{
    int64_t tp_grid = tn_recipe_int_at(p->r, "debug.reduce_grid", 0),
            seq_grid = tn_recipe_int_at(p->r, "debug.reduce_grid", 1);
    int64_t rows_grid = tn_recipe_int_at(p->r, "debug.reduce_grid", 2);
    int tp = m->size[TN_AXIS_TP], dp = m->size[TN_AXIS_DP_REPLICATE] * m->size[TN_AXIS_DP_SHARD];
    if (strcmp(tn_recipe_text(p->r, "debug.reduce"), "canonical")) return;
    if (tp != power_below(tp) || tp > tp_grid)
        add(p, "parallelism.tensor_parallel_degree",
            "%d keeps no bits under debug.reduce_grid.tp = %lld; %d, or debug.reduce = \"fast\"",
            tp, (long long)tp_grid, power_below(tp < tp_grid ? tp : tp_grid));
    if (tp > seq_grid && tn_recipe_bool(p->r, "parallelism.enable_sequence_parallel"))
        add(p, "parallelism.tensor_parallel_degree",
            "%d cuts a position part of debug.reduce_grid.seq = %lld; %lld, or "
            "enable_sequence_parallel = false",
            tp, (long long)seq_grid, (long long)seq_grid);
    if (dp != power_below(dp) || dp > rows_grid)
        add(p, "parallelism.data_parallel_shard_degree",
            "%d data-parallel ranks keep no bits under debug.reduce_grid.rows = %lld; %d, or "
            "debug.reduce = \"fast\"",
            dp, (long long)rows_grid, power_below(dp < rows_grid ? dp : rows_grid));
}

tn_status tn_build_mesh(const tn_recipe *r, int64_t world, tn_mesh *out)
{
    tn_mesh m = {.pp = (int)tn_recipe_int(r, "parallelism.pipeline_parallel_degree")};
    problems p = {.r = r};
    int64_t others = m.pp;
    for (int i = 0; i < TN_COUNT(degrees); i++) {
        m.size[degrees[i].axis] = (int)tn_recipe_int(r, degrees[i].key);
        if (degrees[i].axis != TN_AXIS_DP_SHARD) others *= m.size[degrees[i].axis];
    }
    int64_t shard = m.size[TN_AXIS_DP_SHARD];
    if (shard < 0) shard = world && world >= others ? world / others : 1;
    if (!world) world = others * shard;
    m.size[TN_AXIS_DP_SHARD] = (int)shard;
    if (others * shard != world)
        add(&p, "parallelism.data_parallel_shard_degree",
            "pp %d x dp_replicate %d x dp_shard %lld x cp %d x tp %d is %lld, the run has %lld "
            "rank%s; -n %lld, or degrees that multiply to %lld",
            m.pp, m.size[TN_AXIS_DP_REPLICATE], (long long)shard, m.size[TN_AXIS_CP],
            m.size[TN_AXIS_TP], (long long)(others * shard), (long long)world,
            world == 1 ? "" : "s", (long long)(others * shard), (long long)world);
    check_grid(&p, &m);
    if (p.st) return p.st;
    *out = m;
    return TN_OK;
}
