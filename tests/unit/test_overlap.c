/* test_overlap.c - what the pass may move and what it may not: computation keeps its order, no
 * exchange comes later than it was, gathers of a block go together and one block ahead at most, a
 * fast network brings them back to their reader and a slow one as far ahead as they may go. */
#include "graph/passes.h"

#include "graph/recompute.h"
#include "graph/rewrite.h"
#include "tests/programs.h"

#include <stdlib.h>

static const char *const layouts[][3] = {
    {"parallelism.data_parallel_shard_degree=4"},
    {"parallelism.tensor_parallel_degree=2", "parallelism.data_parallel_shard_degree=2"},
    {"parallelism.tensor_parallel_degree=4", "parallelism.enable_sequence_parallel=false"},
    {"parallelism.data_parallel_shard_degree=2", "parallelism.data_parallel_replicate_degree=2"},
    {"parallelism.data_parallel_shard_degree=4", "parallelism.fsdp_reshard_after_forward=never"},
    {"parallelism.data_parallel_shard_degree=4", "parallelism.fsdp_reshard_after_forward=2"}};

static bool is_compute(const tn_graph *g, const tn_node *n)
{
    return n->n_in && !tn_node_is_exchange(g, n) && !tn_node_is_view(g, n);
}

static tn_cost_machine machine_of(const tn_graph *g, double speed)
{
    tn_cost_machine m = tn_cost_guess(&g->mesh, false, 8);
    for (int a = 0; a < TN_N_AXES; a++) {
        m.links.axis[a].bytes_per_s *= speed;
        m.links.axis[a].start_s /= speed;
        m.links.axis[a].hop_s /= speed;
    }
    return m;
}

/* By node of computation: its number among them. By exchange: how many stand in front of it. */
static int64_t *positions(const tn_graph *g)
{
    int64_t *at = malloc((size_t)(g->n_nodes + 1) * sizeof *at), n = 0;
    for (int64_t i = 0; at && i < g->n_nodes; i++) {
        at[i] = n;
        n += is_compute(g, &g->nodes[i]);
    }
    return at;
}

/* The k-th node of that op and path: twins keep their order. */
static int64_t twin_of(const tn_graph *a, int64_t i, const tn_graph *b)
{
    int64_t k = 0;
    for (int64_t j = 0; j < i; j++)
        k += a->nodes[j].op == a->nodes[i].op && !strcmp(a->nodes[j].path, a->nodes[i].path);
    for (int64_t j = 0; j < b->n_nodes; j++)
        if (b->nodes[j].op == a->nodes[i].op && !strcmp(b->nodes[j].path, a->nodes[i].path) &&
            k-- == 0)
            return j;
    return -1;
}

static void same_computation(const tn_graph *a, const tn_graph *b)
{
    int64_t k = 0, *before = positions(a), *after = positions(b);
    if (!TN_CHECK(before && after && a->n_nodes == b->n_nodes)) return;
    for (int64_t i = 0; i < a->n_nodes; i++) {
        const tn_node *n = &a->nodes[i];
        if (!is_compute(a, n)) continue;
        while (k < b->n_nodes && !is_compute(b, &b->nodes[k])) k++;
        if (!TN_CHECK(k < b->n_nodes)) break;
        const tn_node *m = &b->nodes[k++];
        TN_CHECK_MSG(n->op == m->op && !strcmp(n->path, m->path) && n->scope == m->scope &&
                         n->order == m->order && n->parts == m->parts,
                     "%s of %s became %s of %s", tn_op_name((tn_op_id)n->op), n->path,
                     tn_op_name((tn_op_id)m->op), m->path);
    }
    for (int64_t i = 0; i < a->n_nodes; i++) {
        if (!tn_node_is_exchange(a, &a->nodes[i])) continue;
        int64_t j = twin_of(a, i, b);
        if (TN_CHECK(j >= 0))
            TN_CHECK_MSG(after[j] <= before[i], "%s of %s goes later",
                         tn_op_name((tn_op_id)a->nodes[i].op), a->nodes[i].path);
    }
    free(before);
    free(after);
}

/* Blocks that computation enters from node i to the first reader of its output. */
static int64_t blocks_ahead(const tn_graph *g, const tn_uses *uses, int64_t i, bool *at_once)
{
    int64_t u = uses->first[g->nodes[i].out0], entered = 0, compute = 0;
    while (!is_compute(g, &g->nodes[uses->users[u]])) u++; /* a piece that is kept of it */
    int64_t reader = uses->users[u];
    const tn_node *last = NULL;
    for (int64_t k = i + 1; k <= reader; k++) {
        const tn_node *n = &g->nodes[k];
        if (!is_compute(g, n)) continue;
        size_t a = last ? tn_recompute_block(last->path) : 0, b = tn_recompute_block(n->path);
        entered += last && (a != b || strncmp(last->path, n->path, a) ||
                            (last->phase == TN_PHASE_F) != (n->phase == TN_PHASE_F));
        compute += k < reader;
        last = n;
    }
    *at_once = compute <= 1; /* the one that hides it */
    return entered;
}

