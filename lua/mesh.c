/* mesh.c - parallel dimensions: the degrees of a recipe against the ranks there are
 * (docs/layouts.md). All rules that are broken are reported at once, before anything is allocated.
 */
#include "lua/build.h"
#include "lua/limits.h"

enum { MAX_RANKS = 1 << 30 };

static const struct {
    const char *key;
    tn_axis axis;
} degrees[] = {{"parallelism.data_parallel_replicate_degree", TN_AXIS_DP_REPLICATE},
               {"parallelism.data_parallel_shard_degree", TN_AXIS_DP_SHARD},
               {"parallelism.context_parallel_degree", TN_AXIS_CP},
               {"parallelism.tensor_parallel_degree", TN_AXIS_TP}};

/* The product of the degrees is a number of ranks. */
static tn_status check_product(const tn_mesh *m)
{
    int64_t all = m->pp;
    for (int a = 0; a < TN_N_AXES; a++)
        if (m->size[a] > 0 && all <= MAX_RANKS) all *= m->size[a];
    if (all > MAX_RANKS)
        TN_FAIL(TN_BAD_INPUT,
                "parallelism: its degrees make more than %d ranks: pp %d, dp_replicate %d, "
                "dp_shard %d, cp %d, tp %d",
                MAX_RANKS, m->pp, m->size[TN_AXIS_DP_REPLICATE], m->size[TN_AXIS_DP_SHARD],
                m->size[TN_AXIS_CP], m->size[TN_AXIS_TP]);
    return TN_OK;
}

tn_status tn_build_mesh(tn_recipe *r, int64_t world, tn_mesh *out)
{
    tn_mesh m = {.pp = (int)tn_recipe_int(r, "parallelism.pipeline_parallel_degree")};
    tn_limits q = {.r = r};
    int64_t others = m.pp;
    for (int i = 0; i < TN_COUNT(degrees); i++)
        m.size[degrees[i].axis] = (int)tn_recipe_int(r, degrees[i].key);
    tn_limits_later(&q, &m);
    bool fills = m.size[TN_AXIS_DP_SHARD] < 0;
    TN_TRY(check_product(&m));
    for (int a = 0; a < TN_N_AXES; a++)
        if (a != TN_AXIS_DP_SHARD) others *= m.size[a];
    if (fills) m.size[TN_AXIS_DP_SHARD] = world >= others ? (int)(world / others) : 1;
    TN_TRY(tn_limits_world(&q, &m, world ? world : others * m.size[TN_AXIS_DP_SHARD], fills));
    TN_TRY(tn_limits_degrees(&q, &m));
    tn_limits_batch(&q, &m);
    tn_limits_reshard(&q, &m);
    TN_TRY(tn_limits_pipeline(&q, &m));
    TN_TRY(tn_limits_take(&q, tn_build_check_chunks(r)));
    TN_TRY(tn_limits_end(&q));
    *out = m;
    return TN_OK;
}
