/* traced.h - what the tests of tracing share: a recipe as text, its graph, and what a graph holds.
 */
#ifndef TN_TESTS_TRACED_H
#define TN_TESTS_TRACED_H
#include "graph/op.h"
#include "lua/trace.h"
#include "tests/test.h"

#include <math.h>

typedef struct fixture {
    tn_recipe *r;
    tn_trace t;
} fixture;

TN_UNUSED static tn_trace_options options_of(tn_trace_kind kind, bool sp)
{
    return (tn_trace_options){.kind = kind,
                              .mesh = {1, {1, 1, 1, 1}},
                              .grid = {8, 8, 8},
                              .canonical = true,
                              .sp = sp,
                              .compute = TN_F32,
                              .rows = 4,
                              .seq = 32,
                              .n_microbatches = 2,
                              .chunk_rows = 2,
                              .chunk_seq = 32};
}

TN_UNUSED static tn_status open_text(const char *text, tn_recipe **out)
{
    tn_recipe_options o = {.text = text, .name = "r.lua", .host = {.share = "."}};
    return tn_recipe_open(&o, out);
}

TN_UNUSED static tn_status trace_with(const char *text, const tn_trace_options *o, fixture *f)
{
    TN_TRY(open_text(text, &f->r));
    return tn_trace_model(f->r, o, &f->t);
}

TN_UNUSED static void fini(fixture *f)
{
    tn_graph_destroy(f->t.g);
    tn_recipe_close(f->r);
    *f = (fixture){0};
}

/* Only whether it works and what is said. */
TN_UNUSED static tn_status trace_text(const char *text, bool sp)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, sp);
    tn_status st = trace_with(text, &o, &f);
    fini(&f);
    return st;
}

TN_UNUSED static const tn_node *find_state(const tn_graph *g, const char *name)
{
    for (int64_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TN_OP_state && !strcmp(tn_node_attr_text(&g->nodes[i], "name"), name))
            return &g->nodes[i];
    return NULL;
}

TN_UNUSED static int count_op(const tn_graph *g, tn_op_id op)
{
    int n = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) n += g->nodes[i].op == op;
    return n;
}

TN_UNUSED static void check_init(const tn_graph *g, const char *name, const char *init, double std,
                                 double bound)
{
    const tn_node *n = find_state(g, name);
    if (!TN_CHECK_MSG(n, "no %s", name)) return;
    TN_CHECK_TEXT(tn_node_attr_text(n, "init"), init);
    TN_CHECK_MSG(fabs(tn_node_attr_num(n, "std") - std) < 1e-15, "%s: std %.17g", name,
                 tn_node_attr_num(n, "std"));
    TN_CHECK_MSG(fabs(tn_node_attr_num(n, "bound") - bound) < 1e-15, "%s: bound %.17g", name,
                 tn_node_attr_num(n, "bound"));
}

TN_UNUSED static const char gqa[] =
    "return require('titan').recipe { model = require('models.llama3').debug { n_layers = 4, "
    "dim = 96, n_heads = 6, "
    "n_kv_heads = 2, ffn_dim = 200, vocab_size = 257, rope = { theta = 1e4 } } }";

#endif