static void gathers(const tn_graph *g, double speed)
{
    tn_uses uses;
    int64_t ahead = 0, late = 0, n_blocks = 0;
    if (!TN_CHECK_OK(tn_uses_build(g, &uses))) return;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        bool at_once;
        size_t block = tn_recompute_block(n->path);
        if (n->op != TN_OP_unshard || n->scope != TN_SCOPE_MICROBATCH || !block ||
            !tn_node_is_exchange(g, n))
            continue;
        if (i && g->nodes[i - 1].op == TN_OP_unshard &&
            !strncmp(g->nodes[i - 1].path, n->path, block))
            continue; /* the first of its bucket */
        int64_t entered = blocks_ahead(g, &uses, i, &at_once);
        TN_CHECK_MSG(entered <= 1, "%s is gathered %lld blocks ahead", n->path, (long long)entered);
        ahead += entered;
        late += at_once;
        n_blocks++;
    }
    if (speed > 1) TN_CHECK_MSG(late == n_blocks, "%d of %d", (int)late, (int)n_blocks);
    if (speed < 1) TN_CHECK_MSG(ahead == n_blocks, "%d of %d", (int)ahead, (int)n_blocks);
    /* one bucket for each block and direction, where there are two */
    if (n_blocks) TN_CHECK_MSG(n_blocks == 6 || n_blocks == 3, "%d buckets", (int)n_blocks);
    tn_uses_fini(&uses);
}

static void reductions(const tn_graph *g)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op != TN_OP_reduce || !tn_node_is_exchange(g, &g->nodes[i])) continue;
        TN_CHECK((g->nodes[i].scope == TN_SCOPE_MICROBATCH) == (g->n_microbatches == 1));
        n++;
    }
    TN_CHECK(n > 0 || g->mesh.size[TN_AXIS_DP_SHARD] == 1);
}

static int64_t peak_of(tn_graph *g)
{
    tn_program *p;
    if (!TN_CHECK_OK(tn_program_build(g, NULL, 0, 0, NULL, &p))) return 0;
    TN_CHECK_OK(tn_program_verify(p));
    int64_t peak = p->pack.peak;
    tn_program_destroy(p);
    return peak;
}

static void moving(void)
{
    static const char *const modes[] = {"activation_checkpoint.mode=none",
                                        "activation_checkpoint.mode=full",
                                        "activation_checkpoint.mode=selective"};
    static const char *const batches[] = {"training.global_batch_size=24",
                                          "training.global_batch_size=72"};
    static const double speeds[] = {1, 1e6, 1e-6};
    for (int i = 0; i < 6 * 3 * 2 * 3; i++) {
        wanted w = {.recipe = tiny_recipe,
                    .world = 4,
                    .until = "recompute",
                    .overrides = {modes[i / 6 % 3], batches[i / 18 % 2], layouts[i % 6][0],
                                  layouts[i % 6][1]}};
        tn_graph *g, *moved;
        if (!TN_CHECK_OK(build_graph(&w, &g))) return;
        tn_pass_options o = {.machine = machine_of(g, speeds[i / 36])};
        if (!TN_CHECK_OK(tn_pass_overlap(g, &o, &moved))) return;
        same_computation(g, moved);
        gathers(moved, speeds[i / 36]);
        reductions(moved);
        TN_CHECK(peak_of(g) > 0 && peak_of(moved) > 0);
    }
}

/* With one microbatch the whole gradients leave block by block (ZeRO-2). */
static void less_memory(void)
{
    static const char *const passes[] = {"recompute", "overlap"};
    int64_t peak[2] = {0};
    for (int i = 0; i < 2; i++) {
        wanted w = {.recipe = "recipes/llama3_8b.lua", .world = 8, .until = passes[i]};
        tn_graph *g;
        if (!TN_CHECK_OK(build_graph(&w, &g))) return;
        peak[i] = peak_of(g);
    }
    TN_CHECK_MSG(peak[1] < peak[0] - peak[0] / 10, "%lld bytes, before %lld", (long long)peak[1],
                 (long long)peak[0]);
}

static tn_status pass_once(void *arg)
{
    const tn_graph *in = arg;
    tn_graph *out;
    tn_pass_options o = {.machine = machine_of(in, 1)};
    TN_TRY(tn_pass_overlap(in, &o, &out));
    tn_graph_destroy(out);
    return TN_OK;
}

int main(void)
{
    moving();
    less_memory();
    wanted w = {.recipe = tiny_recipe,
                .world = 2,
                .until = "recompute",
                .overrides = {"training.global_batch_size=12"}};
    tn_graph *g;
    if (TN_CHECK_OK(build_graph(&w, &g))) {
        TN_CHECK(tn_test_each_alloc(pass_once, g) > 4);
        tn_graph_destroy(g);
    }
    return tn_test_done("overlap");
}
