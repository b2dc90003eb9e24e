#include "graph/stages.h"

#include "graph/names.h"
#include "graph/op.h"
#include "graph/passes.h"
#include "graph/recompute.h"
#include "graph/rewrite.h"

#include <string.h>

/* Length of the module's name in a path; 0: the path names none. */
static size_t module_length(const char *path)
{
    size_t n = tn_recompute_block(path);
    return n ? n : strcspn(path, ".");
}

static bool depends_on_parameters(const tn_graph *g, const tn_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (g->values[n->out0 + i].grad) return true;
    for (int i = 0; i < n->n_in; i++)
        if (g->values[tn_node_in(g, n, i)].grad) return true;
    return false;
}

/* Parameters stand in module order in front of everything: their modules count as well, so that one
 * which is only shared (a tied head's) is not taken for the first. */
static bool names_module(const tn_graph *g, const tn_node *n)
{
    return n->op != TN_OP_state && n->op != TN_OP_cross_entropy && n->op != TN_OP_loss_sum &&
           n->path[0] && depends_on_parameters(g, n);
}

static tn_status copy_name(tn_arena *arena, const char *path, const char **out)
{
    size_t n = module_length(path);
    void *mem;
    TN_TRY(tn_arena_alloc(arena, n + 1, &mem));
    memcpy(mem, path, n);
    *out = mem;
    return TN_OK;
}

static tn_status collect(const tn_graph *g, tn_names *known, tn_arena *arena,
                         tn_schedule_module *out, int32_t *n)
{
    const char *last = NULL;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *q = &g->nodes[i];
        const char *name;
        int64_t number;
        if (!names_module(g, q) || q->path == last) continue;
        last = q->path;
        TN_TRY(copy_name(arena, q->path, &name));
        if (tn_names_find(known, name, &number)) continue;
        TN_TRY(tn_names_put(known, name, *n));
        if (out) out[*n] = (tn_schedule_module){name, tn_recompute_block(q->path) > 0};
        ++*n;
    }
    return TN_OK;
}

tn_status tn_stages_modules(const tn_graph *g, tn_arena *arena, tn_schedule_module **out,
                            int32_t *n_out)
{
    tn_names known = {0};
    void *mem;
    *n_out = 0;
    TN_TRY(tn_arena_alloc(arena, (size_t)(g->n_nodes + 1) * sizeof(tn_schedule_module), &mem));
    tn_status st = collect(g, &known, arena, mem, n_out);
    tn_names_fini(&known);
    *out = mem;
    return st;
}

typedef struct assign {
    tn_rewrite r;
    tn_names modules;
    const tn_schedule_stages *stages;
    int32_t *stage; /* by old node; of states: their first user's, -2 while there is none */
} assign;

static int32_t stage_of_module(const assign *a, int64_t module)
{
    int32_t s = 0;
    while (s + 1 < a->stages->n_stages && a->stages->first_module[s + 1] <= module) s++;
    return s;
}

static tn_status own_stage(assign *a, tn_arena *arena, int64_t i)
{
    const tn_graph *g = a->r.old;
    const tn_node *n = &g->nodes[i];
    const char *name;
    int64_t module;
    a->stage[i] = TN_STAGE_ALL;
    if (!depends_on_parameters(g, n)) return TN_OK;
    if (n->op == TN_OP_state) {
        a->stage[i] = -2;
        return TN_OK;
    }
    if (names_module(g, n)) {
        TN_TRY(copy_name(arena, n->path, &name));
        if (tn_names_find(&a->modules, name, &module)) a->stage[i] = stage_of_module(a, module);
    }
    for (int k = 0; k < n->n_in; k++) {
        int32_t from = a->stage[g->values[tn_node_in(g, n, k)].node];
        if (!names_module(g, n) && from > a->stage[i]) a->stage[i] = from;
    }
    if (n->op == TN_OP_chunk) a->stage[i] = a->stages->n_stages - 1; /* the loop over the head */
    if (a->stage[i] < 0) a->stage[i] = 0;
    for (int k = 0; k < n->n_in; k++) {
        int32_t *from = &a->stage[g->values[tn_node_in(g, n, k)].node];
        if (*from == -2) *from = a->stage[i];
        else if (*from > a->stage[i])
            TN_FAIL(
                TN_BAD_INPUT,
                "%s: %s: it is on pipeline stage %d and reads what stage %d makes; modules must "
                "follow one another as forward runs them",
                n->path, tn_op_name((tn_op_id)n->op), a->stage[i], *from);
    }
    return TN_OK;
}

static tn_status run(assign *a, tn_arena *arena, const tn_schedule_module *modules, int32_t n)
{
    const tn_graph *g = a->r.old;
    void *mem;
    for (int32_t i = 0; i < n; i++) TN_TRY(tn_names_put(&a->modules, modules[i].name, i));
    TN_TRY(tn_arena_alloc(arena, (size_t)(g->n_nodes + 1) * sizeof(int32_t), &mem));
    a->stage = mem;
    for (int64_t i = 0; i < g->n_nodes; i++) TN_TRY(own_stage(a, arena, i));
    for (int64_t i = 0; i < g->n_nodes; i++) {
        TN_TRY(tn_rewrite_copy(&a->r, i));
        a->r.g->nodes[i].stage = (int16_t)(a->stage[i] == -2 ? 0 : a->stage[i]);
    }
    return TN_OK;
}

tn_status tn_pass_stages(const tn_graph *in, const tn_schedule_module *modules, int32_t n_modules,
                         const tn_schedule_stages *stages, tn_graph **out)
{
    assign a = {.stages = stages};
    tn_arena arena = {0};
    TN_TRY(tn_rewrite_begin(in, &a.r));
    tn_status st = run(&a, &arena, modules, n_modules);
    tn_names_fini(&a.modules);
    tn_arena_fini(&arena);
    if (st) {
        tn_rewrite_drop(&a.r);
        return st;
    }
    *out = tn_rewrite_finish(&a.r);
    return TN_OK;
}
